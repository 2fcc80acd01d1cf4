"""The rule by tile and rounds: what it counts, that it orders where no row does, and what it costs where measured."""

import dataclasses
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.bench.propose import serving
from nkc.ir import targets
from nkc.ir.reader import parse_document
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.dense import wave
from nkc.tactics.performance import read_all
from nkc.tactics.select import Policy, obstacles, select

from ..fixtures.contracts import bf16, contract

DENSE = {tactic.name: tactic for tactic in tactics_of("dense")}
SMALL = DENSE["sm_90.dense.fp8_wgmma_64x64x128_w4_s4"]
SPLIT = DENSE["sm_90.dense.fp8_wgmma_64x64x128_w4_s4_k4"]
UNTUNED = {"$.target.arch": "sm_90", "$.shape.n": 2240, "$.shape.k": 7296}
LOOSE = {"$.numerics.accumulate": "tensor_core_fp8", "$.numerics.combine": "fixed_order"}
BEHIND_ALL = 1_000_000_000
"""Nanoseconds: behind whatever the rule tells."""
EVERY = Policy(allow_experimental=True)


def of(m: object, n: int = 2240, k: int = 7296):
    return contract({**UNTUNED, **LOOSE, "$.shape.m": m, "$.shape.n": n, "$.shape.k": k})


def test_tiles_rounds_and_blocks_are_those_of_the_largest_m() -> None:
    work = wave.work_of(of({"min": 0, "max": 130}), SMALL)
    assert (work.pieces, work.units, work.rounds) == (3 * 35, 132, 1)
    assert work.blocks == 57
    assert work.absent_rows == pytest.approx(64 - 130 / 3)
    assert work.bytes == 130 * 7296 + 2240 * 7296 + 130 * 2240 * 2


def test_a_split_makes_more_pieces_of_fewer_blocks() -> None:
    whole, parts = wave.work_of(of(64), SMALL), wave.work_of(of(64), SPLIT)
    assert (parts.pieces, parts.blocks) == (4 * whole.pieces, 15)
    assert parts.waits <= parts.rounds == 2


@pytest.mark.parametrize(("name", "blocks"), [("r8_w1", 4), ("r4_w3", 12), ("r4_w8", 32)])
def test_waves_that_share_k_wait_for_the_last_of_them(name, blocks) -> None:
    """512 elements are one load of one wave: the others of a workgroup have nothing to do."""
    assert wave.work_of(of(1, k=512), DENSE[f"sm_90.dense.fp8_gemv_{name}"]).blocks == blocks


def test_one_tile_more_than_the_units_is_a_second_round() -> None:
    units = targets.get("sm_90").compute_units
    works = [wave.work_of(of(64, n=64 * tiles), SMALL) for tiles in (units, units + 1)]
    assert [work.rounds for work in works] == [1, 2]


def test_the_words_hold_everything_that_the_rule_used() -> None:
    told = wave.estimate(of(64), SPLIT)
    assert told is not None
    assert told.words.startswith("35 tiles of 64x64 in 4 parts, 2 a unit (")
    assert "15 blocks of k: " in told.words
    assert told.words.endswith(f": {told.ns / 1000:.1f} us")


def test_a_family_without_figures_says_whose_pace_it_takes() -> None:
    stranger = dataclasses.replace(SMALL, name="sm_90.dense.fp8_new_64x64x128_w4_s4")
    told = wave.estimate(of(64), stranger)
    assert told is not None
    assert "at the pace of sm_90.dense: " in told.words


def test_figures_are_positive_and_their_families_are_known() -> None:
    known = {tactic.family for tactic in DENSE.values()} | {"sm_90.dense"}
    for pace in wave.paces().paces:
        assert pace.family in known
        assert all(value > 0 for value in msgspec.structs.astuple(pace)[2:])


@given(st.integers(1, 8192), st.integers(1, 512), st.integers(4, 160))
def test_more_work_never_takes_less_time(m, n, k) -> None:
    pace = wave.pace_of(SMALL, wave.paces())
    assert pace is not None

    def ns(m: int, n: int, k: int) -> float:
        return wave.nanoseconds(wave.work_of(of(m, 16 * n, 128 * k), SMALL), pace, wave.paces().read_gbs)

    assert ns(m, n, k) <= ns(m, n + 1, k)
    assert ns(m, n, k) <= ns(m, n, k + 1)
    full = 64 * math.ceil(m / 64)
    assert ns(full, n, k) <= ns(full + 64, n, k)


def test_without_a_row_the_rule_orders_and_its_inputs_are_kept() -> None:
    found = select(of(128), EVERY)
    told = [candidate for candidate in found.eligible if candidate.rank_source == "rule"]
    assert told == list(found.eligible)
    assert len(told) > 3
    for candidate in told:
        told_again = wave.estimate(found.contract, candidate.tactic)
        assert told_again is not None
        assert candidate.effective_rank == (1, told_again.ns)
        assert candidate.rule == told_again.words
    assert all(candidate.rule is None for candidate in found.candidates if obstacles(found.contract, candidate.tactic))


@pytest.mark.parametrize(("operands", "rate"), [("bf16", "bf16"), ("fp8_e4m3", "fp8")])
@pytest.mark.parametrize("m", [256, 1024, 4096, 8192])
def test_no_tactic_is_told_to_be_faster_than_the_chip(operands, rate, m) -> None:
    """A kernel for few weights, timed at few rows, was once told to reach 811 TFLOP/s at 4096, and went first."""
    sessions = read_all().sessions.values()
    ceiling = max(session.ceilings.tflops[rate] for session in sessions if rate in session.ceilings.tflops)
    for n, k in ((2048, 2048), (4096, 7168), (7168, 2048), (8192, 8192), (24576, 1536)):
        edits = {"$.target.arch": "sm_90", "$.shape.m": m, "$.shape.n": n, "$.shape.k": k}
        asked = contract(bf16(edits) if operands == "bf16" else {**edits, **LOOSE, "$.numerics.combine": "ascending"})
        for name, tactic in serving(asked).items():
            told = tactic.estimate(asked, tactic)
            assert told is None or 2 * m * n * k / told.ns / 1000 < ceiling, f"{name}: n {n}, k {k}"


@pytest.mark.parametrize("target", ["gfx950", "sm_90"])
def test_a_target_has_the_rule_for_all_of_its_tactics_or_for_none(target) -> None:
    """Nanoseconds and catalogue ranks in one order mean nothing, but for a rank that is behind any time."""
    own = [tactic for tactic in DENSE.values() if tactic.target == target and tactic.proofs(tactic)]
    told = {tactic.name for tactic in own if all(tactic.estimate(proof, tactic) for proof in tactic.proofs(tactic))}
    untold = {
        tactic.rank for tactic in own if not any(tactic.estimate(proof, tactic) for proof in tactic.proofs(tactic))
    }
    assert len(told) + sum(tactic.rank in untold for tactic in own) >= len(own)
    assert not told or min(untold, default=BEHIND_ALL) >= BEHIND_ALL


MOST_LOSS = 1.05
"""Geometric mean over all recorded cells of the time of the rule's choice over the fastest that was measured."""
MOST_LOSS_OF_A_CELL = 1.5


def test_on_recorded_cells_the_rule_costs_little() -> None:
    losses = {}
    for record in read_all().records:
        asked = parse_document(record.contract, record.cell)
        if asked.target.arch != "sm_90" or asked.operation != "dense":
            continue
        times, told = {}, {}
        for route in record.routes:
            us = route.quick_us if route.latency is None else route.latency.median_us
            estimate = wave.estimate(asked, DENSE[route.name]) if route.name in DENSE else None
            if us is not None and estimate is not None:
                times[route.name], told[route.name] = us, estimate.ns
        if times:
            losses[record.cell] = times[min(told, key=lambda name: (told[name], name))] / min(times.values())
    assert len(losses) >= 66
    assert math.exp(sum(map(math.log, losses.values())) / len(losses)) <= MOST_LOSS
    worst = max(losses, key=lambda cell: losses[cell])
    assert losses[worst] <= MOST_LOSS_OF_A_CELL, worst
