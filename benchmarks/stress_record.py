"""What `stress.py` found, kernel by kernel, as it is committed; without torch, so that a test can read it."""

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec


class Check(StrEnum):
    """What was done to a kernel.

    replays: replays of a graph beside a loaded memory system. chain: replays of dependent links. Then the tools of
    compute-sanitizer, one launch.
    """

    REPLAYS = "replays"
    CHAIN = "chain"
    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    SYNCCHECK = "synccheck"


BEGUN, MARK = "#begun ", "#kernel "
"""What the lines of a kernel begin with, before it is launched and when it is done."""

MOST_LINES = 24
"""Of a kernel's findings, as they are shown."""

PROBE = -1
"""The part that launches the kernel with a fault, and no other."""

FLAWED = "flawed"
"""The kernel of `stress.cu` with a fault for each tool, as its row names it."""

TOOLS = (Check.MEMCHECK, Check.RACECHECK, Check.SYNCCHECK)


_FINDING = re.compile(
    r"^========= (?!\s|COMPUTE-SANITIZER|(ERROR|RACECHECK) SUMMARY|(Error: )?Target application|Error: couldn't)\S"
)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class Run(_Record, frozen=True, kw_only=True):
    """Where and how rows were made. method: the data, what lay around it, what ran beside."""

    device: str
    driver: str
    date: str
    nkc: str
    torch: str
    method: str


class Row(_Record, frozen=True, kw_only=True):
    """One check of one kernel.

    request: id of the contract as written. launches: of the kernel under test. findings: bytes that differ from the
    first launch (links run one by one, for a chain), or what the sanitizer reported. passed: nothing was found, the
    oracle agrees with the first launch, and nothing changed outside the results.
    """

    check: Check
    tactic: str
    request: str
    code_digest: str
    launches: int
    findings: int
    passed: bool
    run: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """What a later row of the same thing replaces."""
        return self.tactic, self.request, self.check.value


class Record(_Record, frozen=True, kw_only=True):
    """All rows, in order of tactic, contract and check."""

    schema: Literal["nkc.stress/1"] = "nkc.stress/1"
    runs: tuple[Run, ...] = ()
    rows: tuple[Row, ...] = ()


def read(path: Path) -> Record:
    """Return a record, an empty one where there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Record) if path.is_file() else Record()


def passed(record: Record, check: Check) -> set[tuple[str, str, str]]:
    """Return tactic, contract and code of every kernel that passed a check."""
    return {(row.tactic, row.request, row.code_digest) for row in record.rows if row.check is check and row.passed}


def merge(record: Record, run: Run, rows: Iterable[Row]) -> Record:
    """Return a record with the rows of a run, which replace earlier ones of the same; a run without rows goes."""
    runs = [*record.runs, run]
    found = {row.key: row for row in record.rows}
    found |= {row.key: msgspec.structs.replace(row, run=len(runs) - 1) for row in rows}
    used = sorted({row.run for row in found.values()})
    kept = (msgspec.structs.replace(row, run=used.index(row.run)) for _, row in sorted(found.items()))
    return Record(runs=tuple(runs[number] for number in used), rows=tuple(kept))


def encode(record: Record) -> bytes:
    """Return the file's bytes: a line a row, so that a change shows which kernels it is of."""
    rows = b",\n".join(msgspec.json.encode(row) for row in record.rows)
    runs = b",\n".join(msgspec.json.encode(run) for run in record.runs)
    return b'{"schema":"%s",\n"runs":[\n%s\n],\n"rows":[\n%s\n]}\n' % (record.schema.encode(), runs, rows)


def keep(path: Path, run: Run, rows: Iterable[Row]) -> None:
    """Merge the rows of a run into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(merge(read(path), run, rows)))


def rows_of(check: Check, text: str) -> list[Row]:
    """Return the rows that a process printed; each of the sanitizer's findings counts for the kernel that ends it.

    A kernel that was begun and ended the process failed.
    """
    rows: list[Row] = []
    begun: Row | None = None
    found = 0
    for line in text.splitlines():
        if line.startswith(BEGUN):
            begun = msgspec.json.decode(line.removeprefix(BEGUN), type=Row)
        elif line.startswith(MARK):
            begun = None
            row = msgspec.json.decode(line.removeprefix(MARK), type=Row)
            if check in TOOLS:
                row = msgspec.structs.replace(row, findings=found, passed=row.passed and not found)
            rows.append(row)
            found = 0
        elif _FINDING.match(line):
            found += 1
    return rows if begun is None else [*rows, msgspec.structs.replace(begun, findings=max(found, 1), passed=False)]


def reports(text: str) -> bool:
    """Return whether the sanitizer found anything in a process, wherever among its lines."""
    return any(_FINDING.match(line) for line in text.splitlines())


def findings_of(check: Check, text: str) -> list[str]:
    """Return the lines of the sanitizer's findings, each with the kernel it is of."""
    found: list[str] = []
    name = ""
    lines = 0
    for line in text.splitlines() if check in TOOLS else ():
        if line.startswith(BEGUN):
            row, lines = msgspec.json.decode(line.removeprefix(BEGUN), type=Row), 0
            name = f"{row.tactic}: {row.request}: "
        elif line.startswith(MARK):
            name = ""
        elif name and lines < MOST_LINES and (_FINDING.match(line) or line.startswith("=========     ")):
            found.append(name + line.removeprefix("========= "))
            lines += 1
    return found
