"""The sets of whole models: what is there follows from the facts, every contract has a kernel, and a sample builds."""

import importlib.util
import json
import random
from pathlib import Path

import pytest

from nkc import ir
from nkc.tactics import Policy, select
from tests.cli.running import EXAMPLES, nkc

SETS = EXAMPLES / "sets"
FILES = sorted(SETS.glob("*/*.json"))
FACTS = json.loads((SETS / "shapes.json").read_text())
SAMPLE = 10
SEED = 20


def generated() -> dict[str, str]:
    """Return what the script writes, without writing it."""
    spec = importlib.util.spec_from_file_location("generate_sets", SETS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.contracts())


def test_the_files_are_what_the_script_writes() -> None:
    assert {path.relative_to(SETS).as_posix(): path.read_text() for path in FILES} == generated()


def test_the_facts_add_up() -> None:
    for model in FACTS["models"]:
        assert model["sources"]
        assert len({layer["name"] for layer in model["layers"]}) == len(model["layers"])
        for layer in model["layers"]:
            assert sum(layer["parts"]) == layer["n"], layer["name"]
    rows = FACTS["rows"]
    assert {1, 16, 64, 128, 512, 4096} <= {m for m in rows if isinstance(m, int)}
    assert any(isinstance(m, list) for m in rows)
    assert len(FILES) == sum(len(model["layers"]) for model in FACTS["models"]) * len(rows) * 2


def test_the_readme_counts_what_is_there() -> None:
    readme = (SETS / "README.md").read_text()
    for model in FACTS["models"]:
        count = len(list((SETS / model["folder"]).glob("*.json")))
        (row,) = [line for line in readme.splitlines() if f"`{model['folder']}/`" in line]
        assert row.endswith(f"| {count} |")


def test_check_accepts_all_of_them() -> None:
    assert nkc("check", *FILES) == (0, "", "")


def test_every_contract_has_a_kernel_for_its_own_target() -> None:
    for path in FILES:
        selected = select(ir.read(path), Policy(allow_experimental=True)).selected
        assert selected is not None, path.name
        assert selected.tactic.target == path.suffixes[-2].removeprefix(".")


def test_equal_layers_share_an_id_and_no_others_do() -> None:
    by_id: dict[str, set[tuple[int, int, str]]] = {}
    for path in FILES:
        document = json.loads(path.read_text())
        shape = document["shape"]
        key = (shape["n"], shape["k"], json.dumps([shape["m"], document["dtypes"], document["target"]]))
        by_id.setdefault(ir.contract_id(ir.read(path)), set()).add(key)
    assert all(len(keys) == 1 for keys in by_id.values())
    assert len(by_id) < len(FILES)


@pytest.mark.toolchain
def test_a_sample_builds(tmp_path: Path) -> None:
    sample = random.Random(SEED).sample(FILES, SAMPLE)
    assert {path.suffixes[-2] for path in sample} == {".gfx950", ".sm_90"}
    done = nkc("compile", "--allow-experimental", "--require", "optimized", *sample, "-o", tmp_path)
    assert (done.code, done.err) == (
        0,
        f"{SAMPLE} contracts: {SAMPLE} optimized, 0 fallback, 0 unsupported, 0 errors\n",
    )
    entries = json.loads((tmp_path / "manifest.json").read_text())["entries"]
    assert sum(len(entry["bindings"]) for entry in entries) == SAMPLE
    assert all(entry["object"] for entry in entries)
