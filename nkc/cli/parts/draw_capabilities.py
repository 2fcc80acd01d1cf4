"""Draws capabilities as one compact table: rows that agree in every epilogue are merged, reasons are numbered."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from nkc.cli.parts.console import draw, table
from nkc.ir import operations
from nkc.ir.contract import Access
from nkc.ir.scales import argument_name

if TYPE_CHECKING:
    from nkc.ir.contract import Epilogue
    from nkc.tactics.capabilities import Capabilities, Capability

NONE = "-"
Attribute: TypeAlias = tuple[str, str]
"""What kind of attribute, and of which operand: `target`, `read` and `written` dtypes, `layout`."""


class Row(NamedTuple):
    """Combinations that agree: the values of every attribute, and the outcome in every column."""

    attributes: dict[Attribute, frozenset[str]]
    outcomes: dict[str, str]


def draw_capabilities(found: "Capabilities") -> None:
    """Print what is implemented, one table an operation, and the numbered reasons below."""
    from rich.text import Text

    notes: dict[str, int] = {}
    shown: list[object] = []
    for name in dict.fromkeys(capability.operation for capability in found.capabilities):
        rows = _rows([c for c in found.capabilities if c.operation == name], notes)
        every = {
            attribute: frozenset().union(*(row.attributes[attribute] for row in rows))
            for attribute in rows[0].attributes
        }
        columns = list(rows[0].outcomes)
        drawn = table("target", "operands", "layouts", *columns)
        for row in sorted(merge(rows), key=_unsupported):
            target, operands, layouts = _cells(row, every)
            drawn.add_row(target, operands, layouts, *(row.outcomes[column] for column in columns))
        shown += [Text(f"{name}: {operations.get(name).summary}", "bold"), drawn, Text("")]
    why = table("", "unsupported: what the closest tactic wants")
    for note, number in notes.items():
        why.add_row(f"[{number}]", note)
    draw(*shown, *([why] if notes else []))


def merge(rows: Iterable[Row]) -> list[Row]:
    """Unite rows that differ in one attribute alone, attribute by attribute, so that a row is a product of sets."""
    merged = list(rows)
    for attribute in reversed(merged[0].attributes if merged else {}):
        groups: dict[object, Row] = {}
        for row in merged:
            others = tuple(sorted((name, values) for name, values in row.attributes.items() if name != attribute))
            key = (tuple((name, tuple(sorted(values))) for name, values in others), tuple(row.outcomes.items()))
            before = groups.get(key)
            values = row.attributes[attribute] | (before.attributes[attribute] if before else frozenset())
            groups[key] = Row({**row.attributes, attribute: values}, row.outcomes)
        merged = list(groups.values())
    return merged


def _unsupported(row: Row) -> bool:
    """Return whether nothing in a row is implemented; such rows are drawn last."""
    return all(outcome.startswith(NONE) for outcome in row.outcomes.values())


def _rows(capabilities: "list[Capability]", notes: dict[str, int]) -> list[Row]:
    """Return one row for each combination beside the epilogue."""
    rows: dict[tuple[tuple[Attribute, str], ...], dict[str, dict[str, str]]] = {}
    for capability in capabilities:
        place = rows.setdefault(tuple(_attributes(capability).items()), {})
        kind, detail = _column(capability.variant.epilogue)
        place.setdefault(kind, {})[detail] = _outcome(capability, notes)
    return [
        Row(
            {name: frozenset((value,)) for name, value in attributes},
            {kind: _joined(details) for kind, details in columns.items()},
        )
        for attributes, columns in rows.items()
    ]


def _attributes(capability: "Capability") -> dict[Attribute, str]:
    """Return what makes a row, from the outermost to what is merged first: layouts, then what is written."""
    operation, variant = operations.get(capability.operation), capability.variant
    layouts: dict[Attribute, str] = {}
    for operand in operation.operands:
        if len(operand.layouts) > 1:
            layouts["layout", operand.name] = variant.layouts.get(operand.name, NONE)
        if operand.scales is not None and len(operand.scales.layouts) > 1:
            layouts["layout", argument_name(operand.name)] = variant.scale_layouts.get(operand.name, NONE)
    dtypes: dict[str, dict[Attribute, str]] = {"read": {}, "written": {}}
    for operand in operation.operands:
        kind = "read" if operand.access is Access.READ else "written"
        dtypes[kind][kind, operand.name] = variant.dtypes.get(operand.name, NONE)
    return {("target", ""): capability.target, **dtypes["read"], **layouts, **dtypes["written"]}


def _column(epilogue: "Epilogue") -> tuple[str, str]:
    return epilogue.kind, str(epilogue.dtype or epilogue.gate or "")


def _joined(details: dict[str, str]) -> str:
    """Return a cell: one word where every form of an epilogue has the same outcome."""
    if len(set(details.values())) == 1:
        return next(iter(details.values()))
    return "\n".join(f"{detail}: {outcome}" for detail, outcome in details.items())


def _outcome(capability: "Capability", notes: dict[str, int]) -> str:
    if capability.families:
        place = f"{capability.target}.{capability.operation}."
        return "\n".join(family.removeprefix(place) for family in capability.families)
    note = "; ".join(dict.fromkeys(f"{reason.field}: {reason.wanted}" for reason in capability.reasons))
    return f"{NONE} [{notes.setdefault(note, len(notes) + 1)}]"


def _cells(row: Row, every: dict[Attribute, frozenset[str]]) -> tuple[str, str, str]:
    """Return target, operands and layouts of a row as they are printed."""
    said: dict[str, list[str]] = {"target": [], "read": [], "written": [], "layout": []}
    for (kind, name), values in row.attributes.items():
        if values == {NONE}:
            continue
        whole = kind == "layout" and len(values) > 1 and values == every[kind, name] - {NONE}
        words = "any" if whole else (", " if kind == "target" else " or ").join(sorted(values - {NONE}))
        said[kind].append(f"{name} {words}{' or none' if NONE in values else ''}".strip())
    read, written = ("; ".join(said[kind]) for kind in ("read", "written"))
    return said["target"][0], f"{read}\n-> {written}", "\n".join(said["layout"])
