"""`nkc evidence`: the records behind maturity."""

from pathlib import Path

import click


@click.group("evidence", short_help="Merge, index and prune the evidence of a checkout.")
def command() -> None:
    """Look after the evidence in this checkout: records of what was verified, and their index."""


@command.command("add", short_help="Take in results that were exported elsewhere.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def add(files: tuple[Path, ...]) -> None:
    """Add results that were written elsewhere: by `nkc verify --export`, `nkc bench --export`, or inside a layer.

    Those of a tactic that is not in the catalogue are left out, by name.
    """
    import msgspec

    from nkc.bench import layer_records
    from nkc.bench.records import merge as merge_measurements
    from nkc.bench.records import read_exported
    from nkc.ir.errors import UsageError
    from nkc.tactics.evidence import Records
    from nkc.tactics.layer import LayerRecords
    from nkc.tactics.performance import exported
    from nkc.verify.evidence import merge

    known = _catalogue()
    for file in files:
        if exported(file):
            for path in merge_measurements(read_exported(file)):
                click.echo(f"recorded in {path.name}", err=True)
            continue
        if layer_records.exported(file):
            whole = layer_records.read_exported(file)
            _name_unknown(file, [each.ours.name for each in whole.comparisons.values()], known)
            ours = [each for each in whole.comparisons.values() if each.ours.name in known]
            for path in layer_records.merge(LayerRecords.of(whole.sessions.values(), ours)):
                click.echo(f"recorded in layer/{path.name}", err=True)
            continue
        try:
            found = msgspec.json.decode(file.read_bytes(), type=list[Records])
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"{file}: no exported records: {error} (nkc verify --export FILE)") from None
        _name_unknown(file, [records.tactic for records in found], known)
        for records in found:
            if records.tactic in known:
                merge(records.tactic, records.checks)
                click.echo(f"{records.tactic}: {len(records.checks)} records", err=True)


def _catalogue() -> frozenset[str]:
    """Return the names of all tactics: a record's file is named by its tactic, so no other name may become a path."""
    from nkc.ir import operations
    from nkc.tactics.catalogue import tactics_of

    return frozenset(tactic.name for operation in operations.names() for tactic in tactics_of(operation))


def _name_unknown(file: Path, names: list[str], known: frozenset[str]) -> None:
    """Say which tactics of a file are none of the catalogue. Raises UsageError where the file speaks of no other."""
    from nkc.ir.errors import UsageError

    if not known.intersection(names):
        what = ", ".join(f"`{name}`" for name in sorted(set(names))[:3]) or "nothing"
        raise UsageError(f"{file}: speaks of {what}, and of no tactic that is known here (nkc tactics lists them)")
    for name in sorted(set(names) - known):
        click.echo(f"{file}: `{name}` is left out: no tactic is named so", err=True)


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
