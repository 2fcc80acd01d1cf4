"""The committed tuning tables: which tactic goes first for a shape and an interval of rows, while that still holds.

`nkc/tactics/<operation>/tuning.json` holds rows of (target, dims, interval of m, ordered tactics, record digests). A
row applies to a contract whose whole range of m lies inside its interval, while every record it rests on is there and
every kernel that the records timed is still today's. A row never admits a tactic: predicates decide before any rank.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from nkc.ir.contract import Bounded, Contract, dim_max, dim_min
from nkc.ir.errors import ToolError
from nkc.ir.package import PACKAGE, file_sha256
from nkc.tactics import performance
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.performance import Record, Timed
from nkc.tactics.tactic import DEPENDENT, Tactic

TUNING_SCHEMA: Literal["nkc.tuning/1"] = "nkc.tuning/1"
TUNING_FILE = "tuning.json"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One interval of one shape.

    dims: every dim beside m, exact. m: the interval, both ends inside. order: tactics, fastest first. records: digests
    of the records that say so.
    """

    target: str
    dims: dict[str, int]
    m: tuple[int, int]
    order: tuple[str, ...]
    records: tuple[str, ...]

    @property
    def shape(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What rows must share to overlap."""
        return self.target, tuple(sorted(self.dims.items()))

    def __str__(self) -> str:
        dims = ", ".join(f"{name} {value}" for name, value in sorted(self.dims.items(), reverse=True))
        return f"{self.target}, {dims}, m {self.m[0]}..{self.m[1]}"


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation's rows, by target, dims and interval."""

    schema: Literal["nkc.tuning/1"] = TUNING_SCHEMA
    operation: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What the tuning table says of one contract.

    places: tactic to its place in the applicable row. source: the row and its records, or why a row that names these
    tactics is ignored. named: the tactics that the row names.
    """

    places: Mapping[str, int]
    source: str
    named: frozenset[str]

    def of(self, tactic: Tactic, estimated_ns: int | None = None) -> tuple[tuple[int, int], str]:
        """Return a tactic's effective rank and where it comes from.

        estimated_ns: by the operation's rule, which takes the catalogue rank's place.
        """
        # With dependent launch it is the same kernel, ranked alike where nobody timed it so.
        name = tactic.name if tactic.name in self.named else tactic.independent_name
        place = self.places.get(name)
        if place is not None:
            return (0, place), self.source
        base, source = (tactic.rank, "catalogue") if estimated_ns is None else (estimated_ns, "rule")
        return (1, base), f"{source}; {self.source}" if name in self.named else source


NONE = Ranks(places={}, source="catalogue", named=frozenset())

Digests = Callable[[Timed, str], str | None]
"""Today's code digest of a record's contract under a tactic, rendered; None where it cannot be told."""


def table_path(operation: str, root: Path | None = None) -> Path:
    """Return where an operation's table lies."""
    return (PACKAGE / "tactics" if root is None else root) / operation / TUNING_FILE


@lru_cache(maxsize=32)
def read_table(operation: str, root: Path | None = None) -> Table:
    """Return an operation's table, an empty one where there is no file.

    Raises ToolError for a damaged file, rows that overlap, an interval or order that says nothing, and a tactic that
    is not in the catalogue.
    """
    path = table_path(operation, root)
    name = f"{operation}/{TUNING_FILE}"
    try:
        table = msgspec.json.decode(path.read_bytes(), type=Table)
    except FileNotFoundError:
        return Table(operation=operation, rows=())
    except (OSError, msgspec.DecodeError) as error:
        raise ToolError(f"{name}: not a tuning table that this nkc reads: {error} (nkc tune --write)") from None
    if problems := problems_of(table):
        raise ToolError("\n".join(f"{name}: {problem}" for problem in problems))
    return table


def problems_of(table: Table) -> tuple[str, ...]:
    """Return what is wrong with a table, one line each."""
    known = {tactic.name: tactic.target for tactic in tactics_of(table.operation)}
    found = []
    by_shape: dict[object, list[Row]] = {}
    for row in table.rows:
        by_shape.setdefault(row.shape, []).append(row)
        if row.m[0] > row.m[1] or row.m[0] < 0 or not row.order or len(set(row.order)) != len(row.order):
            found.append(f"{row}: an interval or an order that says nothing (nkc tune --write)")
        for tactic in row.order:
            if known.get(tactic) != row.target:
                found.append(f"{row}: no tactic of {row.target} is named `{tactic}` (nkc tune --write)")
    for rows in by_shape.values():
        ordered = sorted(rows, key=lambda row: row.m)
        for low, high in itertools.pairwise(ordered):
            if high.m[0] <= low.m[1]:
                found.append(f"{low} and m {high.m[0]}..{high.m[1]} overlap (one m, one row)")
    return tuple(found)


class Tuning:
    """What the tables say, with the freshness of each row looked at once.

    digests: renders a kernel anew where the performance index no longer can tell; without it such a row is stale.
    root: another folder of operations than the package's; records: another folder of records.
    """

    def __init__(
        self, *, digests: Digests | None = None, root: Path | None = None, records: Path | None = None
    ) -> None:
        self._digests = digests
        self._root = root
        self._records = records
        self._rows: dict[str, dict[object, tuple[Row, ...]]] = {}
        self._found: dict[object, Ranks] = {}
        self._known: dict[str, dict[str, Record]] = {}

    def ranks(self, contract: Contract) -> Ranks:
        """Return what the table says of a contract. Raises ToolError for a table that cannot be read."""
        by_shape = self._rows.get(contract.operation)
        if by_shape is None:
            by_shape = self._rows[contract.operation] = self._load(contract.operation)
        if not by_shape:
            return NONE
        row = self._row(contract, by_shape)
        if row is None:
            return NONE
        key = contract.operation, row.shape, row.m
        if key not in self._found:
            self._found[key] = self._weigh(contract.operation, row)
        return self._found[key]

    def row_of(self, contract: Contract) -> tuple[Row | None, Ranks]:
        """Return the row whose interval holds the contract's whole range of m, with what it says."""
        ranks = self.ranks(contract)
        return self._row(contract, self._rows[contract.operation]), ranks

    def rows_of(self, contract: Contract) -> tuple[Row, ...]:
        """Return every row of the contract's shape, whatever its interval."""
        self.ranks(contract)
        return self._rows[contract.operation].get(_shape(contract), ())

    def pieces(self, contract: Contract) -> tuple[Row, ...]:
        """Return the fresh rows that cover a contract's range only together, ascending; none where one holds it whole.

        None either where they leave a gap: what nobody measured is not told by its neighbours.
        """
        rows = self.rows_of(contract)
        if not rows:
            return ()
        low, high = dim_min(contract.shape["m"]), dim_max(contract.shape["m"])
        if low == high or any(row.m[0] <= low and high <= row.m[1] for row in rows):
            return ()
        inside = sorted((row for row in rows if row.m[0] <= high and low <= row.m[1]), key=lambda row: row.m)
        inside = [row for row in inside if self.why_stale(contract.operation, row) is None]
        whole = bool(inside) and inside[0].m[0] <= low and high <= inside[-1].m[1]
        meet = all(after.m[0] == before.m[1] + 1 for before, after in itertools.pairwise(inside))
        return tuple(inside) if whole and meet else ()

    def timed(self, operation: str, row: Row) -> frozenset[str]:
        """Return every route that the row's records looked at, however shortly, without regard to dependent launch."""
        by_digest = self._by_digest(operation, row)
        return frozenset(
            route.name.removesuffix(DEPENDENT)
            for digest in row.records
            if digest in by_digest
            for route in by_digest[digest].routes
        )

    def why_stale(self, operation: str, row: Row) -> str | None:
        """Return why a row does not count today, None where it does."""
        by_digest = self._by_digest(operation, row)
        for digest in row.records:
            record = by_digest.get(digest)
            if record is None:
                return f"record {digest[:12]} is not there"
            for tactic in (name for each in row.order for name in (each, f"{each}{DEPENDENT}")):
                route = record.route(tactic)
                if route is not None and route.code_digest != self.today(record, tactic):
                    return f"record {digest[:12]} timed another kernel of {tactic}"
        return None

    def today(self, record: Timed, tactic: str) -> str | None:
        """Return today's code digest of a kernel that was timed: by the index while its files stand, else rendered."""
        index = performance.read_performance_index(self._records)
        entry = index.tactics.get(tactic)
        if entry is not None and all(file_sha256(name) == index.files.get(name) for name in entry.files):
            indexed = entry.requests.get(record.request)
            if indexed is not None:
                return indexed  # else it was recorded since, or serves the contract no more
        return self._digests(record, tactic) if self._digests is not None else None

    def _load(self, operation: str) -> dict[object, tuple[Row, ...]]:
        by_shape: dict[object, list[Row]] = {}
        for row in read_table(operation, self._root).rows:
            by_shape.setdefault(row.shape, []).append(row)
        return {shape: tuple(rows) for shape, rows in by_shape.items()}

    def _row(self, contract: Contract, by_shape: Mapping[object, tuple[Row, ...]]) -> Row | None:
        rows = by_shape.get(_shape(contract))
        if not rows:
            return None
        low, high = dim_min(contract.shape["m"]), dim_max(contract.shape["m"])
        return next((row for row in rows if row.m[0] <= low and high <= row.m[1]), None)

    def _weigh(self, operation: str, row: Row) -> Ranks:
        named = frozenset(row.order)
        source = f"{operation}/{TUNING_FILE}: {row}"
        if why := self.why_stale(operation, row):
            return Ranks(places={}, source=f"stale row {source}: {why}", named=named)
        records = ", ".join(digest[:12] for digest in row.records)
        places = {tactic: place for place, tactic in enumerate(row.order)}
        return Ranks(places=places, source=f"{source}; records {records}", named=named)

    def _by_digest(self, operation: str, row: Row) -> dict[str, Record]:
        fixed = "".join(f".{name}{value}" for name, value in sorted(row.dims.items()))
        file = f"{row.target}.{operation}{fixed}.json"
        if file not in self._known:
            folder = performance.FOLDER if self._records is None else self._records
            found = performance.read_measurements(folder / file).records
            self._known[file] = {record.digest: record for record in found}
        return self._known[file]


def _shape(contract: Contract) -> object:
    dims = []
    for name, dim in sorted(contract.shape.items()):
        if name == "m":
            continue
        if isinstance(dim, Bounded):
            return None
        dims.append((name, dim))
    return contract.target.arch, tuple(dims)


def document(table: Table) -> bytes:
    """Return a table's bytes: one row a line, so that a changed row is a line of a diff."""
    rows = ",\n".join(f" {msgspec.json.encode(row).decode()}" for row in table.rows)
    text = f'{{\n"schema": "{table.schema}",\n"operation": "{table.operation}",\n"rows": [\n{rows}\n]\n}}\n'
    return text.encode()


def write_table(table: Table, root: Path | None = None) -> Path:
    """Write an operation's table and return where. Raises ToolError for one that could not be read back."""
    if problems := problems_of(table):
        raise ToolError("\n".join(f"{table.operation}/{TUNING_FILE}: {problem}" for problem in problems))
    path = table_path(table.operation, root)
    path.write_bytes(document(table))
    read_table.cache_clear()
    return path
