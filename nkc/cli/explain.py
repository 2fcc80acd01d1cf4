"""`nkc explain`: why this kernel, of a contract or of a built directory."""

from typing import TYPE_CHECKING

import click

from nkc import api
from nkc.cli.parts.options import format_option, policy_options, strict_option

if TYPE_CHECKING:
    from nkc.emit.explain import Explain


@click.command("explain")
@click.argument("subject", metavar="CONTRACT|DIR", type=click.Path())
@format_option("table", "json")
@click.option("--why", metavar="TACTIC", help="Every reason of one candidate.")
@policy_options
@strict_option
def command(
    subject: str, form: str, why: str | None, allow_experimental: bool, only_tactic: str | None, strict_evidence: bool
) -> None:
    """Explain the selection for CONTRACT without compiling, or what a built directory DIR holds.

    Every candidate is listed, selected or rejected, with all its reasons.
    """
    from nkc.emit.explain import encode

    record = api.explain(
        subject,
        allow_experimental=allow_experimental,
        only_tactic=only_tactic,
        strict_evidence=strict_evidence,
    )
    if why is not None:
        _why(record, why, form)
    elif form == "json":
        click.echo(encode(record).decode(), nl=False)
    else:
        from nkc.cli.parts.draw_explain import draw_explain

        draw_explain(record)


def _why(record: "Explain", name: str, form: str) -> None:
    from nkc.emit.explain import encode
    from nkc.ir.errors import UsageError, did_you_mean

    found = next((candidate for candidate in record.candidates if candidate.name == name), None)
    if found is None:
        hint = did_you_mean(name, [candidate.name for candidate in record.candidates])
        raise UsageError(f"nkc: no candidate is named `{name}` ({hint})")
    if form == "json":
        click.echo(encode(found).decode(), nl=False)
    else:
        from nkc.cli.parts.draw_explain import draw_why

        draw_why(found)
