"""`nkc unpack`: a packed bundle as a directory again."""

import click

from nkc.runtime import bundle


@click.command("unpack")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("-o", "--output", metavar="DIR", required=True, type=click.Path(), help="A new or empty directory.")
def command(file: str, output: str) -> None:
    """Check the packed bundle FILE, and write its files into a directory."""
    bundle.unpack(file, output)
