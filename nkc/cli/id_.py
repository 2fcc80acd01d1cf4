"""`nkc id`: the request id of a contract, alone."""

import click

from nkc import ir
from nkc.cli.parts.options import contract_argument


@click.command("id")
@contract_argument()
def command(contract: str) -> None:
    """Print the request id of CONTRACT: what it computes, whatever it is called or wherever it lies."""
    click.echo(ir.contract_id(ir.read(contract)))
