"""`nkc unpack`: a packed bundle as a directory again."""

import click

from nkc.cli.parts.options import OutputPath
from nkc.runtime import bundle


@click.command("unpack", short_help="Write a packed bundle back into a directory.")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("-o", "--output", metavar="DIR", required=True, type=OutputPath(), help="A new or empty directory.")
def command(file: str, output: str) -> None:
    """Check the packed bundle FILE, and write its files into a directory."""
    bundle.unpack(file, output)
