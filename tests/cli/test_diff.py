"""`nkc diff` and `nkc explain --diff`: what changed, and an exit code that scripts can use."""

import json

import pytest

from tests.cli.running import GFX950, SHUFFLED, SM_90, nkc
from tests.fixtures.contracts import document

ALLOW = "--allow-experimental"


def write(path, edits=None):
    path.write_text(json.dumps(document(edits)))
    return path


def rows(*arguments) -> list[dict]:
    done = nkc("diff", *arguments, "--format", "json")
    assert (done.code, done.err) == (1, "")
    found = json.loads(done.out)
    assert (found["schema"], found["changed"]) == ("nkc.diff/1", True)
    return found["rows"]


def test_a_contract_differs_in_nothing_from_itself_written_otherwise(tmp_path) -> None:
    one = write(tmp_path / "one.json")
    other = write(tmp_path / "other.json", {"$.epilogue": {"kind": "identity"}, "$.numerics.round": "rne_once"})
    for command in (["diff", one, other], ["explain", one, "--diff", other]):
        assert nkc(*command) == (0, "", "nothing differs\n")
        done = nkc(*command, "--format", "json")
        assert done.code == 0
        assert json.loads(done.out) == {"schema": "nkc.diff/1", "targets": ["gfx950"], "changed": False, "rows": []}


def test_notes_are_told_apart_from_what_is_computed(tmp_path) -> None:
    one, other = write(tmp_path / "one.json"), write(tmp_path / "other.json", {"$.provenance": {"model": "m"}})
    (row,) = rows(one, other)
    assert row == {
        "part": "notes",
        "change": "added",
        "path": "$.provenance",
        "before": None,
        "after": {"model": "m"},
    }
    named = write(tmp_path / "named.json", {"$.fallback": "framework"})
    assert {(row["part"], row["path"]) for row in rows(one, named)} >= {("notes", "$.fallback")}
    assert [row["path"] for row in rows(one, named)].count("$.fallback") == 1


def test_two_contracts_are_selected_and_lowered(tmp_path) -> None:
    one, many = write(tmp_path / "one.json"), write(tmp_path / "many.json", {"$.shape.m": 4096})
    found = {row["path"]: row for row in rows(one, many, ALLOW)}
    assert (found["$.shape.m"]["before"], found["$.shape.m"]["after"]) == (1, 4096)
    assert found["$.selected"]["part"] == "selection"
    assert found["$.selected"]["before"] != found["$.selected"]["after"]
    assert found["$.sealed.schedule.tile"]["part"] == "lowered"
    assert found["$.request"]["part"] == "digests"
    name = found["$.selected"]["before"]
    assert found[f"$.candidates[{name}].state"]["after"] == "rejected"
    reason = found[f"$.candidates[{name}].reasons[at_most $.shape.m]"]
    assert (reason["change"], reason["after"]["actual"]) == ("added", "4096")
    parts = [row["part"] for row in rows(one, many, ALLOW)]
    order = ["contract", "notes", "selection", "candidates", "lowered", "budget", "resources", "launch"]
    assert set(parts) <= {*order, "toolchain", "digests", "bindings"}


def test_the_order_of_the_two_sides(tmp_path) -> None:
    one, many = write(tmp_path / "one.json"), write(tmp_path / "many.json", {"$.shape.m": 4096})
    told = nkc("explain", many, "--diff", one, ALLOW, "--format", "json")
    assert told == nkc("diff", one, many, ALLOW, "--format", "json")


def test_the_table_has_one_row_for_a_candidate_and_leaves_other_targets_out(tmp_path) -> None:
    one, many = write(tmp_path / "one.json"), write(tmp_path / "many.json", {"$.shape.m": 4096})
    drawn = nkc("diff", one, many, ALLOW)
    assert (drawn.code, drawn.err) == (1, "")
    lines = drawn.out.splitlines()
    starts = [line.split()[0] for line in lines if line.startswith(("gfx950.", "sm_90."))]
    assert starts == sorted(set(starts))
    assert not any(name.startswith("sm_90.") for name in starts)
    assert any("candidates for other targets changed too" in line for line in lines)
    assert any(line.split()[:2] == ["contract", "$.shape.m"] for line in lines)


def test_what_cannot_be_read_is_bad_usage_and_no_change(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{}")
    for other in ("nowhere.json", "bad.json", "empty"):
        for pair in ((GFX950, tmp_path / other), (tmp_path / other, GFX950)):
            done = nkc("diff", *pair)
            assert (done.code, done.out) == (2, "")
            assert done.errors


def test_help_says_what_exit_1_means() -> None:
    assert "1 where something changed" in " ".join(nkc("diff", "--help").out.split())
    assert "exit 1 if anything" in " ".join(nkc("explain", "--help").out.split())


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Two builds: of two contracts; and of the first with a bias, the second, and one that falls back."""
    root = tmp_path_factory.mktemp("builds")
    for place, edits in (("a", {}), ("b", {"$.epilogue": {"kind": "bias", "dtype": "bf16"}})):
        (root / place).mkdir()
        write(root / place / "layer.json", edits)
    assert nkc("compile", ALLOW, root / "a" / "layer.json", SM_90, "-o", root / "one").code == 0
    assert nkc("compile", ALLOW, root / "b" / "layer.json", SM_90, SHUFFLED, "-o", root / "two").code == 0
    assert nkc("compile", ALLOW, SM_90, "-o", root / "again").code == 0
    return root


@pytest.mark.toolchain
def test_builds_are_compared_entry_by_entry(builds) -> None:
    assert nkc("diff", builds / "one", builds / "one") == (0, "", "nothing differs\n")
    found = {row["path"]: row for row in rows(builds / "one", builds / "two")}
    layer = "$.entries[layer.json]"
    assert found[f"{layer}.contract.epilogue.kind"]["after"] == "bias"
    assert found[f"{layer}.source.digest"]["part"] == "digests"
    assert found[f"{layer}.launch.arguments[bias]"]["change"] == "added"
    assert found[f"$.entries[{SHUFFLED.name}]"]["change"] == "added"
    assert not any(SM_90.name in path for path in found), "what both builds share is no difference"
    assert len(found) == len(rows(builds / "one", builds / "two")), "a path is told once"
    drawn = nkc("diff", builds / "one", builds / "two")
    assert drawn.code == 1
    assert layer in drawn.out


@pytest.mark.toolchain
def test_an_input_of_another_name_is_one_row(builds, tmp_path) -> None:
    (tmp_path / "renamed.json").write_bytes((builds / "a" / "layer.json").read_bytes())
    assert nkc("compile", ALLOW, tmp_path / "renamed.json", SM_90, "-o", tmp_path / "out").code == 0
    (row,) = rows(builds / "one", tmp_path / "out")
    assert (row["part"], row["change"]) == ("bindings", "changed")
    assert row["path"] == "$.entries[renamed.json].bindings[renamed.json].source"
    assert (row["before"], row["after"]) == ("layer.json", "renamed.json")


@pytest.mark.toolchain
def test_a_built_directory_is_compared_with_another_and_with_a_contract(builds) -> None:
    one = nkc("id", builds / "a" / "layer.json").out.strip()
    two = nkc("id", builds / "b" / "layer.json").out.strip()
    found = {row["path"] for row in rows(builds / "one" / one, builds / "two" / two)}
    assert {"$.contract.epilogue.kind", "$.source.digest", "$.artifacts.kernel.hsaco"} <= found
    assert nkc("diff", builds / "one" / one, builds / "one" / one).code == 0
    mixed = {row["path"]: row for row in rows(builds / "a" / "layer.json", builds / "one" / one, ALLOW)}
    assert mixed["$.resources"]["before"] is None
    assert "$.selected" not in mixed


@pytest.mark.toolchain
def test_explain_near_of_a_built_directory_is_that_of_its_contract(builds) -> None:
    one = nkc("id", builds / "a" / "layer.json").out.strip()
    of_contract = json.loads(nkc("explain", builds / "a" / "layer.json", "--near", "--format", "json").out)
    of_build = json.loads(nkc("explain", builds / "one" / one, "--near", "--format", "json").out)
    assert [entry["request"] for entry in of_build["near"]] == [entry["request"] for entry in of_contract["near"]]
