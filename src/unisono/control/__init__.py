"""ALIVE? The coordinator, the lines of workers to it, and what they say to each other."""
