"""`nkc import-tuning`: reads the tables of other tuners as hints of what to bench first."""

from pathlib import Path

import click

from nkc.cli.parts.options import OutputPath


@click.command("import-tuning", short_help="Read vLLM's and SGLang's tuning files as hints.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", metavar="HINTS", type=OutputPath(path_type=Path), help="Where (stdout).")
@click.option("--target", metavar="ARCH", help="Of files that do not say for which chip they were tuned.")
@click.option(
    "--on-duplicate",
    type=click.Choice(["error", "fastest"]),
    default="error",
    show_default=True,
    help="Two rows for one shape: stop and name both, or take the lowest time, then the first name.",
)
def command(files: tuple[Path, ...], out: Path | None, target: str | None, on_duplicate: str) -> None:
    """Read vLLM's and SGLang's block-scaled FP8 JSON, and AITER's tuned CSV, as hints by tile with their origins.

    Hints rank nothing: `nkc tune --hints` says with them which tactics to try first. No source is changed. A kernel
    whose tile no tactic has is reported.
    """
    from nkc.bench import hints
    from nkc.emit.explain import encode
    from nkc.emit.write import write_file

    found = hints.gather(files, target=target, on_duplicate=hints.OnDuplicate(on_duplicate))
    for unknown in found.unknown:
        click.echo(f"{unknown.origin}: no tactic of {unknown.target} has the tile of {unknown.kernel}", err=True)
    if out is None:
        click.echo(encode(found).decode(), nl=False)
    else:
        write_file(out.absolute(), encode(found))
    matched = sum(bool(hint.tactics) for hint in found.hints)
    click.echo(f"{len(found.hints)} hints, {matched} with tactics of their tile", err=True)
