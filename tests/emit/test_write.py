"""Directories and files are written whole or not at all, and what is equal is kept."""

import errno
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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


OURS, THEIRS = {"kernel.hsaco": b"one", "launch.json": b"of one"}, {"kernel.hsaco": b"two", "launch.json": b"of two"}


@pytest.mark.parametrize("before", [None, {"a": b"an earlier build"}], ids=["empty", "replaced"])
@pytest.mark.parametrize("theirs", [OURS, THEIRS], ids=["equal", "other"])
def test_F35_a_writer_that_was_overtaken_leaves_one_whole_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, bytes] | None, theirs: dict[str, bytes]
) -> None:
    """Another process renames its directory in between our look at the place and our renaming into it."""
    place, really = tmp_path / "k", os.rename
    if before is not None:
        write.write_directory(place, before)
    inodes: list[int] = []

    def rename(source: os.PathLike[str], target: os.PathLike[str]) -> None:
        if Path(target) == place and not inodes:
            inodes.append(0)  # theirs is renamed too
            write.write_directory(place, theirs)
            inodes[0] = place.stat().st_ino
        really(source, target)

    monkeypatch.setattr(os, "rename", rename)
    write.write_directory(place, OURS)
    assert inodes
    assert (place.stat().st_ino in inodes) == (theirs == OURS), "an equal one stays, another one goes"
    assert tree(place) == OURS
    assert list(tmp_path.iterdir()) == [place]


def test_F35_a_directory_that_goes_while_it_is_looked_at_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, really = tmp_path / "k", os.rename
    write.write_directory(place, THEIRS)

    def taken(source: os.PathLike[str], target: os.PathLike[str]) -> None:
        if Path(source) == place and place.exists():
            really(place, tmp_path / "elsewhere")
        really(source, target)

    def gone(path: Path) -> bytes:
        raise FileNotFoundError(errno.ENOENT, "another writer has renamed it", str(path))

    monkeypatch.setattr(os, "rename", taken)
    monkeypatch.setattr(Path, "read_bytes", gone)
    write.write_directory(place, OURS)
    monkeypatch.undo()
    assert tree(place) == OURS


def test_F35_eight_writers_at_once_all_succeed(tmp_path: Path) -> None:
    files = {f"{index}.json": bytes([index]) * 4096 for index in range(4)}
    for turn in range(5):
        place, together = tmp_path / str(turn), threading.Barrier(8)

        def go(place: Path = place, together: threading.Barrier = together) -> None:
            together.wait()
            write.write_directory(place, files)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(go) for _ in range(8)]:
                done.result()
        assert tree(place) == files
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("code", [errno.EBUSY, errno.ESTALE])
def test_F35_what_a_network_file_system_says_in_passing_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    failures = {"rename": 2, "replace": 2}

    def busy(name: str) -> None:
        really = getattr(os, name)

        def move(source: object, target: object) -> None:
            if failures[name]:
                failures[name] -= 1
                raise OSError(code, os.strerror(code))
            really(source, target)

        monkeypatch.setattr(os, name, move)

    busy("rename")
    busy("replace")
    write.write_directory(tmp_path / "k", FILES)
    write.write_file(tmp_path / "manifest.json", b"{}")
    assert failures == {"rename": 0, "replace": 0}
    assert tree(tmp_path) == {**{f"k/{name}": data for name, data in FILES.items()}, "manifest.json": b"{}"}
    failures["rename"] = 99
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(ToolError, match=f"cannot be written: {os.strerror(code).lower()}"):
        write.write_directory(tmp_path / "k", {"a": b""})
    assert failures["rename"] > 0, "it gives up"


def test_F35_what_a_killed_writer_left_is_ignored_and_collected(tmp_path: Path) -> None:
    """A living one's is younger: writing takes seconds."""
    long_ago = time.time() - 2 * 3600
    for name, age in ((".nkc-killed", long_ago), (".nkc-living", None), ("mine", long_ago)):
        (tmp_path / name / "new").mkdir(parents=True)
        (tmp_path / name / "new" / "kernel.hsaco").write_bytes(b"half")
        if age is not None:
            os.utime(tmp_path / name, (age, age))
    (tmp_path / ".nkc-file").write_bytes(b"half")
    os.utime(tmp_path / ".nkc-file", (long_ago, long_ago))
    write.make_output(tmp_path)
    write.write_directory(tmp_path / "k", FILES)
    assert {path.name for path in tmp_path.iterdir()} == {".nkc-living", "mine", "k"}
    assert tree(tmp_path / "k") == FILES


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
