"""One run of `nkc verify`: builds what is not built, picks engines, and runs kernels, on several cores if asked."""

import fnmatch
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc.cli.parts.scratch import Scratch
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


class Session(Scratch):
    """The kernels to verify, in a temporary directory where they had to be built."""

    def __init__(self, paths: Sequence[Path], pattern: str | None, *, build_only: Path | None) -> None:
        if not paths and pattern is None:
            raise UsageError("nkc: nothing to verify (name contracts, a built directory, or --tactic PATTERN)")
        super().__init__(build_only, "verify")
        self._paths = paths
        self._pattern = pattern
        self.subjects: tuple[Subject, ...] = ()

    def _fill(self, place: Path) -> None:
        self.subjects = tuple(self._gather(place))

    def _gather(self, place: Path) -> Iterator[Subject]:
        from nkc.emit.output import Output
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
        with Toolchains() as toolchain, Output(place) as output:
            if inputs:
                policy = Policy(allow_experimental=True)
                yield from gather.build_into(output.below("contracts"), inputs, toolchain, policy)
            for subjects in gather.build_proofs(output, tactics, toolchain):
                yield from subjects

    def verify(
        self,
        engine: str | None,
        regimes: Sequence[str],
        *,
        seed: int,
        jobs: int | None,
        models: Sequence[str] = ("once",),
    ) -> list[Result]:
        """Run every kernel on every regime, under each MFMA model where the emulator runs it.

        jobs: processes; None takes every core for the emulator, and one elsewhere.
        """
        wanted = EngineName(engine) if engine is not None else None
        chosen = [Regime(regime) for regime in regimes] or list(Regime)
        tasks = len(self.subjects) * len(chosen) * len(models)
        share = max(1, (jobs or usable_cores()) // tasks)
        by_model = [all_engines(model=model, jobs=share) for model in models]
        picked: list[tuple[Subject, Engine]] = []
        for subject in self.subjects:
            first = check.choose(subject, by_model[0], wanted)
            same = by_model if first.name is EngineName.EMULATOR else by_model[:1]
            picked += [(subject, engines[first.name]) for engines in same]
        for name in dict.fromkeys((each.name, each.device()) for _, each in picked):
            runs = next(each for _, each in picked if (each.name, each.device()) == name)
            note = "" if runs.runs_object else ": the algorithm, not the object"
            click.echo(f"engine {name[0].value}{note} ({name[1]})", err=True)
        emulated = all(each.name is EngineName.EMULATOR for _, each in picked)
        processes = min(jobs or (usable_cores() if emulated else 1), len(picked) * len(chosen))
        with _progress(len(picked) * len(chosen)) as done:
            if processes == 1 or any(each.name is EngineName.DEVICE for _, each in picked):
                results = []
                for subject, each in picked:
                    rows: list[check.Row] = []
                    for regime in chosen:
                        rows += check.verify(subject, each, [regime], seed=seed)
                        done()
                    results.append((subject, each, tuple(rows)))
                return results
            return _spread(picked, chosen, seed, processes, done)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def matching(pattern: str) -> Iterator["Tactic"]:
    from nkc.ir import operations
    from nkc.tactics.catalogue import tactics_of

    everything = [tactic for operation in operations.names() for tactic in tactics_of(operation)]
    found = [tactic for tactic in everything if fnmatch.fnmatchcase(tactic.name, pattern)]
    if not found:
        raise UsageError(f"nkc: no tactic matches `{pattern}` (nkc tactics lists them)")
    yield from found


def _spread(
    picked: Sequence[tuple[Subject, Engine]], regimes: list[Regime], seed: int, processes: int, done: Done
) -> list[Result]:
    """Verify every regime of every kernel in several processes; the results come back in the order of the kernels."""
    from multiprocessing import get_context

    from nkc.verify.pool import pool

    with _one_thread_each(), pool(processes, get_context("spawn")) as executor:
        futures = [
            (
                subject,
                engine,
                [executor.submit(check.verify, subject, engine, [regime], seed=seed) for regime in regimes],
            )
            for subject, engine in picked
        ]
        results = []
        for subject, engine, parts in futures:
            rows: list[check.Row] = []
            for part in parts:
                rows += part.result()
                done()
            results.append((subject, engine, tuple(rows)))
        return results


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that start here multiply matrices on one thread: together they have as many as there are cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
