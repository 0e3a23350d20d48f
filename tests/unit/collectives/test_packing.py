"""A pack plan loses nothing, overlaps nothing, and gives back what was put in."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from unisono.collectives.packing import PackPlan, pack, pieces, unpack, wire_dtype
from unisono.errors import ConfigurationError

DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"]

arrays = st.lists(
    st.sampled_from(DTYPES).flatmap(
        lambda name: hnp.arrays(np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    max_size=8,
)
limits = st.integers(min_value=0, max_value=100)


def plan_for(values, bytes_per_pack=0):
    return PackPlan.of([a.shape for a in values], [a.dtype.name for a in values], bytes_per_pack)


@given(arrays, limits)
def test_what_is_packed_comes_back(values, limit):
    plan = plan_for(values, limit)
    back = unpack(plan, pack(plan, values))
    assert len(back) == len(values)
    for before, after in zip(values, back, strict=True):
        assert after.dtype == before.dtype
        assert after.shape == before.shape
        np.testing.assert_array_equal(after, before)


@given(arrays, limits)
def test_slots_cover_each_buffer_without_gap_or_overlap(values, limit):
    plan = plan_for(values, limit)
    for buffer in plan.buffers:
        position = 0
        for slot in buffer.slots:
            assert slot.offset == position
            assert wire_dtype(slot.dtype) == buffer.dtype
            position += slot.size
        assert position == buffer.size
    assert sorted(slot.index for buffer in plan.buffers for slot in buffer.slots) == list(range(len(values)))
    assert len({buffer.dtype for buffer in plan.buffers}) == len(plan.buffers)


@given(st.integers(0, 1000), st.sampled_from([1, 2, 4, 8]), limits)
def test_pieces_cover_in_order_and_keep_the_limit(size, itemsize, limit):
    cut = pieces(size, itemsize, limit)
    assert [i for start, stop in cut for i in range(start, stop)] == list(range(size))
    assert all(start < stop for start, stop in cut)
    if limit:
        assert all((stop - start) * itemsize <= max(limit, itemsize) for start, stop in cut)
    else:
        assert len(cut) == (size > 0)


def test_half_precision_travels_as_float32_also_by_name_alone():
    plan = PackPlan.of([(2,), [3], ()], ["bfloat16", "float32", "float16"])
    (buffer,) = plan.buffers
    assert (buffer.dtype, buffer.size) == ("float32", 6)
    assert [slot.dtype for slot in buffer.slots] == ["bfloat16", "float32", "float16"]


def test_buffers_come_in_the_order_in_which_dtypes_appear():
    plan = PackPlan.of([(1,)] * 3, ["int64", "float32", "int64"])
    assert [buffer.dtype for buffer in plan.buffers] == ["int64", "float32"]


def test_plans_are_values():
    assert PackPlan.of([(2, 3)], ["float32"], 8) == PackPlan.of([[2, 3]], ["float32"], 8)


def test_unpacked_arrays_are_views_where_nothing_was_widened():
    plan = PackPlan.of([(2,), (2,)], ["float32", "float16"])
    flat = pack(plan, [np.zeros(2, np.float32), np.zeros(2, np.float16)])
    same, widened = unpack(plan, flat)
    flat[0][:] = 7
    np.testing.assert_array_equal(same, [7, 7])
    np.testing.assert_array_equal(widened, [0, 0])


def test_arrays_that_do_not_fit_the_plan_are_refused():
    plan = PackPlan.of([(2,)], ["float32"])
    with pytest.raises(ConfigurationError, match=r"shape \(3,\) does not fit a plan for shape \(2,\)"):
        pack(plan, [np.zeros(3, np.float32)])
    with pytest.raises(ConfigurationError, match="0 arrays do not fit a plan for 1"):
        pack(plan, [])
    with pytest.raises(ConfigurationError, match="2 shapes do not go with 1 dtypes"):
        PackPlan.of([(1,), (1,)], ["float32"])
