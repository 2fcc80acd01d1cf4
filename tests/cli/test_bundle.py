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
    assert run(["bundle", "verify", str(tmp_path / "none.nkb")]) == 4
    assert capsys.readouterr().err == "none.nkb: no such file or directory\n"


def test_a_packed_file_that_cannot_be_written_is_one_line(built, tmp_path, capsys) -> None:
    (tmp_path / "taken").mkdir()
    for out, why in (("none/b.nkb", "no such file or directory"), ("taken", "is a directory")):
        assert run(["pack", str(built), "-o", str(tmp_path / out)]) == 4
        assert capsys.readouterr().err == f"{tmp_path / out}: cannot be written: {why}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out dir", "taken"]
