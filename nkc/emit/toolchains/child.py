"""A compiler's child process, the parent's side: started early, fed sources, and every failure one ToolError.

Starting costs a fork; the child loads the compiler while the parent goes on. One worker serves many compiles in turn.
Nothing of the user's environment, home, or cache reaches it, and it leaves nothing behind.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, cast

from nkc.emit.interrupts import uninterrupted
from nkc.emit.toolchains.worker import Hello, Reply, Request, read_frame, write_frame
from nkc.ir.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nkc.emit.toolchains.worker import Message

TIMEOUT_SECONDS = 600.0
"""Per kernel. The slowest tile takes a second; far beyond that a compiler hangs."""

WORKER = Path(__file__).with_name("worker.py")

LAST_WRITES_SECONDS = 1.0
"""How long a folder is cleared again: what an ended child had started may be writing its last file meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """Which compiler runs in a child. title: in error texts. file: its module. install: what mends a missing one."""

    title: str
    file: Path
    install: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    """A running worker: its process, its ends of the pipes, its diagnostics, its scratch folder."""

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    replies: IO[bytes]
    log: IO[bytes]
    scratch: str

    def kill(self) -> None:
        """End the child and the assembler that it may be running."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    @uninterrupted()
    def end(self) -> None:
        """End the child and remove its files."""
        self.kill()
        self.process.wait()
        for stream in (self.replies, self.log, self.requests):
            with suppress(BrokenPipeError):  # of a request that was being written
                stream.close()
        remove(self.scratch)

    def said(self, error: str = "") -> str:
        """Return the useful part of the child's diagnostics and of its error, without our own paths."""
        self.log.seek(0)
        log = self.log.read().decode(errors="replace")
        return useful_lines(f"{log}\n{error}").replace(f"{self.scratch}/", "")


class ChildToolchain:
    """A worker in waiting. As a context manager it starts the child at once and does not wait for it."""

    def __init__(self, compiler: Compiler, *, timeout_seconds: float = TIMEOUT_SECONDS, worker: Path = WORKER) -> None:
        self._compiler = compiler
        self._timeout = timeout_seconds
        self._worker = worker
        self._child: _Child | None = None
        self._end: Callable[[], object]
        self._version = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the child, if none runs. However this process ends, short of being killed, the child ends before it."""
        try:
            self._running()
        except BaseException:  # an interrupt takes effect when the child has been started
            self.close()
            raise

    @uninterrupted()
    def _running(self) -> _Child:
        if self._child is None:
            self._version = ""
            self._child = child = _start(self._worker, self._compiler.file)
            self._end = weakref.finalize(self, child.end)
        return self._child

    @uninterrupted()
    def close(self) -> None:
        """End the child and remove its files."""
        if self._child is not None:
            self._child = None
            self._end()

    def ask(self, request: Request, where: str) -> Reply:
        """Return the reply to a request.

        Raises ToolError (exit 4) when the compiler refuses, crashes or takes too long; the next call starts anew.
        """
        child = self._running()
        reply = self._ask(child, request, where)
        if reply.error:
            words = child.said(reply.error)
            raise ToolError(f"{where}: {self._compiler.title} {self._version} refused the kernel: {words}")
        return reply

    @property
    def version(self) -> str:
        """Return the version that the child has named; empty before it has."""
        return self._version

    def _ask(self, child: _Child, request: Request, where: str) -> Reply:
        child.log.seek(0)
        child.log.truncate()
        try:
            write_frame(child.requests, request)
        except BrokenPipeError:
            raise self._died(child, where, self._hello(child)) from None
        if not self._version:
            hello = self._receive(child, Hello, where)
            if hello.error:
                raise self._missing(child, where, hello)
            self._version = hello.version
        return self._receive(child, Reply, where)

    def _hello(self, child: _Child) -> Hello | None:
        """Return the greeting of a child that has gone: one that could not load its compiler says so before it goes."""
        return None if self._version else read_frame(child.replies, Hello)

    def _missing(self, child: _Child, where: str, hello: Hello) -> ToolError:
        words = child.said(hello.error)
        self.close()
        compiler = self._compiler
        return ToolError(f"{where}: {compiler.title} cannot be loaded: {words} (install {compiler.install})")

    def _receive(self, child: _Child, kind: "type[Message]", where: str) -> "Message":
        """Read one frame; a watchdog ends a child that takes too long, which reads here as the end of its stream."""
        import threading

        late = threading.Event()

        def expire() -> None:
            late.set()
            child.kill()

        watchdog = threading.Timer(self._timeout, expire)
        watchdog.daemon = True
        watchdog.start()
        try:
            message = read_frame(child.replies, kind)
        finally:
            watchdog.cancel()
        if message is not None:
            return message
        if late.is_set():
            self.close()
            raise ToolError(f"{where}: {self._compiler.title} took longer than {self._timeout:g} s and was stopped")
        raise self._died(child, where)

    def _died(self, child: _Child, where: str, hello: Hello | None = None) -> ToolError:
        if hello is not None and hello.error:
            return self._missing(child, where, hello)
        code = child.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        words = child.said()
        self.close()
        return ToolError(f"{where}: {self._compiler.title}'s process ended with {how}: {words or 'it said nothing'}")


def _start(worker: Path, file: Path) -> _Child:
    """Start a worker in a scratch folder of its own."""
    scratch = tempfile.mkdtemp(prefix="nkc-")
    try:
        log = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - closed with the child
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", worker, scratch, file, *module_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={},
            cwd=scratch,
            start_new_session=True,  # an interrupt at the terminal is the parent's to handle
        )
    except OSError:
        remove(scratch)
        raise
    requests, replies = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    return _Child(process=process, requests=requests, replies=replies, log=log, scratch=scratch)


def remove(scratch: str) -> None:
    """Remove the scratch folder of a child that has ended."""
    last = time.monotonic() + LAST_WRITES_SECONDS
    shutil.rmtree(scratch, ignore_errors=True)
    while os.path.exists(scratch) and time.monotonic() < last:
        time.sleep(0.01)
        shutil.rmtree(scratch, ignore_errors=True)


def useful_lines(text: str, limit: int = 3) -> str:
    """Return the last lines of a compiler's output that say something, joined into one; errors win over the rest."""
    noise = re.compile(r"[\s^~|(){}=]*|Traceback .*|\s*File .*|\s*raise .*|#.*")
    lines = [line.strip() for line in text.splitlines() if not noise.fullmatch(line)]
    errors = [line for line in lines if "error" in line.lower()]
    return " | ".join(line[:300] for line in (errors or lines)[-limit:])


def module_path() -> tuple[str, ...]:
    """Return where the parent finds modules, without the current directory: what the isolated child searches."""
    return tuple(dict.fromkeys(os.path.abspath(path) for path in sys.path if path))


def installed_digest(package: str, *, below: str) -> str:
    """Return the SHA-256 over the recorded hashes of a package's files: equal bytes, equal digest anywhere.

    below: folder that the files lie in; whatever a machine adds beside them (launchers, caches) is no part of it.
    """
    import hashlib
    from importlib.metadata import distribution

    record = distribution(package).read_text("RECORD") or ""
    lines = sorted(line for line in record.splitlines() if line.startswith(f"{below}/") and "sha256=" in line)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
