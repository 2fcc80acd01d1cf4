"""`nkc compile`: contracts in, code objects with their explanations out."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc.cli.parts.options import contract_argument, policy_options

if TYPE_CHECKING:
    from nkc.emit.build import Outcome, Request

WORST_FIRST = (1, 4, 3)


@click.command("compile")
@contract_argument(many=True)
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), default=Path("build"), show_default=True)
@click.option("--keep", is_flag=True, help="Keep the rendered source and the compiler's intermediate texts.")
@policy_options
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
    require: str | None,
    on_object_mismatch: str,
) -> int:
    """Build every CONTRACT into the output directory.

    Every input is read and checked before anything is written; an invalid one stops everything. An unsupported or
    failing contract does not stop the others; the exit code is the worst of them.
    """
    from nkc.cli.parts.reading import read_all
    from nkc.emit.toolchains.triton import TritonToolchain
    from nkc.ir.manifest import Disposition
    from nkc.tactics import Policy

    toolchain = TritonToolchain()
    try:
        # The child loads its compiler while this process reads, selects and renders.
        toolchain.start()
        inputs = read_all(contracts)
        from nkc.emit import build

        requests = build.gather_requests(inputs)
        with _progress(len(requests)) as done:
            outcomes = build.build_all(
                requests,
                toolchain,
                policy=Policy(allow_experimental=allow_experimental, only_tactic=only_tactic),
                on_mismatch=build.OnMismatch(on_object_mismatch),
                done=done,
            )
    finally:
        toolchain.close()
    build.write_all(out, requests, outcomes, keep=keep)
    codes = []
    for request, outcome in zip(requests, outcomes, strict=True):
        name = request.bindings[0].source
        if outcome.error is not None:
            for line in outcome.error.lines():
                click.echo(f"{name}: {line}", err=True)
            codes.append(outcome.error.exit_code)
        elif outcome.explain is not None and outcome.explain.disposition is not Disposition.OPTIMIZED:
            click.echo(f"{name}: {_no_kernel(outcome, out, request)}", err=True)
            strict = require == "optimized" or outcome.explain.disposition is Disposition.UNSUPPORTED
            codes.append(3 if strict else 0)
    return next((code for code in WORST_FIRST if code in codes), 0)


def _no_kernel(outcome: "Outcome", out: Path, request: "Request") -> str:
    """Return the line for a contract without a kernel: the closest candidate's reasons and where to read the rest."""
    assert outcome.explain is not None
    record = outcome.explain
    route = f"falls back to `{record.fallback}`" if record.fallback else "unsupported, and no fallback is named"
    closest = min(
        record.candidates,
        key=lambda c: (c.target != record.target, len(c.reasons), c.effective_rank, c.name),
        default=None,
    )
    why = "no tactic is known"
    if closest is not None and closest.reasons:
        reason = closest.reasons[0]
        why = f"closest is {closest.name}: {reason.field} wanted {reason.wanted}, found {reason.actual}"
        if len(closest.reasons) > 1:
            why += f", and {len(closest.reasons) - 1} more"
    return f"{route}; {why} (see nkc explain {out / request.id})"


def _progress(total: int) -> AbstractContextManager[Callable[["Request", "Outcome"], None]]:
    """Return a progress bar on a terminal, and nothing in a pipe."""
    import sys

    if total < 2 or not sys.stderr.isatty():
        return nullcontext(lambda _request, _outcome: None)
    return _bar(total)


def _bar(total: int) -> AbstractContextManager[Callable[["Request", "Outcome"], None]]:
    from contextlib import contextmanager

    @contextmanager
    def drawn():  # type: ignore[no-untyped-def]
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from nkc.cli.parts.console import console

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console(stderr=True), transient=True) as progress:
            task = progress.add_task("compiling", total=total)

            def done(request: "Request", _: "Outcome") -> None:
                progress.update(task, advance=1, description=request.bindings[0].source)

            yield done

    return drawn()
