"""Kernels that copy tiles by TMA: who brings activation scales, what a unit has room for, what a split promises."""

import pytest

from nkc.ir import targets
from nkc.ir.contract import Bounded, Combine, Contract, Layout, MultipleOf
from nkc.tactics.dense import sm_90_tma, sm_90_wave, tma
from nkc.tactics.tactic import Tactic

from ..fixtures.values import put

WAVES = sm_90_wave.TACTICS
BOTH = (*WAVES, *sm_90_tma.TACTICS)
RESERVED = 1024
"""Bytes of shared memory that the system takes for each CTA."""


def _with_scales(contract: Contract, layout: Layout, leading: int | MultipleOf | None) -> Contract:
    return put(put(contract, "$.scales.a.layout", layout), "$.scales.a.leading_dim", leading)


@pytest.mark.parametrize(
    ("layout", "leading", "by_tma"),
    [
        (Layout.M_MAJOR, 264, True),
        (Layout.M_MAJOR, MultipleOf(multiple_of=8), True),
        (Layout.M_MAJOR, 261, False),
        (Layout.M_MAJOR, MultipleOf(multiple_of=2), False),
        (Layout.ROW_MAJOR, None, False),
    ],
)
@pytest.mark.parametrize("tactic", [WAVES[0], sm_90_tma.TACTICS[0]], ids=lambda tactic: tactic.name)
def test_scales_travel_with_the_tile_only_where_tma_can_copy_them(
    tactic: Tactic, layout: Layout, leading: int | MultipleOf | None, by_tma: bool
) -> None:
    contract = _with_scales(put(tactic.proofs(tactic)[0], "$.shape.m", 261), layout, leading)
    assert all(predicate.check(contract) is None for predicate in tactic.predicates)
    assert tma.scales_by_tma(contract) is by_tma
    lowered = tactic.lower(contract, tactic)
    placed = tactic.kernel.constants(lowered, tactic)
    assert ("a_scales" in tactic.kernel.tensor_maps(lowered, tactic)) is by_tma
    scale_bytes = (tactic.schedule.tile or (0,))[0] * 4
    tile_bytes = int(str(placed["a_bytes"])) + int(str(placed["b_bytes"]))
    assert placed["stage_bytes"] == tile_bytes + (scale_bytes if by_tma else 0)


def test_strides_of_scales_are_those_of_their_layout() -> None:
    proof = put(WAVES[0].proofs(WAVES[0])[0], "$.shape.k", 1408)
    rows = tma.activation_scales(_with_scales(proof, Layout.ROW_MAJOR, None))
    assert (rows["a_scale_row_stride"], rows["a_scale_block_stride"]) == ("11", "1")
    some = put(proof, "$.shape.m", Bounded(min=0, max=99))
    columns = tma.activation_scales(_with_scales(some, Layout.M_MAJOR, MultipleOf(multiple_of=1)))
    assert (columns["a_scale_row_stride"], columns["a_scale_block_stride"]) == ("1", "m")
    pairs = tma.activation_scales(_with_scales(some, Layout.M_MAJOR, MultipleOf(multiple_of=2)))
    assert pairs["a_scale_block_stride"] == "((m + 1) / 2 * 2)"  # in C++ `//` would start a comment


@pytest.mark.parametrize("row", sm_90_wave.ROWS, ids=str)
def test_a_unit_has_room_for_its_ctas_and_their_slices(row: sm_90_wave.Row) -> None:
    assert row.ctas * (row.lds_bytes + RESERVED) <= targets.get("sm_90").lds_bytes + RESERVED
    assert row.stages >= 3
    if row.split > 1:
        tiles_bytes = row.stages * (row.tile_m + row.tile_n) * 128
        assert row.sums_bytes <= (row.lds_bytes - tiles_bytes if row.apart else tiles_bytes)
        assert row.tile_n // 8 % row.split == 0  # whole groups of eight columns for each CTA


@pytest.mark.parametrize("tactic", BOTH, ids=lambda tactic: tactic.name)
def test_only_a_split_gives_up_the_ascending_chain(tactic: Tactic) -> None:
    split = tactic.schedule.split_k or 1
    assert tactic.guarantees.combine is (Combine.ASCENDING if split == 1 else Combine.FIXED_ORDER)
    assert tactic.guarantees.deterministic


@pytest.mark.parametrize(
    ("row", "tactic"),
    list(zip(sm_90_tma.ROWS, [each for each in sm_90_tma.TACTICS if not each.dependent], strict=True)),
    ids=lambda one: getattr(one, "name", "row"),
)
def test_a_cta_of_a_pair_copies_half_of_the_tile_it_shares(row: sm_90_tma.Row, tactic: Tactic) -> None:
    maps = tactic.kernel.tensor_maps(tactic.proofs(tactic)[0], tactic)
    assert maps["a"].box[0] * row.cluster == row.tile_m
    assert maps["b"].box[0] == row.tile_n


@pytest.mark.parametrize(("m", "streamed"), [(64, True), (128, True), (129, False)])
def test_weights_that_few_ctas_read_do_not_stay_in_l2(m: int, streamed: bool) -> None:
    tactic = next(each for each in WAVES if (each.schedule.tile or ())[:2] == (64, 64))
    contract = put(tactic.proofs(tactic)[0], "$.shape.m", m)
    lowered = tactic.lower(_with_scales(contract, Layout.ROW_MAJOR, None), tactic)
    assert tactic.kernel.constants(lowered, tactic)["streamed"] is streamed
