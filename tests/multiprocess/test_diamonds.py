"""One model, one table of real data, three formats in 33 part files: the same loss."""

from __future__ import annotations

import pytest
from expect import near


@pytest.mark.case("diamonds.three_formats", backends=("tensorflow",), against=())
def test_the_same_loss_from_three_formats(run):
    assert run.one("examples") == 53_940
    (whole, batches), *_ = run.each("arrays")
    assert whole["losses"][-1] < 0.5 * whole["losses"][0]
    for name in ("csv", "tfrecord", "parquet", "tf.data lines", "tf.data records"):
        all_at_once, in_batches = run.one(name)
        assert all_at_once["losses"] == near(whole["losses"]), name
        assert all_at_once["tested"] == near(whole["tested"]), name
        assert in_batches["tested"] == near(batches["tested"], 0.05), name
