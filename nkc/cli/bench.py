"""`nkc bench`: times built kernels beside what a server would otherwise run, behind a correctness gate."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc.cli.parts.console import counted
from nkc.cli.parts.options import OutputPath, format_option

if TYPE_CHECKING:
    from nkc.tactics.performance import Measurements


@click.command("bench", short_help="Time kernels on a GPU and keep the records.")
@click.argument("subjects", metavar="[CONTRACT|DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--every", is_flag=True, help="Build every eligible tactic, not the selected and the plain one alone.")
@click.option(
    "--first", metavar="N", type=click.IntRange(min=1), help="Build the plain one and the first N by rows and rule."
)
@click.option("--dependent", is_flag=True, help="As if all but the activations were constant: `properties.constant`.")
@click.option("--build-only", metavar="DIR", type=click.Path(path_type=Path), help="Build, for another machine.")
@click.option("--cache", metavar="DIR", type=click.Path(path_type=Path), help="Compile only what is not kept there.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the data.")
@click.option("--seconds", type=click.IntRange(min=1), help="Begin no further contract after so long.")
@click.option("--record", is_flag=True, help="Add the records to this checkout.")
@click.option("--export", metavar="FILE", type=OutputPath(path_type=Path), help="Write them, for `nkc evidence add`.")
@click.option("--show", is_flag=True, help="Measure nothing: print committed records, or exported ones.")
@click.option("--plot", metavar="FILE", type=click.Path(path_type=Path), help="Draw the committed records as SVG.")
@format_option("table", "json")
def command(
    subjects: tuple[Path, ...],
    every: bool,
    first: int | None,
    dependent: bool,
    build_only: Path | None,
    cache: Path | None,
    seed: int,
    seconds: int | None,
    record: bool,
    export: Path | None,
    show: bool,
    plot: Path | None,
    form: str,
) -> int:
    """Time the kernels of each CONTRACT, or those that were built in DIR, on the GPU of this machine.

    Device time by graph replay over operands that exceed the L2 four times, in turns with the baselines that are
    there: cuBLASLt block-scaled, DeepGEMM, bf16 matmul, our plain tile. A kernel whose result is not right is not
    timed, and no speed-up is printed where both sides are one route. Exit 5 where a gate is red.

    Beside them stand published times of libraries that are not installed, scaled by a baseline that both sessions
    timed, with that factor. --show and --plot take committed records, of the contracts that are named if any are, or
    exported files, each record with the tactic that is selected today.
    """
    if plot is not None:
        from nkc.cli.parts.benching import plot_records

        return plot_records(subjects, plot)
    if show:
        from nkc.cli.parts.benching import chosen_today

        return report(chosen_today(subjects), record=False, export=None, form=form)
    from nkc.cli.parts.benching import Bench

    with Bench(subjects, every=every, first=first, build_only=build_only, cache=cache, dependent=dependent) as bench:
        if build_only is not None:
            kept = f", {bench.reused} of them kept from before" if cache is not None else ""
            built = f"{counted(bench.kernels, 'kernel')} for {counted(len(bench.asked), 'contract')}"
            click.echo(f"{build_only}: {built}{kept}", err=True)
            return 0
        found = bench.measure(seed=seed, seconds=seconds, export=export)
    return report(found, record=record, export=export, form=form)


def report(found: "Measurements", *, record: bool, export: Path | None, form: str) -> int:
    """Print what was measured, keep what is to be kept, and return the exit code."""
    from nkc.bench import compare, records
    from nkc.bench.summary import summarise

    said = summarise([found])
    if form == "json":
        click.echo(records.document(found, said).decode(), nl=False)
    elif found.records:
        from nkc.cli.parts.draw_bench import draw_bench

        draw_bench(found, said)
    if record:
        for path in records.merge(found):
            click.echo(f"recorded in {path.name}", err=True)
    if export is not None:
        click.echo(f"{export}: {counted(len(found.records), 'record')}", err=True)
    failed = [(each, route) for each in found.records for route in compare.red(each)]
    for each, route in failed:
        assert route.gate is not None
        worst = "" if route.gate.worst is None else f", {route.gate.worst:.3g} times its bound at worst"
        click.echo(f"{each.cell}: {route.name}: red: RMS ratio {route.gate.err_ratio:.3g}{worst}", err=True)
    return 5 if failed else 0
