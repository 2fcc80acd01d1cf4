"""`nkc verify`: runs built kernels on data of every kind and holds the results against derived bounds."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc.cli.parts.console import counted
from nkc.cli.parts.options import OutputPath, format_option

if TYPE_CHECKING:
    from nkc.tactics.evidence import Check
    from nkc.verify.check import Row
    from nkc.verify.claims import Claim
    from nkc.verify.engine import Engine
    from nkc.verify.subject import Subject


@click.command("verify", short_help="Check kernels against their oracles.")
@click.argument("subjects", metavar="[CONTRACT|DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--tactic", "pattern", metavar="PATTERN", help="Verify the proof sets of tactics (`gfx950.dense.*`).")
@click.option("--engine", type=click.Choice(["device", "emulator", "interpreter"]), help="What runs the kernel.")
@click.option(
    "--regime",
    "regimes",
    multiple=True,
    type=click.Choice(["exact", "model_like", "wide", "edges"]),
    help="Data of one kind only.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the data.")
@click.option(
    "--model",
    type=click.Choice(["once", "sequential", "tree", "all"]),
    default="once",
    show_default=True,
    help="How the emulator's MFMA rounds.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes, not on a device (default: every core for the emulator)."
)
@click.option("--record", is_flag=True, help="Add the results to the evidence in this checkout.")
@click.option("--export", type=OutputPath(path_type=Path), help="Write the results to a file, for `nkc evidence add`.")
@click.option("--build-only", type=click.Path(path_type=Path), help="Build into a directory, for another machine.")
@format_option("table", "json")
def command(
    subjects: tuple[Path, ...],
    pattern: str | None,
    engine: str | None,
    regimes: tuple[str, ...],
    seed: int,
    model: str,
    jobs: int | None,
    record: bool,
    export: Path | None,
    build_only: Path | None,
    form: str,
) -> int:
    """Verify the kernel of CONTRACT, the kernels that a build left in DIR, or the proof sets of tactics.

    One row a regime: the largest error over its bound, bit equality where it is promised, repeats, graph replay, and
    whether anything was written outside. The default engine is the device, then the emulator, then the interpreter,
    which runs the algorithm but not the object. Of gfx950 objects, claims that hold however a matrix instruction
    rounds are listed apart from those under one model. Exit 5 on any failure, with the first failing element.
    """
    from nkc.cli.parts.verifying import Session
    from nkc.ir.errors import UsageError

    if model != "once" and (record or export is not None):
        raise UsageError("nkc: evidence is kept under model once (leave --model out, or --record and --export)")
    with Session(subjects, pattern, build_only=build_only) as session:
        if build_only is not None:
            click.echo(f"{build_only}: {counted(len(session.subjects), 'kernel')}", err=True)
            return 0
        models = ("once", "sequential", "tree") if model == "all" else (model,)
        results = session.verify(engine, regimes, seed=seed, jobs=jobs, models=models)
    return report(results, record=record, export=export, form=form)


def report(
    results: "list[tuple[Subject, Engine, tuple[Row, ...]]]", *, record: bool, export: Path | None, form: str
) -> int:
    """Print the rows, keep what is to be kept, and return the exit code."""
    from nkc.verify import evidence

    kept: dict[str, list[Check]] = {}
    for subject, engine, rows in results:
        if engine.runs_object:
            kept.setdefault(subject.tactic, []).extend(evidence.record(subject, engine, row) for row in rows)
    if form == "json":
        _print_json(results)
    else:
        from nkc.cli.parts.draw_verify import draw_claims, draw_rows

        draw_rows(results)
        draw_claims(claims(results))
    failed = [(subject, row) for subject, _, rows in results for row in rows if not row.passed]
    for subject, row in failed:
        click.echo(f"{subject.launch.symbol}: {row.regime}: {_why(row)}", err=True)
    if record:
        for path in evidence.merge_all(kept):
            click.echo(f"recorded in {path.name}", err=True)
    if export is not None:
        from nkc.emit.write import write_file
        from nkc.tactics.evidence import Records

        import msgspec  # isort: skip

        records = [Records(tactic=name, checks=tuple(checks)) for name, checks in sorted(kept.items())]
        write_file(export.absolute(), msgspec.json.format(msgspec.json.encode(records), indent=1) + b"\n")
    return 5 if failed else 0


def claims(results: "list[tuple[Subject, Engine, tuple[Row, ...]]]") -> "dict[str, tuple[Claim, ...]]":
    """Return, by the symbol of each kernel that was run under a model, what that lets one claim of it."""
    from nkc.verify.claims import claims_of

    rows: dict[str, dict[str, tuple[Row, ...]]] = {}
    for subject, engine, each in results:
        if engine.model_decides and each:
            rows.setdefault(subject.launch.symbol, {})[each[0].notes.get("model", "")] = each
    return {symbol: claims_of(by_model) for symbol, by_model in rows.items()}


def _why(row: "Row") -> str:
    """Return what failed, first of all the first failing element."""
    if row.first is not None:
        at = ", ".join(map(str, row.first.index))
        told = f"{row.first_in}[{at}] is {row.first.got!r}, expected {row.first.expected!r}"
        if row.failures:
            return f"{told} within {row.first.bound:.3g} ({row.failures} elements outside their bounds)"
        return f"{told} to the bit ({'; '.join([*row.hazards[:3], *_unmet(row)])})"
    said = [*row.hazards[:3], *_unmet(row)]
    return "; ".join(said) or f"RMS error over RMS is {row.err_ratio:.3g}, above its limit"


def _unmet(row: "Row") -> list[str]:
    """Return what was promised and did not hold, in words."""
    answers = {
        "bits differ where every bit is promised": row.bit_equal,
        f"bits differ from those of the unit {row.notes.get('unit', '')}": row.model_bits,
        "runs differ": row.repeated,
        "graph replay differs": row.replay,
        "something was written outside the outputs": row.outside,
    }
    return [text for text, answer in answers.items() if answer == "failed"]


def _print_json(results: "list[tuple[Subject, Engine, tuple[Row, ...]]]") -> None:
    import msgspec
    import orjson

    claimed = claims(results)
    documents: list[dict[str, object]] = [
        {
            "request": subject.request,
            "id": subject.launch.id,
            "tactic": subject.tactic,
            "symbol": subject.launch.symbol,
            "engine": engine.name.value,
            "device": engine.device(),
            "toolchain": subject.toolchain,
            "rows": [msgspec.to_builtins(row) for row in rows],
        }
        for subject, engine, rows in results
    ]
    document = {"schema": "nkc.verify/1", "kernels": documents, "claims": msgspec.to_builtins(claimed)}
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
