"""`nkc diff`: what changed between two contracts or two builds."""

import click

from nkc import api
from nkc.cli.parts.options import format_option, policy_options


@click.command("diff", short_help="Compare two contracts or two builds.")
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="B", type=click.Path())
@format_option("table", "json")
@policy_options
def command(before: str, after: str, form: str, allow_experimental: bool, only_tactic: str | None) -> int:
    """Print what differs between A and B: contracts, built directories, or whole outputs of `nkc compile`.

    What was asked for, the selection and its reasons, what the compiler filled in, resources, launch, digests. Of
    contracts nothing is compiled. Exit 0 where they are equal and 1 where something changed; 2 is bad usage as always.
    """
    from nkc.cli.parts.draw_diff import print_diff

    found = api.diff(before, after, allow_experimental=allow_experimental, only_tactic=only_tactic)
    return print_diff(found, form)
