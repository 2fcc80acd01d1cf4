"""The mutation suite: a sample in every run, all of it by `python -m tests.verify.gfx950.run_mutants`."""

import re
from pathlib import Path

import pytest

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.emulate import emulate_both_policies
from nkc.verify.gfx950.equivalence import apart, idle_barrier
from nkc.verify.gfx950.hazards import HazardKind
from nkc.verify.gfx950.mutants import baseline, judge
from nkc.verify.gfx950.mutations import MutationKind, mutations
from tests.verify.gfx950 import run_mutants, test_hazards
from tests.verify.gfx950.run_mutants import KNOWN, examine, score, small, table


@pytest.mark.parametrize(("name", "every"), [("quant", 1), ("fp8_16x64", 3), ("bf16_kn", 5), ("split_k_all", 2)])
def test_a_sample_is_caught(name, every):
    rows = examine(name, every)
    assert len(rows) >= 10
    assert score(rows) == 1.0, table(rows)


def test_values_alone_would_miss_barriers_and_waits():
    rows = examine("quant", 1)
    order = [row for row in rows if row.kind in (MutationKind.BARRIER, MutationKind.VMCNT, MutationKind.LGKMCNT)]
    assert len(order) >= 4
    assert all(row.caught_by and "values" not in row.caught_by for row in order)


def test_the_original_is_not_its_own_mutant():
    """The controls: the same machinery with nothing changed reports nothing."""
    case = small("quant")
    base = baseline(case.data, case.launch, case.buffers)
    mutation = next(iter(mutations(case.data, case.launch)))
    from dataclasses import replace

    unchanged = replace(mutation, data=case.data)
    outcome = judge(unchanged, base, case.buffers)
    assert outcome.caught_by == frozenset()


def test_every_kind_of_mutation_is_made():
    made = {row.kind for name in ("quant", "fp8_16x64", "bf16_kn", "fp8_32x32") for row in _kinds(name)}
    assert made == set(MutationKind)


def _kinds(name):
    case = small(name)
    return list(mutations(case.data, case.launch))


def test_named_survivors_are_dpp_operations_of_their_objects():
    for name, pc in KNOWN:
        kinds = [item.kind for item in _kinds(name) if item.pc == pc]
        assert kinds == [MutationKind.DPP], (name, hex(pc))


def test_every_detector_has_a_program_that_it_alone_reports():
    """`test_hazards` asserts sets of exactly one kind; the linter has its own file; landing order is below."""
    text = Path(test_hazards.__file__).read_text(encoding="utf-8")
    alone = set(re.findall(r"\{HazardKind\.(\w+)\}", text))
    elsewhere = {"STALL_MISSING", "DMA_ORDER_DEPENDENCE"}
    assert alone | elsewhere == {kind.name for kind in HazardKind}


def test_landing_order_is_noticed_without_the_other_detectors():
    case = small("fp8_64x64")
    waits = [item for item in mutations(case.data, case.launch) if item.kind is MutationKind.VMCNT]
    found = set()
    for mutation in waits:
        report = emulate_both_policies(mutation.data, case.launch, case.buffers, checked=False)
        found |= {hazard.kind for hazard in report.hazards}
    assert found == {HazardKind.DMA_ORDER_DEPENDENCE}


def test_the_table_counts_and_names():
    rows = examine("quant", 1)
    text = table(rows)
    assert re.search(r"s_barrier removed\s+1\s+1\s+0\s+0\s+0", text)
    assert "quant pc 0x248 v_mov_b32: DPP operation removed: the other steps" in text
    assert "SURVIVED" not in text
    assert run_mutants.WANTED == 0.98
    assert read_code_object(small("quant").data).symbol == "quant"


def test_a_barrier_that_matters_is_not_called_idle():
    """The reasons for survivors are no blanket excuse: none of them holds for a barrier whose removal is caught."""
    for name in ("quant", "fp8_16x64", "mx_16"):
        case = small(name)
        base = baseline(case.data, case.launch, case.buffers)
        seen = 0
        for mutation in mutations(case.data, case.launch):
            if mutation.kind is MutationKind.BARRIER and judge(mutation, base, case.buffers).caught_by == {"LDS_RACE"}:
                assert idle_barrier(mutation, base) == apart(mutation, base, case.buffers) == ""
                seen += 1
        assert seen
