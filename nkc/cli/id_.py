"""`nkc id`: the request id of a contract, alone."""

import click

from nkc import ir
from nkc.cli.parts.options import contract_argument, read_contract


@click.command("id", short_help="Print the request id of a contract.")
@contract_argument()
def command(contract: str) -> None:
    """Print the request id of CONTRACT: what it computes, whatever it is called or wherever it lies.

    `-` is standard input.
    """
    click.echo(ir.contract_id(read_contract(contract)))
