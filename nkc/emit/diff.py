"""What differs between two contracts, two explanations or two builds, as typed rows: a pure function of the two.

Objects are compared field by field, lists of records by the name that their records carry, everything else whole. A
record that only one side has is one row. Rows come in the order in which a reader asks: what was asked for, what was
selected and why, what the compiler filled in, what the object uses, and last the digests.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nkc.emit.explain import Explain
from nkc.ir.canonical import NOTES, contract_document, contract_id
from nkc.ir.contract import Contract
from nkc.ir.manifest import Entry, Manifest

Pair: TypeAlias = tuple[Entry | None, Entry | None]


class Part(StrEnum):
    """What a row is about, in the order of listing."""

    CONTRACT = "contract"
    NOTES = "notes"
    SELECTION = "selection"
    CANDIDATES = "candidates"
    LOWERED = "lowered"
    BUDGET = "budget"
    RESOURCES = "resources"
    LAUNCH = "launch"
    TOOLCHAIN = "toolchain"
    DIGESTS = "digests"
    BINDINGS = "bindings"


class Change(StrEnum):
    """How the two sides differ."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One difference. path: JSON path, a list's record by its name in brackets. before, after: null where absent."""

    part: Part
    path: str
    before: object
    after: object

    @property
    def change(self) -> Change:
        """Whether the value is there on both sides, or on one."""
        if self.before is None:
            return Change.ADDED
        return Change.REMOVED if self.after is None else Change.CHANGED


_EXPLAIN_PARTS: Mapping[str, Part] = {
    "$": Part.SELECTION,
    "$.contract": Part.CONTRACT,
    "$.candidates": Part.CANDIDATES,
    "$.sealed": Part.LOWERED,
    "$.sealed.code": Part.DIGESTS,
    "$.budget": Part.BUDGET,
    "$.facts": Part.BUDGET,
    "$.resources": Part.RESOURCES,
    "$.occupancy": Part.RESOURCES,
    "$.launch": Part.LAUNCH,
    "$.launch.id": Part.DIGESTS,
    "$.launch.sha256": Part.DIGESTS,
    "$.toolchain": Part.TOOLCHAIN,
    "$.source": Part.DIGESTS,
    "$.artifacts": Part.DIGESTS,
    "$.id": Part.DIGESTS,
    "$.request": Part.DIGESTS,
}
_CONTRACT_PARTS: Mapping[str, Part] = {
    "$": Part.CONTRACT,
    **{f"$.{note}": Part.NOTES for note in NOTES},
    "$.code": Part.DIGESTS,
    "$.request": Part.DIGESTS,
}
_ENTRY_PARTS: Mapping[str, Part] = {
    "$": Part.SELECTION,
    "$.id": Part.DIGESTS,
    "$.request": Part.DIGESTS,
    "$.sha256": Part.DIGESTS,
    "$.bindings": Part.BINDINGS,
}
_PLACES = frozenset({"object", "explain", "contract", "launch"})  # of an entry: they follow from its ids


def diff_contracts(before: Contract, after: Contract) -> tuple[Row, ...]:
    """Return what differs between two contracts, notes included; the request ids differ too, unless only notes do."""
    old, new = (
        {**contract_document(contract, notes=True), "request": contract_id(contract)} for contract in (before, after)
    )
    return _rows(_plain(old), _plain(new), _CONTRACT_PARTS)


def diff_explains(before: Explain, after: Explain) -> tuple[Row, ...]:
    """Return what differs between two explanations; the sealed contract says only what the written one does not."""
    rows = _rows(_plain(before), _plain(after), _EXPLAIN_PARTS)
    asked = {(row.path.removeprefix("$.contract"), _key(row)) for row in rows if row.part is Part.CONTRACT}
    return tuple(
        row
        for row in rows
        if row.part is not Part.LOWERED or (row.path.removeprefix("$.sealed"), _key(row)) not in asked
    )


def diff_manifests(before: Manifest, after: Manifest) -> tuple[Row, ...]:
    """Return what differs between two builds, entry by entry; paths name an entry by the inputs that asked for it."""
    rows: list[Row] = []
    for old, new in pair_entries(before, after):
        entry = new or old
        assert entry is not None
        label = ", ".join(sorted({binding.source for binding in entry.bindings})) or entry.request
        path = f"$.entries[{label}]"
        if old is None or new is None:
            rows.append(Row(part=Part.SELECTION, path=path, before=_entry(old), after=_entry(new)))
            continue
        old, names = _as_named_in(new, old)
        found = _rows(_entry(old), _entry(new), _ENTRY_PARTS)
        rows += [
            Row(part=Part.BINDINGS, path=f"{path}.bindings[{after}].source", before=before, after=after)
            for before, after in names
        ]
        rows += [msgspec.structs.replace(row, path=path + row.path.removeprefix("$")) for row in found]
    return _sorted(rows)


def pair_entries(before: Manifest, after: Manifest) -> tuple[Pair, ...]:
    """Return entries of two builds that belong together: by request id, else by the inputs that asked for them."""
    old = {entry.request: entry for entry in before.entries}
    new = {entry.request: entry for entry in after.entries}
    pairs: list[Pair] = [(old.pop(request), new.pop(request)) for request in sorted(old.keys() & new.keys())]
    for request, entry in sorted(old.items()):
        sources = {binding.source for binding in entry.bindings}
        matching = sorted(
            other for other, candidate in new.items() if sources & {binding.source for binding in candidate.bindings}
        )
        pairs.append((old[request], new.pop(matching[0]) if matching else None))
    return (*pairs, *((None, new[request]) for request in sorted(new)))


def _as_named_in(new: Entry, old: Entry) -> tuple[Entry, tuple[tuple[str, str], ...]]:
    """Return the old entry with its inputs called as in the new one, and those that were renamed, old and new name.

    An input was renamed where only its name is another: one that went and one that came agree in all else.
    """
    come = [binding for binding in new.bindings if binding.source not in {each.source for each in old.bindings}]
    kept = {binding.source for binding in new.bindings}
    bindings, names = [], []
    for binding in old.bindings:
        twin = next((each for each in come if msgspec.structs.replace(each, source=binding.source) == binding), None)
        if binding.source not in kept and twin is not None:
            come.remove(twin)
            names.append((binding.source, twin.source))
            binding = twin
        bindings.append(binding)
    order = {binding.source: place for place, binding in enumerate(new.bindings)}
    bindings.sort(key=lambda binding: order.get(binding.source, len(order)))
    return msgspec.structs.replace(old, bindings=tuple(bindings)), tuple(names)


def _entry(entry: Entry | None) -> dict[str, object] | None:
    if entry is None:
        return None
    document = _plain(entry)
    assert isinstance(document, dict)
    return {name: value for name, value in document.items() if name not in _PLACES}


def _plain(value: object) -> object:
    """Return a value as it is read from its file, so that one just made compares equal to one read back."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _rows(before: object, after: object, parts: Mapping[str, Part]) -> tuple[Row, ...]:
    return _sorted(
        Row(part=_part(path, parts), path=path, before=old, after=new) for path, old, new in _walk("$", before, after)
    )


def _sorted(rows: Iterable[Row]) -> tuple[Row, ...]:
    order = list(Part)
    return tuple(sorted(rows, key=lambda row: (order.index(row.part), row.path)))


def _part(path: str, parts: Mapping[str, Part]) -> Part:
    """Return the part of the longest prefix that the table knows."""
    place = path
    while place not in parts:
        place = place[: max(place.rfind("."), place.rfind("["), 1)]
    return parts[place]


def _walk(path: str, before: object, after: object) -> Iterator[tuple[str, object, object]]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _walk(f"{path}.{name}", before.get(name), after.get(name))
    elif (old := _records(before)) is not None and (new := _records(after)) is not None:
        for name in sorted(old.keys() | new.keys()):
            yield from _walk(f"{path}[{name}]", old.get(name), new.get(name))
        orders = [name for name in old if name in new], [name for name in new if name in old]
        if orders[0] != orders[1]:
            yield path, *orders
    else:
        yield path, before, after


def _records(value: object) -> dict[str, object] | None:
    """Return a list of records by name, a nameless one by its place; None for any other value, such as a tile."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return None
    records: dict[str, object] = {}
    for place, item in enumerate(value):
        name = _name(item)
        records[name if name and name not in records else f"{name} {place}".strip()] = item
    return records


_NAMES = (
    ("name",),
    ("mnemonic",),
    ("predicate", "field"),
    ("kind", "argument"),
    ("kind", "dim"),
    ("source",),
    ("offset",),
)
"""What a record of our documents is called by: the first of these whose fields it has, none of them null."""


def _name(record: Mapping[str, object]) -> str:
    for fields in _NAMES:
        words = [record.get(field) for field in fields]
        if None not in words:
            return " ".join(str(word) for word in words)
    return ""


def _key(row: Row) -> tuple[bytes, bytes]:
    return msgspec.json.encode(row.before), msgspec.json.encode(row.after)


__all__ = ["Change", "Part", "Row", "diff_contracts", "diff_explains", "diff_manifests", "pair_entries"]
