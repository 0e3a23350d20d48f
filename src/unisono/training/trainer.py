"""Finds the models that belong to a strategy: those made or compiled in its scope."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from unisono import log
from unisono.backends.select import make_backend
from unisono.collectives.packing import pieces
from unisono.data.base import Source
from unisono.data.select import make_source
from unisono.runtime.job import Runtime
from unisono.training import saving, state
from unisono.training.adopt import Adoption, adopted, adoptions, register
from unisono.training.agreement import StepAgreement
from unisono.training.custom import CustomLoops
from unisono.training.distributed import DistributedDataset
from unisono.training.hooks import owner, set_over
from unisono.training.loops import Loops
from unisono.training.rider import Rider


class Trainer:
    """Adopts models for one strategy.

    Args:
        runtime: The running job.
        bytes_per_pack: Largest piece of the gradients sent at once, in bytes; 0 for all at once.
    """

    def __init__(self, runtime: Runtime, bytes_per_pack: int = 0) -> None:
        self._runtime = runtime
        self._bytes_per_pack = bytes_per_pack
        self._rider = Rider()
        names = [runtime.cluster.name_of(rank) for rank in range(runtime.size)]
        self._agreement = StepAgreement(runtime.agreement, names)
        self._backend = make_backend(self._weighted_sum, runtime.data.all_gather, runtime.size)
        self.loops = CustomLoops(runtime, self._backend, self._agreement)

    def _weighted_sum(self, flat: np.ndarray, weight: float) -> np.ndarray:
        ticket = self._rider.board(flat.dtype)
        size = flat.size
        summed = np.empty(size + (ticket.numbers.size if ticket else 0), flat.dtype)
        # Without data nothing that lies in the buffer may count, not even a NaN.
        if weight:
            np.multiply(flat.reshape(-1), flat.dtype.type(weight), out=summed[:size])
        else:
            summed[:size] = 0
        if ticket:
            summed[size:] = ticket.numbers
        if self._runtime.size > 1:
            for start, stop in pieces(summed.size, summed.itemsize, self._bytes_per_pack):
                self._runtime.data.all_reduce(summed[start:stop])
        if ticket:
            ticket.sums = summed[size:].astype(np.int64)
        return summed[:size].reshape(flat.shape)

    def adopt(self, model: Any) -> Adoption:
        """Takes charge of a model, once."""
        known = adopted(model)
        if known is not None:
            return known
        adoption = Adoption(model, self._runtime, self._backend, self._agreement, self._rider)
        register(model, adoption)
        adoption.install(Loops(adoption).functions())
        self.loops.add_model(model)
        return adoption

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Adopts each model that is made or compiled inside, and each optimizer and metric that is made."""
        new = keras.Model.__dict__["__new__"]
        compile_ = keras.Model.compile
        compiling = False

        def made(cls: type, *args: Any, **kwargs: Any) -> Any:
            model = new.__func__(cls, *args, **kwargs)
            self.adopt(model)
            return model

        @functools.wraps(compile_)
        def compiled(model: Any, *args: Any, **kwargs: Any) -> None:
            nonlocal compiling
            inside = adopted(model) is not None
            adoption = self.adopt(model)
            before, compiling = compiling, True
            try:
                compile_(model, *args, **kwargs)
            finally:
                compiling = before
            self.loops.add_optimizers(state.optimizers(model))
            if not inside:
                adoption.compiled()

        def metric(each: Any) -> None:
            # What `compile` makes for itself is read by the model's own loops.
            if not compiling:
                self.loops.add_metric(each)

        with (
            set_over(keras.Model, "__new__", staticmethod(made)),
            set_over(owner(keras.Model, "compile"), "compile", compiled),
            _each_made(keras.optimizers.Optimizer, lambda each: self.loops.add_optimizers([each])),
            _each_made(keras.Metric, metric),
        ):
            yield

    def watch(self) -> None:
        """Says loudly, from now on, when a model is fitted that no strategy has charge of (law 6).

        Functions that save models, and not methods of them, write on the chief only from now on, too.
        """
        fit = keras.Model.fit
        if getattr(fit, "_unisono_watch", False) or self._runtime.size == 1:
            return
        unwatch = saving.watch()

        @functools.wraps(fit)
        def watched(model: Any, *args: Any, **kwargs: Any) -> Any:
            if adopted(model) is None:
                log.logger.warning(
                    "model %r is fitted outside of the strategy: this worker trains it ALONE. "
                    "Make or compile it inside `with strategy.scope():`.",
                    getattr(model, "name", model),
                )
            return fit(model, *args, **kwargs)

        watched._unisono_watch = unwatch  # type: ignore[attr-defined]
        keras.Model.fit = watched

    def distribute(self, dataset: Any, *, own: bool) -> DistributedDataset:
        """Returns a data set that a loop of the user's own can iterate.

        Args:
            dataset: What `fit` takes, other than arrays.
            own: Whether it holds this worker's examples only.
        """
        return DistributedDataset(dataset, own, self._source, self._agreement, self._backend.is_traced)

    def describe(self, data: Any, **arguments: Any) -> str:
        """Returns how the workers share some data, as a table; collective.

        Args:
            data: What `fit` takes.
            **arguments: Those of `make_source`, e.g. `y` and `batch_size`.
        """
        self._agreement.together("describe_data")
        source = self._source(data, **arguments)
        report = source.report()
        return source.describe() if report is None else report.table()

    def _source(self, data: Any, **arguments: Any) -> Source:
        return make_source(
            data, rank=self._runtime.rank, size=self._runtime.size, agreement=self._agreement, **arguments
        )

    def close(self) -> None:
        """Gives all models their own methods back."""
        for adoption in adoptions():
            adoption.remove()
        unwatch = getattr(keras.Model.fit, "_unisono_watch", None)
        if unwatch is not None:
            del keras.Model.fit
            unwatch()


def _each_made(kind: type, tell: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    """Tells, for a while, of each object of a class once the class has initialized it."""
    first = owner(kind, "__init__")
    init = first.__init__

    @functools.wraps(init)
    def initialized(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        tell(self)

    return set_over(first, "__init__", initialized)
