"""JAX in loops of the user's own: eagerly, or inside functions that the user compiles."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from unisono.backends.base import WIRE_DTYPE, Backend, StepScope, Tensor
from unisono.backends.custom import concatenate
from unisono.errors import ConfigurationError


class JaxCustom(Backend):
    """See `CustomBackend`."""

    def is_traced(self) -> bool:
        # Inside a function that is being compiled, each operation gives a tracer.
        return isinstance(jnp.zeros(()), jax.core.Tracer)

    def eagerly(self) -> contextlib.AbstractContextManager[Any]:
        return jax.ensure_compile_time_eval()  # type: ignore[no-any-return]

    def custom_sum(self, flat: Tensor, weight: Tensor, scope: StepScope) -> Tensor:
        """Sums a flat array over all workers; see `weighted_sum`."""
        # The weight of a loop of the user's own is a number of this trace: shapes are known here.
        exchange = functools.partial(self._host_custom_sum, float(weight))
        if not self.is_traced() and not isinstance(flat, jax.core.Tracer):
            # What compiled functions still have to exchange comes first, on all workers.
            jax.effects_barrier()
            return jnp.asarray(exchange(flat))
        # Ordered, since nobody can thread a value through all exchanges of a function that is not ours.
        flat = jax.lax.stop_gradient(flat)
        return io_callback(exchange, jax.ShapeDtypeStruct(flat.shape, flat.dtype), flat, ordered=True)

    def _host_custom_sum(self, weight: float, flat: Any) -> np.ndarray:
        return self.exchange(np.asarray(flat), weight)

    def concatenated(self, tensor: Tensor, axis: int) -> Tensor:
        if self.is_traced() or isinstance(tensor, jax.core.Tracer):
            raise ConfigurationError(
                "gather cannot be called inside jax.jit: the shape of its result depends on the other workers.",
                remedy="return the value from the compiled function and gather it there.",
            )
        jax.effects_barrier()
        wire = WIRE_DTYPE.get(str(tensor.dtype), str(tensor.dtype))
        array = np.ascontiguousarray(np.asarray(tensor).astype(wire))
        return jnp.asarray(concatenate(self.gather(array), axis)).astype(tensor.dtype)
