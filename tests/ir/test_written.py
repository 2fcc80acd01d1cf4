"""A contract written as an author would: it reads back as itself, says nothing twice, and fits on lines."""

import json
from pathlib import Path

import pytest

from nkc import ir
from nkc.ir.written import WIDTH, short_document, write_contract
from tests.fixtures.contracts import document

CONTRACTS = sorted(Path(__file__).parents[2].glob("examples/*.json"))[::4]
QUANTISING = sorted(Path(__file__).parents[2].glob("examples/quant/*.json"))[::4]


@pytest.mark.parametrize("path", [*CONTRACTS, *QUANTISING], ids=lambda path: path.stem)
def test_examples_read_back_as_they_are(path) -> None:
    contract = ir.read(path)
    written = write_contract(contract)
    assert ir.parse(written) == contract
    assert len(written) <= len(path.read_bytes()) + 40
    assert json.loads(written).keys() <= json.loads(path.read_bytes()).keys()


def test_defaults_and_what_follows_are_left_out() -> None:
    said = document({"$.alignment": {"a": 16, "b": 32}, "$.properties": {"deterministic": True}, "$.target.wave": 64})
    short = short_document(ir.parse(json.dumps(said).encode()))
    assert short["alignment"] == {"b": 32}
    assert "properties" not in short
    assert short["target"] == {"arch": "gfx950"}
    assert short["dtypes"] == said["dtypes"]


def test_lines_are_whole_values_of_a_width() -> None:
    text = write_contract(ir.parse(json.dumps(document({"$.provenance": {"note": "x" * 200}})).encode())).decode()
    assert text.endswith("}\n")
    lines = text.splitlines()
    assert lines[0] == "{"
    assert all(line.startswith("  ") for line in lines[1:-1])
    assert all(len(line) <= WIDTH + 1 or "xxx" in line for line in lines)
    assert any(line.startswith('  "shape": {') and line.endswith("},") for line in lines)
