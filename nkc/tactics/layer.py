"""Layer records: matched comparisons of one kernel with what a server would otherwise run, inside a layer.

A comparison holds two captured steps of one layer that are equal but for what serves one operation. Its verdict is no
field: it is computed from the times of every turn, so that a summary cannot say other than they do.
`evidence/layer/<tactic>.json` keeps a tactic's comparisons by their digests, with the sessions that made them.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from nkc.ir.errors import ToolError
from nkc.ir.package import PACKAGE
from nkc.tactics.performance import Session

LAYER_SCHEMA: Literal["nkc.layer-comparison/1"] = "nkc.layer-comparison/1"
FOLDER = PACKAGE / "tactics" / "evidence" / "layer"
METHOD = 1
LEAST_TURNS = 21
LEAST_REPLAYS = 50
ERR_RATIO_LIMIT = 1e-2
"""Of an operation's result: bf16 rounds to 1.7e-3 RMS, and a code in 200 may be the next one where sums are ordered
otherwise. A wrong result is off by far more."""
APART_LIMIT = 5e-2
"""Of the layer's outputs: one code that differs in an activation is a step of FP8, carried through two projections."""
CONFIDENCE = 0.99
MOST_NOISE = 0.01
"""Of a step. Where two captures of one and the same step lie further apart, being as fast is not told from a loss."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class Verdict(StrEnum):
    """What a comparison says of our kernel. `undecided`: the turns allow no word. `void`: it must not be judged by."""

    HELD = "held"
    LOST = "lost"
    UNDECIDED = "undecided"
    VOID = "void"


class Side(_Record, frozen=True, kw_only=True):
    """What served the operation on one side.

    name: a tactic's, or that of the route that a server would otherwise take. software: what compiled it, or whose it
    is, with its version. code_digest: of a tactic's kernel; None for another route. err_ratio: RMS of the operation's
    result in the layer less the reference's, over the reference's. captures: microseconds of a step, by capture and
    turn; the captures of a side are made anew, and equal but for addresses.
    """

    name: str
    software: str
    code_digest: str | None = None
    err_ratio: float
    captures: tuple[tuple[float, ...], tuple[float, ...]]


class Comparison(_Record, frozen=True, kw_only=True):
    """One operation of one layer, served by our kernel and by another route, all else equal.

    layer, dims, rows, context: the layer, its sizes, and the sequences and cached tokens of the step. operation: the
    one that was swapped, by its name in the layer. request, contract: what our kernel was built for. selected: the
    tactic that selection chose for it, free to choose. reference, err_ratio_limit: what both results are held against.
    replays, differing: replays of either side compared with its eager step, and how many differed in any bit. apart:
    RMS of the difference of both sides' layer outputs over RMS, and its limit. steps: in one replay. method: raised
    when figures of before and after must not be compared. session: digest of the machine and the command.
    """

    layer: str
    dims: dict[str, int]
    rows: int
    context: int
    operation: str
    request: str
    contract: dict[str, object]
    selected: str | None
    ours: Side
    theirs: Side
    reference: str
    err_ratio_limit: float
    replays: int
    differing: int
    apart: float
    apart_limit: float
    steps: int
    method: int
    session: str

    def __post_init__(self) -> None:
        """Refuse a kernel beside itself, turns that do not match, and other limits than ours. Raises ValueError."""
        if self.ours.name == self.theirs.name or self.ours.code_digest == self.theirs.code_digest:
            raise ValueError(f"{self.cell}: `{self.ours.name}` beside itself says nothing")
        if self.ours.code_digest is None:
            raise ValueError(f"{self.cell}: `{self.ours.name}` is no kernel of ours: it has no code digest")
        if self.rows < 1 or self.replays < LEAST_REPLAYS:
            raise ValueError(f"{self.cell}, {self.replays} replays: not {LEAST_REPLAYS} or more, or no row")
        if self.method != METHOD:
            raise ValueError(f"{self.cell}: by method {self.method}, and comparisons are made by {METHOD} now")
        limits = self.err_ratio_limit, self.apart_limit
        if not (0 < limits[0] <= ERR_RATIO_LIMIT and 0 < limits[1] <= APART_LIMIT):
            allowed = f"{ERR_RATIO_LIMIT:g} and {APART_LIMIT:g}"
            raise ValueError(f"{self.cell}: judged by limits {limits[0]:g} and {limits[1]:g}, not by {allowed}")
        if min(self.ours.err_ratio, self.theirs.err_ratio, self.apart, self.differing) < 0:
            raise ValueError(f"{self.cell}: an error, a distance or a count below 0")
        turns = {len(capture) for side in (self.ours, self.theirs) for capture in side.captures}
        if len(turns) != 1 or min(turns) < LEAST_TURNS:
            raise ValueError(f"{self.cell}: {sorted(turns)} turns, not {LEAST_TURNS} or more, alike on both sides")
        if not all(0 < us < math.inf for side in (self.ours, self.theirs) for one in side.captures for us in one):
            raise ValueError(f"{self.cell}: a time that is none")

    @property
    def cell(self) -> str:
        """Readable: layer, operation, rows."""
        return f"{self.layer}, {self.operation}, {self.rows} rows, {self.ours.name} beside {self.theirs.name}"

    @property
    def digest(self) -> str:
        """What the record is kept by."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    @property
    def saved_us(self) -> tuple[float, float, float]:
        """Return what our kernel saves a step, in microseconds: lower end of the interval, median, upper end."""
        ours, theirs = (
            [math.fsum(turn) / len(turn) for turn in zip(*side.captures, strict=True)]
            for side in (self.ours, self.theirs)
        )
        return median_interval([its - mine for mine, its in zip(ours, theirs, strict=True)])

    @property
    def noise_us(self) -> float:
        """Return how far two captures of one and the same step may lie apart here: the control of the comparison."""
        ends: list[float] = []
        for side in (self.ours, self.theirs):
            low, _, high = median_interval([b - a for a, b in zip(*side.captures, strict=True)])
            ends += [abs(low), abs(high)]
        return max(ends)

    @property
    def ratio(self) -> float:
        """Return the other side's step over ours, at the medians; above 1 ours is faster."""
        return median_us(self.theirs) / median_us(self.ours)

    @property
    def verdict(self) -> Verdict:
        """Return whether our kernel held its place: faster beyond the noise, or as fast where the noise is small."""
        wrong = max(self.ours.err_ratio, self.theirs.err_ratio) > self.err_ratio_limit
        if wrong or self.apart > self.apart_limit or self.differing or self.selected != self.ours.name:
            return Verdict.VOID
        (low, _, high), noise = self.saved_us, self.noise_us
        if high < -noise:
            return Verdict.LOST
        as_fast = low >= -noise and noise <= MOST_NOISE * median_us(self.ours)
        return Verdict.HELD if low > noise or as_fast else Verdict.UNDECIDED


class LayerRecords(_Record, frozen=True, kw_only=True):
    """A tactic's comparisons, or one run's of many tactics: by their digests, with the sessions they name."""

    schema: Literal["nkc.layer-comparison/1"] = LAYER_SCHEMA
    sessions: dict[str, Session]
    comparisons: dict[str, Comparison]

    def __post_init__(self) -> None:
        """Refuse what was changed after it was written, and a session that is not there. Raises ValueError."""
        for name, session in self.sessions.items():
            if session.digest != name:
                raise ValueError(f"session {name[:12]} is not what was written: its digest is {session.digest[:12]}")
        for name, comparison in self.comparisons.items():
            if comparison.digest != name:
                raise ValueError(f"{comparison.cell}: not what was written ({name[:12]} is {comparison.digest[:12]})")
            if comparison.session not in self.sessions:
                raise ValueError(f"{comparison.cell}: its session is not there")

    @classmethod
    def of(cls, sessions: Iterable[Session], comparisons: Iterable[Comparison]) -> "LayerRecords":
        """Return records by their digests."""
        return cls(
            sessions={session.digest: session for session in sessions},
            comparisons={comparison.digest: comparison for comparison in comparisons},
        )


def median_us(side: Side) -> float:
    """Return the median step of a side over captures and turns."""
    return median(sorted(us for capture in side.captures for us in capture))


def median(ordered: Sequence[float]) -> float:
    """Return the middle of ascending values. Importing `statistics` takes longer than all medians of a selection."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(values: Iterable[float]) -> tuple[float, float, float]:
    """Return the median between the ends of its interval of `CONFIDENCE`, by order statistics.

    Holds for any distribution of independent values: between the j-th smallest and the j-th largest lies the median,
    but for twice the chance that fewer than j of n fair coins fall on one side.
    """
    ordered = sorted(values)
    n, below, place = len(ordered), 0.0, 0
    while place < n // 2:
        below += math.comb(n, place) / 2**n
        if 2 * below > 1 - CONFIDENCE:
            break
        place += 1
    place = max(place - 1, 0)
    return ordered[place], median(ordered), ordered[-1 - place]


def records_path(tactic: str, folder: Path | None = None) -> Path:
    """Return where a tactic's comparisons lie."""
    return (FOLDER if folder is None else folder) / f"{tactic}.json"


@lru_cache(maxsize=512)
def read_layer(tactic: str, folder: Path | None = None) -> LayerRecords:
    """Return a tactic's comparisons, none where there is no file. Raises ToolError for a damaged or edited one."""
    path = records_path(tactic, folder)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=LayerRecords)
    except FileNotFoundError:
        return LayerRecords(sessions={}, comparisons={})
    except (OSError, msgspec.DecodeError) as error:
        raise ToolError(
            f"layer/{path.name}: not comparisons that this nkc reads: {error} (restore it from version control)"
        ) from None
    if strangers := sorted({each.ours.name for each in found.comparisons.values()} - {tactic}):
        raise ToolError(f"layer/{path.name}: holds comparisons of {', '.join(strangers)} (restore it)")
    return found


def recorded_in(folder: Path | None = None) -> frozenset[str]:
    """Return the tactics that have a file of comparisons: few of all that are asked for."""
    return frozenset(path.stem for path in (FOLDER if folder is None else folder).glob("*.json"))


def read_all(folder: Path | None = None) -> tuple[Comparison, ...]:
    """Return every committed comparison, by tactic. Raises ToolError for a damaged file."""
    names = sorted(recorded_in(folder))
    return tuple(each for name in names for each in read_layer(name, folder).comparisons.values())
