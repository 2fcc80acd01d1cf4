"""Options that several commands share."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from nkc.ir.contract import Contract

F = TypeVar("F", bound=Callable[..., Any])


class OutputPath(click.Path):
    """A place to write to: an empty name, mostly a variable that is not set, would be the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty name."""
        if value == "":
            self.fail("an empty name (write . for the working directory)", param, ctx)
        return super().convert(value, param, ctx)


def read_contract(path: str) -> "Contract":
    """Return the contract in a file, or on standard input where the name is `-`. Raises ContractError."""
    from nkc import ir

    return ir.parse(sys.stdin.buffer.read(), "<stdin>") if path == "-" else ir.read(path)


def contract_argument(*, many: bool = False) -> Callable[[F], F]:
    """Return the CONTRACT argument; problems with the files are reported by the reader, all at once."""
    if many:
        return click.argument("contracts", metavar="CONTRACT...", nargs=-1, required=True, type=click.Path())
    return click.argument("contract", metavar="CONTRACT", type=click.Path())


def format_option(*formats: str) -> Callable[[F], F]:
    """Return `--format`, the first of them the default."""
    return click.option(
        "--format", "form", type=click.Choice(formats), default=formats[0], show_default=True, help="How to print."
    )


def strict_option(function: F) -> F:
    """Add `--strict-evidence`."""
    return click.option("--strict-evidence", is_flag=True, help="Let no record of another toolchain version count.")(
        function
    )


def policy_options(function: F) -> F:
    """Add what a caller may allow: experiments, and one forced route."""
    function = click.option(
        "--only-tactic",
        metavar="NAME",
        help="Consider this tactic alone; its predicates and `rejected` still hold.",
    )(function)
    return click.option("--allow-experimental", is_flag=True, help="Allow tactics without evidence.")(function)
