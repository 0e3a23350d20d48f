"""Keras's own loops, fed with one worker's part and joined at each step."""
