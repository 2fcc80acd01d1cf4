"""The toolchain child: failures of every kind are one error, and nothing of the surroundings reaches an object."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nkc.emit.source import Parameter, Source
from nkc.emit.toolchains.child import useful_lines
from nkc.emit.toolchains.triton import TritonToolchain
from nkc.ir import targets
from nkc.ir.errors import ToolError

GFX950 = targets.get("gfx950")
SM_90 = targets.get("sm_90")

SCALE = """import triton
import triton.language as tl


@triton.jit
def scale(a, out):
    rows = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(out + rows, tl.load(a + rows) * 0.5)
"""


def source(text: str = SCALE, symbol: str = "scale") -> Source:
    return Source(
        language="triton",
        text=text,
        symbol=symbol,
        digest="",
        closure=(),
        closure_digest="",
        parameters=tuple(Parameter(name=name, type="*fp32", divisible_by=16) for name in ("a", "out")),
        options=(("enable_fp_fusion", False), ("num_warps", 4)),
    )


def worker(tmp_path: Path, body: str) -> Path:
    """Return a child that says it is ready and then does something else than compiling."""
    path = tmp_path / "worker.py"
    path.write_text(
        "import os, struct, sys, time\n"
        "hello = b'\\x82\\xa7version\\xa13\\xa5error\\xa0'\n"
        "sys.stdout.buffer.write(struct.pack('<I', len(hello)) + hello)\n"
        "sys.stdout.flush()\n"
        "sys.stdin.buffer.read(4)\n" + body
    )
    return path


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os.kill(os.getpid(), 11)", "scale for gfx950: Triton's process ended with signal 11: it said nothing"),
        ("sys.exit(3)", "scale for gfx950: Triton's process ended with exit code 3: it said nothing"),
        (
            "os.write(2, b'LLVM ERROR: out of registers\\n'); os.abort()",
            "scale for gfx950: Triton's process ended with signal 6: LLVM ERROR: out of registers",
        ),
        (
            "raise RuntimeError('no room')",
            "scale for gfx950: Triton's process ended with exit code 1: RuntimeError: no room",
        ),
        (
            "sys.stdout.buffer.write(b'\\xff\\0\\0\\0cut')",
            "scale for gfx950: Triton's process ended with exit code 0: ",
        ),
    ],
)
def test_a_child_that_dies_is_a_one_line_error(tmp_path: Path, body: str, said: str) -> None:
    with TritonToolchain(worker=worker(tmp_path, body)) as toolchain, pytest.raises(ToolError) as caught:
        toolchain.compile(source(), GFX950)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_child_that_hangs_is_stopped(tmp_path: Path) -> None:
    began = time.monotonic()
    said = r"^scale for gfx950: Triton took longer than 0\.3 s and was stopped$"
    hanging = TritonToolchain(worker=worker(tmp_path, "time.sleep(60)"), timeout_seconds=0.3)
    with hanging as toolchain, pytest.raises(ToolError, match=said):
        toolchain.compile(source(), GFX950)
    assert time.monotonic() - began < 40


def test_starting_does_not_wait_and_closing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ntime.sleep(60)\n")
    began = time.monotonic()
    with TritonToolchain(worker=slow):
        assert time.monotonic() - began < 40
        assert len(list(tmp_path.glob("nkc-*"))) == 1
    assert list(tmp_path.glob("nkc-*")) == []


@pytest.mark.parametrize("moment", ["mkdtemp", "Popen", "rmtree"])
def test_an_interrupt_at_the_worst_moment_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Between the making of a folder or a child and the note of it, and between the note's end and theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    owner = {"mkdtemp": tempfile, "Popen": subprocess, "rmtree": shutil}[moment]
    really, pids = getattr(owner, moment), []

    def interrupted(*words, **named):
        made = really(*words, **named)
        if moment == "Popen":
            pids.append(made.pid)
        os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(owner, moment, interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), TritonToolchain() as toolchain:
            toolchain.start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_child_sees_an_empty_environment_and_no_user_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F37: no home is asked for a cache, so that none need be there or writable."""
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere/else")
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    body = (
        "os.write(2, f'error: {sorted(os.environ)} {sys.flags.isolated} {os.getcwd()[-12:-8]}'.encode()); sys.exit(1)"
    )
    with TritonToolchain(worker=worker(tmp_path, body)) as toolchain, pytest.raises(ToolError) as caught:
        toolchain.compile(source(), GFX950)
    assert "TRITON" not in str(caught.value)
    assert "PYTHONPATH" not in str(caught.value)
    assert "HOME" not in str(caught.value)
    assert str(caught.value).endswith(" 1 nkc-")


def test_useful_lines_prefer_errors_and_drop_ornaments() -> None:
    text = (
        'Traceback (most recent call last):\n  File "x", line 1\n    ^^^\nnote: a\nx.py:3: error: bad\n  }\n\nother\n'
    )
    assert useful_lines(text) == "x.py:3: error: bad"
    assert useful_lines("one\n\n====\ntwo\nthree\nfour\n") == "two | three | four"
    assert useful_lines("") == ""


@pytest.mark.toolchain
def test_one_worker_serves_both_targets_and_survives_a_refusal() -> None:
    with TritonToolchain() as toolchain:
        first = toolchain.compile(source(), GFX950)
        with pytest.raises(ToolError) as caught:
            toolchain.compile(source(SCALE.replace("tl.load(", "tl.laod(")), GFX950)
        assert str(caught.value).startswith("scale for gfx950: Triton 3.")
        assert "laod" in str(caught.value)
        assert "\n" not in str(caught.value)
        with pytest.raises(ToolError, match="refused the kernel"):
            toolchain.compile(source(SCALE.replace("def scale(", "def other(")), SM_90)
        other = toolchain.compile(source(), SM_90)
        again = toolchain.compile(source(), GFX950)
    assert (first.kind, first.resources.isa, first.resources.elf_flags) == ("hsaco", "gfx950", 0x54F)
    assert (other.kind, other.resources.isa) == ("cubin", "sm_90a")
    assert again == first, "what a worker compiled before must not matter"
    assert [name for name, _ in first.intermediates] == ["amdgcn", "llir", "ttgir", "ttir"]
    assert [name for name, _ in other.intermediates] == ["llir", "ptx", "ttgir", "ttir"]
    assert len(first.toolchain.digest) == 64


@pytest.mark.toolchain
def test_a_numerical_option_changes_the_object() -> None:
    """A guard for the tests here: they compare bytes, so bytes must depend on what goes in."""
    with TritonToolchain() as toolchain:
        one = toolchain.compile(source(), SM_90)
        eight = dataclasses.replace(source(), options=(("enable_fp_fusion", False), ("num_warps", 8)))
        assert toolchain.compile(eight, SM_90).data != one.data


PROGRAM = """import hashlib, sys
from nkc.emit.render import render
from nkc.emit.toolchains.triton import TritonToolchain
from nkc.ir import targets
from nkc.tactics import tactics_of
from nkc.tactics.tactic import Lowered

with TritonToolchain() as toolchain:
    for name in sys.argv[1:]:
        tactic = next(tactic for tactic in tactics_of("dense") if tactic.name == name)
        contract = tactic.proofs(tactic)[2]
        source = render(Lowered(contract=tactic.lower(contract, tactic), tactic=tactic))
        built = toolchain.compile(source, targets.get(tactic.target))
        texts = "".join(text for _, text in built.intermediates)
        for data in (built.data, texts.encode()):
            assert b"/tmp" not in data and b"nkc-" not in data and sys.prefix.encode() not in data, name
        print(source.digest, hashlib.sha256(built.data).hexdigest(), hashlib.sha256(texts.encode()).hexdigest())
"""


@pytest.mark.toolchain
def test_same_bytes_in_any_directory_with_any_home_zone_locale_seed_and_user(tmp_path: Path) -> None:
    """F41: with fresh caches; Triton's own cache key ignores the path, so a shared cache would show nothing."""
    names = ("gfx950.dense.fp8_mfma_16x64x128_s3", "sm_90.dense.fp8_wgmma_64x32x128_w4_s6")
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    surroundings = [
        {"HOME": "/nonexistent", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
        {"HOME": str(tmp_path), "TZ": "UTC", "LC_ALL": "de_DE.UTF-8", "PYTHONHASHSEED": "2", "TRITON_DEBUG": "1"},
    ]
    said = set()
    for index, surrounding in enumerate(surroundings):
        place = tmp_path / f"été {index} #$"
        place.mkdir()
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, *reversed(names)] if index else [sys.executable, "-c", PROGRAM, *names],
            cwd=place,
            env={**kept, **surrounding, "TMPDIR": str(place), "TRITON_CACHE_DIR": str(place / "cache")},
            capture_output=True,
            text=True,
            check=False,
            user=65_534 if index and os.getuid() == 0 and _readable_by_others() else None,
        )
        assert run.returncode == 0, run.stderr
        said.add(tuple(sorted(run.stdout.splitlines())))
        assert list(place.iterdir()) == [], "a build leaves nothing but what it was asked for"
    assert len(said) == 1


def _readable_by_others() -> bool:
    """Return whether another user could run this interpreter and import from here."""
    return all(
        path.stat().st_mode & 0o005 == 0o005
        for entry in (Path(sys.executable), *(Path(path) for path in sys.path if path and Path(path).is_dir()))
        for path in (entry.resolve(), *entry.resolve().parents)
    )
