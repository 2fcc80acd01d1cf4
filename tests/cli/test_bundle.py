"""`nkc pack`, `unpack`, `bundle ls` and `bundle verify`: thin, and right about exit codes and streams."""

import json

import pytest

from nkc.cli import run
from tests.runtime.support import dense_launch, write_bundle


@pytest.fixture
def built(tmp_path):
    """A build's output directory."""
    return write_bundle(tmp_path / "out dir", [dense_launch(), dense_launch(arch="gfx950")], fallback="framework")


def test_pack_and_unpack(built, tmp_path, capsys) -> None:
    assert run(["pack", str(built), "-o", str(tmp_path / "b.nkb")]) == 0
    assert "2 kernels for gfx950, sm_90" in capsys.readouterr().err
    assert run(["unpack", str(tmp_path / "b.nkb"), "-o", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (built / "manifest.json").read_bytes()


def test_ls_prints_every_entry_and_the_plan_digest(built, capsys) -> None:
    assert run(["bundle", "ls", str(built)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("nk_") >= 5
    assert "fallback framework" in printed
    assert "plan digest " in printed
    assert run(["bundle", "ls", str(built), "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed["entries"]) == 3
    assert listed["plan_digest"] in printed


def test_verify_finds_each_planted_corruption(built, capsys) -> None:
    assert run(["bundle", "verify", str(built)]) == 0
    assert "2 kernels, all as the manifest says" in capsys.readouterr().out
    for file in [path for path in built.rglob("*") if path.is_file() and path.name != "manifest.json"]:
        good = file.read_bytes()
        file.write_bytes(good[:-1] + bytes([good[-1] ^ 4]))
        assert run(["bundle", "verify", str(built)]) == 4
        assert f"{file.relative_to(built)}: SHA-256 is" in capsys.readouterr().err
        file.unlink()
        assert run(["bundle", "verify", str(built)]) == 4
        assert f"{file.relative_to(built)}: missing" in capsys.readouterr().err
        file.write_bytes(good)
    assert run(["bundle", "verify", str(built)]) == 0


def test_what_is_not_there_is_one_line(tmp_path, capsys) -> None:
    """Bad usage, as for every other file that a command is to read; 4 is for a bundle that is damaged."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    commands = (["bundle", "verify"], ["bundle", "ls"], ["unpack", "-o", str(tmp_path / "x")],
                ["emit-c", "-o", str(tmp_path / "x")], ["pack", "-o", str(tmp_path / "x")])  # fmt: skip
    for command in commands:
        for name, why in (
            ("none.nkb", "cannot be read: no such file or directory"),
            ("empty", "manifest.json: missing (is this the output directory of `nkc compile`?)"),
            ("notes.txt", "not a bundle (a bundle is the output directory of `nkc compile`, or the file that"),
        ):
            assert run([*command, str(tmp_path / name)]) == 2
            err = capsys.readouterr().err
            assert err.startswith(f"{name}: {why}")
            assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "notes.txt"]


def test_one_flipped_bit_of_a_packed_bundle_is_found(built, tmp_path, capsys) -> None:
    packed = tmp_path / "b.nkb"
    assert run(["pack", str(built), "-o", str(packed)]) == 0
    good = packed.read_bytes()
    assert run(["bundle", "verify", str(packed)]) == 0
    capsys.readouterr()
    end = good.rindex(b"PK\5\6")
    for place, where in ((10, "the time in the header of manifest.json"), (end + 4, "the disk in the end record"),
                         (len(good) - 1, "")):  # fmt: skip
        packed.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert run(["bundle", "verify", str(packed)]) == 4
        err = capsys.readouterr().err
        assert where in err
        assert err.count("\n") == 1
    packed.write_bytes(good[: len(good) // 2])
    assert run(["bundle", "verify", str(packed)]) == 4
    assert "a packed bundle that is not whole" in capsys.readouterr().err


def test_an_output_without_a_name_is_bad_usage(built, tmp_path, capsys, monkeypatch) -> None:
    packed = tmp_path / "b.nkb"
    assert run(["pack", str(built), "-o", str(packed)]) == 0
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    capsys.readouterr()
    for command in (["pack", str(built)], ["unpack", str(packed)], ["emit-c", str(packed)]):
        assert run([*command, "-o", ""]) == 2
        assert "an empty name" in capsys.readouterr().err
    assert not list((tmp_path / "here").iterdir())


def test_unpacking_over_something_is_bad_usage(built, tmp_path, capsys) -> None:
    assert run(["pack", str(built), "-o", str(tmp_path / "b.nkb")]) == 0
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    capsys.readouterr()
    assert run(["unpack", str(tmp_path / "b.nkb"), "-o", str(tmp_path / "full")]) == 2
    assert "is there already and not empty" in capsys.readouterr().err
    (tmp_path / "file").write_text("x")
    assert run(["unpack", str(tmp_path / "b.nkb"), "-o", str(tmp_path / "file" / "deep")]) == 4
    assert "cannot be written: not a directory" in capsys.readouterr().err


def test_a_packed_file_that_cannot_be_written_is_one_line(built, tmp_path, capsys) -> None:
    (tmp_path / "taken").mkdir()
    for out, why in (("none/b.nkb", "no such file or directory"), ("taken", "is a directory")):
        assert run(["pack", str(built), "-o", str(tmp_path / out)]) == 4
        assert capsys.readouterr().err == f"{tmp_path / out}: cannot be written: {why}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out dir", "taken"]


def test_files_of_one_name_that_ask_for_different_kernels_are_named_by_emit_c(tmp_path, capsys) -> None:
    """No C name can stand for both, and a caller who looks for one should know why."""
    alone = write_bundle(tmp_path / "alone", [dense_launch()], source="x.json")
    assert run(["emit-c", str(alone), "-o", str(tmp_path / "apart")]) == 0
    assert capsys.readouterr().err == ""
    assert "nkc_kernels_for_x" in (tmp_path / "apart" / "nkc_kernels.h").read_text()
    alike = write_bundle(tmp_path / "alike", [dense_launch(), dense_launch(identity="another")], source="x.json")
    assert run(["emit-c", str(alike), "-o", str(tmp_path / "c")]) == 0
    err = capsys.readouterr().err
    assert err.startswith("nkc_kernels_for_x: left out, the files of several contracts have this name and kernels of")
    assert err.count("\n") == 1
    assert "nkc_kernels_for_x" not in (tmp_path / "c" / "nkc_kernels.h").read_text()
