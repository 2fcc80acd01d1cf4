"""Writes evidence: what was checked becomes small, deterministic records, one file a tactic."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from nkc.emit.explain import encode
from nkc.tactics.evidence import FOLDER, Check, Records, read_records, records_path
from nkc.verify.check import Row
from nkc.verify.engine import Engine
from nkc.verify.subject import Subject


def record(subject: Subject, engine: Engine, row: Row) -> Check:
    """Return the record of one row."""
    return Check(
        request=subject.request,
        code_digest=subject.code_digest,
        engine=engine.name.value,
        device=engine.device(),
        toolchain=subject.toolchain,
        regime=row.regime,
        seed=row.seed,
        recipe_version=row.recipe_version,
        dims=row.dims,
        passed=row.passed,
        worst=float(f"{row.worst:.4g}"),
        err_ratio=float(f"{row.err_ratio:.4g}"),
        bit_equal=row.bit_equal,
        repeats=row.repeats,
        repeated=row.repeated,
        replay=row.replay,
        outside=row.outside,
        hazards=row.hazards,
        notes=dict(sorted(row.notes.items())),
        model_bits=row.model_bits,
    )


def merge(tactic: str, checks: Iterable[Check], *, folder: Path | None = None) -> Path:
    """Add checks to a tactic's records; one of the same contract, engine, regime and seed replaces the older."""
    known: dict[tuple[str, str, str, int], Check] = {check.key: check for check in read_records(tactic, folder).checks}
    known.update({check.key: check for check in checks})
    path = records_path(tactic, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(Records(tactic=tactic, checks=tuple(known[key] for key in sorted(known)))))
    read_records.cache_clear()
    return path


def merge_all(found: Mapping[str, Iterable[Check]], *, folder: Path | None = None) -> tuple[Path, ...]:
    """Add the checks of several tactics."""
    return tuple(merge(tactic, checks, folder=folder) for tactic, checks in sorted(found.items()))


def prune(tactic: str, proofs: Collection[str], *, folder: Path | None = None) -> int:
    """Drop a tactic's records of contracts (request ids) that are no longer proofs; return how many there were."""
    checks = read_records(tactic, folder).checks
    kept = tuple(check for check in checks if check.request in proofs)
    if len(kept) < len(checks):
        records_path(tactic, folder).write_bytes(encode(Records(tactic=tactic, checks=kept)))
        read_records.cache_clear()
    return len(checks) - len(kept)


__all__ = ["FOLDER", "merge", "merge_all", "prune", "record"]
