"""Other tuners' tables read as hints: which tile was fastest there, and which of our tactics have it.

A hint never ranks: its kernel was another one. It says what to bench first, with where it comes from. Sources are read
and never written. Two rows for one shape are an error that names both origins, unless the caller says how to choose.
"""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec

from nkc.bench.tables import Line, read
from nkc.ir.contract import Contract, Triple, dim_max
from nkc.ir.errors import UsageError
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.tactic import Tactic

HINTS_SCHEMA: Literal["nkc.tuning-hints/1"] = "nkc.tuning-hints/1"


class OnDuplicate(StrEnum):
    """What to do with two rows for one shape."""

    ERROR = "error"
    FASTEST = "fastest"


class Hint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of another tuner.

    dims, m: the shape, one product D[m, n] = A[m, k] B[n, k]^T. kernel: as the source names it. tile: (m, n, k), None
    where the name tells none. waves, stages: where the source says. us: its time, where it gives one. tactics: ours of
    that tile, nearest first. origin: file and place in it.
    """

    target: str
    operation: str
    dims: dict[str, int]
    m: int
    kernel: str
    tile: Triple | None
    waves: int | None
    stages: int | None
    us: float | None
    tactics: tuple[str, ...]
    origin: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel that no tactic of the target has the tile of. rows: how many name it. origin: the first of them."""

    target: str
    kernel: str
    rows: int
    origin: str


class Hints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was imported. sources: file name to the SHA-256 of its bytes."""

    schema: Literal["nkc.tuning-hints/1"] = HINTS_SCHEMA
    sources: dict[str, str]
    hints: tuple[Hint, ...]
    unknown: tuple[Unknown, ...]


def gather(files: Iterable[Path], *, target: str | None = None, on_duplicate: OnDuplicate = OnDuplicate.ERROR) -> Hints:
    """Return the hints of vLLM or SGLang JSON and AITER CSV files, in one order whatever that of the files.

    target: of files that do not say for which chip they were tuned. Raises UsageError for a file that is neither, for a
    chip nobody knows, and for duplicate rows unless told to take the fastest.
    """
    sources: dict[str, str] = {}
    lines: list[Line] = []
    for file in sorted(set(files)):
        digest, found = read(file, target)
        if sources.setdefault(file.name, digest) != digest:
            raise UsageError(f"{file}: another file of this name is read too, and origins could not be told apart")
        lines.extend(found)
    chosen = _unique(lines, on_duplicate)
    hints = tuple(_hint(line) for line in chosen)
    return Hints(sources=dict(sorted(sources.items())), hints=hints, unknown=_unknown(hints))


def read_hints(file: Path) -> Hints:
    """Return what `nkc import-tuning` wrote. Raises UsageError for another file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Hints)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{file}: no hints: {error} (nkc import-tuning FILE -o HINTS)") from None


def first_tries(hints: Hints, contract: Contract) -> tuple[str, ...]:
    """Return the tactics that hints name for a contract: by the least hinted m that is not below its own, else none."""
    dims = {name: dim for name, dim in contract.shape.items() if name != "m"}
    rows = dim_max(contract.shape["m"])
    fitting = [
        hint
        for hint in hints.hints
        if hint.target == contract.target.arch
        and hint.operation == contract.operation
        and hint.dims == dims
        and hint.m >= rows
        and hint.tactics
    ]
    return min(fitting, key=lambda hint: (hint.m, hint.origin)).tactics if fitting else ()


def _unique(lines: list[Line], on_duplicate: OnDuplicate) -> tuple[Line, ...]:
    """Return one line a shape, by shape."""
    by_shape: dict[tuple[str, int, int, int], list[Line]] = {}
    for line in lines:
        by_shape.setdefault((line.target, line.n, line.k, line.m), []).append(line)
    problems = []
    for (arch, n, k, m), group in sorted(by_shape.items()):
        if len(group) > 1 and on_duplicate is OnDuplicate.ERROR:
            told = " and ".join(f"{line.origin} ({line.kernel})" for line in sorted(group, key=_fastest))
            problems.append(f"{arch}, m {m}, n {n}, k {k}: {len(group)} rows: {told} (--on-duplicate fastest chooses)")
    if problems:
        raise UsageError("\n".join(problems))
    return tuple(min(group, key=_fastest) for _, group in sorted(by_shape.items()))


def _fastest(line: Line) -> tuple[float, str, str]:
    """Lowest time, then name, then origin; a row without a time goes last."""
    return line.us if line.us is not None else float("inf"), line.kernel, line.origin


def _hint(line: Line) -> Hint:
    return Hint(
        target=line.target,
        operation="dense",
        dims={"k": line.k, "n": line.n},
        m=line.m,
        kernel=line.kernel,
        tile=line.tile,
        waves=line.waves,
        stages=line.stages,
        us=line.us,
        tactics=_tactics(line),
        origin=line.origin,
    )


def _tactics(line: Line) -> tuple[str, ...]:
    """Return our block-scaled tactics of a tile: in Triton first, then the same waves and stages, unsplit, by rank."""
    if line.tile is None:
        return ()

    def distance(tactic: Tactic) -> tuple[bool, bool, bool, bool, int, str]:
        schedule = tactic.schedule
        return (
            tactic.kernel.language != "triton",  # waves and stages mean another thing in a kernel with its own copiers
            line.waves is not None and schedule.waves != line.waves,
            line.stages is not None and schedule.stages != line.stages,
            (schedule.split_k or 1) > 1,  # neither source splits k
            tactic.rank,
            tactic.name,
        )

    found = [
        tactic
        for tactic in tactics_of("dense")
        if tactic.target == line.target and tactic.schedule.tile == line.tile and "fp8" in tactic.name
    ]
    return tuple(tactic.name for tactic in sorted(found, key=distance))


def _unknown(hints: Iterable[Hint]) -> tuple[Unknown, ...]:
    rows: dict[tuple[str, str], list[str]] = {}
    for hint in hints:
        if not hint.tactics:
            rows.setdefault((hint.target, hint.kernel), []).append(hint.origin)
    return tuple(
        Unknown(target=arch, kernel=kernel, rows=len(origins), origin=min(origins))
        for (arch, kernel), origins in sorted(rows.items())
    )
