"""`nkc evidence`: the records behind maturity."""

from pathlib import Path

import click


@click.group("evidence", short_help="Merge, index and prune the evidence of a checkout.")
def command() -> None:
    """Look after the evidence in this checkout: records of what was verified, and their index."""


@command.command("add", short_help="Take in results that were exported elsewhere.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def add(files: tuple[Path, ...]) -> None:
    """Add results that were written elsewhere: by `nkc verify --export`, `nkc bench --export`, or inside a layer."""
    import msgspec

    from nkc.bench import layer_records
    from nkc.bench.records import merge as merge_measurements
    from nkc.bench.records import read_exported
    from nkc.ir.errors import UsageError
    from nkc.tactics.evidence import Records
    from nkc.tactics.performance import exported
    from nkc.verify.evidence import merge

    for file in files:
        if exported(file):
            for path in merge_measurements(read_exported(file)):
                click.echo(f"recorded in {path.name}", err=True)
            continue
        if layer_records.exported(file):
            for path in layer_records.merge(layer_records.read_exported(file)):
                click.echo(f"recorded in layer/{path.name}", err=True)
            continue
        try:
            found = msgspec.json.decode(file.read_bytes(), type=list[Records])
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"{file}: no exported records: {error} (nkc verify --export FILE)") from None
        for records in found:
            merge(records.tactic, records.checks)
            click.echo(f"{records.tactic}: {len(records.checks)} records", err=True)


@command.command("index", short_help="Render every proof anew and write the indexes.")
@click.option("--check", "only_check", is_flag=True, help="Exit 5 where the committed index is not today's.")
def index(only_check: bool) -> int:
    """Render every proof, and every kernel that was timed, and write the indexes of code digests."""
    from nkc.emit import measured, proofs
    from nkc.tactics.evidence import read_index
    from nkc.tactics.performance import read_performance_index

    if not only_check:
        proofs.write_index()
        measured.write_index()
        return 0
    if proofs.make_index() == read_index() and measured.make_index() == read_performance_index():
        return 0
    click.echo("nkc: the index of evidence is not that of this tree (nkc evidence index)", err=True)
    return 5


@command.command("prune", short_help="Drop records of what is no proof any more.")
def prune() -> None:
    """Drop records of contracts that have left a tactic's proof set: they speak of nothing any more."""
    from nkc import api
    from nkc.emit.proofs import code_digests
    from nkc.verify.evidence import prune as drop

    for tactic in api.list_tactics():
        dropped = drop(tactic.name, set(code_digests(tactic)))
        if dropped:
            click.echo(f"{tactic.name}: {dropped} records", err=True)
