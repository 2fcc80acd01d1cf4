"""Every dense tactic: it accepts its proofs, and each of its predicates has a near miss that trips it alone."""

import dataclasses
from collections.abc import Iterator
from enum import StrEnum

import pytest

from nkc import ir
from nkc.ir import targets
from nkc.ir.contract import Accumulate, Bounded, Contract, DType, Layout, dim_max
from nkc.ir.reader import parse_document
from nkc.ir.target import Target
from nkc.tactics import addressing, hardware
from nkc.tactics import predicate as p
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.predicate import Predicate, lookup
from nkc.tactics.select import Policy, obstacles, select
from nkc.tactics.tactic import Tactic

from ..fixtures.values import put

TACTICS = tactics_of("dense")
EXPERIMENTS = Policy(allow_experimental=True)
CODES = p.Equals("$.dtypes.out", DType.FP8_E4M3)


def _name(value: object) -> str:
    return value.name if isinstance(value, Tactic) else str(value)


def _quantises(tactic: Tactic) -> bool:
    return CODES in tactic.requires


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_it_accepts_its_proofs_as_they_are_read_and_lowers_each_to_itself(tactic: Tactic) -> None:
    for proof in tactic.proofs(tactic):
        assert parse_document(ir.contract_document(proof)) == proof
        selection = select(proof, EXPERIMENTS, tactics=[tactic])
        assert selection.selected is not None
        lowered = selection.lower(selection.selected).contract
        again = select(parse_document(ir.contract_document(lowered)), EXPERIMENTS, tactics=[tactic])
        assert again.selected is not None
        assert again.lower(again.selected).contract == lowered


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_its_proofs_reach_tails_ranges_outputs_and_epilogues(tactic: Tactic) -> None:
    proofs = tactic.proofs(tactic)
    tile = tactic.schedule.tile
    assert tile is not None
    assert any(dim_max(proof.shape["m"]) % tile[0] == 0 for proof in proofs)
    assert any(dim_max(proof.shape["m"]) % tile[0] for proof in proofs) or tile[0] == 1
    assert any(isinstance(proof.shape["m"], Bounded) for proof in proofs)
    assert any(proof.exact("n") % 128 for proof in proofs) or _quantises(tactic)
    assert len({proof.exact("k") for proof in proofs}) > 1
    results = {DType.FP8_E4M3} if _quantises(tactic) else {DType.BF16, DType.FP32}
    assert {proof.dtypes["out"] for proof in proofs} == results
    assert {proof.epilogue.kind for proof in proofs} == {"identity", "bias"}
    if any("a" in proof.scales for proof in proofs):
        m_major = p.Equals("$.scales.a.layout", Layout.M_MAJOR) in tactic.requires
        layouts = {Layout.M_MAJOR} if m_major else {Layout.ROW_MAJOR, Layout.M_MAJOR}
        assert {proof.scales["a"].layout for proof in proofs} == layouts


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_the_grid_covers_every_tile_at_the_largest_m(tactic: Tactic) -> None:
    for proof in tactic.proofs(tactic):
        lowered = tactic.lower(proof, tactic)
        assert lowered.launch is not None
        assert lowered.launch.grid is not None
        assert lowered.launch.block is not None
        assert tactic.schedule.tile is not None
        tile_m, tile_n, _ = tactic.schedule.tile
        m_tiles, n_tiles = -(-dim_max(proof.shape["m"]) // tile_m), -(-proof.exact("n") // tile_n)
        workgroups = m_tiles * n_tiles * (tactic.schedule.split_k or 1)
        if tactic.family in (
            "sm_90.dense.fp8_tma",
            "sm_90.dense.fp8_tma_codes",
            "sm_90.dense.fp8_f16",
            "sm_90.dense.bf16_tma",
        ):  # persistent, in pairs where two share a tile of A, or, neighbours along m, one of B
            pair = 2 if "_pair" in tactic.name else 1
            along_m = 2 if "_pair_m" in tactic.name else 1
            units = targets.get(tactic.target).compute_units
            workgroups = pair * min(-(-m_tiles // along_m) * -(-n_tiles * along_m // pair), units // pair)
        assert lowered.launch.grid == (workgroups, 1, 1)
        assert lowered.launch.block == ((tactic.schedule.waves or 0) * proof.target.wave, 1, 1)
        assert lowered.schedule == tactic.schedule
        assert lowered.workspace is not None
        through_memory = tactic.kernel.language == "triton"  # those in C++ add parts through distributed shared memory
        assert bool(lowered.workspace.bytes) == (through_memory and (tactic.schedule.split_k or 1) > 1)
        names = [argument.name for argument in lowered.arguments or ()]
        assert len(set(names)) == len(names)
        assert ("m" in names) == isinstance(proof.shape["m"], Bounded)
        assert ("workspace" in names) == bool(lowered.workspace.bytes)
        assert ("bias" in names) == (proof.epilogue.kind == "bias")


# one near miss a predicate


class Chip:
    """Exchanges facts of the chip that a tactic is for: some predicates ask nothing else."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def without(self, arch: str, name: str, value: object = None) -> None:
        real = targets.get(arch)
        facts = {fact: entry for fact, entry in real.facts.items() if fact != name}
        if value is not None:
            facts[name] = dataclasses.replace(real.facts[name], value=value)  # type: ignore[arg-type]
        other = dataclasses.replace(real, facts=facts)
        known = targets.get

        def get(wanted: str) -> Target:
            return other if wanted == arch else known(wanted)

        self._patch.setattr(targets, "get", get)


def _limit(tactic: Tactic, kind: type[p.AtMost] | type[p.AtLeast], field: str, otherwise: int) -> int:
    limits = [one.limit for one in tactic.requires if isinstance(one, kind) and one.field == field]
    return (min if kind is p.AtMost else max)(limits, default=otherwise)


def _beyond_int32(tactic: Tactic, predicate: addressing.OffsetsFitInt32, contract: Contract) -> Contract:
    """Return a contract in which this operand alone is too large, as far as the tactic's other limits allow it."""
    assert tactic.schedule.tile is not None
    steps_k = [one.divisor for one in tactic.requires if isinstance(one, p.MultipleOf) and one.field == "$.shape.k"]
    tile_k = max(tactic.schedule.tile[2], *steps_k)
    least_k = _limit(tactic, p.AtLeast, "$.shape.k", tile_k)
    most_m = _limit(tactic, p.AtMost, "$.shape.m", 1 << 16)
    steps = [one.divisor for one in tactic.requires if isinstance(one, p.MultipleOf) and one.field == "$.shape.n"]
    step_n = max(steps, default=1)
    size = contract.dtypes[predicate.operand].size_bytes if predicate.unit is OffsetUnit.BYTES else 1
    match predicate.operand:
        case "a":
            m, n, k = most_m, step_n, (1 << 31) // (most_m * size) // tile_k * tile_k + tile_k
            k = max(k, least_k)
        case "b":
            m, n, k = 1, 4096, (1 << 31) // (4096 * size) // tile_k * tile_k + tile_k
        case _:
            m, n, k = most_m, (1 << 31) // (most_m * size) // step_n * step_n + step_n, least_k
    return put(put(put(contract, "$.shape.m", m), "$.shape.n", n), "$.shape.k", k)


def near_miss(tactic: Tactic, predicate: Predicate, contract: Contract, chip: Chip) -> Contract:
    """Return the contract, or exchange the chip, so that as little as possible beside this predicate fails."""
    match predicate:
        case p.Equals(field=field, value=value) | p.OneOf(field=field, values=(value, *_)):
            old = lookup(contract, field)
            other: object = "none of them"
            if isinstance(value, tuple):
                other = (value[0] + 1, *value[1:])
            elif isinstance(old, StrEnum):
                allowed = getattr(predicate, "values", (value,))
                other = next(member for member in type(old) if member not in allowed)
            return put(contract, field, other)
        case p.MultipleOf(field=field):
            old = lookup(contract, field)
            assert isinstance(old, int)
            return put(contract, field, old + 1)
        case p.AtMost(field=field, limit=limit):
            assert tactic.schedule.tile is not None
            return put(contract, field, limit + (tactic.schedule.tile[2] if field == "$.shape.k" else 1))
        case p.AtLeast(field=field, limit=limit):
            assert tactic.schedule.tile is not None
            return put(contract, field, limit - tactic.schedule.tile[2])
        case p.Serves(field=field, guarantee=Accumulate()):
            return put(contract, field, Accumulate.FP32_SEQUENTIAL)
        case p.Serves(field=field, guarantee=guarantee):
            unserved = [rule for rule in type(guarantee) if not guarantee.serves(rule)]
            return put(contract, field, unserved[0] if unserved else None)
        case hardware.TilesAtMost(field=field, tile=tile):
            rows = -(-dim_max(contract.shape["m"]) // tile[0])
            units = targets.get(contract.target.arch).compute_units
            return put(contract, field, units // rows * tile[1] + (tile[1] if _quantises(tactic) else 1))
        case addressing.OffsetsFitInt32():
            return _beyond_int32(
                tactic, predicate, contract if _quantises(tactic) else put(contract, "$.dtypes.out", DType.FP32)
            )
        case addressing.ScaleOffsetsFitInt32(operand=operand):
            assert tactic.schedule.tile is not None
            along, step = ("n", 128) if operand == "out" else ("k", tactic.schedule.tile[2])
            longer = put(contract, f"$.shape.{along}", contract.exact(along) + step)
            padded = put(longer, f"$.scales.{operand}.layout", Layout.M_MAJOR)
            return put(padded, f"$.scales.{operand}.leading_dim", 1 << 31)
        case addressing.ScalesPitch(operand=operand, multiple_of=multiple):
            return put(contract, f"$.scales.{operand}.leading_dim", 1024 + multiple // 2)
        case addressing.Aligned(argument=argument, bytes=size):
            return put(contract, f"$.alignment.{argument}", size // 2)
        case p.ConstantOperands(arguments=(first, *_)):
            return put(contract, "$.properties.constant", (first,))
        case p.Declares():
            return put(contract, "$.constants.surprise", 1)
        case hardware.IsTarget():
            return put(contract, "$.target.arch", "sm_100")
        case hardware.TargetHas(capability=capability):
            chip.without(tactic.target, capability)
            return contract
        case hardware.LdsFits(bytes=needed):
            chip.without(tactic.target, "lds_bytes", needed - 1)
            return contract
    raise NotImplementedError(predicate)


def _implied(tactic: Tactic, predicate: Predicate) -> Iterator[Predicate]:
    """Yield what a near miss cannot but trip too."""
    fewer_rows_than_columns = _quantises(tactic) and _limit(tactic, p.AtMost, "$.shape.m", 1 << 16) < 128
    if isinstance(predicate, addressing.OffsetsFitInt32) and predicate.operand == "a" and fewer_rows_than_columns:
        yield from (  # a group has 128 columns: the weights are too large as well
            one for one in tactic.requires if isinstance(one, addressing.OffsetsFitInt32) and one.operand == "b"
        )
    if isinstance(predicate, p.AtLeast):
        yield from (one for one in tactic.requires if isinstance(one, p.AtLeast) and one.limit > predicate.limit)
    if isinstance(predicate, addressing.OffsetsFitInt32) and predicate.operand in ("a", "b"):
        yield from (one for one in tactic.requires if isinstance(one, p.AtMost) and one.field == "$.shape.k")
    if isinstance(predicate, addressing.OffsetsFitInt32) and predicate.operand == "out":
        # With few rows, results are fewer bytes than weights: `b` is too large before `out` is.
        if _limit(tactic, p.AtMost, "$.shape.m", 1 << 16) <= max(64, _limit(tactic, p.AtLeast, "$.shape.k", 128)):
            yield from (
                one for one in tactic.requires if isinstance(one, addressing.OffsetsFitInt32) and one.operand == "b"
            )
        yield from (one for one in tactic.requires if isinstance(one, hardware.TilesAtMost))


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_each_predicate_has_a_near_miss_that_trips_it_alone(tactic: Tactic, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = tactic.proofs(tactic)[0]
    for predicate in tactic.predicates:
        with monkeypatch.context() as patch:
            missed = near_miss(tactic, predicate, proof, Chip(patch))
            tripped = {other for other in tactic.predicates if other.check(missed) is not None}
            reasons = obstacles(missed, tactic)
        assert predicate in tripped
        assert tripped <= {predicate, *_implied(tactic, predicate)}, predicate
        assert len(reasons) == len(tripped)
        for reason in reasons:  # N33
            assert reason.field.startswith("$.")
            assert reason.wanted
            assert reason.actual
            assert reason.wanted != reason.actual


@pytest.mark.parametrize("tactic", TACTICS, ids=_name)
def test_no_predicate_is_asked_twice(tactic: Tactic) -> None:
    assert len(set(tactic.predicates)) == len(tactic.predicates)
