"""`nkc capabilities`: what is implemented, and why the rest is not."""

import click

from nkc import api
from nkc.cli.parts.options import format_option


@click.command("capabilities", short_help="Show what is implemented, and why the rest is not.")
@click.option("--operation", metavar="NAME", help="Only one operation.")
@click.option("--target", metavar="ARCH", help="Only one target.")
@format_option("table", "json")
def command(operation: str | None, target: str | None, form: str) -> None:
    """Show operation x target x dtypes x layouts x epilogue: the tactics that implement it, or why none does.

    Found by selecting among all tactics on contracts of typical sizes, experiments allowed; `nkc tactics` says how far
    the proof of each has come.
    """
    found = api.list_capabilities(operation=operation, target=target)
    if form == "json":
        from nkc.emit.explain import encode

        click.echo(encode(found).decode(), nl=False)
    else:
        from nkc.cli.parts.draw_capabilities import draw_capabilities

        draw_capabilities(found)
