"""Who runs which callback, and who reads logs of single batches."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from unisono.training import callbacks as roles
from unisono.training.agreement import StepAgreement
from unisono.training.callbacks import Reading, RestoreOnly, acts_on_batches, flat, for_worker, reads_batches
from unit.training.workers import names, together

callback = keras.callbacks


class Own(callback.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = True


class EachBatch(callback.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


class EachTest(callback.Callback):
    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass


class OwnWriter(callback.CSVLogger):
    pass


def stock(folder: Any) -> list[Any]:
    return [
        callback.ModelCheckpoint(str(folder / "m.keras")),
        callback.TensorBoard(str(folder / "tb")),
        callback.CSVLogger(str(folder / "log.csv")),
        callback.EarlyStopping(),
        callback.ReduceLROnPlateau(),
        callback.LearningRateScheduler(lambda epoch: 0.1),
        callback.BackupAndRestore(str(folder / "backup")),
        callback.TerminateOnNaN(),
        Own(),
    ]


def test_the_chief_runs_all(tmp_path):
    given = stock(tmp_path)
    assert for_worker(given, is_chief=True) == given


def test_others_leave_out_what_only_writes(tmp_path):
    kinds = [type(c).__name__ for c in for_worker([*stock(tmp_path), OwnWriter(str(tmp_path / "b.csv"))], False)]
    assert kinds == [
        "ModelCheckpoint",  # decides by metrics; `model.save` writes nothing there
        "EarlyStopping",
        "ReduceLROnPlateau",
        "LearningRateScheduler",
        "RestoreOnly",
        "TerminateOnNaN",
        "Own",
    ]


def test_a_backup_is_restored_but_neither_written_nor_deleted():
    class Backup:
        def __init__(self) -> None:
            self.done: list[Any] = []

        def __getattr__(self, name: str) -> Any:
            return lambda *args: self.done.append((name, *args))

    inner = Backup()
    here = RestoreOnly(inner)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    here.set_params({"epochs": 3})
    here.set_model(model)
    here.on_train_begin({})
    for end in (here.on_train_batch_end, here.on_epoch_end):
        end(0, {})
    here.on_train_end({})
    assert inner.done == [("set_params", {"epochs": 3}), ("set_model", model), ("on_train_begin", {})]


@pytest.mark.parametrize(
    ("given", "count"),
    [(None, 0), (Own(), 1), ([Own(), None, [Own(), (Own(),)]], 3), (callback.CallbackList([Own(), Own()]), 2), ([], 0)],
)
def test_callbacks_in_every_form_that_fit_takes(given: Any, count: int):
    found = flat(given)
    assert len(found) == count and all(isinstance(c, callback.Callback) for c in found)


@pytest.mark.parametrize(
    ("make", "train", "test"),
    [
        (Own, False, False),
        (EachBatch, True, False),
        (EachTest, False, True),
        (callback.TerminateOnNaN, True, False),
        (callback.EarlyStopping, False, False),
        (callback.ReduceLROnPlateau, False, False),
        (callback.History, False, False),
        (lambda: callback.LambdaCallback(on_epoch_end=print), False, False),
        (lambda: callback.LambdaCallback(on_train_batch_end=print), True, False),
        (lambda: callback.LambdaCallback(on_train_batch_begin=print), True, False),
        (lambda: callback.ModelCheckpoint("m.keras"), False, False),
        (lambda: callback.ModelCheckpoint("m.keras", save_freq=10), True, True),
        (lambda: callback.BackupAndRestore("b", save_freq=10), False, False),
        (lambda: callback.CSVLogger("log.csv"), False, False),
        (lambda: callback.TensorBoard("tb"), False, False),
        (lambda: callback.TensorBoard("tb", update_freq="batch"), True, True),
    ],
)
def test_who_acts_on_single_batches(make: Any, train: bool, test: bool):
    made = make()
    assert acts_on_batches([Own(), made], "train") == train
    assert acts_on_batches([made], "test") or not test


@pytest.mark.parametrize(
    ("make", "train", "test"),
    [
        (EachBatch, True, False),
        (EachTest, False, False),
        (callback.TerminateOnNaN, True, False),
        (callback.EarlyStopping, False, False),
        (lambda: callback.LambdaCallback(on_train_batch_end=print), True, False),
        (lambda: callback.LambdaCallback(on_train_batch_begin=print), False, False),
        (lambda: callback.ModelCheckpoint("m.keras", save_freq=10), True, False),
        (lambda: callback.TensorBoard("tb", update_freq="batch"), True, True),
    ],
)
def test_who_reads_the_logs_of_single_batches(make: Any, train: bool, test: bool):
    made = make()
    assert reads_batches([Own(), made], "train") == train
    # One reader too many costs time, one too few is shown one worker's numbers.
    assert reads_batches([made], "test") or not test


def test_a_progress_bar_is_served_a_few_times_a_second():
    now = [5.0]
    reading = Reading(always=False, progress=True, clock=lambda: now[0])
    asked = []
    for _ in range(100):
        asked.append(reading())
        now[0] += 0.01
    assert asked[0] and 9 <= sum(asked) <= 11


def test_reading_always_or_never_asks_no_clock():
    def clock() -> float:
        ticks.append(1)
        return 0.0

    ticks: list[int] = []
    always, never = Reading(True, True, clock), Reading(False, False, clock)
    made = len(ticks)
    assert [always() for _ in range(3)] == [True] * 3
    assert [never() for _ in range(3)] == [False] * 3
    assert len(ticks) == made


class Model:
    stop_training = stop_evaluating = stop_predicting = False


class Wishes(keras.callbacks.Callback):
    """May wish something after each batch that trains or predicts."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None: ...


@pytest.mark.parametrize("wishes", [[False, False, True], [False, False, False], [True, True, True]])
def test_the_wish_of_one_is_that_of_all(wishes: list[bool]):
    def work(channel: Any) -> list[bool]:
        agreement = StepAgreement(channel, list(names(3)))
        begun: list[str] = []
        last = roles.Together.after(
            [Wishes()] if channel.rank == 1 else [],
            agreement,
            begin=lambda: begun.append("train"),
            epoch=lambda: begun.append("epoch"),
        )
        last.set_model(Model())
        last.on_train_begin()
        last.on_epoch_begin(0)
        assert begun == ["train", "epoch"]
        said = []
        for end in (last.on_train_batch_end, last.on_epoch_end):
            last.model.stop_training = wishes[channel.rank]
            end(0, {})
            said.append(last.model.stop_training)
        last.model.stop_predicting = wishes[channel.rank]
        last.on_predict_batch_end(0, {})
        said.append(last.model.stop_predicting)
        # Nobody reads batches of an evaluation, so nobody asks there.
        last.model.stop_evaluating = wishes[channel.rank]
        last.on_test_batch_end(0, {})
        assert last.model.stop_evaluating == wishes[channel.rank]
        return said

    assert together(3, work) == [[any(wishes)] * 3] * 3
