"""`nkc compile`: contracts in, code objects with their explanations out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc import api
from nkc.cli.parts.console import counted
from nkc.cli.parts.options import OutputPath, contract_argument, policy_options, strict_option

if TYPE_CHECKING:
    from nkc.emit.build import Outcome, Request

LARGE = 8
"""Contracts from which on a build ends with a tally."""


@click.command("compile", short_help="Build contracts into objects, launch records, explanations.")
@contract_argument(many=True)
@click.option("-o", "--output", "out", type=OutputPath(path_type=Path), default=Path("build"), show_default=True)
@click.option("--keep", is_flag=True, help="Keep the rendered source and the compiler's intermediate texts.")
@policy_options
@strict_option
@click.option("--require", type=click.Choice(["optimized"]), help="Exit 3 for a contract that ends in its fallback.")
@click.option(
    "--on-object-mismatch",
    type=click.Choice(["fail", "next"]),
    default="fail",
    show_default=True,
    help="What to do when an object disagrees with its contract: exit 4, or reject it and build the next in order.",
)
def command(
    contracts: tuple[str, ...],
    out: Path,
    keep: bool,
    allow_experimental: bool,
    only_tactic: str | None,
    strict_evidence: bool,
    require: str | None,
    on_object_mismatch: str,
) -> int:
    """Build every CONTRACT into the output directory.

    Every input is read and checked before anything is written; an invalid one stops everything. An unsupported or
    failing contract does not stop the others; the exit code is the worst of them.
    """
    built = api.build_files(
        contracts,
        out,
        keep=keep,
        allow_experimental=allow_experimental,
        only_tactic=only_tactic,
        strict_evidence=strict_evidence,
        require_optimized=require == "optimized",
        on_object_mismatch=on_object_mismatch,
        progress=_progress,
    )
    for failure in built.failures:
        for line in failure.lines:
            click.echo(line, err=True)
    _tally(built)
    codes = {failure.exit_code for failure in built.failures}
    return next((code for code in api.WORST_FIRST if code in codes), 0)


def _tally(built: "api.Build") -> None:
    """Close a large build by what became of its contracts; lines about single ones may have scrolled away."""
    from collections import Counter

    from nkc.ir.manifest import Disposition

    ends = Counter(entry.disposition for entry in built.manifest.entries)
    # A contract whose build failed has no entry in the manifest.
    failed = sum(failure.exit_code not in (0, 3) for failure in built.failures)
    total = ends.total() + failed
    if total < LARGE:
        return
    words = [f"{ends[Disposition.OPTIMIZED]} optimized", f"{ends[Disposition.FALLBACK]} fallback"]
    words += [f"{ends[Disposition.UNSUPPORTED]} unsupported", f"{failed} errors"]
    click.echo(f"{counted(total, 'contract')}: {', '.join(words)}", err=True)


def _progress(total: int) -> AbstractContextManager[Callable[["Request", "Outcome"], None]]:
    """Return a progress bar on a terminal, and nothing in a pipe."""
    import sys

    if total < 2 or not sys.stderr.isatty():
        return nullcontext(lambda _request, _outcome: None)
    return _bar(total)


@contextmanager
def _bar(total: int) -> Iterator[Callable[["Request", "Outcome"], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from nkc.cli.parts.console import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("compiling", total=total)

        def done(request: "Request", _: "Outcome") -> None:
            progress.update(task, advance=1, description=request.bindings[0].source)

        yield done
