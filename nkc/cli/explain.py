"""`nkc explain`: why this kernel, of a contract or of a built directory."""

from typing import TYPE_CHECKING

import click

from nkc import api
from nkc.cli.parts.options import format_option, policy_options, strict_option

if TYPE_CHECKING:
    from nkc.emit.explain import CandidateRecord, Explain
    from nkc.tactics.near import Near


@click.command("explain", short_help="Say why a kernel was chosen, and why not the others.")
@click.argument("subject", metavar="CONTRACT|DIR", type=click.Path())
@format_option("table", "json")
@click.option("--why", metavar="TACTIC", help="Every reason of one candidate.")
@click.option("--near", is_flag=True, help="Rejected candidates, with the edits of the contract that would admit them.")
@click.option("--all", "every", is_flag=True, help="With --near: list them one by one, all there are.")
@click.option("--apply", "applied", metavar="TACTIC", help="Print the contract with the edits that admit one of them.")
@click.option(
    "--diff", "other", metavar="OTHER", type=click.Path(), help="What changed since OTHER; exit 1 if anything."
)
@policy_options
@strict_option
def command(
    subject: str,
    form: str,
    why: str | None,
    near: bool,
    every: bool,
    applied: str | None,
    other: str | None,
    allow_experimental: bool,
    only_tactic: str | None,
    strict_evidence: bool,
) -> int:
    """Explain the selection for CONTRACT without compiling, or what a built directory DIR holds.

    Every candidate is listed, selected or rejected, with all its reasons; those with the same stand together. Near are
    candidates for the same target that a few edits of the contract would admit, fewest and smallest edits first; the
    table has the first few edits, each with the best candidate that it admits, and JSON has everything.
    """
    if every and not near:
        raise click.UsageError("--all says how many near candidates are listed (add --near)")
    asked = [name for name, on in (("--why", why), ("--near", near or applied), ("--diff", other)) if on]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} ask for different things (choose one)")
    if other is not None:
        from nkc.cli.parts.draw_diff import print_diff

        found = api.diff(other, subject, allow_experimental=allow_experimental, only_tactic=only_tactic)
        return print_diff(found, form)
    record = api.explain(
        subject,
        allow_experimental=allow_experimental,
        only_tactic=only_tactic,
        strict_evidence=strict_evidence,
    )
    if near or applied is not None:
        entries = api.near(subject, allow_experimental=allow_experimental, only_tactic=only_tactic)
        _near(record, entries, applied, form, every=every)
    elif why is not None:
        _why(record, why, form)
    elif form == "json":
        from nkc.emit.explain import encode

        click.echo(encode(record).decode(), nl=False)
    else:
        from nkc.cli.parts.draw_explain import draw_explain

        draw_explain(record)
    return 0


def _near(record: "Explain", entries: "tuple[Near, ...]", applied: str | None, form: str, *, every: bool) -> None:
    from nkc.cli.parts.draw_near import print_near

    if applied is None:
        print_near(entries, form, every=every)
        return
    from nkc.emit.near import edited_document
    from nkc.ir.errors import UsageError

    chosen = next((entry for entry in entries if entry.candidate.tactic.name == applied), None)
    if chosen is None:
        candidate = _candidate(record, applied)
        if candidate.target != record.target:
            raise UsageError(f"nkc: `{applied}` is for {candidate.target} (another chip is another contract)")
        edits = [reason for reason in candidate.reasons if reason.stage not in ("maturity", "policy")]
        why = (
            f"no edit of this contract admits it (see --why {applied})"
            if edits
            else "the contract needs no edit for it"
        )
        raise UsageError(f"nkc: `{applied}`: {why}")
    click.echo(edited_document(chosen).decode(), nl=False)


def _why(record: "Explain", name: str, form: str) -> None:
    from nkc.emit.explain import encode

    found = _candidate(record, name)
    if form == "json":
        click.echo(encode(found).decode(), nl=False)
    else:
        from nkc.cli.parts.draw_explain import draw_why

        draw_why(found)


def _candidate(record: "Explain", name: str) -> "CandidateRecord":
    """Return one candidate. Raises UsageError with the closest name for one that is not there."""
    from nkc.ir.errors import UsageError, did_you_mean

    found = next((candidate for candidate in record.candidates if candidate.name == name), None)
    if found is None:
        hint = did_you_mean(name, [candidate.name for candidate in record.candidates])
        raise UsageError(f"nkc: no candidate is named `{name}` ({hint})")
    return found
