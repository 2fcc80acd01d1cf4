"""Draws what is near: for each rejected candidate the edits of the contract that would admit it."""

from typing import TYPE_CHECKING

import click

from nkc.cli.parts.console import draw, table
from nkc.cli.parts.ranks import effective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from nkc.tactics.near import Edit, Near

ROWS_SHOWN = 8
"""Sets of edits that are shown unless all are asked for: the fewest and smallest come first."""


def print_near(found: "tuple[Near, ...]", form: str, *, every: bool) -> None:
    """Print near candidates, fewest and smallest edits first; JSON holds all of them, a table those that help most."""
    if form == "json":
        from nkc.emit.explain import encode
        from nkc.emit.near import near_record

        click.echo(encode(near_record(found)).decode(), nl=False)
    elif not found:
        click.echo("no candidate is rejected that an edit of the contract would admit", err=True)
    elif every:
        draw(_table([[entry] for entry in found]))
    else:
        _draw_nearest(_alike(found), len(found))


def _draw_nearest(alike: "list[list[Near]]", candidates: int) -> None:
    """Print one row for each of the fewest edits, with the first of the candidates that they admit."""
    from rich.text import Text

    shown = alike[:ROWS_SHOWN]
    drawn: list[object] = [_table(shown)]
    if candidates > len(shown):
        drawn.append(
            Text(
                f"{candidates} candidates by {len(alike)} sets of edits; --all lists every one, "
                "--apply TACTIC prints the contract with its edits",
                "dim",
            )
        )
    draw(*drawn)


def _alike(found: "tuple[Near, ...]") -> "list[list[Near]]":
    """Return near candidates in the order given, but each behind the first that the same edits admit as far."""
    groups: dict[tuple[str, str], list[Near]] = {}
    for entry in found:
        groups.setdefault((_edits(entry), _still(entry)), []).append(entry)
    return list(groups.values())


def _table(alike: "Sequence[Sequence[Near]]") -> "Table":
    drawn = table("candidate", "rank", "edits of the contract", "then still")
    for first, *others in alike:
        name = first.candidate.tactic.name + (f"\nand {len(others)} more" if others else "")
        rank = effective(first.candidate.effective_rank, ruled=first.candidate.rule is not None)
        drawn.add_row(name, rank, _edits(first), _still(first) or "-")
    return drawn


def _edits(entry: "Near") -> str:
    return "\n".join(_edit(edit) for edit in entry.edits)


def _still(entry: "Near") -> str:
    return "\n".join(f"{reason.stage.value}: {reason.wanted}" for reason in entry.remaining)


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
