"""Multi-worker training for Keras 3 on TensorFlow, JAX and torch."""

__version__ = "0.1.0"
