"""The composition root: cluster -> control plane -> engine, and the way back in reverse."""
