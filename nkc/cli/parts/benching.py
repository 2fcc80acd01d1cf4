"""One run of `nkc bench`: builds what is not built, measures contract by contract, keeps what it has at every step."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc.bench import gather, records
from nkc.bench.cell import Cell
from nkc.cli.parts.scratch import Scratch
from nkc.ir.errors import UsageError
from nkc.verify.subject import dim_values

if TYPE_CHECKING:
    from nkc.tactics.performance import Measurements, Record

Done = Callable[[str], None]

MISSING_NAMED = 3
"""Contracts without a record that are named one by one."""


class Bench(Scratch):
    """The contracts to bench with their kernels, in a temporary directory where they had to be built."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        every: bool,
        first: int | None = None,
        build_only: Path | None,
        cache: Path | None = None,
        dependent: bool = False,
    ) -> None:
        if not paths:
            raise UsageError("nkc: nothing to bench (name contracts, a folder of them, or a built directory)")
        super().__init__(build_only, "bench")
        self._paths = paths
        self._every = every
        self._first = first
        self._cache = cache
        self._dependent = dependent
        self.asked: tuple[gather.Asked, ...] = ()
        self.reused = 0

    @property
    def kernels(self) -> int:
        """How many kernels there are."""
        return sum(len(asked.subjects) for asked in self.asked)

    def _fill(self, place: Path) -> None:
        found = [asked for path in self._paths if gather.is_built(path) for asked in gather.built(path)]
        files = gather.contract_files([path for path in self._paths if not gather.is_built(path)])
        if files:
            from nkc import api
            from nkc.bench.objects import KeptObjects
            from nkc.emit.toolchains.by_language import Toolchains

            inputs = api.read_all([str(path) for path in files])
            if self._dependent:
                inputs = tuple((name, gather.dependent(contract)) for name, contract in inputs)
            with Toolchains() as compilers, _progress("compiling", None) as done:
                kept = None if self._cache is None else KeptObjects(compilers, self._cache)
                problems = gather.build_all(
                    inputs, place, kept or compilers, every=self._every, first=self._first, done=done
                )
            self.reused = 0 if kept is None else kept.reused
            if kept is not None and kept.unkept is not None:
                click.echo(f"{kept.unkept} (the kernels are built all the same, and not kept)", err=True)
            for problem in problems:
                click.echo(problem, err=True)
            found += gather.built(place)
        self.asked = tuple(found)

    def measure(self, *, seed: int, seconds: int | None, export: Path | None) -> "Measurements":
        """Measure every contract at every value of its bounded dims that is looked at."""
        from nkc.bench import machine, measure
        from nkc.bench.operands import copies_wanted
        from nkc.emit import proofs
        from nkc.tactics.select import select

        began = time.monotonic()
        cells = [(asked, dims) for asked in self.asked for dims in dim_values(asked.contract)]
        book = proofs.book()
        found: list[Record] = []
        with machine.Sampler() as sampler, _progress("measuring", len(cells)) as done:
            session = machine.session(" ".join(["nkc", *map(shlex.quote, _arguments())]), sampler)
            for asked, dims in cells:  # refused before anything is timed
                copies_wanted(Cell(contract=asked.contract, request=asked.request, dims=dims), session.l2_bytes)
            entrants = measure.load(subject for asked in self.asked for subject in asked.subjects)
            for place, (asked, dims) in enumerate(cells):
                if seconds is not None and time.monotonic() - began > seconds:
                    click.echo(f"nkc: {len(cells) - place} of {len(cells)} left, {seconds} s are over", err=True)
                    break
                names = [subject.tactic for subject in asked.subjects]
                chosen = [each.tactic.name for each in select(asked.contract, gather.ALLOWED, book=book).eligible]
                found.append(
                    measure.measure(
                        Cell(contract=asked.contract, request=asked.request, dims=dims),
                        [entrants[asked.request, name] for name in names],
                        session,
                        sampler,
                        contract=asked.contract,
                        selected=next((name for name in chosen if name in names), None),
                        plain=gather.plain_of(asked.contract, names),
                        seed=seed,
                    )
                )
                if export is not None:
                    _keep(export, records.document(records.of(session, found)))
                done(found[-1].cell)
        return records.of(session, found)


def plot_records(subjects: Sequence[Path], out: Path) -> int:
    """Draw committed records, or exported ones that are named, as one SVG file."""
    from nkc.bench import plot
    from nkc.emit.write import write_file

    if out.suffix != ".svg":
        raise UsageError(f"{out}: the picture is SVG (name it {out.with_suffix('.svg').name})")
    write_file(out.absolute(), plot.svg([chosen_today(subjects)]))
    return 0


def chosen_today(subjects: Sequence[Path]) -> "Measurements":
    """Return records, each with the tactic that is selected today: all committed ones, or what is named.

    subjects: exported measurements; contracts or folders of them, for their committed records.
    """
    import msgspec

    from nkc import api
    from nkc.bench.standing import as_selected_today, fresh
    from nkc.emit import proofs
    from nkc.ir.canonical import contract_id
    from nkc.ir.schema_named import schema_named
    from nkc.tactics.performance import MEASUREMENTS_SCHEMA

    files = [path for path in subjects if path.is_file() and schema_named(path) == MEASUREMENTS_SCHEMA]
    named = gather.contract_files([path for path in subjects if path not in files])
    found = [records.read_exported(path) for path in files]
    if named or not files:
        committed = records.read_all()
        if named:
            wanted = {file: contract_id(one) for file, one in api.read_all([str(path) for path in named])}
            kept = tuple(record for record in committed.records if record.request in wanted.values())
            _tell_missing(wanted, {record.request for record in kept})
            committed = msgspec.structs.replace(committed, records=kept)
        found.append(committed)
    every = tuple(record for each in found for record in each.records)
    sessions = {name: session for each in found for name, session in each.sessions.items()}
    used = {name: sessions[name] for name in sorted({record.session for record in every})}
    book = proofs.book()
    _tell_changed(fresh(every, book.tuning)[1], len(every))
    return as_selected_today(msgspec.structs.replace(found[0], sessions=used, records=every), book)


def _tell_missing(wanted: Mapping[str, str], there: Set[str]) -> None:
    """Say in one line which files name a contract (file to request id) that nobody timed, and how to time it."""
    missing = [Path(file).name for file, request in wanted.items() if request not in there]
    if not missing:
        return
    names = ", ".join(missing[:MISSING_NAMED])
    if len(missing) > MISSING_NAMED:
        names += f" and {len(missing) - MISSING_NAMED} more"
    what = "no record of it" if len(wanted) == 1 else f"no record of {len(missing)} of {len(wanted)} contracts"
    how = "nkc bench --record times them on a machine with their GPU, nkc bench --show alone prints every record"
    click.echo(f"{names}: {what} ({how})", err=True)


def _tell_changed(stale: Sequence[str], total: int) -> None:
    """Say in one line how many of the records are of other kernels than today's; stale: a line for each, cell first."""
    if not stale:
        return
    cells = stale[0].partition(":")[0] + (f" and {len(stale) - 1} more" if len(stale) > 1 else "")
    whose = f"{len(stale)} of {total} records are" if total > 1 else "its record is"
    click.echo(f"{cells}: {whose} of kernels that have changed since (nkc bench --record times them again)", err=True)


def _arguments() -> list[str]:
    """Return the command line without folders: a record names no path of somebody's machine."""
    return [Path(word).name if "/" in word else word for word in sys.argv[1:]]


def _keep(file: Path, data: bytes) -> None:
    from nkc.emit.write import write_file

    write_file(file.absolute(), data)


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Done]:
    """Show progress on a terminal; say nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from nkc.cli.parts.console import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda name: progress.update(task, advance=1, description=f"{what} {name}")
