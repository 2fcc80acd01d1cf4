"""Directories and files are written whole or not at all, and what is equal is kept."""

import os
import signal
from pathlib import Path

import pytest

from nkc.emit import write
from nkc.ir.errors import ToolError, UsageError

FILES = {"a.json": b"{}\n", "keep/source.py": b"pass\n"}


def tree(place: Path) -> dict[str, bytes]:
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_directory_holds_exactly_its_files_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "out"
    write.write_directory(place, FILES)
    assert tree(place) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_equal_directory_is_kept_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "out"
    write.write_directory(place, FILES)
    before = {path: path.stat() for path in place.rglob("*")}
    write.write_directory(place, dict(reversed(FILES.items())))
    assert {path: path.stat() for path in place.rglob("*")} == before


@pytest.mark.parametrize(
    "others",
    [{"a.json": b"{}\n"}, {**FILES, "b": b""}, {**FILES, "a.json": b"[]\n"}, {"other": b"x"}],
    ids=["one less", "one more", "other bytes", "other name"],
)
def test_another_directory_is_replaced_whole(tmp_path: Path, others: dict[str, bytes]) -> None:
    place = tmp_path / "out"
    write.write_directory(place, others)
    write.write_directory(place, FILES)
    assert tree(place) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_whatever_stands_in_the_place_gives_way(tmp_path: Path) -> None:
    for make in (
        lambda place: place.write_text("a file"),
        lambda place: place.symlink_to("nowhere"),
        lambda place: place.symlink_to(tmp_path),
    ):
        place = tmp_path / "out"
        make(place)
        write.write_directory(place, FILES)
        assert tree(place) == FILES
        assert not place.is_symlink()
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        place.rmdir()


@pytest.mark.parametrize("failing", [1, 2])
def test_a_replacement_that_fails_half_way_leaves_the_old_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    place = tmp_path / "out"
    write.write_directory(place, FILES)
    calls = 0
    real = os.rename

    def rename(source: object, target: object) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(28, "No space left on device")
        real(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(ToolError) as caught:
        write.write_directory(place, {"a.json": b"new"})
    assert str(caught.value) == f"{place}: cannot be written: no space left on device"
    assert tree(place) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_between_the_renames_waits_for_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, really = tmp_path / "k", os.rename
    write.write_directory(place, {"old": b"1"})

    def rename(*words):
        really(*words)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(os, "rename", rename)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            write.write_directory(place, {"new": b"2"})
    finally:
        signal.signal(signal.SIGINT, before)
    assert {path.name for path in place.iterdir()} == {"new"}
    assert list(tmp_path.iterdir()) == [place]


def test_a_file_is_replaced_at_once_with_the_users_permissions(tmp_path: Path) -> None:
    place = tmp_path / "manifest.json"
    mask = os.umask(0o027)
    try:
        write.write_file(place, b"one")
        assert place.stat().st_mode & 0o777 == 0o640
        inode = place.stat().st_ino
        write.write_file(place, b"one")
        assert place.stat().st_ino == inode
        write.write_file(place, b"two")
        assert place.read_bytes() == b"two"
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_file_that_cannot_be_replaced_keeps_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "manifest.json"
    write.write_file(place, b"one")

    def replace(source: object, target: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(ToolError, match="cannot be written: read-only file system"):
        write.write_file(place, b"two")
    assert place.read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_F38_names_with_spaces_and_beyond_ascii(tmp_path: Path) -> None:
    place = tmp_path / "out dir" / "été#1$" / "nk"
    write.make_output(place.parent)
    write.write_directory(place, FILES)
    assert tree(place) == FILES


def test_an_output_that_is_a_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(UsageError) as caught:
            write.make_output(out)
        assert str(caught.value) == f"{out}: is not a directory (choose another output with -o)"
    write.make_output(tmp_path)  # one that is there already will do


def test_a_place_without_a_parent_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot be written: no such file or directory"):
        write.write_directory(tmp_path / "missing" / "out", FILES)
    with pytest.raises(ToolError, match="cannot be written: no such file or directory"):
        write.write_file(tmp_path / "missing" / "manifest.json", b"")
