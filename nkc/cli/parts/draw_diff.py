"""Draws differences as tables, sorted as a reader asks; long values are cut, `--format json` has them whole.

Candidates have a table of their own, one row each: what became of it, and the reasons that went and came.
"""

from typing import TYPE_CHECKING

import click

from nkc.cli.parts.console import draw, table

if TYPE_CHECKING:
    from rich.table import Table

    from nkc.emit.compare import Diff, RowRecord

EQUAL, CHANGED = 0, 1
LONGEST = 72  # characters of a value
_DIGEST_DIGITS = 12
_CANDIDATES = ".candidates["


def print_diff(found: "Diff", form: str) -> int:
    """Print differences and return the exit code of a comparison."""
    if form == "json":
        from nkc.emit.explain import encode

        click.echo(encode(found).decode(), nl=False)
    elif found.changed:
        draw_diff(found)
    else:
        click.echo("nothing differs", err=True)
    return CHANGED if found.changed else EQUAL


def draw_diff(found: "Diff") -> None:
    """Print the differences."""
    from rich.text import Text

    drawn = table("part", "path", "before", "after")
    part = None
    about_candidates: dict[str, list[RowRecord]] = {}
    for row in found.rows:
        if _CANDIDATES in row.path:
            about_candidates.setdefault(_candidate(row.path), []).append(row)
            continue
        shown = row.part.value if row.part is not part else ""
        drawn.add_row(shown, row.path, _value(row, row.before), _value(row, row.after))
        part = row.part
    local = {name: rows for name, rows in about_candidates.items() if name.split("] ")[-1].startswith(found.targets)}
    tables: list[object] = [drawn] if drawn.row_count else []
    tables += [_candidates(local)] if local else []
    others = len(about_candidates) - len(local)
    if others:
        tables.append(Text(f"{others} candidates for other targets changed too; --format json lists them", "dim"))
    draw(*tables)


def _candidates(rows: "dict[str, list[RowRecord]]") -> "Table":
    drawn = table("candidate", "before", "after")
    for name, unsorted in rows.items():
        changes = sorted(unsorted, key=lambda row: not row.path.endswith(".state"))
        drawn.add_row(
            name,
            "\n".join(_said(row, row.before) for row in changes),
            "\n".join(_said(row, row.after) for row in changes),
        )
    return drawn


def _candidate(path: str) -> str:
    """Return a candidate's name, after that of its entry where the rows of a whole build are drawn."""
    before, _, rest = path.partition(_CANDIDATES)
    entry = before.removeprefix("$.entries")
    return f"{entry} {rest.partition(']')[0]}".removeprefix("$").strip()


def _said(row: "RowRecord", value: object) -> str:
    """Return one side of one change of a candidate in words."""
    field = row.path.partition(_CANDIDATES)[2].partition("]")[2].removeprefix(".")
    if value is None:
        return "-"
    if isinstance(value, dict):
        return str(value["state"]) if "state" in value else f"{value['field']}: wanted {value['wanted']}"
    return str(value) if field in ("state", "") else f"{field.removeprefix('reasons')}: {_value(row, value)}"


def _value(row: "RowRecord", value: object) -> str:
    import msgspec

    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if row.part.value == "digests" and len(text) == 64:
        return text[:_DIGEST_DIGITS] + "..."
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
