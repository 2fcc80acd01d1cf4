"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
