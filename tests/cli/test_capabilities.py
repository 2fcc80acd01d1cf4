"""The capabilities hold against the catalogue: selection on every probe says the same, nothing is left out."""

import json
from collections.abc import Callable
from itertools import product

import msgspec
import pytest

from nkc import ir
from nkc.ir import operations, targets
from nkc.ir.contract import Contract, DType
from nkc.tactics import Policy, Selection, select, tactics_of
from nkc.tactics.capabilities import Capabilities, State, capabilities
from nkc.tactics.evidence import Book
from nkc.tactics.probe import on_target, probes
from tests.cli.running import nkc

EXPERIMENTS = Policy(allow_experimental=True)


@pytest.fixture(scope="module")
def everything() -> Capabilities:
    return capabilities(operations.names(), targets.names())


@pytest.fixture(scope="module")
def selected() -> Callable[[Contract], Selection]:
    """What selects among all tactics, once a contract; the evidence is weighed once for all of them."""
    book, known = Book(), {}

    def ask(contract: Contract) -> Selection:
        if contract not in known:
            known[contract] = select(contract, EXPERIMENTS, book=book)
        return known[contract]

    return ask


def test_what_is_implemented_has_an_eligible_tactic_and_what_is_not_has_none(everything, selected) -> None:
    states = set()
    for capability in everything.capabilities:
        operation = operations.get(capability.operation)
        selections = [selected(contract) for contract in probes(operation, capability.target, capability.variant)]
        assert selections
        eligible = {candidate.tactic.family for selection in selections for candidate in selection.eligible}
        assert tuple(sorted(eligible)) == capability.families
        assert (capability.state is State.IMPLEMENTED) is bool(eligible)
        assert bool(capability.reasons) is not bool(eligible)
        states.add(capability.state)
    assert states == set(State)


def test_every_reason_is_one_that_selection_gave(everything, selected) -> None:
    for capability in everything.capabilities:
        if capability.closest is None:
            continue
        contracts = probes(operations.get(capability.operation), capability.target, capability.variant)
        given = [
            set(candidate.reasons)
            for contract in contracts
            for candidate in selected(contract).candidates
            if candidate.tactic.name == capability.closest
        ]
        assert set(capability.reasons) in given


def test_everything_that_an_operation_declares_is_listed_for_every_target(everything) -> None:
    for name, arch in product(operations.names(), targets.names()):
        operation = operations.get(name)
        listed = [c.variant for c in everything.capabilities if (c.operation, c.target) == (name, arch)]
        assert {variant.epilogue.kind for variant in listed} == set(operation.epilogues)
        for operand in operation.operands:
            absent = {None} if operand.optional else set()
            assert {variant.dtypes.get(operand.name) for variant in listed} == {*operand.dtypes, *absent}
            assert {variant.layouts.get(operand.name) for variant in listed} == {*operand.layouts, *absent}
            if operand.scales is not None:
                found = {v.scale_layouts[operand.name] for v in listed if operand.name in v.scale_layouts}
                assert found == set(operand.scales.layouts)


def test_a_probe_reads_back_as_itself(everything) -> None:
    for capability in everything.capabilities[::17]:
        for contract in probes(operations.get(capability.operation), capability.target, capability.variant):
            document = json.dumps(ir.contract_document(contract)).encode()
            assert ir.parse(document) == contract


def test_a_chip_without_the_number_format_is_the_reason_and_not_the_missing_tactic(everything) -> None:
    on_gfx942 = [c for c in everything.capabilities if c.target == "gfx942"]
    assert {(DType.FP8_E4M3 in c.variant.dtypes.values(), c.reasons[0].wanted) for c in on_gfx942} == {
        (True, "a target with ocp_fp8"),
        (False, "a target with a tactic: gfx950, sm_90"),
    }


def test_a_contract_is_read_once_for_all_targets(everything) -> None:
    for capability in everything.capabilities[::37]:
        operation = operations.get(capability.operation)
        for contract in probes(operation, "gfx942", capability.variant):
            moved = on_target(contract, capability.target)
            assert moved in list(probes(operation, capability.target, capability.variant))


def test_families_cover_the_catalogue(everything) -> None:
    assert sum(family.tactics for family in everything.families) == sum(
        len(tactics_of(name)) for name in operations.names()
    )
    named = {family.name for family in everything.families}
    assert named == {family for capability in everything.capabilities for family in capability.families}


def test_a_tactic_that_is_taken_away_takes_its_capabilities_along(monkeypatch) -> None:
    from nkc.tactics import capabilities as module

    kept = tuple(tactic for tactic in tactics_of("dense") if "bf16" not in tactic.name)
    monkeypatch.setattr(module, "tactics_of", lambda _: kept)
    found = capabilities(("dense",), ("gfx950",)).capabilities
    assert {c.variant.dtypes["a"] for c in found if c.state is State.IMPLEMENTED} == {DType.FP8_E4M3}
    monkeypatch.setattr(module, "tactics_of", lambda _: ())
    found = capabilities(("dense",), ("gfx950",)).capabilities
    assert {c.reasons[0].actual for c in found} == {"no tactic for gfx950"}
    assert all(c.closest is None for c in found)


def test_the_command_prints_the_same_as_json_and_as_a_table(everything) -> None:
    done = nkc("capabilities", "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert msgspec.json.decode(done.out.encode(), type=Capabilities) == everything
    drawn = nkc("capabilities")
    assert (drawn.code, drawn.err) == (0, "")
    for word in ("fp8_mfma", "fp8_wgmma", "shuffled_16x16", "a target with ocp_fp8", *targets.names()):
        assert word in drawn.out
    assert len(drawn.out.splitlines()) < 150


def test_the_command_narrows_and_refuses_what_it_does_not_know() -> None:
    done = nkc("capabilities", "--target", "sm_90", "--operation", "dense", "--format", "json")
    listed = json.loads(done.out)["capabilities"]
    assert {(entry["operation"], entry["target"]) for entry in listed} == {("dense", "sm_90")}
    for arguments in (["--target", "sm_91"], ["--operation", "dance"]):
        done = nkc("capabilities", *arguments)
        assert (done.code, done.out) == (2, "")
        assert "known: " in done.err


def test_the_command_is_quick_and_loads_nothing_heavy() -> None:
    done = nkc("capabilities", "--format", "json", env={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in done.errors}
    assert not loaded & {"triton", "torch", "numpy", "networkx", "jinja2", "rich"}
