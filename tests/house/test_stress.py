"""The record of stress in the tree: it speaks of today's kernels, and of each that is verified it says that it held."""

import pytest

from nkc.emit.render import render
from nkc.ir import operations
from nkc.ir.canonical import contract_id
from nkc.ir.contract import Maturity
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.evidence import read_index
from nkc.tactics.tactic import Lowered
from tests.fixtures.scripts import BENCHMARKS, benchmark

TACTICS = {
    tactic.name: tactic
    for operation in operations.names()
    for tactic in tactics_of(operation)
    if tactic.target == "sm_90"
}
EXPLAINED = {
    "racecheck": ("cuda/dense_fp8_f16.cu.j2", "cuda/dense_fp8_f16_few.cu.j2", "cuda/dense_fp8_stream.cu.j2"),
    "memcheck": ("cuda/dense_fp8_f16_few.cu.j2",),
}
"""Templates of kernels of which a tool reports what it does not follow: docs/notes/hopper-dense.md, Checks."""


LATER = (
    "sm_90.group_quant.columns_16_w4",
    "sm_90.rms_norm_quant.few_17408_w17_s4",
    "sm_90.silu_mul_quant.few_4_w4",
)
"""Verified after the last run of the stress; the next takes them from here."""


stress = benchmark("stress_record")
ratios = benchmark("ratios")
RECORD = stress.read(BENCHMARKS / "records" / "h200" / "stress.json")
PROOFS = {name: entry.proofs for name, entry in read_index().tactics.items()}


def test_nothing_was_found_but_what_is_explained() -> None:
    unexplained = [
        row
        for row in RECORD.rows
        if not row.passed and TACTICS[row.tactic].kernel.template not in EXPLAINED.get(row.check.value, ())
    ]
    assert unexplained == []


def test_rows_are_of_todays_kernels() -> None:
    """A row of a kernel that is gone, or of a proof whose code is another now, speaks of nothing: run it again."""
    gone = {row.tactic for row in RECORD.rows} - set(TACTICS)
    stale = {
        row.tactic
        for row in RECORD.rows
        if PROOFS.get(row.tactic, {}).get(row.request, row.code_digest) != row.code_digest
    }
    assert (gone, stale) == (set(), set())


def test_rows_beside_the_proofs_are_of_todays_kernels() -> None:
    """Rings at every ratio, and contracts that fill a chip: one of each kernel is rendered."""
    beside: dict[str, dict[str, str]] = {}
    for row in RECORD.rows:
        if row.request not in PROOFS[row.tactic]:
            beside.setdefault(row.tactic, {})[row.request] = row.code_digest
    assert len(beside) > 80
    for name, rows in beside.items():
        tactic = TACTICS[name]
        made = {contract_id(one): one for one in (*ratios.contracts(tactic), ratios.full(tactic))}
        assert set(rows) <= set(made), name
        request = min(rows)
        assert render(Lowered.of(made[request], tactic)).digest == rows[request], name


@pytest.mark.parametrize("check", [stress.Check.REPLAYS, stress.Check.CHAIN], ids=str)
def test_what_is_verified_was_stressed(check) -> None:
    """Every proof a thousand times, and of each kernel that is launched dependent one chain."""
    rows = [row for row in RECORD.rows if row.check is check]
    assert all(row.launches >= 1000 for row in rows)
    done = {(row.tactic, row.request) for row in rows}
    lacking = []
    for tactic in TACTICS.values():
        asked = tactic.claim is not Maturity.EXPERIMENT and (check is stress.Check.REPLAYS or tactic.dependent)
        proofs = {(tactic.name, request) for request in PROOFS[tactic.name]}
        if asked and not (proofs <= done if check is stress.Check.REPLAYS else proofs & done):
            lacking.append(tactic.name)
    assert set(lacking) <= set(LATER), "run benchmarks/stress.py on a GPU"


@pytest.mark.parametrize("check", [stress.Check.MEMCHECK, stress.Check.RACECHECK], ids=str)
def test_each_template_was_under_the_sanitizer(check) -> None:
    seen = {TACTICS[row.tactic].kernel.template for row in RECORD.rows if row.check is check}
    asked = {tactic.kernel.template for tactic in TACTICS.values() if tactic.name not in LATER}
    assert asked <= seen
