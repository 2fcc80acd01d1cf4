"""bf16 on sm_90 in CUDA C++: what a CTA keeps where, who copies which part, how results leave, and what is refused."""

import pytest

from nkc.ir import targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType
from nkc.tactics.dense import sm_90_bf16_gemv, sm_90_bf16_tma, sm_90_bf16_wave
from nkc.tactics.dense.sm_90_bf16 import SWIZZLED_BYTES, SWIZZLED_K, store_run
from nkc.tactics.tactic import Tactic

from ..fixtures.values import put

MANY = tuple(zip(sm_90_bf16_tma.ROWS, sm_90_bf16_tma.TACTICS, strict=True))
FEW = sm_90_bf16_wave.TACTICS
ONE = sm_90_bf16_gemv.TACTICS
ALL = (*sm_90_bf16_tma.TACTICS, *FEW, *ONE)
ATOM_BYTES = 1024
"""Eight swizzled rows: what a tile in shared memory has to be aligned to."""

RESERVED = 1024
"""Bytes of shared memory that the system takes for each CTA."""

LIMIT = targets.get("sm_90").lds_bytes


def _placed(tactic: Tactic, contract: Contract) -> dict[str, int]:
    constants = tactic.kernel.constants(tactic.lower(contract, tactic), tactic)
    return {name: value for name, value in constants.items() if isinstance(value, int)}


def _dynamic(tactic: Tactic) -> int:
    value = tactic.kernel.options["dynamic_lds_bytes"]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(("row", "tactic"), MANY, ids=lambda one: getattr(one, "name", "row"))
def test_a_persistent_cta_keeps_stages_then_pieces_then_barriers(row: sm_90_bf16_tma.Row, tactic: Tactic) -> None:
    at = _placed(tactic, tactic.proofs(tactic)[0])
    assert at["a_bytes"] == row.tile_m * SWIZZLED_BYTES
    assert at["b_bytes"] == row.tile_n * SWIZZLED_BYTES
    assert at["at_b"] == at["stages"] * at["a_bytes"]
    assert at["at_pieces"] == at["at_b"] + at["stages"] * at["b_bytes"]
    assert at["at_barriers"] == at["at_pieces"] + 2 * at["buffers"] * 64 * at["piece"] * 2
    assert _dynamic(tactic) == at["at_barriers"] + 16 * at["stages"] <= LIMIT
    assert all(at[name] % ATOM_BYTES == 0 for name in ("a_bytes", "b_bytes", "at_b", "at_pieces"))
    assert at["stages"] >= 3
    if row.direct:
        assert at["buffers"] == 0
    else:  # or the next tile begins with the buffer that was given away last
        assert at["parts"] * at["pieces"] % at["buffers"] == 0
    assert at["pieces"] * at["piece"] == row.tile_n
    assert at["sums"] * at["parts"] <= 160  # of 232 registers


@pytest.mark.parametrize(("row", "tactic"), MANY, ids=lambda one: getattr(one, "name", "row"))
def test_the_ctas_of_a_pair_copy_half_each_of_what_both_read(row: sm_90_bf16_tma.Row, tactic: Tactic) -> None:
    contract = tactic.lower(tactic.proofs(tactic)[3], tactic)
    maps = tactic.kernel.tensor_maps(contract, tactic)
    halved = {"n": "a", "m": "b"}.get(row.pair)
    for name, extent in (("a", row.tile_m), ("b", row.tile_n)):
        assert maps[name].box == (extent // (1 + (name == halved)), SWIZZLED_K)
        assert maps[name].box[0] * SWIZZLED_BYTES % ATOM_BYTES == 0
    assert contract.launch is not None
    assert contract.launch.grid is not None
    assert contract.launch.grid[0] % row.cluster == 0


@pytest.mark.parametrize("row", sm_90_bf16_wave.ROWS, ids=lambda row: row.name)
def test_a_unit_has_room_for_its_ctas_and_the_sums_of_others(row: sm_90_bf16_wave.Row) -> None:
    assert row.ctas * (row.lds_bytes + RESERVED) <= LIMIT + RESERVED
    assert row.stages >= 3
    assert row.tile_m * SWIZZLED_BYTES % ATOM_BYTES == 0 == row.tile_n * SWIZZLED_BYTES % ATOM_BYTES
    assert row.ctas * row.threads * (row.columns // 2 + 24) <= targets.get("sm_90").integer("registers")
    if row.split > 1 and not row.swapped:
        stages_bytes = row.stages * row.stage_bytes
        assert row.parts_bytes <= (row.lds_bytes - stages_bytes if row.apart else stages_bytes)
        assert row.column_groups % row.split == 0  # whole groups of eight columns for each CTA
    if row.swapped:
        pieces = 4 * row.groups * row.column_groups
        assert pieces % row.split == 0 or pieces < row.split


@pytest.mark.parametrize("tactic", FEW, ids=lambda tactic: tactic.name)
def test_what_a_cta_of_one_tile_keeps_ends_with_its_memory(tactic: Tactic) -> None:
    at = _placed(tactic, tactic.proofs(tactic)[0])
    sums_apart = at["parts_bytes"] if at["apart"] else 0
    assert at["at_barriers"] == at["stages"] * at["stage_bytes"] + sums_apart
    assert _dynamic(tactic) == at["at_barriers"] + 16 * at["stages"] + 8
    assert {at["at_rows"], at["at_columns"]} == {0, at["at_b"]}
    assert at["at_parts"] % 16 == 0


@pytest.mark.parametrize(
    ("n", "groups", "bf16", "wanted"),
    [
        (64, 8, True, (8, 4)),
        (64, 6, True, (4, 2)),
        (68, 8, True, (4, 2)),
        (64, 5, True, (2, 1)),
        (66, 8, True, (2, 1)),
        (67, 8, True, (1, 1)),
        (64, 8, False, (2, 1)),
        (67, 8, False, (1, 1)),
    ],
)
def test_a_lane_stores_as_many_neighbours_as_rows_are_aligned_for(
    n: int, groups: int, bf16: bool, wanted: tuple[int, int]
) -> None:
    run, quad = store_run(n, groups, out_bf16=bf16)
    assert (run, quad) == wanted
    assert groups % quad == 0
    assert n % run == 0 or run == 1


@pytest.mark.parametrize("tactic", ALL, ids=lambda tactic: tactic.name)
def test_only_parts_of_k_give_up_the_ascending_chain(tactic: Tactic) -> None:
    parts = (tactic.schedule.split_k or 1) > 1 or tactic in ONE
    assert tactic.guarantees.combine is (Combine.FIXED_ORDER if parts else Combine.ASCENDING)
    assert tactic.guarantees.accumulate is Accumulate.MATRIX_UNIT_FP32
    assert tactic.guarantees.deterministic


@pytest.mark.parametrize("tactic", ALL, ids=lambda tactic: tactic.name)
def test_every_proof_is_admitted_and_a_near_miss_trips_one_predicate(tactic: Tactic) -> None:
    assert tactic.schedule.tile is not None
    for proof in tactic.proofs(tactic):
        assert [one for one in tactic.predicates if one.check(proof)] == []
    proof, step = tactic.proofs(tactic)[0], tactic.schedule.tile[2]
    for field, value, wanted in (
        ("$.shape.k", proof.exact("k") + step // 2, "$.shape.k"),
        ("$.alignment.a", 8, "$.alignment.a"),
        ("$.dtypes.a", DType.FP8_E4M3, "$.dtypes.a"),
        ("$.numerics.accumulate", Accumulate.FP32_SEQUENTIAL, "$.numerics.accumulate"),
    ):
        reasons = [reason for one in tactic.predicates if (reason := one.check(put(proof, field, value)))]
        assert [reason.field for reason in reasons] == [wanted]


@pytest.mark.parametrize(("tile_m", "tile_n", "buffers"), [(128, 224, 1), (128, 256, 2), (128, 192, 3), (256, 128, 2)])
def test_buffers_of_a_warpgroup_divide_its_pieces(tile_m: int, tile_n: int, buffers: int) -> None:
    assert sm_90_bf16_tma.Row(tile_m, tile_n).buffers == buffers


def test_results_leave_by_tma_only_where_their_rows_are_whole_16_bytes() -> None:
    tactic = sm_90_bf16_tma.TACTICS[0]
    for n, out, by_tma in ((264, DType.BF16, True), (260, DType.BF16, False), (264, DType.FP32, False)):
        contract = put(put(tactic.proofs(tactic)[0], "$.shape.n", n), "$.dtypes.out", out)
        assert ("out" in tactic.kernel.tensor_maps(contract, tactic)) is by_tma


def test_weights_that_few_ctas_read_do_not_stay_in_l2() -> None:
    tactic = next(one for one in FEW if one.schedule.tile is not None and one.schedule.tile[0] == 64)
    for m, streamed in ((128, True), (129, False), (Bounded(min=0, max=64), True)):
        contract = tactic.lower(put(tactic.proofs(tactic)[0], "$.shape.m", m), tactic)
        assert tactic.kernel.constants(contract, tactic)["streamed"] is streamed


def test_a_tile_of_many_columns_passes_registers_on() -> None:
    assert not sm_90_bf16_wave.Row(128, 160).fewer_registers
    wide = sm_90_bf16_wave.Row(128, 224)
    assert wide.fewer_registers
    assert wide.threads == 384
