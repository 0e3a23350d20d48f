"""MOVE arrays: the contract of an engine, the engines, and what is built on them alone."""
