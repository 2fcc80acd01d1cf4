"""Evidence as a user meets it, in a copy of the tree: records give maturity, and one changed line takes it away."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nkc.bench.layer_records import document
from nkc.ir.canonical import contract_id
from nkc.ir.package import PACKAGE, templates_root
from nkc.tactics.catalogue import find
from nkc.tactics.evidence import REGIMES, Check, Records, read_index
from nkc.tactics.layer import Comparison
from nkc.verify.subject import dim_values
from tests.cli.running import Done
from tests.fixtures.layers import comparison, records
from tests.verify.subjects import check_of

TACTIC = "gfx950.dense.fp8_mfma_16x64x128_s3"
OTHER = "gfx950.dense.bf16_mfma_16x32x128_s3"


class Tree:
    """A tree whose evidence a test may write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.evidence = root / "nkc" / "tactics" / "evidence"
        self.claims = root / "nkc" / "tactics" / "dense" / "claims.json"

    @classmethod
    def bare(cls, root: Path) -> "Tree":
        """Return a copy of the package with its templates and an index of its own, without claims and records.

        Its tactics are those of one target: rendering every proof anew, as often as is done here, takes their number.
        """
        shutil.copytree(PACKAGE, root / "nkc", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(templates_root(), root / "templates")
        tree = cls(root)
        for left_out in ("evidence/*.json", "*/claims.json", "*/tuning.json", "*/sm_90*.py"):
            for path in root.glob(f"nkc/tactics/{left_out}"):
                path.unlink()
        for folder in ("layer", "performance"):
            shutil.rmtree(tree.evidence / folder)
        assert tree.nkc("evidence", "index").code == 0
        return tree

    def nkc(self, *arguments: object) -> Done:
        """Run nkc as it is in this tree."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nkc", *map(str, arguments)],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root)},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def standing(self, name: str) -> dict[str, object]:
        """Return what `nkc tactics` says of one tactic."""
        done = self.nkc("tactics", "--format", "json")
        assert done.code == 0, done.err
        found: dict[str, object] = next(row for row in json.loads(done.out)["tactics"] if row["name"] == name)
        return found

    def edit(self, name: str, old: str, new: str) -> None:
        """Exchange some text of a file that holds it once."""
        path = self.root / name
        text = path.read_text()
        assert text.count(old) == 1, (name, old)
        path.write_text(text.replace(old, new))

    def proven(self, name: str, **fields: object) -> tuple[Check, ...]:
        """Return passed checks of every proof of a tactic in every regime, of today's kernel."""
        read_index.cache_clear()
        digests = read_index(self.evidence).tactics[name].proofs
        tactic = find("dense", name)
        asked = {
            contract_id(proof): tuple(dims for dims in dim_values(proof) if dims) for proof in tactic.proofs(tactic)
        }
        return tuple(
            check_of(request, digest, regime, **{"dims": asked[request], **fields})
            for request, digest in digests.items()
            for regime in REGIMES
        )


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return Tree.bare(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def tree(bare, tmp_path):
    shutil.copytree(bare.root, tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__"))
    yield Tree(tmp_path / "tree")
    read_index.cache_clear()


@pytest.fixture
def exported(tree, tmp_path):
    file = tmp_path / "results.json"
    records = [Records(tactic=name, checks=tree.proven(name)) for name in (TACTIC, OTHER)]
    file.write_bytes(msgspec.json.encode(records))
    return file


def test_records_then_promotion_then_one_changed_line(tree, exported) -> None:
    early = tree.nkc("promote", TACTIC)
    assert early.code == 5
    assert "missing" in early.out
    assert not tree.claims.exists()

    assert tree.nkc("evidence", "add", exported).code == 0
    before = tree.standing(TACTIC)
    assert (before["maturity"], before["proofs"], before["engine"]) == ("experiment", before["proofs_wanted"], "device")
    assert "nkc promote" in str(before["needs"])
    only_shown = tree.nkc("promote", "--check", TACTIC)
    assert (only_shown.code, tree.claims.exists()) == (0, False)
    done = tree.nkc("promote", TACTIC, OTHER)
    assert done.code == 0
    assert done.errors == [f"{OTHER}: claims `verified` now", f"{TACTIC}: claims `verified` now"]
    assert json.loads(tree.claims.read_text()) == {OTHER: "verified", TACTIC: "verified"}

    template = "templates/triton/dense_fp8_block.py.j2"
    tree.edit(template, "# Column j has scale row", "# Column j has the scale row")
    assert tree.standing(TACTIC)["maturity"] == "verified"  # other bytes, but rendering gives the same digests
    tree.edit(template, "(a_scale * b_scale)[:, None]", "(b_scale * a_scale)[:, None]")
    fallen, kept = tree.standing(TACTIC), tree.standing(OTHER)
    assert (fallen["maturity"], fallen["claimed"], fallen["proofs"]) == ("experiment", "verified", 0)
    assert "records are of another kernel (nkc verify --tactic" in str(fallen["needs"])
    assert kept["maturity"] == "verified"  # its kernel does not include that template
    check = tree.nkc("evidence", "index", "--check")
    assert (check.code, len(check.errors)) == (5, 1)
    assert "nkc evidence index" in check.err
    closed = tree.nkc("promote", "--check", TACTIC)
    assert closed.code == 5
    assert "stale" in closed.out


def test_without_rendering_changed_files_are_stale(tree, exported) -> None:
    """`Book()` alone, as selection has it by default, renders nothing: what it cannot tell does not count."""
    tree.nkc("evidence", "add", exported)
    tree.nkc("promote", TACTIC)
    program = (
        "import sys; from nkc.tactics.catalogue import find; from nkc.tactics.select import select\n"
        "from nkc.tactics.evidence import Book\n"
        f"tactic = find('dense', {TACTIC!r}); proof = tactic.proofs(tactic)[0]\n"
        "candidate = next(c for c in select(proof, book=Book()).candidates if c.tactic.name == tactic.name)\n"
        "print(candidate.standing.maturity, candidate.standing.measured_here, candidate.standing.needs)\n"
        "assert not {'jinja2', 'networkx', 'triton', 'torch'} & set(sys.modules)\n"
    )

    def told() -> str:
        return subprocess.run(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, "PYTHONPATH": str(tree.root)},
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout.strip()

    assert told() == "verified True None"
    tree.edit("templates/triton/dense_fp8_block.py.j2", "# Column j has scale row", "# Column j has the scale row")
    said = f"experiment False its kernel's files have changed (nkc verify --tactic {TACTIC} --record)"
    assert told() == said


def test_strict_evidence_refuses_what_another_compiler_made(tree, tmp_path) -> None:
    file = tmp_path / "old.json"
    file.write_bytes(
        msgspec.json.encode([Records(tactic=TACTIC, checks=tree.proven(TACTIC, toolchain="triton 3.5.0"))])
    )
    tree.nkc("evidence", "add", file)
    tree.nkc("promote", TACTIC)
    example = PACKAGE.parent / "examples" / "qwen3.6-35b.o_proj.m1.gfx950.json"

    def candidate(*options: str) -> dict[str, object]:
        done = tree.nkc("explain", example, "--format", "json", *options)
        found: dict[str, object] = next(c for c in json.loads(done.out)["candidates"] if c["name"] == TACTIC)
        return found

    assert (candidate()["maturity"], candidate()["foreign"]) == ("verified", ["triton 3.5.0"])
    assert "by triton 3.5.0" in tree.nkc("explain", example).out.replace("\n", " ")
    strict = candidate("--strict-evidence")
    assert (strict["maturity"], strict["proofs"]) == ("experiment", 0)
    assert str(strict["needs"]).startswith("records of triton 3.5.0, and here is ")


def compared(tree: Tree, ours_us: float, theirs_us: float, place: int) -> Comparison:
    """Return a comparison of the tactic's kernel for one of its proofs, of today's code."""
    from nkc.ir import canonical

    tactic = find("dense", TACTIC)
    proof = tactic.proofs(tactic)[place]
    request = canonical.contract_id(proof)
    read_index.cache_clear()
    digest = read_index(tree.evidence).tactics[TACTIC].proofs[request]
    document = canonical.contract_document(proof)
    return comparison(
        ours_us, theirs_us, tactic=TACTIC, request=request, contract=document, code_digest=digest, rows=place + 1
    )


def test_a_layer_accepts_and_one_changed_line_takes_it_back(tree, exported, tmp_path) -> None:
    tree.nkc("evidence", "add", exported)
    tree.nkc("promote", TACTIC)
    missing = tree.nkc("promote", "--to", "accepted", TACTIC)
    assert missing.code == 5
    assert "no comparison inside a layer" in " ".join(missing.out.split())
    file = tmp_path / "layer.json"
    file.write_bytes(document(records(compared(tree, 100.0, 110.0, 0))))
    added = tree.nkc("evidence", "add", file)
    assert (added.code, added.errors) == (0, [f"recorded in layer/{TACTIC}.json"])
    assert (tree.standing(TACTIC)["maturity"], tree.standing(TACTIC)["held"]) == ("verified", 1)
    assert tree.nkc("promote", "--to", "accepted", TACTIC).errors == [f"{TACTIC}: claims `accepted` now"]
    assert tree.standing(TACTIC)["maturity"] == "accepted"
    tree.nkc("evidence", "index")
    assert tree.nkc("evidence", "index", "--check").code == 0
    assert tree.standing(TACTIC)["maturity"] == "accepted"

    file.write_bytes(document(records(compared(tree, 100.0, 95.0, 1))))
    tree.nkc("evidence", "add", file)
    lost = tree.standing(TACTIC)
    assert (lost["maturity"], lost["held"], lost["compared"]) == ("verified", 1, 2)
    file.write_bytes(document(records(compared(tree, 100.0, 95.0, 0))))
    tree.nkc("evidence", "add", file)
    assert tree.standing(TACTIC)["maturity"] == "rejected"
    assert tree.nkc("promote", TACTIC).code == 5

    tree.edit("templates/triton/dense_fp8_block.py.j2", "(a_scale * b_scale)[:, None]", "(b_scale * a_scale)[:, None]")
    stale = tree.standing(TACTIC)
    assert (stale["maturity"], stale["compared"]) == ("experiment", 0)


def test_an_edited_comparison_is_taken_in_by_nobody(tree, tmp_path) -> None:
    file = tmp_path / "layer.json"
    file.write_bytes(document(records(compared(tree, 100.0, 95.0, 0))).replace(b'"differing":0', b'"differing":1'))
    done = tree.nkc("evidence", "add", file)
    assert (done.code, len(done.errors)) == (2, 1)
    assert "not what was written" in done.err
    assert not (tree.evidence / "layer" / f"{TACTIC}.json").exists()


def test_a_record_of_too_few_runs_is_taken_in_by_nobody(tree, tmp_path) -> None:
    """A claim of `verified` must not rest on what somebody hands in and did not do."""
    before = sorted(tree.root.rglob("*.json"))
    file = tmp_path / "few.json"
    file.write_bytes(msgspec.json.encode([Records(tactic=TACTIC, checks=tree.proven(TACTIC, repeats=2))]))
    done = tree.nkc("evidence", "add", file)
    assert (done.code, len(done.errors)) == (2, 1)
    assert "2 runs compared, and 21 are asked for" in done.err
    assert sorted(tree.root.rglob("*.json")) == before


def test_a_layer_record_with_limits_of_its_own_is_taken_in_by_nobody(tree, tmp_path) -> None:
    """Its digest is right: whoever writes a file can write that too."""
    kept = msgspec.to_builtins(compared(tree, 100.0, 110.0, 0)) | {"err_ratio_limit": 1e9}
    kept["ours"]["err_ratio"] = 0.9
    digest = hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()
    file = tmp_path / "layer.json"
    whole = msgspec.to_builtins(records(compared(tree, 100.0, 110.0, 0))) | {"comparisons": {digest: kept}}
    file.write_bytes(msgspec.json.encode(whole))
    done = tree.nkc("evidence", "add", file)
    assert (done.code, len(done.errors)) == (2, 1)
    assert "judged by limits 1e+09 and 0.05, not by 0.01 and 0.05" in done.err
    assert not (tree.evidence / "layer" / f"{TACTIC}.json").exists()


def test_adding_what_is_no_export_is_one_line(tree, tmp_path) -> None:
    file = tmp_path / "none.json"
    file.write_text('{"schema": "nkc.verify/1"}')
    done = tree.nkc("evidence", "add", file)
    assert (done.code, len(done.errors)) == (2, 1)
    assert "`nkc.verify/1` is no evidence" in done.err
    assert tree.nkc("promote", "gfx950.dense.nothing").code == 2


@pytest.mark.parametrize("name", ["gfx950.dense.gone", "../../gone"])
def test_what_speaks_of_no_tactic_here_is_left_out(tree, exported, tmp_path, name) -> None:
    before = sorted(tree.root.rglob("*.json"))
    alone, foreign = tmp_path / "alone.json", tmp_path / "layer.json"
    alone.write_bytes(msgspec.json.encode([Records(tactic=name, checks=())]))
    foreign.write_bytes(document(records(comparison(tactic=name))))
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    for file in (alone, foreign, empty):
        done = tree.nkc("evidence", "add", file)
        assert (done.code, len(done.errors)) == (2, 1)
        assert "no tactic that is known here" in done.err
    assert sorted(tree.root.rglob("*.json")) == before
    both = tmp_path / "both.json"
    both.write_bytes(exported.read_bytes().replace(OTHER.encode(), name.encode()))
    done = tree.nkc("evidence", "add", both)
    assert done.code == 0
    assert f"`{name}` is left out" in done.err
    assert set(tree.root.rglob("*.json")) - set(before) <= {tree.evidence / f"{TACTIC}.json"}
