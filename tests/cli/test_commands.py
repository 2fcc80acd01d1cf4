"""Every command that compiles nothing: what goes to which stream, the JSON others rely on, and what is refused."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import EXAMPLES, GFX950, SHUFFLED, SM_90, nkc
from tests.fixtures.contracts import document


def test_help_names_every_command_and_every_exit_code() -> None:
    done = nkc("--help")
    assert (done.code, done.err) == (0, "")
    for word in ("compile", "explain", "check", "id", "tactics", "targets", "inspect"):
        assert f"\n  {word} " in done.out
    assert "Exit codes: 0 done, 1 a bug in nkc, 2 bad usage" in done.out
    for group in ([], ["evidence"], ["bundle"]):
        _, _, listed = nkc(*group, "--help").out.partition("\nCommands:\n")
        assert listed
        for line in listed.splitlines():
            assert line.endswith("."), "a summary is one whole sentence on one line"
            assert "..." not in line
            assert len(line) <= 80


def test_version() -> None:
    import nkc as package

    assert nkc("--version").out == f"nkc {package.__version__}\n"


def test_an_unknown_command_or_option_is_one_line() -> None:
    for arguments in (["frobnicate"], ["id"], ["explain", "--why"], ["compile", "--require", "luck", str(GFX950)]):
        done = nkc(*arguments)
        assert done.code == 2
        assert done.out == ""
        assert len(done.errors) == 1
        assert done.err.startswith("nkc: ")


def test_id_prints_the_id_alone_and_does_not_mind_how_a_file_is_written(tmp_path) -> None:
    done = nkc("id", GFX950)
    assert done.code == 0
    assert done.err == ""
    assert done.out.startswith("nk_")
    assert len(done.out) == len("nk_\n") + 24
    shuffled = dict(reversed(json.loads(GFX950.read_text()).items()))
    del shuffled["provenance"], shuffled["fallback"], shuffled["epilogue"], shuffled["properties"]
    (tmp_path / "other.json").write_text(json.dumps(shuffled, indent=7))
    assert nkc("id", tmp_path / "other.json").out == done.out
    assert nkc("id", SM_90).out != done.out


def test_a_contract_may_come_from_standard_input(tmp_path) -> None:
    def piped(*arguments: str, data: bytes) -> tuple[int, str, str]:
        done = subprocess.run([sys.executable, "-m", "nkc", *arguments], input=data, capture_output=True, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    good = GFX950.read_bytes()
    assert piped("check", "-", data=good) == (0, "", "")
    assert piped("id", "-", data=good) == (0, nkc("id", GFX950).out, "")
    code, out, err = piped("check", "-", str(SM_90), data=good.replace(b'"gfx950"', b'"gfx95"'))
    assert (code, out) == (2, "")
    assert err.startswith("<stdin>:$.target.arch: unknown target `gfx95`")
    assert err.count("\n") == 1


def test_all_examples_are_sound_and_pairwise_different() -> None:
    files = sorted(EXAMPLES.glob("*.json"))
    assert nkc("check", *files) == (0, "", "")
    from nkc import identify

    assert len({identify(file) for file in files}) == len(files) >= 12


def test_problems_of_several_files_are_reported_together(tmp_path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(document({"$.target.arch": "gfx95", "$.dtypes.out": "bf15"})))
    (tmp_path / "two.json").write_text('{"schema": 1, "schema": 2}')
    for command in (["check"], ["compile", "-o", "out"]):
        done = nkc(*command, "one.json", GFX950, "two.json", "three.json", cwd=tmp_path)
        assert done.code == 2
        assert done.out == ""
        assert [line.split(":")[0] for line in done.errors] == ["one.json", "one.json", "two.json", "three.json"]
        assert done.errors[0].startswith("one.json:$.target.arch: unknown target `gfx95` (did you mean `gfx950`?")
        assert any(line.startswith("one.json:$.dtypes.out: unknown dtype `bf15`") for line in done.errors)
        assert any(line.startswith("two.json:1:") and "schema" in line for line in done.errors)
        assert done.errors[-1] == "three.json:$: cannot be read: no such file or directory"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "two.json"]


def test_explain_json_has_the_documented_keys() -> None:
    done = nkc("explain", GFX950, "--format", "json", "--allow-experimental")
    assert (done.code, done.err) == (0, "")
    record = json.loads(done.out)
    assert record["schema"] == "nkc.explain/1"
    assert record["request"] == nkc("id", GFX950).out.strip()
    assert record["disposition"] == "optimized"
    assert record["policy"] == {"allow_experimental": True, "only_tactic": None, "strict_evidence": False}
    assert record["id"] is None  # nothing was built
    assert not {"resources", "launch", "source", "toolchain", "artifacts"} & set(record)
    names = [candidate["name"] for candidate in record["candidates"]]
    assert names == sorted(names)
    assert {name.split(".")[0] for name in names} >= {"gfx950", "sm_90"}  # every tactic, on every target
    for candidate in record["candidates"]:
        assert set(candidate) >= {
            "name", "operation", "target", "rank", "effective_rank", "rank_source", "maturity", "claimed", "state",
            "reasons",
        }  # fmt: skip
        assert isinstance(candidate["rank"], int)
        assert bool(candidate["reasons"]) == (candidate["state"] == "rejected")
        for reason in candidate["reasons"]:
            assert set(reason) == {"stage", "predicate", "field", "wanted", "actual", "nearest"}
    (selected,) = (candidate for candidate in record["candidates"] if candidate["state"] == "selected")
    assert selected["name"] == record["selected"]


def test_explain_draws_the_decision_the_ids_and_every_local_candidate() -> None:
    done = nkc("explain", GFX950, "--allow-experimental")
    assert (done.code, done.err) == (0, "")
    first, *rest = done.out.splitlines()
    assert first.startswith("optimized: gfx950.dense.")
    assert any(line.startswith("request") and "nk_" in line for line in rest)
    record = json.loads(nkc("explain", GFX950, "--allow-experimental", "--format", "json").out)
    for candidate in record["candidates"]:
        assert (candidate["name"] in done.out) == (candidate["target"] == "gfx950")
    assert not any(line != line.rstrip() for line in done.out.splitlines())
    assert "\x1b" not in done.out


def test_explain_tells_reasons_once_for_all_that_have_the_same() -> None:
    record = json.loads(nkc("explain", GFX950, "--format", "json").out)
    rejected = {
        candidate["name"]: tuple(
            (reason["field"], reason["actual"], reason["wanted"]) for reason in candidate["reasons"]
        )
        for candidate in record["candidates"]
        if candidate["target"] == "gfx950" and candidate["state"] == "rejected"
    }
    told: list[tuple[str, ...]] = []
    for line in nkc("explain", GFX950).out.splitlines():
        name = line.split(" ")[0]
        if name not in rejected:
            continue
        if not line.endswith("the same"):
            told.append(rejected[name])
        assert rejected[name] == told[-1], name
        assert line.endswith("the same") or rejected[name][0][0] in line
    assert len(told) == len(set(told)) == len(set(rejected.values())) < len(rejected)


def test_what_its_evidence_proves_is_selected_unasked() -> None:
    done = nkc("explain", GFX950)
    assert done.code == 0
    assert done.out.startswith("optimized: gfx950.dense.")
    assert "verified (emulator" in done.out


def test_the_deployed_layout_falls_back_for_its_layout(tmp_path) -> None:
    record = json.loads(nkc("explain", SHUFFLED, "--allow-experimental", "--format", "json").out)
    assert (record["disposition"], record["fallback"]) == ("fallback", "framework.aiter")
    local = [candidate for candidate in record["candidates"] if candidate["target"] == "gfx950"]
    assert local
    for candidate in local:
        assert "$.layouts.b" in {reason["field"] for reason in candidate["reasons"]}
    closest = min(local, key=lambda candidate: len(candidate["reasons"]))
    (reason,) = closest["reasons"]
    assert (reason["wanted"], reason["actual"]) == ("row_major_nk", "shuffled_16x16")


def test_why_lists_the_reasons_of_one_candidate_and_guesses_a_misspelt_name() -> None:
    record = json.loads(nkc("explain", SHUFFLED, "--format", "json").out)
    candidate = next(c for c in record["candidates"] if c["target"] == "gfx950")
    done = nkc("explain", SHUFFLED, "--why", candidate["name"])
    assert done.out.startswith(f"{candidate['name']}: rejected\n")
    for reason in candidate["reasons"]:
        assert reason["field"] in done.out
    assert json.loads(nkc("explain", SHUFFLED, "--why", candidate["name"], "--format", "json").out) == candidate
    wrong = nkc("explain", SHUFFLED, "--why", candidate["name"][:-1])
    assert wrong.code == 2
    assert len(wrong.errors) == 1
    assert "did you mean `gfx950.dense." in wrong.err


def test_tactics_json_is_the_catalogue() -> None:
    rows = json.loads(nkc("tactics", "--format", "json").out)["tactics"]
    assert {"name", "operation", "target", "rank", "maturity"} <= set(rows[0])
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert {row["target"] for row in rows} == {"gfx950", "sm_90"}
    one = json.loads(nkc("tactics", "--operation", "dense", "--target", "sm_90", "--format", "json").out)["tactics"]
    assert one == [row for row in rows if row["operation"] == "dense" and row["target"] == "sm_90"]
    drawn = nkc("tactics").out
    assert all(name in drawn for name in names)


@pytest.mark.parametrize("option", [["tactics", "--target", "gfx95"], ["targets", "gfx95"]])
def test_an_unknown_target_names_the_known_ones(option) -> None:
    done = nkc(*option)
    assert done.code == 2
    known = "gfx942, gfx950, sm_100, sm_120, sm_89, sm_90"
    assert done.errors == [f"nkc: unknown target `gfx95` (did you mean `gfx950`? known: {known})"]


def test_targets_say_of_each_fact_where_it_comes_from() -> None:
    listed = json.loads(nkc("targets", "--format", "json").out)["targets"]
    assert [target["arch"] for target in listed] == ["gfx942", "gfx950", "sm_100", "sm_120", "sm_89", "sm_90"]
    for target in listed:
        for fact in target["facts"].values():
            assert fact["source"]
            assert fact["basis"]
    assert "163840" in nkc("targets", "gfx950").out


def test_inspect_refuses_what_is_no_object(tmp_path) -> None:
    (tmp_path / "kernel.hsaco").write_bytes(b"\x7fELF" + bytes(40))
    for name in ("kernel.hsaco", "nothing.cubin"):
        done = nkc("inspect", name, cwd=tmp_path)
        assert done.code in (2, 4)
        assert done.out == ""
        assert len(done.errors) == 1
        assert done.err.startswith(f"{name}: ")
    assert nkc("inspect", GFX950).errors[0].startswith(f"{GFX950.name}: ")


def test_explain_of_a_folder_that_holds_no_build_is_one_line(tmp_path) -> None:
    done = nkc("explain", tmp_path)
    assert (done.code, len(done.errors)) == (2, 1)
    assert "manifest.json" in done.err


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    import os
    import subprocess
    import sys

    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "nkc", "explain", str(GFX950), "--format", "json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("group", [(), ("bundle",), ("evidence",)])
def test_no_command_prints_the_help_as_it_is(group) -> None:
    done = nkc(*group)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: nkc ")


def test_output_that_was_cut_off_is_no_success_where_python_does_not_buffer(tmp_path) -> None:
    """A file of at most 8 blocks stands for a disk that fills: the first write is short, and the next one fails."""
    script = f"ulimit -f 8; exec {shlex.quote(sys.executable)} -m nkc schema > {shlex.quote(f'{tmp_path}/schema.json')}"
    done = subprocess.run(
        ["sh", "-c", script], env={**os.environ, "PYTHONUNBUFFERED": "1"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (4, "nkc: cannot be written: file too large\n")


@pytest.mark.parametrize("command", [("explain",), ("compile", GFX950, "-o")])
def test_a_name_that_no_file_can_have_is_bad_usage(command) -> None:
    name = "a" * 300
    done = nkc(*command, name)
    assert (done.code, done.out, done.err) == (2, "", f"{name}: file name too long\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_is_no_bug() -> None:
    import subprocess
    import sys

    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nkc", "explain", str(GFX950)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (4, "nkc: cannot be written: no space left on device\n")


def test_F37_no_folder_for_temporary_files_is_no_bug(tmp_path, monkeypatch, capsys) -> None:
    """The error is tempfile's own: a container whose every file system is read-only, say."""
    import tempfile

    from nkc.cli import run

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    assert run(["compile", "--allow-experimental", str(SM_90), "-o", str(tmp_path / "k")]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"nkc: no usable temporary directory found in {[str(tmp_path / 'none')]} "
        "(set TMPDIR to a folder that can be written)"
    )
    assert not (tmp_path / "k").exists()


def test_a_command_that_is_not_there_names_the_one_that_was_meant() -> None:
    done = nkc("compil", "contract.json")
    assert (done.code, done.out) == (2, "")
    assert done.errors[0].startswith("nkc: No such command 'compil' (did you mean `compile`? known: bench, ")


@pytest.mark.parametrize("command", [("compile", "-o", "k"), ("check",), ("id",)])
def test_a_folder_in_a_contract_s_place_says_how_to_name_its_files(tmp_path, command) -> None:
    (tmp_path / "kernels").mkdir()
    done = nkc(command[0], "kernels", *command[1:], cwd=tmp_path)
    assert done.code == 2
    assert done.errors == ["kernels:$: cannot be read: is a directory (name its files, kernels/*.json)"]


def test_hints_that_are_not_there_are_bad_usage() -> None:
    done = nkc("tune", "--hints", "nowhere.json", EXAMPLES / "qwen3.6-35b.o_proj.m1.sm_90.json")
    assert done.code == 2
    assert "'nowhere.json' does not exist" in done.err


def test_a_picture_of_another_kind_than_svg_is_bad_usage(tmp_path) -> None:
    done = nkc("bench", "--plot", "cells.png", cwd=tmp_path)
    assert (done.code, done.errors) == (2, ["cells.png: the picture is SVG (name it cells.svg)"])
    assert list(tmp_path.iterdir()) == []
