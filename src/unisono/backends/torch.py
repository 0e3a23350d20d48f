"""torch under Keras: steps run eagerly, so the exchange is a plain call."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import torch

from unisono import log
from unisono.backends import freed_memory
from unisono.backends.base import (
    WIRE_DTYPE,
    Backend,
    StepScope,
    Tensor,
    change,
    changed,
    group_by_dtype,
    is_stock_train_step,
)
from unisono.backends.custom import concatenate
from unisono.backends.torch_private import changes


class TorchBackend(Backend):
    """See `Backend`."""

    name = "torch"

    def weighted_sum(self, tensors: Sequence[Tensor], weight: Tensor, scope: StepScope) -> list[Tensor]:
        wire = [WIRE_DTYPE.get(_name(t.dtype), _name(t.dtype)) for t in tensors]
        results: list[Tensor] = [None] * len(tensors)
        with torch.no_grad():
            for dtype, positions in group_by_dtype(wire).items():
                parts = [tensors[i].detach().reshape(-1).to(getattr(torch, dtype)) for i in positions]
                flat = torch.cat(parts) if len(parts) > 1 else parts[0]
                summed = torch.from_numpy(self.exchange(flat.cpu().numpy(), float(weight))).to(flat.device)
                pieces = summed.split([p.numel() for p in parts])
                for i, piece in zip(positions, pieces, strict=True):
                    results[i] = piece.reshape(tensors[i].shape).to(tensors[i].dtype)
        return results

    def exchange_gradients(
        self, gradients: Sequence[Tensor | None], weight: Tensor, scope: StepScope
    ) -> list[Tensor | None]:
        # A gradient may be absent on some workers only (a branch not taken, no data): the layout of the pack
        # must not depend on it, so counts of who has which travel along.
        variables = scope.applied[-1][1] if scope.applied else []
        scope.assigns |= any(scope.versions.get(id(v), changes(v.value)) != changes(v.value) for v in variables)
        full = [
            torch.zeros(tuple(v.shape), dtype=_value(v).dtype, device=_value(v).device) if g is None else g
            for g, v in zip(gradients, variables, strict=True)
        ]
        # Shares add up to 1, or to nothing where nobody has the gradient.
        has = torch.tensor([0.0 if g is None else 1.0 for g in gradients], device=full[0].device if full else None)
        deltas = [change(_value(v), before) for v, before in scope.moving]
        counts, *summed = self.weighted_sum([has, *full, *deltas], weight, scope)
        self._merge_moving(scope, summed[len(full) :])
        return [tensor if count > 0 else None for tensor, count in zip(summed, counts.tolist(), strict=False)]

    def _step(self, run: Callable[[], Any], model: Any, scope: StepScope, moving: Sequence[Any]) -> Any:
        before = [(v, _value(v).clone()) for v in moving]
        stock = is_stock_train_step(model)
        scope.moving = before if stock else []
        result = run()
        if not stock:
            scope.moving = before
        self._merge_moving(
            scope, self.weighted_sum([change(_value(v), old) for v, old in scope.moving], scope.share, scope)
        )
        return result

    def _merge_moving(self, scope: StepScope, deltas: Sequence[Tensor]) -> None:
        for (variable, before), delta in zip(scope.moving, deltas, strict=True):
            variable.assign(changed(before, delta))
        scope.moving = []

    def train(self, model: Any, scope: StepScope, moving: Sequence[Any]) -> Callable[..., tuple[Any, Any]]:
        self._refuse_compile(model)
        freed_memory.keep()

        def step(state: None, data: Any, weights: np.ndarray) -> tuple[Any, None]:
            with scope.enter("train", weights):
                scope.applied = []
                scope.versions = {id(v): changes(v.value) for v in model.trainable_variables}
                return self._step(lambda: model.train_step(_tensors(data)), model, scope, moving), None

        return step

    def idle_train(
        self, model: Any, scope: StepScope, moving: Sequence[Any], train: Callable[..., Any]
    ) -> Callable[..., Any]:

        def update(weights: np.ndarray) -> None:
            updates, totals = list(scope.applied), scope.totals["train"]

            def join() -> None:
                with torch.no_grad():
                    for optimizer, variables in updates:
                        optimizer.apply([None] * len(variables), variables)

            scope.versions = {}
            with scope.enter("train", weights):
                self._step(join, model, scope, moving)
            scope.applied, scope.totals["train"] = updates, totals

        def run(state: None, data: Any, weights: np.ndarray) -> None:
            if scope.totals.get("train") == 0 and not scope.assigns:
                update(weights)
            else:
                _keeping_metrics(model, lambda: train(state, data, weights))

        return run

    def test(self, model: Any, scope: StepScope) -> Callable[..., tuple[Any, Any]]:
        self._refuse_compile(model)

        def step(state: None, data: Any, weights: np.ndarray) -> tuple[Any, None]:
            with scope.enter("test", weights), torch.no_grad():
                return model.test_step(_tensors(data)), None

        return step

    def idle_test(self, model: Any, scope: StepScope, test: Callable[..., Any]) -> Callable[..., Any]:
        def run(state: None, data: Any, weights: np.ndarray) -> None:
            if scope.totals.get("test") != 0:
                _keeping_metrics(model, lambda: test(state, data, weights))

        return run

    def predict(self, model: Any) -> Callable[..., tuple[Any, Any]]:
        def step(state: None, data: Any) -> tuple[Any, None]:
            with torch.no_grad():
                return model.predict_step(_tensors(data)), None

        return step

    def _refuse_compile(self, model: Any) -> None:
        if model.jit_compile:
            log.once("jit", "jit_compile=True is switched off: torch.compile cannot call the engine inside a step")

    def function_for_keras(self, run: Callable[[Any, Iterator[Any]], tuple[Any, Any]]) -> Callable[..., Any]:
        return lambda data: run(None, iter(data))[0]

    predict_function_for_keras = function_for_keras

    def spread_randomness(self, rank: int, from_chief: Callable[[Any], Any]) -> None:
        # Keras draws the masks of layers without a seed of their own from torch's generator. The chief's is left
        # alone: a DataLoader that shuffles draws its order from it, as it would with one worker.
        chief = int(from_chief(zlib.crc32(torch.get_rng_state().numpy())))
        if rank:
            torch.manual_seed(chief + rank)

    def concatenated(self, tensor: Tensor, axis: int) -> Tensor:
        name = _name(tensor.dtype)
        array = tensor.detach().to(getattr(torch, WIRE_DTYPE.get(name, name))).cpu().numpy()
        joined = torch.from_numpy(concatenate(self.gather(np.ascontiguousarray(array)), axis))
        return joined.to(device=tensor.device, dtype=tensor.dtype)

    def to_tensor(self, array: np.ndarray) -> Tensor:
        array = np.ascontiguousarray(array)
        if array.dtype.name == "bfloat16":
            # NumPy's stand-in for it is unknown to torch.
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def _keeping_metrics(model: Any, run: Callable[[], Any]) -> None:
    values = [(v, _value(v).clone()) for v in model.metrics_variables]
    run()
    for variable, value in values:
        variable.assign(value)


def _tensors(data: Any) -> Any:
    return keras.tree.map_structure(lambda a: None if a is None else keras.ops.convert_to_tensor(a), data)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _value(variable: Any) -> torch.Tensor:
    return variable.value.detach()
