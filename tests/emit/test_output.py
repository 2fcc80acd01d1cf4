"""An output that cannot be written whole leaves nothing behind that was not there before."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nkc.bench import gather as bench
from nkc.cli import run
from nkc.emit import build as b
from nkc.emit import write
from nkc.emit.explain import encode
from nkc.emit.output import Output
from nkc.emit.source import CodeObject, Source
from nkc.ir.errors import NkcError, ToolError, UsageError
from nkc.ir.target import Target
from nkc.tactics.select import Policy
from nkc.verify import gather as verify
from tests.cli.running import EXAMPLES
from tests.fixtures.contracts import contract
from tests.fixtures.toolchain import FakeToolchain
from tests.runtime.support import dense_launch, write_bundle
from tests.verify.subjects import SMALL, tactic

SIZES = (0, 100, 1000, 10_000, 100_000, 4_000_000)
"""Bytes that a file may have: as on a full disk the first one fails, or a later one, or none."""


@contextmanager
def full_beyond(size: int) -> Iterator[None]:
    """Let no file grow beyond a size; a write that would fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def everything(root: Path) -> dict[str, bytes | None]:
    """Return every folder and file below a root, hidden ones too."""
    return {path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes() for path in root.rglob("*")}


class FailsAt:
    """A toolchain that compiles nothing, and fails at its n-th kernel."""

    def __init__(self, count: int) -> None:
        self._fake, self._left = FakeToolchain(), count

    def compile(self, source: Source, target: Target) -> CodeObject:
        self._left -= 1
        if not self._left:
            raise ToolError("ptxas: was killed")
        return self._fake.compile(source, target)


def build(out: Path) -> None:
    requests = b.gather_requests([(f"{m}.json", contract({"$.shape.m": m})) for m in (16, 64)])
    b.write_all(
        out, requests, b.build_all(requests, FakeToolchain(), policy=Policy(allow_experimental=True)), keep=True
    )


def why_not(out: Path, size: int) -> str | None:
    """Build where no file may be larger, and return what stopped it."""
    try:
        with full_beyond(size):
            build(out)
    except ToolError as error:
        return str(error)
    return None


@pytest.mark.parametrize("place", ["out", "new/deep/out", "there"])
def test_a_build_on_a_full_disk_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("kept")
    before, failures = everything(tmp_path), 0
    for size in SIZES:
        if why := why_not(tmp_path / place, size):
            failures += 1
            assert "cannot be written: file too large" in why
            assert everything(tmp_path) == before, size
    assert 3 <= failures < len(SIZES)
    assert everything(tmp_path).items() > before.items()


def test_an_earlier_build_stays_whole(tmp_path: Path) -> None:
    """Its manifest is replaced last, and what a later build would have added is gone again."""
    requests = b.gather_requests([("one.json", contract({"$.shape.m": 16}))])
    b.write_all(tmp_path, requests, b.build_all(requests, FakeToolchain(), policy=Policy(allow_experimental=True)))
    before = everything(tmp_path)
    largest = max(len(data) for name, data in before.items() if data is not None and name.endswith("explain.json"))
    with pytest.raises(ToolError), full_beyond(largest - 1):
        build(tmp_path)
    assert {name: everything(tmp_path).get(name) for name in before} == before
    assert len(everything(tmp_path)) == len(before)


def test_a_command_on_a_full_disk_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = write_bundle(tmp_path / "built", [dense_launch(), dense_launch(arch="gfx950")], fallback="framework")
    packed, out = tmp_path / "b.nkb", tmp_path / "new" / "out"
    assert run(["pack", str(built), "-o", str(packed)]) == 0
    ranged = EXAMPLES / "deepseek-v3.shared_expert.gate_up_proj.m0-64.sm_90.json"
    before = everything(tmp_path)
    for words in (
        ["emit-c", str(built), "-o", str(out)],
        ["unpack", str(packed), "-o", str(out)],
        ["split", str(ranged), "--at", "1,16", "-o", str(out)],
        ["pack", str(built), "-o", str(tmp_path / "again.nkb")],
    ):
        capsys.readouterr()
        for size in (0, 100, 700):
            with full_beyond(size):
                code = run(words)
            assert code == 4, (words, size)
            assert capsys.readouterr().err.count("\n") == 1
            assert everything(tmp_path) == before, (words, size)
        assert run(words) == 0
        for path in sorted(set(tmp_path.rglob("*")) - {tmp_path / name for name in before}, reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def test_a_bench_of_which_nothing_could_be_built_leaves_nothing(tmp_path: Path) -> None:
    asked = [("one.json", contract({"$.target.arch": "sm_90"}))]
    out = tmp_path / "new" / "out"
    with pytest.raises(UsageError, match="no tactic has a kernel for these contracts"):
        bench.build_all(asked, out, FakeToolchain(failing=("dense",)), every=False)
    assert everything(tmp_path) == {}


def test_proofs_that_fail_at_the_second_tactic_leave_nothing_of_the_first(tmp_path: Path) -> None:
    small, count = tactic(SMALL), len(tactic(SMALL).proofs(tactic(SMALL)))
    with pytest.raises(NkcError), Output(tmp_path / "out") as output:
        list(verify.build_proofs(output, [small, small], FailsAt(count + 1)))
    assert everything(tmp_path) == {}


def test_an_interrupt_leaves_nothing_and_others_files_stay(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Output(tmp_path / "out") as output:
            output.below("a").directory("b", {"c/d": b"x"})
            output.file("e", b"y")
            (tmp_path / "out" / "a" / "theirs").write_bytes(b"z")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert everything(tmp_path) == {"out": None, "out/a": None, "out/a/theirs": b"z"}


def test_F35_a_run_that_is_called_off_takes_nothing_from_another_that_finished_meanwhile(tmp_path: Path) -> None:
    """Both build one contract: the other finds this one's directories, keeps them, and its manifest names them."""
    requests = b.gather_requests([("one.json", contract({"$.shape.m": 16}))])
    outcomes = b.build_all(requests, FakeToolchain(), policy=Policy(allow_experimental=True))

    def called_off(*, other_finishes: bool) -> None:
        with Output(tmp_path / "out") as output:
            artifact, explained = outcomes[0].artifact, outcomes[0].explain
            assert artifact is not None
            assert explained is not None
            output.directory(artifact.id, artifact.files(keep=False))
            output.directory(requests[0].id, {"explain.json": encode(explained)})
            output.directory("unfinished", {"a": b"half"})
            if other_finishes:
                b.write_all(tmp_path / "out", requests, outcomes)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        called_off(other_finishes=False)
    assert everything(tmp_path) == {}
    with pytest.raises(KeyboardInterrupt):
        called_off(other_finishes=True)
    left = everything(tmp_path)
    b.write_all(tmp_path / "out", requests, outcomes)
    assert left == everything(tmp_path)
    assert "out/unfinished" not in left


def test_a_run_that_is_called_off_behind_its_own_manifest_leaves_nothing(tmp_path: Path) -> None:
    requests = b.gather_requests([("one.json", contract({"$.shape.m": 16}))])
    outcomes = b.build_all(requests, FakeToolchain(), policy=Policy(allow_experimental=True))

    def called_off() -> None:
        with Output(tmp_path / "out") as output:
            b.lay_out(output, requests, outcomes)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        called_off()
    assert everything(tmp_path) == {}


def test_a_place_that_cannot_be_made_leaves_no_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(out: Path) -> None:
        out.parent.mkdir(parents=True)
        raise ToolError(f"{out}: cannot be made: no space left on device")

    monkeypatch.setattr(write, "make_output", make)
    with pytest.raises(ToolError, match="no space left"), Output(tmp_path / "a" / "b" / "c"):
        pass
    assert everything(tmp_path) == {}
