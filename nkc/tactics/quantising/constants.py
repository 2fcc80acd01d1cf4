"""What the Triton templates of quantising kernels place: rules, scale addresses, masks, the launch, the name."""

import struct
from collections.abc import Mapping

import msgspec

from nkc.ir import operations, targets
from nkc.ir.contract import Bounded, Contract, Launch, Layout, MultipleOf, Workspace, dim_max
from nkc.ir.quantising import GROUP, QUANTISED
from nkc.tactics.tactic import Tactic

TINY_FLOOR = 2.0**-80
"""From this floor on amax no scale is below 2^-89, and the remainder of a quotient that is not rounded to zero stays
representable: codes are rounded from ratios of at least 2^-11, remainders are multiples of 2^-(11 + 46 + 89)."""

RECIPROCAL_448 = 0.002232142857142857
"""1 / 448; as fp32 it is the rounded reciprocal."""

DECIDING_FILES = (
    "nkc/ir/quantising.py",
    "nkc/tactics/quantising/constants.py",
    "nkc/tactics/quantising/proofs.py",
    "nkc/tactics/quantising/run.py",
)
"""What decides a quantising kernel's text beside its own operation and folder."""


def ceil_div(value: int, divisor: int) -> int:
    """Return `ceil(value / divisor)`."""
    return -(-value // divisor)


def rows_text(contract: Contract) -> str:
    """Return the number of rows as the kernel knows it: a number, or its argument."""
    m = contract.shape["m"]
    return "m" if isinstance(m, Bounded) else str(m)


def symbol(contract: Contract, tactic: Tactic) -> str:
    """Return the kernel's name: the tactic and the dims, so that a profile can be read."""
    m, k = contract.shape["m"], contract.exact("k")
    rows = f"m{m.min}to{m.max}" if isinstance(m, Bounded) else f"m{m}"
    return f"{tactic.name.partition('.')[2].replace('.', '_')}_{rows}_k{k}"


def rules(contract: Contract) -> dict[str, object]:
    """Return the constants of the quantising part: group, rules, and the floor on amax by its bits."""
    floor = contract.numerics["amax_floor"]
    assert isinstance(floor, float)
    (bits,) = struct.unpack("<I", struct.pack("<f", floor))
    return {
        "group": GROUP,
        "quantize": str(contract.numerics["quantize"]),
        "overflow": str(contract.numerics["overflow"]),
        "floor": repr(floor),
        "floor_bits": bits,
        "tiny_scales": floor < TINY_FLOOR,
        "reciprocal_448": repr(RECIPROCAL_448),
    }


def scale_place(contract: Contract, rows: str, groups: str) -> str:
    """Return the offset of a scale (elements) in terms of its row and its group within the row, as an expression."""
    scale = contract.scales[QUANTISED]
    if scale.layout is Layout.ROW_MAJOR:
        _, columns = operations.get(contract.operation).operand(QUANTISED).axes
        return f"{rows} * {contract.exact(columns) // GROUP} + {groups}"
    m = rows_text(contract)
    match scale.leading_dim:
        case MultipleOf(multiple_of=1):
            leading = m
        case MultipleOf(multiple_of=multiple):
            leading = f"(({m} + {multiple - 1}) // {multiple} * {multiple})"
        case fixed:
            leading = str(fixed)
    return f"{groups} * {leading} + {rows}"


def lower(contract: Contract, tactic: Tactic, workgroups: int) -> Contract:
    """Fill in what the contract leaves open: a one-dimensional grid, and no workspace."""
    waves = tactic.schedule.waves
    assert waves is not None
    lowered = msgspec.structs.replace(
        contract,
        schedule=tactic.schedule,
        launch=Launch(grid=(workgroups, 1, 1), block=(waves * targets.get(contract.target.arch).wave, 1, 1)),
        workspace=Workspace(bytes=0),
    )
    return msgspec.structs.replace(lowered, arguments=operations.get(contract.operation).arguments(lowered))


def run_workgroups(contract: Contract, run: int) -> int:
    """Return how many workgroups take the groups of every row, `run` of them each."""
    return ceil_div(dim_max(contract.shape["m"]) * (contract.exact("k") // GROUP), run)


def run_constants(contract: Contract, tactic: Tactic, run: int, *, by_row: bool = False) -> Mapping[str, object]:
    """Return the constants of a kernel that takes the result as one run of groups, over the ends of rows.

    run: groups a workgroup takes. by_row: the kernel needs to know the row of a group.
    """
    m, k = contract.shape["m"], contract.exact("k")
    row_groups = k // GROUP
    tail = isinstance(m, Bounded) or m * row_groups % run != 0
    m_major = contract.scales[QUANTISED].layout is Layout.M_MAJOR
    assert contract.arguments is not None
    return {
        **rules(contract),
        "symbol": symbol(contract, tactic),
        "arguments": ", ".join(argument.name for argument in contract.arguments),
        "m": rows_text(contract),
        "k": k,
        "run": run,
        "row_groups": row_groups,
        "tail": tail,
        "by_row": by_row or m_major,
        "load_mask": ", mask=inside[:, None], other=0.0" if tail else "",
        "store_mask": ", mask=inside[:, None]" if tail else "",
        "scale_mask": ", mask=inside" if tail else "",
        "scale_place": scale_place(contract, "rows", "columns") if m_major else "groups",
    }
