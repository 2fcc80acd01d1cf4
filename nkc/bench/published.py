"""Times that were published of libraries that are not installed here, scaled to the session they stand beside.

`published.json` holds, for cells of block-scaled FP8 on one device, the microseconds of each peer and of references
that a bench times too. A peer's time is multiplied by what a reference takes here over what it took there: cuBLASLt,
and bf16 matmul for cells that cuBLASLt does not serve. It is an estimate, shown with its factor, and no measurement: it
never stands in a record, and gives way where the library itself was timed.

Beside a contract with constant operands, which ours may be launched dependent for, stands what a peer takes when it is
launched so, where that was published.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from nkc.ir.contract import Accumulate, Contract, DType
from nkc.ir.reader import parse_document
from nkc.tactics.performance import Record, Session

PUBLISHED_SCHEMA: Literal["nkc.published/1"] = "nkc.published/1"
PUBLISHED_FILE = Path(__file__).with_name("published.json")
REFERENCES = ("cuBLASLt block-scaled", "torch.matmul bf16")
"""Baselines that scale, the first that both sessions timed."""


class _Dependent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One peer launched dependent behind itself, and in the same process without."""

    without_us: float
    with_us: float


class _Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell: microseconds by peer, and by reference. dependent: of peers that can be launched so."""

    m: int
    n: int
    k: int
    peers_us: dict[str, float]
    references_us: dict[str, float]
    dependent: dict[str, _Dependent] = {}


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file. source: versions, machine, method, date. device: what a session's device must be named."""

    schema: Literal["nkc.published/1"] = PUBLISHED_SCHEMA
    source: str
    device: str
    cells: tuple[_Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer in one cell. us: scaled. factor: by which. scaled_by: the reference, None where there is none.

    same_rule: the contract licenses what the peer does with sums.
    """

    name: str
    us: float
    published_us: float
    factor: float
    scaled_by: str | None
    same_rule: bool


@lru_cache(maxsize=1)
def read_published() -> Published:
    """Return what was published."""
    return msgspec.json.decode(PUBLISHED_FILE.read_bytes(), type=Published)


@lru_cache(maxsize=1)
def _by_dims() -> dict[tuple[int, int, int], _Cell]:
    return {(cell.m, cell.n, cell.k): cell for cell in read_published().cells}


def peers(record: Record, session: Session) -> tuple[Peer, ...]:
    """Return the published peers of a record that were not timed in it, fastest first."""
    if session.device != read_published().device or record.dims:
        return ()
    contract = parse_document(record.contract, record.cell)
    if not _comparable(contract):
        return ()
    cell = _by_dims().get((contract.exact("m"), contract.exact("n"), contract.exact("k")))
    if cell is None:
        return ()
    factor, scaled_by = _factor(record, cell)
    licensed = contract.numerics["accumulate"] is Accumulate.TENSOR_CORE_FP8
    unmeasured = {
        name: us for name, us in cell.peers_us.items() if (route := record.route(name)) is None or route.latency is None
    }
    if contract.properties.constant:
        unmeasured = dict(_as_dependent(cell, name, us) for name, us in unmeasured.items())
    found = (
        Peer(
            name=name,
            us=float(f"{us * factor:.5g}"),
            published_us=us,
            factor=float(f"{factor:.4g}"),
            scaled_by=scaled_by,
            same_rule=licensed,
        )
        for name, us in unmeasured.items()
    )
    return tuple(sorted(found, key=lambda peer: (peer.us, peer.name)))


def _as_dependent(cell: _Cell, name: str, us: float) -> tuple[str, float]:
    """Return a peer's name and time launched dependent, by what that changed where both ways were timed together."""
    found = cell.dependent.get(name)
    if found is None:
        return name, us
    return f"{name}, dependent", float(f"{us * found.with_us / found.without_us:.4g}")


def _comparable(contract: Contract) -> bool:
    """Return whether the contract asks for what was timed: e4m3 by blocks, bf16 results, nothing after the sums."""
    return (
        contract.operation == "dense"
        and not any(not isinstance(dim, int) for dim in contract.shape.values())
        and contract.dtypes["a"] is DType.FP8_E4M3
        and contract.dtypes["out"] is DType.BF16
        and contract.epilogue.kind == "identity"
        and contract.scales["a"].block == (1, 128)
        and contract.scales["b"].block == (128, 128)
    )


def _factor(record: Record, cell: _Cell) -> tuple[float, str | None]:
    """Return here over there of the first reference that both timed, and its name; 1 and None without one."""
    for name in REFERENCES:
        route = record.route(name)
        if name in cell.references_us and route is not None and route.latency is not None:
            return route.latency.median_us / cell.references_us[name], name
    return 1.0, None
