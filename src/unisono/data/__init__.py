"""WHICH examples are mine: one source for every kind of input `fit` takes."""
