"""`nkc tactics`: the catalogue, with effective maturity."""

import click

from nkc import api
from nkc.cli.parts.options import format_option


@click.command("tactics", short_help="List tactics and how far each is proven.")
@click.option("--operation", metavar="NAME", help="Only the tactics of one operation.")
@click.option("--target", metavar="ARCH", help="Only the tactics for one target.")
@format_option("table", "json")
def command(operation: str | None, target: str | None, form: str) -> None:
    """List every tactic: target, rank, what it guarantees, and how far its proof has come."""
    from nkc.emit.proofs import book

    rows = []
    evidence = book()
    tactics = api.list_tactics(operation=operation, target=target)
    for tactic in tactics:
        stands = evidence.standing(tactic)
        rows.append(
            {
                "name": tactic.name,
                "operation": tactic.operation,
                "target": tactic.target,
                "rank": tactic.rank,
                "maturity": stands.maturity.value,
                "claimed": stands.claimed.value,
                "engine": stands.engine,
                "proofs": stands.proofs,
                "proofs_wanted": stands.proofs_wanted,
                "held": stands.held,
                "compared": stands.compared,
                "needs": stands.needs,
                "toolchains": stands.toolchains,
                "foreign": stands.foreign,
                "accumulate": tactic.guarantees.accumulate,
                "combine": tactic.guarantees.combine,
                "reduce": tactic.guarantees.reduce,
                "deterministic": tactic.guarantees.deterministic,
                "graph_capture": tactic.guarantees.graph_capture,
                "note": tactic.note,
            }
        )
    if form == "json":
        import orjson

        click.echo(orjson.dumps({"tactics": rows}, option=orjson.OPT_INDENT_2).decode())
        return
    from nkc.cli.parts.console import draw, table
    from nkc.cli.parts.ranks import catalogued

    drawn = table("tactic", "rank", "maturity", "proofs", "layers", "accumulate", "combine", "reduce", "note", "wants")
    for tactic, row in zip(tactics, rows, strict=True):
        drawn.add_row(
            str(row["name"]),
            catalogued(tactic.rank),
            f"{row['maturity']} ({row['engine']})" if row["engine"] else str(row["maturity"]),
            f"{row['proofs']}/{row['proofs_wanted']}" if row["proofs_wanted"] else "-",
            f"{row['held']}/{row['compared']}" if row["compared"] else "-",
            str(row["accumulate"] or "-"),
            str(row["combine"] or "-"),
            str(row["reduce"] or "-"),
            str(row["note"]),
            str(row["needs"] or "-"),
        )
    draw(drawn)
