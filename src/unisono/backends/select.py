"""The backend that Keras itself has chosen."""

from __future__ import annotations

import keras

from unisono.backends.base import Backend, Exchange, Gather
from unisono.errors import ConfigurationError


def make_backend(exchange: Exchange, gather: Gather, size: int) -> Backend:
    """Returns the backend for the framework under Keras.

    Args:
        exchange: Sums a flat buffer over all workers, weighted.
        gather: Brings the arrays of all workers, of any length, to every worker.
        size: Number of workers.

    Raises:
        ConfigurationError: If Keras runs on a framework that cannot train, or that is not known here.
    """
    name = keras.backend.backend()
    if name == "tensorflow":
        from unisono.backends.tensorflow import TensorFlowBackend

        return TensorFlowBackend(exchange, size, gather)
    if name == "jax":
        from unisono.backends.jax import JaxBackend

        return JaxBackend(exchange, size, gather)
    if name == "torch":
        from unisono.backends.torch import TorchBackend

        return TorchBackend(exchange, size, gather)
    raise ConfigurationError(
        f"Keras runs on {name!r}, on which Unisono cannot train.",
        remedy='set KERAS_BACKEND to "tensorflow", "jax" or "torch" before Keras is imported.',
    )
