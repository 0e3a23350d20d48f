"""START workers on this machine, watch them, stop them."""
