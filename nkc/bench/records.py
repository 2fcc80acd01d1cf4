"""Keeps records: one file a shape, a later record of the same contract and device replacing the earlier one."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from nkc.bench.summary import Summary
from nkc.ir.errors import UsageError
from nkc.tactics.performance import (
    FOLDER,
    Measurements,
    Record,
    Session,
    file_name,
    read_all,
    read_measurements,
)


def document(measurements: Measurements, summary: Summary | None = None) -> bytes:
    """Return the bytes of a file: one record or session a line, so that a new one is a line of a diff.

    summary: what is said of them, beside; for a reader, and in no committed file.
    """
    sessions = ",\n".join(
        f" {msgspec.json.encode(name).decode()}: {msgspec.json.encode(session).decode()}"
        for name, session in sorted(measurements.sessions.items())
    )
    records = ",\n".join(f" {msgspec.json.encode(record).decode()}" for record in measurements.records)
    beside = "" if summary is None else f',\n"summary": {msgspec.json.encode(summary).decode()}'
    head = f'{{\n"schema": "{measurements.schema}",\n"sessions": {{\n{sessions}\n}},\n"records": [\n{records}\n]'
    return f"{head}{beside}\n}}\n".encode()


def of(session: Session, records: Iterable[Record]) -> Measurements:
    """Return the measurements of one session."""
    return Measurements(sessions={session.digest: session}, records=tuple(records))


def read_exported(file: Path) -> Measurements:
    """Return what `nkc bench --export` wrote. Raises UsageError for another file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Measurements)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{file}: no exported measurements: {error} (nkc bench --export FILE)") from None


def merge(found: Measurements, *, folder: Path | None = None) -> tuple[Path, ...]:
    """Add records to the committed ones and return the files that were written."""
    folder = FOLDER if folder is None else folder
    by_file: dict[str, list[Record]] = {}
    for record in found.records:
        by_file.setdefault(file_name(record), []).append(record)
    written = []
    for name, records in sorted(by_file.items()):
        known = read_measurements(folder / name)
        sessions = {**known.sessions, **found.sessions}
        kept = {_key(record, sessions): record for record in (*known.records, *records)}
        ordered = tuple(kept[key] for key in sorted(kept))
        named = {record.session for record in ordered}
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        used = {digest: session for digest, session in sessions.items() if digest in named}
        path.write_bytes(document(Measurements(sessions=used, records=ordered)))
        written.append(path)
    read_measurements.cache_clear()
    return tuple(written)


def _key(record: Record, sessions: dict[str, Session]) -> tuple[int, str, str, str]:
    """What a later record replaces: the same contract at the same dims on the same device; ordered by rows."""
    shape = {**_shape(record), **record.dims}
    rows = shape.get("m", 0)
    dims = ",".join(f"{name}{value}" for name, value in sorted(record.dims.items()))
    return rows if isinstance(rows, int) else 0, record.request, dims, sessions[record.session].device


def _shape(record: Record) -> dict[str, object]:
    shape = record.contract["shape"]
    assert isinstance(shape, dict)
    return shape


__all__ = ["document", "merge", "of", "read_all", "read_exported"]
