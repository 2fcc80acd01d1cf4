"""`nkc check`: reads and validates; selects nothing."""

import click

from nkc.cli.parts.options import contract_argument, read_contract
from nkc.ir.errors import ContractError


@click.command("check", short_help="Read and validate contracts; selects nothing.")
@contract_argument(many=True)
def command(contracts: tuple[str, ...]) -> int:
    """Validate every CONTRACT and print all problems, one a line; `-` is standard input. Exit 0 or 2."""
    failed = 0
    for path in contracts:
        try:
            read_contract(path)
        except ContractError as error:
            failed = error.exit_code
            for line in error.lines():
                click.echo(line, err=True)
    return failed
