"""The catalogue as a whole: names, templates and proofs of every tactic of every operation."""

import re

import pytest

from nkc.emit import templates
from nkc.emit.include import graph
from nkc.ir import epilogues, operations, targets
from nkc.tactics.catalogue import tactics_of
from tests.house.sources import ROOT

TACTICS = tuple(tactic for name in operations.names() for tactic in tactics_of(name))


def test_names_are_unique_over_all_operations() -> None:
    names = [tactic.name for tactic in TACTICS]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize("tactic", TACTICS, ids=lambda tactic: tactic.name)
def test_a_tactic_is_at_home(tactic) -> None:
    assert tactic.target in targets.names()
    assert tactic.operation in operations.names()
    assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", tactic.name)
    assert (templates.root() / tactic.kernel.template).is_file()
    assert tactic.proofs(tactic), "nothing could ever prove it"


def test_every_template_is_reached() -> None:
    """A template that no kernel uses is dead text that would still be shipped."""
    reached = set()
    for tactic in TACTICS:
        reached |= set(graph(tactic.kernel.template, templates.root()))
    kernels = [path for path in templates.root().rglob("*.j2") if path.parent.name in ("triton", "cuda", "amdgcn")]
    assert {path.relative_to(templates.root()).as_posix() for path in kernels} == reached


ATOMIC = re.compile(r"\btl\.atomic_\w+\(\s*\w+|\batomic[A-Z]\w*\(|\b(?:atom|red|multimem)\.[a-z]|\bcp\.reduce\.")


def test_F31_nothing_is_added_to_a_result_in_the_order_of_arrival() -> None:
    """Who arrives may be counted, as the pieces of a split along k are: an integer that no result is made of."""
    found = {
        (path.name, atomic) for path in templates.root().rglob("*.j2") for atomic in ATOMIC.findall(path.read_text())
    }
    assert found == {("dense_finish.py.j2", "tl.atomic_add(counters")}
    wrong = (
        "tl.atomic_add(out",
        "atomicAdd(out",
        "red.global.add.f32",
        "atom.add.noftz.bf16x2",
        "cp.reduce.async.bulk",
    )
    assert all(ATOMIC.search(text) for text in wrong)


def test_an_operation_names_epilogues_that_exist() -> None:
    for name in operations.names():
        for kind in operations.get(name).epilogues:
            assert epilogues.get(kind).kind == kind
            assert (ROOT / "nkc" / "ir" / "epilogues" / f"{kind}.py").is_file()
