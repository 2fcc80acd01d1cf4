"""Draws what is near: for each rejected candidate the edits of the contract that would admit it."""

from typing import TYPE_CHECKING

import click

from nkc.cli.parts.console import draw, table

if TYPE_CHECKING:
    from nkc.tactics.near import Edit, Near


def print_near(found: "tuple[Near, ...]", form: str) -> None:
    """Print near candidates, fewest and smallest edits first."""
    if form == "json":
        from nkc.emit.explain import encode
        from nkc.emit.near import near_record

        click.echo(encode(near_record(found)).decode(), nl=False)
    elif found:
        draw_near(found)
    else:
        click.echo("no candidate is rejected that an edit of the contract would admit", err=True)


def draw_near(found: "tuple[Near, ...]") -> None:
    """Print one row for each edit."""
    drawn = table("candidate", "rank", "edits of the contract", "then still")
    for entry in found:
        edits = "\n".join(_edit(edit) for edit in entry.edits)
        still = "\n".join(f"{reason.stage.value}: {reason.wanted}" for reason in entry.remaining)
        drawn.add_row(entry.candidate.tactic.name, str(entry.candidate.effective_rank[1]), edits, still or "-")
    draw(drawn)


def _edit(edit: "Edit") -> str:
    if edit.after is None:
        return f"{edit.path}: leave out"
    if edit.before is None:
        return f"{edit.path}: write {_show(edit.after)}"
    return f"{edit.path}: {_show(edit.before)} -> {_show(edit.after)}"


def _show(value: object) -> str:
    """Return a value of a contract as it is written."""
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
