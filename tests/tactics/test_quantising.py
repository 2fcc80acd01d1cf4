"""The tactics around a GEMM: proofs, near misses, which one is selected; and the division that their kernels do."""

import dataclasses
from enum import StrEnum

import numpy as np
import pytest

from nkc import ir
from nkc.emit import render
from nkc.ir import operations, targets
from nkc.ir.contract import Bounded, Contract, Layout, Reduce, dim_max
from nkc.ir.quantising import AMAX_FLOOR, FP8_MAX, GROUP
from nkc.ir.reader import parse_document
from nkc.tactics import addressing, hardware
from nkc.tactics import predicate as p
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.predicate import Predicate, lookup
from nkc.tactics.quantising.constants import RECIPROCAL_448, TINY_FLOOR
from nkc.tactics.rms_norm_quant import gfx950 as rms_gfx950
from nkc.tactics.rms_norm_quant import sm_90 as rms_sm_90
from nkc.tactics.rms_norm_quant import sm_90_rows
from nkc.tactics.rms_norm_quant.kernel import tiles
from nkc.tactics.select import Policy, obstacles, select
from nkc.tactics.tactic import Lowered, Tactic
from nkc.verify.numbers import fp8, fp32
from nkc.verify.numbers.fp8 import Overflow

from ..fixtures.values import put

OPERATIONS = ("group_quant", "silu_mul_quant", "rms_norm_quant")
TACTICS = tuple(tactic for name in OPERATIONS for tactic in tactics_of(name))
EXPERIMENTS = Policy(allow_experimental=True)
F32 = np.float32


def _name(value: object) -> str:
    return value.name if isinstance(value, Tactic) else str(value)


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_it_accepts_its_proofs_and_lowers_each_to_itself(tactic: Tactic) -> None:
    for proof in tactic.proofs(tactic):
        assert parse_document(ir.contract_document(proof)) == proof
        selection = select(proof, EXPERIMENTS, tactics=[tactic])
        assert selection.selected is not None, selection.candidates[0].reasons
        lowered = selection.lower(selection.selected).contract
        again = select(parse_document(ir.contract_document(lowered)), EXPERIMENTS, tactics=[tactic])
        assert again.selected is not None
        assert again.lower(again.selected).contract == lowered
        names = [argument.name for argument in lowered.arguments or ()]
        assert names == [argument.name for argument in operations.get(tactic.operation).arguments(proof)]


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_its_proofs_reach_every_word_that_it_serves(tactic: Tactic) -> None:
    proofs = tactic.proofs(tactic)
    operation = operations.get(tactic.operation)
    assert any(isinstance(proof.shape["m"], Bounded) for proof in proofs)
    assert len({proof.exact("k") for proof in proofs}) > 1
    for rule in operation.numerics:
        if isinstance(rule.type, type) and issubclass(rule.type, StrEnum) and rule.name != "reduce":
            said = {proof.numerics[rule.name] for proof in proofs if rule.name in proof.numerics}
            assert said == set(rule.type) or (not said and "bf16_" in tactic.name), rule.name
    for operand in operation.operands:
        given = {proof.dtypes.get(operand.name) for proof in proofs}
        if operand.name != "out":
            assert given == {*operand.dtypes, *([None] if operand.optional else [])}, operand.name
    scales = [proof.scales["out"] for proof in proofs if proof.scales]
    if scales:
        assert {scale.layout for scale in scales} == {Layout.ROW_MAJOR, Layout.M_MAJOR}
        assert any(proof.numerics["amax_floor"] == 0 for proof in proofs)
    assert {proof.epilogue.gate for proof in proofs} == (
        set(ir.contract.Gate) if tactic.operation == "silu_mul_quant" else {None}
    )


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_the_grid_reaches_every_group_of_every_row(tactic: Tactic) -> None:
    for proof in tactic.proofs(tactic):
        lowered = tactic.lower(proof, tactic)
        assert lowered.launch is not None
        assert lowered.launch.grid is not None
        assert lowered.launch.block == ((tactic.schedule.waves or 0) * proof.target.wave, 1, 1)
        placed = tactic.kernel.constants(lowered, tactic)
        m, k = dim_max(proof.shape["m"]), proof.exact("k")
        if "run" in placed:
            assert lowered.launch.grid[0] * int(str(placed["run"])) >= m * (k // GROUP)
            assert (lowered.launch.grid[0] - 1) * int(str(placed["run"])) < m * (k // GROUP)
        elif "split" in placed:
            assert lowered.launch.grid[0] == int(str(placed["split"])) * m
            assert int(str(placed["split"])) * int(str(placed["threads"])) * 8 >= k
        elif "used" in placed:
            assert lowered.launch.grid[0] == m
            assert int(str(placed["used"])) <= int(str(placed["warps"]))
        elif "columns" in placed:
            columns = lowered.launch.grid[0] * int(str(placed["threads"])) * int(str(placed["columns"]))
            assert m * k <= columns < m * k + int(str(placed["threads"])) * int(str(placed["columns"]))
        else:
            tiles = -(-m // int(str(placed["tile_rows"])))
            programs = int(str(placed["programs"]))
            assert lowered.launch.grid[0] == (programs or tiles)
            assert programs <= tiles


def near_miss(predicate: Predicate, contract: Contract, patch: pytest.MonkeyPatch) -> Contract:
    """Return the contract, or exchange the chip, so that this predicate alone fails."""
    match predicate:
        case p.Equals(field=field, value=value) | p.OneOf(field=field, values=(value, *_)):
            old = lookup(contract, field)
            if isinstance(value, tuple):
                return put(contract, field, (value[0] + 1, *value[1:]))
            allowed = getattr(predicate, "values", (value,))
            others = [member for member in type(old) if member not in allowed] if isinstance(old, StrEnum) else []
            return put(contract, field, others[0] if others else "none of them")
        case p.MultipleOf(field=field):
            return put(contract, field, int(str(lookup(contract, field))) + 1)
        case p.AtMost(field="$.shape.k", limit=limit):
            return put(contract, "$.shape.k", -(-(limit + 1) // GROUP) * GROUP)
        case p.AtMost(field=field, limit=limit):
            return put(contract, field, limit + 1)
        case p.Serves(field=field):
            return put(contract, field, Reduce.SEQUENTIAL if predicate.guarantee is not Reduce.SEQUENTIAL else None)
        case addressing.Aligned(argument=argument, bytes=size):
            return put(contract, f"$.alignment.{argument}", size // 2)
        case addressing.ScaleOffsetsFitInt32(operand=operand):
            longer = put(contract, "$.shape.k", contract.exact("k") + GROUP)
            padded = put(longer, f"$.scales.{operand}.layout", Layout.M_MAJOR)
            return put(padded, f"$.scales.{operand}.leading_dim", 1 << 31)
        case p.Declares():
            return put(contract, "$.constants.surprise", 1)
        case hardware.IsTarget():
            return put(contract, "$.target.arch", "sm_100")
        case hardware.TargetHas(capability=capability):
            real = targets.get(contract.target.arch)
            facts = {name: fact for name, fact in real.facts.items() if name != capability}
            patch.setattr(targets, "get", lambda _: dataclasses.replace(real, facts=facts))
            return contract
    raise NotImplementedError(predicate)


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_each_predicate_has_a_near_miss_that_trips_it_alone(tactic: Tactic, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = next(proof for proof in tactic.proofs(tactic) if not isinstance(proof.shape["m"], Bounded))
    for predicate in tactic.predicates:
        if isinstance(predicate, addressing.OffsetsFitInt32):
            continue  # the next test: operands of one shape pass the limit together
        with monkeypatch.context() as patch:
            missed = near_miss(predicate, proof, patch)
            tripped = {other for other in tactic.predicates if other.check(missed) is not None}
            assert tripped == {predicate}, predicate
            (reason,) = obstacles(missed, tactic)
        assert reason.field.startswith("$.")
        assert reason.wanted != reason.actual


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_offsets_pass_exactly_to_the_last_one_that_fits(tactic: Tactic) -> None:
    """F07: the largest operand decides; a gated input has two columns for each of the result's."""
    proof = next(proof for proof in tactic.proofs(tactic) if not isinstance(proof.shape["m"], Bounded))
    operands = operations.get(tactic.operation).present(proof.dtypes)
    k, bytes_count = proof.exact("k"), tactic.target == "gfx950"
    widths = {
        one.name: k * one.times * (proof.dtypes[one.name].size_bytes if bytes_count else 1)
        for one in operands
        if len(one.axes) == 2
    }
    limit = (1 << 31) - 1 if bytes_count else 1 << 31
    fits = limit // max(widths.values())

    def named(m: int) -> set[str]:
        asked = [one for one in tactic.predicates if isinstance(one, addressing.OffsetsFitInt32)]
        return {one.operand for one in asked if one.check(put(proof, "$.shape.m", m)) is not None}

    assert named(fits) == set()
    assert named(fits + 1) == {name for name, width in widths.items() if width == max(widths.values())}


@pytest.mark.parametrize("target", ["gfx950", "sm_90"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_few_rows_get_short_pieces_and_every_number_of_rows_is_served(operation: str, target: str) -> None:
    tactic = next(tactic for tactic in tactics_of(operation) if tactic.target == target)
    proof = tactic.proofs(tactic)[0]
    chosen = []
    for m in (1, 64, 65, 4096, Bounded(min=0, max=64), Bounded(min=0, max=65536)):
        selection = select(put(put(proof, "$.shape.m", m), "$.shape.k", 2048), EXPERIMENTS)
        assert selection.selected is not None
        chosen.append(selection.selected.tactic.name)
    assert chosen[1] == chosen[4]
    assert chosen[2] == chosen[3] == chosen[5]
    assert chosen[2] not in chosen[:2]


@pytest.mark.parametrize("target", ["gfx950", "sm_90"])
@pytest.mark.parametrize("k", [1024, 1152, 2048, 3584, 5120, 7168, 16384, 17408])
def test_rows_of_deployments_are_normalised(k: int, target: str) -> None:
    tactic = next(tactic for tactic in tactics_of("rms_norm_quant") if tactic.target == target)
    for m in (1, 4096):
        found = select(put(put(tactic.proofs(tactic)[0], "$.shape.m", m), "$.shape.k", k), EXPERIMENTS)
        assert found.selected is not None


def test_a_sequential_sum_is_not_served_by_a_tree() -> None:
    tactic = next(iter(tactics_of("rms_norm_quant")))
    reasons = obstacles(put(tactic.proofs(tactic)[0], "$.numerics.reduce", Reduce.SEQUENTIAL), tactic)
    assert [(reason.field, reason.wanted, reason.actual) for reason in reasons] == [
        ("$.numerics.reduce", "tree", "sequential")
    ]


# the arithmetic that the templates write out


def kernel_quotient(x, y):
    """Return x / y as the kernels compute it, for the rounded reciprocal of y."""
    inverse = (F32(1) / y).astype(F32)
    by = np.where(np.isinf(y), F32(0), y)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        ratio = (x * inverse).astype(F32)
        return fp32.fma(-fp32.fma(ratio, by, -x), inverse, ratio)


def test_one_multiplication_and_two_fma_divide_every_bf16_by_every_scale_of_a_bf16_amax() -> None:
    """Significands decide alone, away from underflow: all 128 x 128 of them, at both sides of a binade."""
    significands = np.arange(128, 256).astype(F32)
    for shift in (0, 1, 5):
        x = np.ldexp(significands, -shift).astype(F32)[:, None]
        scale = (significands / F32(FP8_MAX)).astype(F32)[None, :]
        x, scale = np.broadcast_arrays(x, scale)
        assert np.array_equal(kernel_quotient(x, scale), (x / scale).astype(F32))


def test_the_same_division_of_fp32_values_and_where_quotients_are_nearest_to_a_tie() -> None:
    draw = np.random.Generator(np.random.Philox(11))
    x = draw.integers(1 << 23, 1 << 24, 400_000).astype(F32)
    y = draw.integers(1 << 23, 1 << 24, 400_000).astype(F32)
    assert np.array_equal(kernel_quotient(x, y), x / y)
    worst = (np.uint32(0x4B7FFFFF) - draw.integers(0, 4000, 400_000).astype(np.uint32)).view(F32)
    assert np.array_equal(kernel_quotient(x, worst), x / worst)


@pytest.mark.parametrize("scale", [2.0**-89, AMAX_FLOOR / FP8_MAX, 1.0, 7.6e35, np.inf])
def test_signs_zeros_infinities_and_the_ends_of_the_range_divide_to_the_same_codes(scale: float) -> None:
    y = F32(scale)
    largest = F32(min(scale * FP8_MAX, 3.4e38)) if np.isfinite(scale) else F32(3e38)
    tiny = [0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126]
    x = np.array([*tiny, largest, -largest, largest * F32(2.0**-17), largest / F32(3)], F32)
    x = x[np.abs(x) <= largest]
    with np.errstate(under="ignore"):
        exact = fp8.encode(x / y, Overflow.IEEE)
    assert fp8.encode(kernel_quotient(x, np.full_like(x, y)), Overflow.IEEE).tolist() == exact.tolist()
    if np.isinf(scale):
        assert np.isnan(kernel_quotient(np.array([np.inf, np.nan], F32), np.full(2, y))).all()


def test_a_scale_is_the_rounded_quotient_by_448() -> None:
    assert F32(RECIPROCAL_448) == F32(1) / F32(448)
    draw = np.random.Generator(np.random.Philox(12))
    amax = np.concatenate([draw.integers(1 << 23, 1 << 24, 400_000), np.arange(128, 256) << 16]).astype(F32)
    for exponent in (-80, -57, 0, 104):
        scaled = np.ldexp(amax, exponent - 23).astype(F32)
        first = scaled * F32(RECIPROCAL_448)
        exact = fp32.fma(-fp32.fma(first, F32(448), -scaled), F32(RECIPROCAL_448), first)
        assert np.array_equal(exact, scaled / F32(448))


def test_a_floor_too_small_for_it_takes_the_division_of_the_chip() -> None:
    ours = (tactic for tactic in tactics_of("group_quant") if tactic.target == "sm_90")
    tactic = next(tactic for tactic in ours if tactic.kernel.language == "triton")
    proof = tactic.proofs(tactic)[0]

    def text(floor: float) -> str:
        contract = put(proof, "$.numerics.amax_floor", floor)
        return render.render(Lowered(contract=tactic.lower(contract, tactic), tactic=tactic)).text

    assert "div_rn(value, scale" in text(0.0)
    assert "div_rn(value, scale" in text(TINY_FLOOR / 2)
    assert "div_rn(value, scale" not in text(TINY_FLOOR)
    assert "div_rn(value, scale" not in text(AMAX_FLOOR)
    assert "amax == 0.0" in text(0.0)
    assert "amax == 0.0" not in text(AMAX_FLOOR)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("row", sm_90_rows.ROWS, ids=str)
def test_a_row_fits_the_share_of_a_multiprocessor_that_its_ctas_leave(row: sm_90_rows.Row, residual: bool) -> None:
    """x, the residual, codes, sums and barriers lie behind each other, in what the CTAs share."""
    tactic = next(one for one in sm_90_rows.TACTICS if one.schedule.waves == row.warps)
    k = row.warps * 1024
    proof = put(tactic.proofs(tactic)[1 if residual else 0], "$.shape.k", k)
    placed = tactic.kernel.constants(tactic.lower(proof, tactic), tactic)
    names = ("row_bytes", "at_codes", "at_parts", "parts", "at_barriers", "ctas")
    row_bytes, at_codes, at_parts, parts, at_barriers, ctas = (int(str(placed[name])) for name in names)
    assert row_bytes == k * 2
    assert (at_codes, at_parts) == (row_bytes * (2 if residual else 1), at_codes + k)
    assert at_barriers == at_parts + 4 * parts
    assert parts >= row.warps
    assert ctas == (row.residual if residual else row.ctas)
    lds_bytes = int(tactic.kernel.options["dynamic_lds_bytes"])
    assert at_barriers + 8 * row.warps <= lds_bytes <= targets.get("sm_90").lds_bytes
    assert ctas * (lds_bytes + 1024) <= 228 * 1024
    assert ctas * row.warps * 32 * 56 <= 65536  # 56 registers at the very least


@pytest.mark.parametrize("k", [128, 769, 2048, 5120, 7168, 17408])
def test_a_row_is_cut_into_tiles_that_cover_it_once(k: int) -> None:
    for row in (*rms_gfx950.ROWS, *rms_sm_90.ROWS):
        cut = tiles(k, row)
        assert sum(width for width, _ in cut[:-1]) < k <= sum(width for width, _ in cut)
        # every access takes as much of the row, whatever the shape of its tile
        assert {width * part for width, part in cut} == {row.columns * row.part}


def test_what_is_left_of_a_row_is_cut_where_one_tile_would_waste_lanes() -> None:
    four = next(row for row in rms_sm_90.ROWS if row.waves == 4)
    assert tiles(5120, four) == ((4096, 32), (1024, 128))
    assert tiles(7168, four) == ((4096, 32), (4096, 32))
