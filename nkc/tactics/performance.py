"""Performance records: committed measurements of a contract's kernels beside what a server would otherwise run.

`evidence/performance/<target>.<operation>.<dims>.json` holds every record of one shape with the sessions that made
them, `evidence/performance/index.json` today's code digest of each kernel that was measured, beside the hashes of the
files that decide it.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from nkc.ir.errors import ToolError
from nkc.ir.package import PACKAGE

MEASUREMENTS_SCHEMA: Literal["nkc.performance/1"] = "nkc.performance/1"
INDEX_SCHEMA: Literal["nkc.performance-index/1"] = "nkc.performance-index/1"
FOLDER = PACKAGE / "tactics" / "evidence" / "performance"
LEAST_REPLAYS = 11
"""Of a route's graph, in turns with the others': what a median is taken of."""
MOST_ERR_RATIO = 3.6e-2
"""The widest limit that a gate has, where results are codes; none goes beyond it."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class Latency(_Record, frozen=True, kw_only=True):
    """Device time of one launch in microseconds, over so many replays of a graph of so many launches each."""

    median_us: float
    mean_us: float
    std_us: float
    min_us: float
    p10_us: float
    p90_us: float
    replays: int
    launches: int

    def __post_init__(self) -> None:
        """Refuse a time of fewer replays than are asked for, and figures in no order. Raises ValueError."""
        if self.replays < LEAST_REPLAYS or self.launches < 1:
            raise ValueError(f"a time of {self.replays} replays of {self.launches} launches, not {LEAST_REPLAYS} of 1")
        if not 0 < self.min_us <= self.p10_us <= self.median_us <= self.p90_us:
            raise ValueError(f"a median of {self.median_us:g} us that does not lie between its percentiles")


class Gate(_Record, frozen=True, kw_only=True):
    """What the correctness gate found on the very inputs that were timed.

    worst: largest error over its derived bound in a window of rows and columns; None where the route follows another
    rule, which has no such bound. err_ratio: RMS error over RMS of the whole output against float64, and its limit.
    digest: SHA-256 of the verdict, its inputs and its limits.
    """

    passed: bool
    worst: float | None
    err_ratio: float
    err_ratio_limit: float
    digest: str

    def __post_init__(self) -> None:
        """Refuse a gate that was passed in spite of its figures, or by another limit than ours. Raises ValueError."""
        if self.err_ratio_limit > MOST_ERR_RATIO:
            raise ValueError(f"a gate with a limit of {self.err_ratio_limit:g}, beyond any of {MOST_ERR_RATIO:g}")
        beyond = self.err_ratio > self.err_ratio_limit or (self.worst is not None and self.worst > 1)
        if self.passed and (beyond or self.err_ratio < 0):
            worst = "" if self.worst is None else f" and {self.worst:g} of its bound at worst"
            ratio = f"an RMS ratio of {self.err_ratio:g}, limit {self.err_ratio_limit:g}"
            raise ValueError(f"a gate that was passed with {ratio}{worst}")


class Route(_Record, frozen=True, kw_only=True):
    """One way to compute the contract.

    name: a tactic's, or a baseline's. tactic: the kernel is ours. same_rule: it computes what the contract asks; where
    not (bf16 operands), it is shown and never compared. code_digest, toolchain: of a tactic's kernel. quick_us: a
    first short look. latency: None where the first look was enough, or nothing ran. host_us: of one launch, without
    waiting for it. why_not: what kept it from being timed.
    """

    name: str
    tactic: bool
    same_rule: bool = True
    code_digest: str | None = None
    toolchain: str | None = None
    gate: Gate | None = None
    quick_us: float | None = None
    latency: Latency | None = None
    host_us: float | None = None
    why_not: str | None = None


class Ceilings(_Record, frozen=True, kw_only=True):
    """What the device did at best in the same session: reading bandwidth, and matrix products by operand type."""

    read_gbs: float
    copy_gbs: float
    tflops: dict[str, float]


class Clocks(_Record, frozen=True, kw_only=True):
    """Sampled while a cell was timed: medians of the SM clock in MHz, power in W, temperature in degrees Celsius."""

    sm_mhz: float
    power_w: float
    temperature_c: float
    samples: int


class Session(_Record, frozen=True, kw_only=True):
    """One run of `nkc bench`: the machine, its software, its ceilings, how it was asked; date: UTC, to the minute."""

    device: str
    driver: str
    compute_units: int
    l2_bytes: int
    power_limit_w: float | None
    idle: Clocks | None
    software: dict[str, str]
    ceilings: Ceilings
    method: int
    command: str
    date: str

    @property
    def digest(self) -> str:
        """What records name the session by."""
        return _digest(self)


class Record(_Record, frozen=True, kw_only=True):
    """One contract, at one value of its bounded dims, timed by every route that was there.

    request: id of the contract as written. cell: readable. contract: the document. dims: values of bounded dims.
    oracle, recipe, seed: what the gate held the results against, and the data. bytes, flops: the fewest that the
    contract takes. floor_us: the larger of both over the session's ceilings. copies: of all operands, walked through so
    that the L2 holds none. selected: the tactic that selection chose when this was measured. plain: the simplest one,
    which stands for a kernel that nobody tuned.
    """

    request: str
    cell: str
    contract: dict[str, object]
    dims: dict[str, int]
    oracle: str
    recipe: str
    seed: int
    bytes: int
    flops: int
    floor_us: float
    bound: Literal["memory", "compute"]
    copies: int
    routes: tuple[Route, ...]
    selected: str | None
    plain: str | None
    clocks: Clocks | None
    session: str

    @property
    def digest(self) -> str:
        """What a tuning row names the record by."""
        return _digest(self)

    def route(self, name: str) -> Route | None:
        """Return one route by name."""
        return next((route for route in self.routes if route.name == name), None)


class Timed(Protocol):
    """Whatever timed the kernel of a contract: request, and the document with a word for it, tell its digest today."""

    @property
    def request(self) -> str:
        """Id of the contract as written."""

    @property
    def contract(self) -> dict[str, object]:
        """The contract's document."""

    @property
    def cell(self) -> str:
        """Readable."""


class Measurements(_Record, frozen=True, kw_only=True):
    """The records of one shape, in order of their rows, with the sessions that they name.

    summary: what `nkc bench --format json` says of them beside; never kept.
    """

    schema: Literal["nkc.performance/1"] = MEASUREMENTS_SCHEMA
    sessions: dict[str, Session]
    records: tuple[Record, ...]
    summary: dict[str, object] | None = None


class CellDigests(_Record, frozen=True, kw_only=True):
    """One tactic's measured kernels: request id to today's code digest, and the files that decide those digests."""

    requests: dict[str, str]
    files: tuple[str, ...]


class PerformanceIndex(_Record, frozen=True, kw_only=True):
    """Today's digests of all kernels that were measured, and the SHA-256 of every file that decides one."""

    schema: Literal["nkc.performance-index/1"] = INDEX_SCHEMA
    files: dict[str, str]
    tactics: dict[str, CellDigests]


def _digest(record: msgspec.Struct) -> str:
    return hashlib.sha256(msgspec.json.encode(record, order="sorted")).hexdigest()


def file_name(record: Record) -> str:
    """Return the file that holds a record: by target, operation and the dims that are fixed beside the rows."""
    shape = record.contract["shape"]
    target = record.contract["target"]
    assert isinstance(shape, dict)
    assert isinstance(target, dict)
    fixed = "".join(f".{name}{value}" for name, value in sorted(shape.items()) if name != "m")
    return f"{target['arch']}.{record.contract['operation']}{fixed}.json"


@lru_cache(maxsize=256)
def read_measurements(path: Path) -> Measurements:
    """Return one file of records, none where there is no file. Raises ToolError for a damaged one."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Measurements)
    except FileNotFoundError:
        return Measurements(sessions={}, records=())
    except (OSError, msgspec.DecodeError) as error:
        raise ToolError(
            f"{path.name}: not a performance record that this nkc reads: {error} (restore it from version control)"
        ) from None
    known = {session.digest for session in found.sessions.values()}
    for record in found.records:
        if record.session not in known:
            raise ToolError(f"{path.name}: {record.cell}: its session is not in the file (restore it)")
    return found


def read_all(folder: Path | None = None) -> Measurements:
    """Return every committed record, by file name. Raises ToolError for a damaged file."""
    folder = FOLDER if folder is None else folder
    files = [read_measurements(path) for path in sorted(folder.glob("*.json")) if path.name != "index.json"]
    return Measurements(
        sessions={name: session for each in files for name, session in each.sessions.items()},
        records=tuple(record for each in files for record in each.records),
    )


@lru_cache(maxsize=4)
def read_performance_index(folder: Path | None = None) -> PerformanceIndex:
    """Return the index, an empty one where there is none. Raises ToolError for a damaged file."""
    path = (FOLDER if folder is None else folder) / "index.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=PerformanceIndex)
    except FileNotFoundError:
        return PerformanceIndex(files={}, tactics={})
    except (OSError, msgspec.DecodeError) as error:
        raise ToolError(f"{path.name}: not an index that this nkc reads: {error} (nkc evidence index)") from None
