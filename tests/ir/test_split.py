"""A contract with a range becomes several that cover it once, and nothing else of it changes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.ir.contract import dim_max, dim_min
from nkc.ir.errors import UsageError
from nkc.ir.split import split

from ..fixtures.contracts import contract


def ranged(low: int, high: int):
    return contract({"$.shape.m": {"min": low, "max": high}, "$.fallback": "framework", "$.provenance": {"layer": "x"}})


def test_the_parts_lie_side_by_side() -> None:
    parts = split(ranged(0, 512), (16, 64, 256))
    assert [(dim_min(p.shape["m"]), dim_max(p.shape["m"])) for p in parts] == [(0, 16), (17, 64), (65, 256), (257, 512)]
    assert split(ranged(0, 3), (1, 2))[1].shape["m"] == 2, "a part of one value is that value"


@given(st.data())
def test_every_value_lies_in_exactly_one_part_and_the_rest_is_kept(data) -> None:
    low = data.draw(st.integers(0, 20))
    high = data.draw(st.integers(low + 2, 60))
    cuts = sorted(data.draw(st.sets(st.integers(max(1, low), high - 1), min_size=1, max_size=5)))
    whole = ranged(low, high)
    parts = split(whole, cuts)
    assert [m for p in parts for m in range(dim_min(p.shape["m"]), dim_max(p.shape["m"]) + 1)] == list(
        range(low, high + 1)
    )
    for part in parts:
        assert msgspec.structs.replace(part, shape=whole.shape) == whole


@pytest.mark.parametrize(
    ("edits", "cuts", "said"),
    [
        ({}, (16,), r"\$\.shape\.m: is 1, not a range"),
        ({"$.shape.m": {"min": 0, "max": 64}}, (), "not ascending numbers"),
        ({"$.shape.m": {"min": 0, "max": 64}}, (16, 16), "not ascending numbers"),
        ({"$.shape.m": {"min": 0, "max": 64}}, (32, 16), "not ascending numbers"),
        ({"$.shape.m": {"min": 0, "max": 64}}, (0,), "from 1 to 63"),
        ({"$.shape.m": {"min": 0, "max": 64}}, (64,), "from 1 to 63"),
        ({"$.shape.m": {"min": 8, "max": 64}}, (7,), "from 8 to 63"),
        ({"$.shape.m": {"min": 0, "max": 64}, "$.launch": {"grid": [1, 1, 1]}}, (16,), r"\$\.launch: is fixed"),
    ],
    ids=str,
)
def test_what_cannot_be_split_says_why(edits, cuts, said) -> None:
    with pytest.raises(UsageError, match=said):
        split(contract(edits), cuts)
