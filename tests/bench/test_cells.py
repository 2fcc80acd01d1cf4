"""The contracts of benchmarks/cells.py: each reads, under a file name of its own, and shapes outside stay outside."""

import pytest

from nkc.ir.canonical import contract_id
from nkc.ir.reader import parse_document

from ..fixtures.scripts import benchmark

CELLS = benchmark("cells")


def read(kind: str):
    return {name: parse_document(document, name) for name, document in CELLS.cells(kind)}


@pytest.mark.parametrize("kind", ["h200", "exact", "outside", "bf16", "quant"])
def test_every_cell_is_a_contract_of_its_own(kind) -> None:
    found = read(kind)
    assert len({contract_id(contract) for contract in found.values()}) == len(found) == len(list(CELLS.cells(kind)))


def test_what_is_outside_is_in_no_cell_of_the_table() -> None:
    table = {contract_id(contract) for contract in read("h200").values()}
    outside = read("outside").values()
    assert not table & {contract_id(contract) for contract in outside}
    assert {(c.exact("n"), c.exact("k")) for c in outside} == {*CELLS.OUTSIDE_SHAPES, *CELLS.THREE_SHAPES}
    assert {c.exact("m") for c in outside} >= set(CELLS.OUTSIDE_ROWS)
