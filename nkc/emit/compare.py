"""Compares what a user names: two contracts, two built directories, or whole outputs of two builds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from nkc import ir
from nkc.emit.diff import Change, Part, Row, diff_contracts, diff_explains, diff_manifests, pair_entries
from nkc.emit.explain import Explain, explain
from nkc.emit.locate import EXPLAIN_FILE, read_explain, read_manifest
from nkc.emit.proofs import book
from nkc.ir.canonical import contract_document
from nkc.ir.manifest import MANIFEST_FILE
from nkc.tactics.select import Policy, select

DIFF_SCHEMA: Literal["nkc.diff/1"] = "nkc.diff/1"


class RowRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One difference.

    part: what it is about.
    change: whether the value is there on both sides, or on one.
    path: JSON path; a record of a list by its name in brackets, an entry of a build by the inputs that asked for it.
    before: null where there was nothing.
    after: null where there is nothing.
    """

    part: Part
    change: Change
    path: str
    before: object
    after: object


class Diff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs between two subjects.

    schema: names this form of the document.
    targets: the chips of the two sides, sorted.
    changed: whether anything differs.
    rows: the differences, in the order in which a reader asks.
    """

    schema: Literal["nkc.diff/1"] = DIFF_SCHEMA
    targets: tuple[str, ...]
    changed: bool
    rows: tuple[RowRecord, ...]


def compare(before: Path, after: Path, policy: Policy) -> Diff:
    """Return what differs. Contracts are selected under `policy` and lowered; nothing is compiled.

    Raises ContractError or UsageError for a subject that cannot be read.
    """
    rows = tuple(_compare(before, after, policy))
    return Diff(
        targets=tuple(sorted(_targets(before) | _targets(after))),
        changed=bool(rows),
        rows=tuple(
            RowRecord(part=row.part, change=row.change, path=row.path, before=row.before, after=row.after)
            for row in rows
        ),
    )


def _compare(before: Path, after: Path, policy: Policy) -> Iterator[Row]:
    if _is_output(before) and _is_output(after):
        yield from _outputs(before, after)
        return
    if before.is_dir() or after.is_dir():
        yield from diff_explains(_explained(before, policy), _explained(after, policy))
        return
    written = diff_contracts(ir.read(before), ir.read(after))
    told = {(row.part, row.path) for row in written}
    yield from (row for row in written if row.part is not Part.DIGESTS)
    for row in diff_explains(_explained(before, policy), _explained(after, policy)):
        if row.part is not Part.CONTRACT and not (row.path == "$.fallback" and (Part.NOTES, row.path) in told):
            yield row


def _is_output(place: Path) -> bool:
    """Return whether a directory is the output of a build; one with a single entry is compared as one too."""
    return (place / MANIFEST_FILE).is_file() and not (place / EXPLAIN_FILE).is_file()


def _targets(subject: Path) -> set[str]:
    if _is_output(subject):
        return {entry.target for entry in read_manifest(subject).entries}
    return {read_explain(subject).target if subject.is_dir() else ir.read(subject).target.arch}


def _explained(subject: Path, policy: Policy) -> Explain:
    """Return the explanation of a subject; a contract's has the lowered contract in the place of the sealed one."""
    if subject.is_dir():
        return read_explain(subject)
    selection = select(ir.read(subject), policy, book=book())
    record = explain(selection)
    if selection.selected is None:
        return record
    lowered = selection.lower(selection.selected).contract
    return msgspec.structs.replace(record, sealed=contract_document(lowered))


def _outputs(before: Path, after: Path) -> Iterator[Row]:
    """Yield the rows of two manifests, and those of the explanations of every entry that both have.

    Where the explanations differ they say in more detail what the manifests say of selection and digests.
    """
    manifests = read_manifest(before), read_manifest(after)
    detailed: dict[str, tuple[Row, ...]] = {}
    for old, new in pair_entries(*manifests):
        if old is not None and new is not None:
            label = ", ".join(sorted({binding.source for binding in new.bindings})) or new.request
            records = read_explain((before / old.explain).parent), read_explain((after / new.explain).parent)
            detailed[f"$.entries[{label}]"] = diff_explains(*records)
    for row in diff_manifests(*manifests):
        told = any(rows and row.path.startswith(f"{entry}.") for entry, rows in detailed.items())
        if not told or row.part not in (Part.SELECTION, Part.DIGESTS):
            yield row
    for entry, rows in detailed.items():
        yield from (msgspec.structs.replace(row, path=entry + row.path.removeprefix("$")) for row in rows)


__all__ = ["Diff", "RowRecord", "compare"]
