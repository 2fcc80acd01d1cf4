"""`nkc explain --near`: what is printed admits the candidate when it is applied."""

import json

import pytest

from nkc import ir
from nkc.tactics import Policy, select
from nkc.tactics.tactic import LAST
from tests.cli.running import EXAMPLES, GFX950, SHUFFLED, nkc
from tests.fixtures.contracts import document

TACTIC = "gfx950.dense.fp8_mfma_16x64x128_s3"


def write(path, edits=None):
    path.write_text(json.dumps(document(edits)))
    return path


def test_every_edited_contract_is_one_that_admits_its_candidate(tmp_path) -> None:
    odd = write(tmp_path / "odd.json", {"$.shape.m": 100, "$.shape.k": 4224, "$.epilogue": {"kind": "silu"}})
    for contract in (SHUFFLED, odd):
        done = nkc("explain", contract, "--near", "--format", "json")
        assert (done.code, done.err) == (0, "")
        record = json.loads(done.out)
        assert record["schema"] == "nkc.near/1"
        assert record["near"]
        for entry in record["near"]:
            edited = ir.parse(json.dumps(entry["contract"]).encode())
            assert ir.contract_id(edited) == entry["request"]
            admitted = select(edited, Policy(allow_experimental=True)).eligible
            assert entry["tactic"] in {candidate.tactic.name for candidate in admitted}
            for edit in entry["edits"]:
                value: object = entry["contract"]
                for step in edit["path"].split(".")[1:]:
                    value = value.get(step) if isinstance(value, dict) else None
                assert value == edit["after"] or isinstance(edit["after"], dict)


def test_fewest_edits_come_first_and_the_table_says_the_same() -> None:
    near = json.loads(nkc("explain", SHUFFLED, "--near", "--format", "json").out)["near"]
    counts = [len(entry["edits"]) for entry in near]
    assert counts == sorted(counts)
    drawn = nkc("explain", SHUFFLED, "--near", "--all")
    assert (drawn.code, drawn.err) == (0, "")
    names = [line.split()[0] for line in drawn.out.splitlines() if line.startswith("gfx950.")]
    assert names == [entry["tactic"] for entry in near]
    assert "$.layouts.b: shuffled_16x16 -> row_major_nk" in drawn.out
    assert "$.scales.a: leave out" in drawn.out


@pytest.mark.parametrize("name", ["deepseek-v3.mlp.gate.m64.sm_90.json", "deepseek-v3.o_proj.m4096.sm_90.json"])
def test_the_table_shows_the_nearest_edits_each_with_its_best_candidate(name) -> None:
    near = json.loads(nkc("explain", EXAMPLES / name, "--near", "--format", "json").out)["near"]
    assert len(near) > 100, "too many to read one by one"
    groups: dict[str, list[str]] = {}
    for entry in near:
        groups.setdefault(json.dumps([entry["edits"], entry["remaining"]]), []).append(entry["tactic"])
    done = nkc("explain", EXAMPLES / name, "--near")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) < 60
    shown = [line.split()[0] for line in lines if line.startswith("sm_90.")]
    assert shown == [tactics[0] for tactics in groups.values()][: len(shown)]
    more = [int(line.split()[1]) for line in lines if line.startswith("and ")]
    assert more == [len(tactics) - 1 for tactics in list(groups.values())[: len(shown)] if len(tactics) > 1]
    assert lines[-1].startswith(f"{len(near)} candidates by {len(groups)} sets of edits; --all lists every one")


def test_a_rank_is_said_as_explain_says_it(tmp_path) -> None:
    """What goes last of all is `last` in both tables, and a number in JSON; a time by rule has its unit."""
    contract = EXAMPLES / "qwen3.6-35b.o_proj.m1.sm_90.json"
    record = json.loads(nkc("explain", contract, "--format", "json").out)
    last = {each["name"] for each in record["candidates"] if each["effective_rank"] == [1, LAST]}
    assert last
    by_name = {}
    for line in nkc("explain", contract).out.splitlines():
        name, *words = line.split()[:3]
        by_name[name] = words[1:]
    assert {name for name, words in by_name.items() if words == ["last"]} == last
    near = nkc("explain", contract, "--near", "--all").out.splitlines()
    assert {line.split()[0] for line in near if line.split()[1:2] == ["last"]} == {
        each["tactic"]
        for each in json.loads(nkc("explain", contract, "--near", "--format", "json").out)["near"]
        if each["rank"] == [1, LAST]
    }
    listed = [line.split() for line in nkc("tactics", "--target", "sm_90").out.splitlines()]
    assert {words[0] for words in listed if words[1:2] == ["last"]} >= last
    assert all(str(LAST) not in line for line in (*near, *nkc("explain", contract).out.splitlines()))


def test_all_without_near_is_refused() -> None:
    done = nkc("explain", GFX950, "--all")
    assert (done.code, done.out) == (2, "")
    assert "add --near" in done.err


def test_apply_prints_a_contract_that_a_build_would_take(tmp_path) -> None:
    done = nkc("explain", SHUFFLED, "--near", "--apply", TACTIC)
    assert (done.code, done.err) == (0, "")
    (tmp_path / "edited.json").write_text(done.out)
    assert '\n  "shape": {"m": 16, "n": ' in done.out, "what fits on a line is on one"
    assert not {"properties", "alignment", "epilogue"} & json.loads(done.out).keys(), "defaults are left out"
    assert nkc("check", tmp_path / "edited.json").code == 0
    assert json.loads(done.out)["provenance"] == json.loads(SHUFFLED.read_text())["provenance"]
    record = json.loads(nkc("explain", tmp_path / "edited.json", "--allow-experimental", "--format", "json").out)
    states = {candidate["name"]: candidate["state"] for candidate in record["candidates"]}
    assert states[TACTIC] in ("selected", "eligible")


@pytest.mark.parametrize(
    ("tactic", "said"),
    [
        (TACTIC, "the contract needs no edit for it"),
        ("sm_90.dense.fp8_wgmma_64x64x128_w4_s6", "is for sm_90"),
        ("gfx950.dense.fp8_mfma_16x64x129", "did you mean `gfx950.dense.fp8_mfma_16x64x128_s3`"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_the_reason(tactic, said) -> None:
    done = nkc("explain", GFX950, "--apply", tactic)
    assert (done.code, done.out) == (2, "")
    assert len(done.errors) == 1
    assert said in done.err


def test_a_target_without_tactics_has_nothing_near(tmp_path) -> None:
    done = nkc("explain", write(tmp_path / "c.json", {"$.target.arch": "sm_100"}), "--near")
    assert (done.code, done.out) == (0, "")
    assert len(done.errors) == 1


def test_two_questions_at_once_are_refused() -> None:
    done = nkc("explain", GFX950, "--near", "--why", TACTIC)
    assert (done.code, done.out) == (2, "")
    assert "choose one" in done.err
