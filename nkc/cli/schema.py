"""`nkc schema`: the JSON Schemas of what nkc reads and writes."""

import click

from nkc.emit.schemas import SCHEMAS


@click.command("schema", short_help="Print the JSON Schema of a document.")
@click.argument("document", type=click.Choice(sorted(SCHEMAS)), default="contract")
def command(document: str) -> None:
    """Print the JSON Schema (2020-12) of DOCUMENT, by default that of a contract.

    Editors complete and check contracts with it. It refuses nothing that nkc accepts; rules across fields, such as k
    being a multiple of its scale block, are checked by `nkc check` alone.
    """
    import orjson

    click.echo(orjson.dumps(SCHEMAS[document](), option=orjson.OPT_INDENT_2).decode())
