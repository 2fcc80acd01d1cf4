"""How a tiled dense kernel is cut: grid, block, workspace and arguments of a contract that the predicates admit."""

import msgspec

from nkc.ir import operations, targets
from nkc.ir.contract import Contract, DType, Launch, Schedule, Triple, Workspace, WorkspaceInit, dim_max
from nkc.tactics.tactic import Tactic

WORKSPACE_ALIGNMENT = 256  # bytes


def ceil_div(value: int, divisor: int) -> int:
    """Return `ceil(value / divisor)`."""
    return -(-value // divisor)


def schedule(tile: Triple, *, waves: int, stages: int, split_k: int = 1) -> Schedule:
    """Return a tile's whole schedule."""
    return Schedule(tile=tile, stages=stages, waves=waves, split_k=split_k)


def tile_of(tactic: Tactic) -> Triple:
    """Return the tile (m, n, k) in elements."""
    assert tactic.schedule.tile is not None
    return tactic.schedule.tile


def split_of(tactic: Tactic) -> int:
    """Return how many workgroups share a tile, each with its own part of k."""
    return tactic.schedule.split_k or 1


def tiles(contract: Contract, tactic: Tactic) -> tuple[int, int]:
    """Return how many tiles lie along m (at its largest) and along n."""
    tile_m, tile_n, _ = tile_of(tactic)
    return ceil_div(dim_max(contract.shape["m"]), tile_m), ceil_div(contract.exact("n"), tile_n)


def counter_elements(contract: Contract, tactic: Tactic) -> int:
    """Return where the pieces begin in the workspace, in 4-byte elements: after one counter a tile, aligned."""
    m_tiles, n_tiles = tiles(contract, tactic)
    return ceil_div(m_tiles * n_tiles * 4, WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT // 4


def workspace(contract: Contract, tactic: Tactic) -> Workspace:
    """Return the workspace: nothing, or for a split along k the arrival counters and one fp32 tile a piece."""
    split = split_of(tactic)
    if split == 1:
        return Workspace(bytes=0, alignment=WORKSPACE_ALIGNMENT)
    (tile_m, tile_n, _), (m_tiles, n_tiles) = tile_of(tactic), tiles(contract, tactic)
    pieces = m_tiles * n_tiles * split * tile_m * tile_n * DType.FP32.size_bytes
    size = counter_elements(contract, tactic) * 4 + pieces
    return Workspace(bytes=size, alignment=WORKSPACE_ALIGNMENT, init=WorkspaceInit.ZERO)


def lower_persistent(contract: Contract, tactic: Tactic, *, cluster: tuple[int, int] = (1, 1)) -> Contract:
    """Fill in what the contract leaves open for workgroups that walk over tiles: one a compute unit, or fewer tiles.

    cluster: workgroups, neighbours along m and along n, that share operands; the grid is whole clusters.
    """
    (m_tiles, n_tiles), (rows, columns) = tiles(contract, tactic), cluster
    units = targets.get(contract.target.arch).compute_units
    walkers = min(ceil_div(m_tiles, rows) * ceil_div(n_tiles, columns), units // (rows * columns))
    lowered = lower(contract, tactic)
    assert lowered.launch is not None
    launch = msgspec.structs.replace(lowered.launch, grid=(walkers * rows * columns, 1, 1))
    return msgspec.structs.replace(lowered, launch=launch)


def lower_cluster(contract: Contract, tactic: Tactic) -> Contract:
    """Fill in what the contract leaves open where the workgroups of a cluster share k: neighbours, and no workspace."""
    none = Workspace(bytes=0, alignment=WORKSPACE_ALIGNMENT)
    lowered = msgspec.structs.replace(lower(contract, tactic), workspace=none)
    return msgspec.structs.replace(lowered, arguments=operations.get("dense").arguments(lowered))


def lower(contract: Contract, tactic: Tactic) -> Contract:
    """Fill in what the contract leaves open. The grid is one-dimensional: pieces of k outermost, then tiles."""
    m_tiles, n_tiles = tiles(contract, tactic)
    waves = tactic.schedule.waves
    assert waves is not None
    lowered = msgspec.structs.replace(
        contract,
        schedule=tactic.schedule,
        launch=Launch(
            grid=(m_tiles * n_tiles * split_of(tactic), 1, 1),
            block=(waves * targets.get(contract.target.arch).wave, 1, 1),
        ),
        workspace=workspace(contract, tactic),
    )
    return msgspec.structs.replace(lowered, arguments=operations.get("dense").arguments(lowered))
