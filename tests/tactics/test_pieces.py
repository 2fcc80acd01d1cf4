"""A range that no tuning row holds whole: rows that agree rank it, rows that differ say where to split it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.ir.contract import Bounded
from nkc.ir.split import split
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.pieces import Piece, agreed, cuts, pieces
from nkc.tactics.tuning import NONE, Row

from ..fixtures.contracts import contract

WGMMA = {
    "$.target.arch": "sm_90",
    "$.shape.n": 2112,
    "$.shape.k": 7168,
    "$.numerics.accumulate": "tensor_core_fp8",
    "$.numerics.combine": "fixed_order",
}
SMALL = "sm_90.dense.fp8_as_f16_16x64x128_w4_s5"  # at most 16 rows
WIDE = "sm_90.dense.fp8_wgmma_64x64x128_w4_s6"
WIDER = "sm_90.dense.fp8_wgmma_128x64x128_w8_s4"


def asked(low: int, high: int):
    return contract({**WGMMA, "$.shape.m": {"min": low, "max": high}})


def row(low: int, high: int, *order: str) -> Row:
    return Row(target="sm_90", dims={"n": 2112, "k": 7168}, m=(low, high), order=order, records=("0" * 64,))


def serves(part, name: str) -> bool:
    """16 rows for the small tile; any for the others."""
    dim = part.shape["m"]
    return name != SMALL or (dim.max if isinstance(dim, Bounded) else dim) <= 16


ROWS = (row(0, 1, SMALL), row(2, 16, SMALL, WIDE), row(17, 64, WIDE, WIDER))


def test_each_part_gets_what_its_row_puts_first_and_equal_neighbours_are_one() -> None:
    found = pieces(asked(0, 64), ROWS, serves)
    assert found == (Piece(m=(0, 16), tactic=SMALL), Piece(m=(17, 64), tactic=WIDE))
    assert cuts(found) == "16"


def test_a_part_is_only_what_lies_inside_the_range() -> None:
    found = pieces(asked(8, 40), ROWS[1:], serves)
    assert [piece.m for piece in found] == [(8, 16), (17, 40)]


def test_rows_agree_on_the_whole_range_by_what_serves_it() -> None:
    """The small tile serves no 64 rows, so what those rows say of it says nothing of the range."""
    ranks = agreed(asked(0, 64), ROWS, {WIDE, WIDER})
    assert dict(ranks.places) == {WIDE: 0}
    assert ranks.source == "dense/tuning.json: rows m 0..1, 2..16, 17..64 agree on it for the whole range"


@pytest.mark.parametrize("serving", [set(), {SMALL, WIDE}, {SMALL, WIDER}], ids=["none", "first", "other"])
def test_rows_that_differ_rank_nothing(serving) -> None:
    assert agreed(asked(0, 64), ROWS, serving) == NONE


@given(st.lists(st.integers(1, 63), min_size=0, max_size=5, unique=True), st.data())
def test_the_cuts_are_what_nkc_split_takes_and_its_parts_are_the_pieces(at, data) -> None:
    ends = [*sorted(at), 64]
    starts = [0, *(end + 1 for end in ends[:-1])]
    orders = [data.draw(st.sampled_from([WIDE, WIDER])) for _ in ends]
    rows = [row(low, high, name) for low, high, name in zip(starts, ends, orders, strict=True)]
    found = pieces(asked(0, 64), rows, serves)
    assert all(left.tactic != right.tactic for left, right in itertools.pairwise(found))
    if not cuts(found):
        assert len(found) == 1
        return
    parts = split(asked(0, 64), [int(word) for word in cuts(found).split(",")])
    ranges = [(dim.min, dim.max) if isinstance(dim := part.shape["m"], Bounded) else (dim, dim) for part in parts]
    assert ranges == [piece.m for piece in found]


def test_zero_rows_alone_are_no_part() -> None:
    found = (Piece(m=(0, 0), tactic=SMALL), Piece(m=(1, 64), tactic=WIDE))
    assert cuts(found) == ""


def test_the_names_of_this_test_are_tactics() -> None:
    assert {SMALL, WIDE, WIDER} <= {tactic.name for tactic in tactics_of("dense")}
