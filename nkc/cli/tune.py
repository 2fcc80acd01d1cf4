"""`nkc tune`: rows of the tuning table, proposed from performance records, and what the table does not cover."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc.cli.parts.console import counted
from nkc.cli.parts.options import format_option

if TYPE_CHECKING:
    from nkc.bench.cover import Hole
    from nkc.ir.contract import Contract
    from nkc.tactics.tuning import Row, Table

STALE_SHOWN = 5
"""Stale records that are named one by one."""


@click.command("tune", short_help="Propose rows of the tuning table from records.")
@click.argument("contracts", metavar="[CONTRACT|DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--measure", is_flag=True, help="First bench every eligible tactic on this machine's GPU, and record it.")
@click.option("--write", is_flag=True, help="Put the proposed rows into the tables of this checkout.")
@click.option("--check", is_flag=True, help="Print what the committed tables do not cover; exit 5 if anything.")
@click.option("--target", metavar="ARCH", help="Only contracts for one target.")
@click.option(
    "--hints",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `nkc import-tuning` wrote.",
)
@format_option("table", "json")
def command(
    contracts: tuple[Path, ...],
    measure: bool,
    write: bool,
    check: bool,
    target: str | None,
    hints: Path | None,
    form: str,
) -> int:
    """Propose which tactic goes first for each shape and interval of rows, from records that are fresh.

    Without CONTRACT all committed records speak, and rows are shown that differ from the committed ones. A record
    whose kernels have changed since is named and left out, and so is a contract without one, with the tactics that
    hints would try first.
    """
    from nkc import api
    from nkc.bench.gather import contract_files

    named = api.read_all([str(path) for path in contract_files(contracts)])
    kept = tuple((file, one) for file, one in named if target in (None, one.target.arch))
    if check:
        return _check(kept, form)
    if measure:
        from nkc.cli.bench import report
        from nkc.cli.parts.benching import Bench

        with Bench([Path(file) for file, _ in kept], every=True, build_only=None) as bench:
            code = report(bench.measure(seed=1, seconds=None, export=None), record=True, export=None, form="table")
        if code:
            return code
    return _propose(kept if contracts else None, write=write, hints=hints, form=form)


def _check(contracts: "tuple[tuple[str, Contract], ...]", form: str) -> int:
    from nkc.bench.cover import holes
    from nkc.emit.measured import tuning
    from nkc.ir.errors import UsageError

    if not contracts:
        raise UsageError("nkc: nothing to check (name contracts, or folders of them)")
    found = holes(contracts, tuning())
    _print_holes(found, form)
    click.echo(f"{len(contracts) - len(found)} of {len(contracts)} contracts lie whole in one fresh row", err=True)
    return 5 if found else 0


def _print_holes(found: "tuple[Hole, ...]", form: str) -> None:
    if form == "json":
        import orjson

        rows = [{"contract": Path(hole.file).name, "what": hole.what, "open": hole.open} for hole in found]
        click.echo(orjson.dumps({"holes": rows}, option=orjson.OPT_INDENT_2).decode())
        return
    for hole in found:
        click.echo(f"{Path(hole.file).name}: {hole.what}")


def _propose(
    contracts: "tuple[tuple[str, Contract], ...] | None",
    *,
    write: bool,
    hints: Path | None,
    form: str,
) -> int:
    from nkc.bench.propose import merge, propose
    from nkc.bench.standing import fresh
    from nkc.emit.measured import tuning
    from nkc.ir.canonical import contract_id
    from nkc.tactics.performance import read_all
    from nkc.tactics.tuning import read_table, write_table

    every, known = read_all().records, tuning()
    records, stale = fresh(every, known)
    for line in stale[:STALE_SHOWN]:
        click.echo(line, err=True)
    if len(stale) > STALE_SHOWN:
        click.echo(f"and {len(stale) - STALE_SHOWN} more records that timed other kernels than today's", err=True)
    if contracts is not None:
        there = {record.request for record in records}
        for file, contract in contracts:
            if contract_id(contract) not in there:
                name, first = Path(file).name, _hinted(hints, contract)
                click.echo(f"{name}: no fresh record{first} (nkc bench --every {name} --record)", err=True)
        wanted = {contract_id(contract) for _, contract in contracts}
        records = tuple(record for record in records if record.request in wanted)
    tables, problems = propose(records)
    for line in problems:
        click.echo(line, err=True)
    _print_tables(tables, form, every=contracts is not None)
    if write:
        for operation, table in tables.items():
            heard, there = ({record.digest for record in some} for some in (records, every))
            before = read_table(operation)
            gone = [row for row in before.rows if known.why_stale(operation, row) is not None]
            path = write_table(merge(before, table, heard, there, gone))
            left = f", {len(gone)} left out that spoke of other kernels" if gone else ""
            click.echo(f"{path.parent.name}/{path.name}: {counted(len(table.rows), 'row')}{left}", err=True)
    return 0


def _hinted(hints: Path | None, contract: "Contract") -> str:
    """Return which tactics a hint would try first, in words."""
    if hints is None:
        return ""
    from nkc.bench.hints import first_tries, read_hints

    names = first_tries(read_hints(hints), contract)
    return f"; hints name {', '.join(names)}" if names else ""


def _print_tables(tables: "dict[str, Table]", form: str, *, every: bool) -> None:
    """Print proposed rows: in JSON all, else those that differ from the committed ones, or `every` one."""
    from nkc.tactics.tuning import document, read_table

    if form == "json":
        for table in tables.values():
            click.echo(document(table).decode(), nl=False)
        return
    from nkc.cli.parts.console import draw
    from nkc.cli.parts.console import table as make

    drawn = make("operation", "row", "against the table", "first", "then", "records")
    counts = {"new": 0, "another order": 0, "other records": 0, "as it is": 0}
    for operation, table in tables.items():
        known = {(row.shape, row.m): row for row in read_table(operation).rows}
        for row in table.rows:
            state = _state(row, known.get((row.shape, row.m)))
            counts[state] += 1
            if every or state != "as it is":
                then = row.order[1] if len(row.order) > 1 else "-"
                more = f" and {len(row.order) - 2} more" if len(row.order) > 2 else ""
                records = ", ".join(each[:12] for each in row.records)
                drawn.add_row(operation, str(row), state, row.order[0], f"{then}{more}", records)
    if drawn.row_count:
        draw(drawn)
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    if told:
        click.echo(
            f"{counted(sum(counts.values()), 'row')} proposed: {told} (--format json prints them whole)", err=True
        )
    else:
        click.echo("nkc: no fresh record proposes a row (nkc bench --every --record)", err=True)


def _state(row: "Row", known: "Row | None") -> str:
    """Return what a proposed row is against the committed one of its interval."""
    if known is None:
        return "new"
    if known.order != row.order:
        return "another order"
    return "as it is" if known.records == row.records else "other records"
