"""`nkc pack`: a build's output directory as one file."""

import click

from nkc.cli.parts.console import counted
from nkc.cli.parts.options import OutputPath
from nkc.runtime import bundle


@click.command("pack", short_help="Write a build's output as one file.")
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option("-o", "--output", metavar="FILE", required=True, type=OutputPath(), help="The bundle to write, a .nkb.")
def command(directory: str, output: str) -> None:
    """Check the bundle in DIR and write it as one file. Equal directories give equal bytes."""
    packed = bundle.pack(directory, output)
    targets = ", ".join(packed.targets) or "no target"
    click.echo(f"{output}: {counted(len(packed.launches), 'kernel')} for {targets}", err=True)
