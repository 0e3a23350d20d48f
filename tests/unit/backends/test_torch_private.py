"""What torch tells of a tensor besides its documented face."""

from __future__ import annotations

import torch

from unisono.backends.torch_private import changes


def test_a_write_to_a_weight_is_noticed():
    weight = torch.nn.Parameter(torch.ones(2))
    before = changes(weight)
    assert weight.sum() == 2 and changes(weight) == before
    with torch.no_grad():
        weight.copy_(torch.zeros(2))
    assert changes(weight) > before
