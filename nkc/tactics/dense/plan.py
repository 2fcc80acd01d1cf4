"""How a tiled dense kernel is cut: grid, block, workspace and arguments of a contract that the predicates admit."""

import msgspec

from nkc.ir import operations, targets
from nkc.ir.contract import Contract, Launch, Schedule, Triple, Workspace, dim_max
from nkc.tactics.tactic import Tactic


def ceil_div(value: int, divisor: int) -> int:
    """Return `ceil(value / divisor)`."""
    return -(-value // divisor)


def tile_of(tactic: Tactic) -> Triple:
    """Return the tile (m, n, k) in elements."""
    assert tactic.schedule.tile is not None
    return tactic.schedule.tile


def tiles(contract: Contract, tactic: Tactic) -> tuple[int, int]:
    """Return how many tiles lie along m (at its largest) and along n."""
    tile_m, tile_n, _ = tile_of(tactic)
    return ceil_div(dim_max(contract.shape["m"]), tile_m), ceil_div(contract.exact("n"), tile_n)


def lower(contract: Contract, tactic: Tactic) -> Contract:
    """Fill in what the contract leaves open. One workgroup computes one tile; the grid is one-dimensional."""
    m_tiles, n_tiles = tiles(contract, tactic)
    waves = tactic.schedule.waves
    assert waves is not None
    lowered = msgspec.structs.replace(
        contract,
        schedule=tactic.schedule,
        launch=Launch(grid=(m_tiles * n_tiles, 1, 1), block=(waves * targets.get(contract.target.arch).wave, 1, 1)),
        workspace=contract.workspace or Workspace(bytes=0),
    )
    return msgspec.structs.replace(lowered, arguments=operations.get("dense").arguments(lowered))


def schedule(tile: Triple, *, waves: int, stages: int) -> Schedule:
    """Return a schedule without split-K."""
    return Schedule(tile=tile, stages=stages, waves=waves, split_k=1)
