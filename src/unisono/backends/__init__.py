"""How a compiled Keras step reaches the engine: the only code that knows a backend."""
