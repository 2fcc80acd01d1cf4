"""Exact products on sm_90: what f16 kernels keep where, registers, signals behind loads, and one row of activations."""

import re
from collections.abc import Iterator

import pytest

from nkc.emit import render
from nkc.emit.toolchains.nvrtc import NvrtcToolchain
from nkc.ir import targets
from nkc.ir.contract import Accumulate, Combine, Contract
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.dense import sm_90_f16, sm_90_f16_few, sm_90_gemv
from nkc.tactics.select import Policy, select
from nkc.tactics.tactic import Lowered, Tactic
from tests.fixtures.listing import listed
from tests.fixtures.toolchain import nvrtc_is_installed

from ..fixtures.values import put

MANY = tuple(zip(sm_90_f16.ROWS, [each for each in sm_90_f16.TACTICS if not each.dependent], strict=True))
FEW = tuple(zip(sm_90_f16_few.ROWS, [each for each in sm_90_f16_few.TACTICS if not each.dependent], strict=True))
EXPERIMENTS = Policy(allow_experimental=True)
SWIZZLE_BYTES = 1024
"""What a swizzled tile in shared memory has to be aligned to."""

RESERVED = 1024
"""Bytes of shared memory that the system takes for each CTA."""


def _placed(tactic: Tactic, proof: int = 0) -> dict[str, int]:
    contract = tactic.lower(tactic.proofs(tactic)[proof], tactic)
    constants = tactic.kernel.constants(contract, tactic)
    return {name: value for name, value in constants.items() if isinstance(value, int)}


def _lds_bytes(tactic: Tactic) -> int:
    value = tactic.kernel.options["dynamic_lds_bytes"]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(("row", "tactic"), MANY, ids=lambda one: getattr(one, "name", "row"))
def test_what_a_cta_of_many_rows_keeps_follows_each_other_and_ends_with_its_memory(
    row: sm_90_f16.Row, tactic: Tactic
) -> None:
    at = _placed(tactic)
    assert at["a_bytes"] == row.tile_m * 128
    assert at["b_bytes"] == row.tile_n * 128
    assert at["at_b"] == at["stages"] * at["a_bytes"]
    assert at["at_f16"] == at["at_b"] + at["stages"] * at["b_bytes"]
    assert at["at_scales"] == at["at_f16"] + at["buffers"] * 2 * at["b_bytes"]
    assert at["at_weights"] == at["at_scales"] + at["stages"] * row.tile_m * 4
    assert at["at_barriers"] == at["at_weights"] + at["buffers"] * 32
    assert _lds_bytes(tactic) == at["at_barriers"] + 16 * (at["stages"] + at["buffers"])
    assert all(at[name] % SWIZZLE_BYTES == 0 for name in ("at_b", "at_f16", "a_bytes", "b_bytes"))
    assert at["stages"] >= 3
    assert at["buffers"] <= at["stages"]  # row-major scales take the room of one stage's for each buffer
    assert at["scale_columns"] * 4 <= 32


@pytest.mark.parametrize(("row", "tactic"), MANY, ids=lambda one: getattr(one, "name", "row"))
def test_registers_are_those_that_a_cta_has_at_its_launch(row: sm_90_f16.Row, tactic: Tactic) -> None:
    at = _placed(tactic)
    at_launch = 65536 // 384 // 8 * 8
    assert at["few_registers"] + 2 * at["many_registers"] == 3 * at_launch
    sums = row.tile_m * row.tile_n // 256
    products, rows_in_f16 = row.tile_n // 2, 32
    assert at["many_registers"] >= sums + products + rows_in_f16


@pytest.mark.parametrize(("row", "tactic"), FEW, ids=lambda one: getattr(one, "name", "row"))
def test_a_unit_has_room_for_its_ctas_of_few_rows(row: sm_90_f16_few.Row, tactic: Tactic) -> None:
    at = _placed(tactic)
    assert row.ctas * (row.lds_bytes + RESERVED) <= targets.get("sm_90").lds_bytes + RESERVED
    assert at["stages"] >= 3
    assert all(at[name] % SWIZZLE_BYTES == 0 for name in ("at_a", "at_f16", "a_bytes", "b_bytes"))
    assert at["at_slices"] % 16 == 0
    assert at["slice_bytes"] % 16 == 0
    assert at["split"] * at["slice_bytes"] == row.tokens * at["pitch"] * 4 <= at["at_f16"]
    gathered = row.split * row.slice_bytes if row.split > 1 else 0
    assert at["at_barriers"] == at["at_slices"] + gathered
    assert _lds_bytes(tactic) == at["at_barriers"] + 16 * (at["stages"] + at["buffers"]) + 8


@pytest.mark.parametrize("pitch", [64 + 4, 128 + 4])
def test_lanes_that_write_their_sums_meet_no_bank_twice(pitch: int) -> None:
    assert {row_tile + sm_90_f16_few._PAD for row_tile in (64, 128)} >= {pitch}
    banks = {(lane % 4 * 2 * pitch + lane // 4) % 32 for lane in range(32)}
    assert len(banks) == 32


@pytest.mark.parametrize("rows", [2, 4, 8])
def test_eight_lanes_of_a_block_end_with_one_whole_row_each(rows: int) -> None:
    plan = sm_90_gemv._lanes_of_a_block(rows)
    held = [[{lane}] * rows for lane in range(8)]  # of each lane: by row, whose products it has added up
    names = [list(range(rows)) for _ in range(8)]
    for apart, kept in plan["halvings"]:  # type: ignore[attr-defined]
        before, labels = [list(one) for one in held], [list(one) for one in names]
        for lane in range(8):
            upper = bool(lane & apart)
            mine, theirs = before[lane], before[lane ^ apart]
            held[lane] = [mine[r + kept * upper] | theirs[r + kept * upper] for r in range(kept)]
            names[lane] = labels[lane][kept * upper : kept * upper + kept]
    for apart in plan["additions"]:  # type: ignore[attr-defined]
        before = [list(one) for one in held]
        for lane in range(8):
            held[lane] = [before[lane][0] | before[lane ^ apart][0]]
    assert all(one == [set(range(8))] for one in held)
    for lane in range(8):
        assert names[lane] == [sum(lane // apart % 2 * kept for apart, kept in plan["halvings"])]  # type: ignore[attr-defined]
    assert plan["row_of_lane"] == " + ".join(f"(lane / {apart} % 2) * {kept}" for apart, kept in plan["halvings"])  # type: ignore[attr-defined]
    assert sorted(names[lane][0] for lane in range(8) if lane < rows) == list(range(rows))


def _one_row(combine: Combine) -> Contract:
    contract = sm_90_gemv.TACTICS[0].proofs(sm_90_gemv.TACTICS[0])[0]
    exact = put(contract, "$.numerics.accumulate", Accumulate.MATRIX_UNIT_FP32)
    return put(exact, "$.numerics.combine", combine)


def test_one_row_of_exact_products_goes_to_the_fp32_kernels_whatever_the_order() -> None:
    free = select(_one_row(Combine.FIXED_ORDER), EXPERIMENTS, tactics=tactics_of("dense"))
    chained = select(_one_row(Combine.ASCENDING), EXPERIMENTS, tactics=tactics_of("dense"))
    assert free.selected is not None
    assert chained.selected is not None
    assert "fp8_gemv" in free.selected.tactic.name
    assert "_ascending" not in free.selected.tactic.name
    assert "fp8_gemv" in chained.selected.tactic.name
    assert "_ascending" in chained.selected.tactic.name
    refused = next(one for one in chained.candidates if one.tactic.name == "sm_90.dense.fp8_gemv_r4_w8")
    assert [reason.field for reason in refused.reasons] == ["$.numerics.combine"]


@pytest.fixture(scope="module")
def toolchain() -> Iterator[NvrtcToolchain]:
    if not nvrtc_is_installed():
        pytest.skip("NVRTC is not installed (pip install 'nkc[nvrtc]')")
    running = NvrtcToolchain()
    yield running
    running.close()


@pytest.mark.toolchain
@pytest.mark.parametrize("tactic", [tactic for row, tactic in MANY if not row.early], ids=lambda one: one.name)
def test_no_signal_overtakes_a_load_of_what_it_gives_back(toolchain: NvrtcToolchain, tactic: Tactic) -> None:
    """ptxas moves an arrival before the first use of a value that is still on its way: the copy behind it would win."""
    proof = tactic.proofs(tactic)[3]
    source = render.render(Lowered(contract=tactic.lower(proof, tactic), tactic=tactic))
    built = toolchain.compile(source, targets.get(tactic.target))
    lines = listed(built.data).splitlines()
    begin = max(place for place, line in enumerate(lines) if "USETMAXREG.TRY_ALLOC" in line)
    end = next((place for place, line in enumerate(lines) if "USETMAXREG.DEALLOC" in line), len(lines))
    pending: set[int] = set()
    arrivals = 0
    for line in lines[begin : end if end > begin else len(lines)]:
        code = re.search(r"^\s+/\*[0-9a-f]+\*/\s+(.*?);", line)
        if code is None:
            continue
        text = code[1]
        if "SYNCS.ARRIVE" in text:
            arrivals += 1
            assert not pending, text
        registers = [int(number) for number in re.findall(r"\bR(\d+)\b", text)]
        load = re.search(r"\bLDS(\.\d+)? R(\d+)", text)
        if load:
            pending |= set(range(int(load[2]), int(load[2]) + {".64": 2, ".128": 4}.get(load[1] or "", 1)))
        elif pending & set(registers[1:]):
            pending -= set(registers[1:])
        elif registers:
            pending -= {registers[0]}
    assert arrivals >= 2
