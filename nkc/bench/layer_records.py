"""Keeps comparisons inside layers: one file a tactic, a later one of the same thing replacing the earlier.

A lost one is replaced by nothing: it stays on record, and a second look does not take it away.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from nkc.ir.errors import UsageError
from nkc.tactics.layer import LAYER_SCHEMA, Comparison, LayerRecords, Verdict, read_layer, records_path
from nkc.tactics.performance import Session


def document(records: LayerRecords) -> bytes:
    """Return the bytes of a file: one comparison or session a line, so that a new one is a line of a diff."""

    def lines(found: Iterable[tuple[str, msgspec.Struct]]) -> str:
        each = (
            f" {msgspec.json.encode(name).decode()}: {msgspec.json.encode(value).decode()}" for name, value in found
        )
        return "{\n" + ",\n".join(each) + "\n}"

    ordered = sorted(records.comparisons.items(), key=lambda item: _order(item[1]))
    sessions, comparisons = lines(sorted(records.sessions.items())), lines(ordered)
    return f'{{\n"schema": "{LAYER_SCHEMA}",\n"sessions": {sessions},\n"comparisons": {comparisons}\n}}\n'.encode()


def read_exported(file: Path) -> LayerRecords:
    """Return exported comparisons. Raises UsageError for another file, and for one that was edited."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=LayerRecords)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{file}: no exported comparisons: {error} (make them again)") from None


def merge(found: LayerRecords, *, folder: Path | None = None) -> tuple[Path, ...]:
    """Add comparisons to the committed ones, tactic by tactic, and return the files that were written."""
    by_tactic: dict[str, list[Comparison]] = {}
    for comparison in found.comparisons.values():
        by_tactic.setdefault(comparison.ours.name, []).append(comparison)
    written = []
    for tactic, comparisons in sorted(by_tactic.items()):
        known = read_layer(tactic, folder)
        sessions = {**known.sessions, **found.sessions}
        kept = {_same(each, sessions): each for each in (*known.comparisons.values(), *comparisons)}
        named = {each.session for each in kept.values()}
        path = records_path(tactic, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        used = [session for digest, session in sessions.items() if digest in named]
        path.write_bytes(document(LayerRecords.of(used, kept.values())))
        written.append(path)
    read_layer.cache_clear()
    return tuple(written)


def _order(comparison: Comparison) -> tuple[str, str, int, str, str]:
    return comparison.layer, comparison.operation, comparison.rows, comparison.theirs.name, comparison.digest


def _same(comparison: Comparison, sessions: Mapping[str, Session]) -> tuple[object, ...]:
    """What a later comparison replaces: the same place, contract and other route, on the same device; no loss."""
    device = sessions[comparison.session].device
    dims = tuple(sorted(comparison.dims.items()))
    place = comparison.layer, dims, comparison.rows, comparison.context, comparison.operation
    loss = comparison.digest if comparison.verdict is Verdict.LOST else None
    return *place, comparison.request, comparison.theirs.name, device, loss


__all__ = ["document", "merge", "read_exported"]
