"""`nkc evidence`: the records behind maturity."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nkc.cli.parts.console import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nkc.tactics.tactic import Tactic


@click.group("evidence", short_help="Merge, index and prune the evidence of a checkout.")
def command() -> None:
    """Look after the evidence in this checkout: records of what was verified, and their index."""


@command.command("add", short_help="Take in results that were exported elsewhere.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def add(files: tuple[Path, ...]) -> None:
    """Add results that were written elsewhere: by `nkc verify --export`, `nkc bench --export`, or inside a layer.

    Those of a tactic that is not in the catalogue are left out, by name. A file whose records contradict themselves,
    or bring limits of their own, is refused whole.
    """
    from nkc.bench import handed_in, layer_records, records
    from nkc.tactics.layer import LayerRecords
    from nkc.tactics.performance import Measurements
    from nkc.verify.evidence import merge

    known = _catalogue()
    for file in files:
        match handed_in.read(file):
            case Measurements() as found:
                handed_in.check_contracts(file, found.records)
                for path in records.merge(found):
                    click.echo(f"recorded in {path.name}", err=True)
            case LayerRecords() as found:
                _name_unknown(file, [each.ours.name for each in found.comparisons.values()], known)
                ours = [each for each in found.comparisons.values() if each.ours.name in known]
                handed_in.check_contracts(file, ours)
                for path in layer_records.merge(LayerRecords.of(found.sessions.values(), ours)):
                    click.echo(f"recorded in layer/{path.name}", err=True)
            case checks:
                _name_unknown(file, [each.tactic for each in checks], known)
                ours_here = [each for each in checks if each.tactic in known]
                for each in ours_here:
                    handed_in.check_proofs(file, each, known[each.tactic])
                for each in ours_here:
                    merge(each.tactic, each.checks)
                    click.echo(f"{each.tactic}: {counted(len(each.checks), 'record')}", err=True)


def _catalogue() -> "dict[str, Tactic]":
    """Return all tactics by name: a record's file is named by its tactic, so no other name may become a path."""
    from nkc.ir import operations
    from nkc.tactics.catalogue import tactics_of

    return {tactic.name: tactic for operation in operations.names() for tactic in tactics_of(operation)}


def _name_unknown(file: Path, names: list[str], known: "Mapping[str, Tactic]") -> None:
    """Say which tactics of a file are none of the catalogue. Raises UsageError where the file speaks of no other."""
    from nkc.ir.errors import UsageError

    if not known.keys() & names:
        what = ", ".join(f"`{name}`" for name in sorted(set(names))[:3]) or "nothing"
        raise UsageError(f"{file}: speaks of {what}, and of no tactic that is known here (nkc tactics lists them)")
    for name in sorted(set(names) - known.keys()):
        click.echo(f"{file}: `{name}` is left out: no tactic is named so", err=True)


@command.command("index", short_help="Render every proof anew and write the indexes.")
@click.option("--check", "only_check", is_flag=True, help="Exit 5 where the committed index is not today's.")
def index(only_check: bool) -> int:
    """Render every proof, and every kernel that was timed; write their code digests, and which tactics are proven."""
    from nkc.emit import measured, proofs
    from nkc.tactics.evidence import FOLDER, read_index
    from nkc.tactics.performance import read_performance_index
    from nkc.tactics.proven import read_proven

    if not only_check:
        proofs.write_index()
        measured.write_index()
        return 0
    made = proofs.make_index()
    known = read_index(), read_proven(FOLDER), read_performance_index()
    if (made, proofs.make_proven(made), measured.make_index()) == known:
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
            click.echo(f"{tactic.name}: {counted(dropped, 'record')}", err=True)
