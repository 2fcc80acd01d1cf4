"""The record of the kernels around a GEMM: every row is of a kernel in this tree, of the contract that it names."""

import json
from types import ModuleType, SimpleNamespace

import pytest

from nkc.emit import build
from nkc.emit.render import render
from nkc.ir.canonical import contract_id
from nkc.ir.contract import Contract
from nkc.ir.reader import parse_document
from nkc.runtime import bundle
from nkc.tactics.catalogue import find, tactics_of
from nkc.tactics.select import Policy
from nkc.tactics.tactic import Lowered
from tests.fixtures.contracts import contract
from tests.fixtures.scripts import BENCHMARKS, benchmark
from tests.fixtures.toolchain import FakeToolchain


@pytest.fixture(scope="module")
def quant():
    """The benchmark as a module."""
    return benchmark("quant")


ROWS = json.loads((BENCHMARKS / "records" / "h200" / "quant.json").read_text())["rows"]


def contract_of(quant: ModuleType, row: dict[str, str]) -> Contract:
    """Return the contract of a row's cell."""
    m, k = (int(part[1:]) for part in row["dims"].split("_"))
    return parse_document(dict(quant.documents("sm_90", m, k))[row["cell"]])


def stale(quant: ModuleType, rows: list[dict[str, str]]) -> list[str]:
    """Return the tactics whose row is of another kernel than today's."""
    found = []
    for row in rows:
        asked = contract_of(quant, row)
        tactic = find(asked.operation, row["tactic"])
        if render(Lowered.of(asked, tactic)).digest != row["code_digest"]:
            found.append(row["tactic"])
    return found


def one_of_each() -> list[dict[str, str]]:
    """Return a row of each tactic and cell word: the others render from the same constants."""
    return list({(row["tactic"], row["cell"]): row for row in ROWS}.values())


def test_rows_name_the_contracts_of_their_cells(quant) -> None:
    known = {tactic.name for name in {"group_quant", "silu_mul_quant", "rms_norm_quant"} for tactic in tactics_of(name)}
    assert {row["tactic"] for row in ROWS} <= known
    assert len({(row["request"], row["tactic"]) for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert contract_id(contract_of(quant, row)) == row["request"], row["cell"]


def test_rows_are_of_todays_kernels(quant) -> None:
    """A figure of a kernel that has changed since speaks of nothing: time it again (benchmarks/quant.py)."""
    assert stale(quant, one_of_each()) == []


def test_a_row_of_another_kernel_is_found(quant) -> None:
    row = one_of_each()[0]
    assert stale(quant, [{**row, "code_digest": "0" * 64}]) == [row["tactic"]]


def test_the_benchmark_writes_what_a_row_is_a_figure_of(quant, tmp_path) -> None:
    requests = build.gather_requests([("x.json", contract())])
    policy = Policy(allow_experimental=True)
    (outcome,) = outcomes = build.build_all(requests, FakeToolchain(), policy=policy)
    build.write_all(tmp_path / "out", requests, outcomes)
    library = SimpleNamespace(bundle=bundle.read(tmp_path / "out"))
    assert quant.identities(library) == {
        outcome.artifact.id: {"request": requests[0].id, "code_digest": outcome.artifact.source.digest}
    }
