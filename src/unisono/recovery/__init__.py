"""Snapshot and restore; fail, rejoin and resume: nothing yet."""
