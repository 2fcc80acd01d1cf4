"""One run of `nkc verify`: builds what is not built, picks engines, and runs kernels, on several cores if asked."""

import fnmatch
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from nkc.ir.errors import UsageError
from nkc.verify import check, gather
from nkc.verify.engine import Engine, EngineName
from nkc.verify.engines import all_engines
from nkc.verify.regimes import Regime
from nkc.verify.subject import Subject

if TYPE_CHECKING:
    from nkc.tactics.tactic import Tactic

Done = Callable[[], object]
Result = tuple[Subject, Engine, tuple[check.Row, ...]]


class Session:
    """The kernels to verify, in a temporary directory where they had to be built."""

    def __init__(self, paths: Sequence[Path], pattern: str | None, *, build_only: Path | None) -> None:
        if not paths and pattern is None:
            raise UsageError("nkc: nothing to verify (name contracts, a built directory, or --tactic PATTERN)")
        self._paths = paths
        self._pattern = pattern
        self._place = build_only
        self._stack = ExitStack()
        self.subjects: tuple[Subject, ...] = ()

    def __enter__(self) -> Self:
        place = self._place or Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="nkc-verify-")))
        try:
            self.subjects = tuple(self._gather(place))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _gather(self, place: Path) -> Iterator[Subject]:
        from nkc.emit.toolchains.by_language import Toolchains
        from nkc.tactics.select import Policy

        for path in self._paths:
            if path.is_dir():
                yield from gather.built(path)
        files = [path for path in self._paths if not path.is_dir()]
        tactics = list(matching(self._pattern)) if self._pattern is not None else []
        if not files and not tactics:
            return
        from nkc import api

        inputs = api.read_all([str(path) for path in files])
        with Toolchains() as toolchain:
            if inputs:
                policy = Policy(allow_experimental=True)
                yield from gather.build_contracts(inputs, place / "contracts", toolchain, policy)
            for subjects in gather.build_proofs(tactics, place, toolchain):
                yield from subjects

    def verify(self, engine: str | None, regimes: Sequence[str], *, seed: int, jobs: int) -> list[Result]:
        """Run every kernel on every regime."""
        wanted = EngineName(engine) if engine is not None else None
        chosen = [Regime(regime) for regime in regimes] or list(Regime)
        engines = all_engines()
        picked = [(subject, check.choose(subject, engines, wanted)) for subject in self.subjects]
        for name in sorted({each.name for _, each in picked}):
            runs = next(each for _, each in picked if each.name == name)
            note = "" if runs.runs_object else ": the algorithm, not the object"
            click.echo(f"engine {name.value}{note} ({runs.device()})", err=True)
        with _progress(len(picked)) as done:
            if jobs == 1 or any(each.name is EngineName.DEVICE for _, each in picked):
                results = []
                for subject, each in picked:
                    results.append((subject, each, check.verify(subject, each, chosen, seed=seed)))
                    done()
                return results
            return _spread(picked, chosen, seed, jobs, done)


def matching(pattern: str) -> Iterator["Tactic"]:
    from nkc.ir import operations
    from nkc.tactics.catalogue import tactics_of

    everything = [tactic for operation in operations.names() for tactic in tactics_of(operation)]
    found = [tactic for tactic in everything if fnmatch.fnmatchcase(tactic.name, pattern)]
    if not found:
        raise UsageError(f"nkc: no tactic matches `{pattern}` (nkc tactics lists them)")
    yield from found


def _spread(
    picked: Sequence[tuple[Subject, Engine]], regimes: list[Regime], seed: int, jobs: int, done: Done
) -> list[Result]:
    """Verify kernels in several processes; the results come back in the order of the kernels."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [
            (subject, engine, pool.submit(check.verify, subject, engine, regimes, seed=seed))
            for subject, engine in picked
        ]
        results = []
        for subject, engine, future in futures:
            results.append((subject, engine, future.result()))
            done()
        return results


@contextmanager
def _progress(total: int) -> Iterator[Done]:
    """Show progress on a terminal; say nothing in a pipe."""
    import sys

    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    from nkc.cli.parts.console import console

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=total)
        yield lambda: progress.update(task, advance=1)
