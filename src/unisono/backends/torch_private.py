"""What is private of torch. A test fails when it moves."""

from __future__ import annotations

import torch


def changes(tensor: torch.Tensor) -> int:
    """Returns a number that grows whenever a tensor is written to."""
    return int(tensor._version)
