"""The one kernel of rms_norm_quant: a row is read once, held in registers, and written once.

Rules, layouts and dtypes are placed from the contract; tactics differ in geometry.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from nkc.ir import targets
from nkc.ir.contract import Bounded, Contract, DType, Reduce, Schedule, Weight, dim_max
from nkc.ir.quantising import GROUP, QUANTISED
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import Predicate, Serves, at_most, dtypes, one_of
from nkc.tactics.quantising.constants import (
    DECIDING_FILES,
    ceil_div,
    lower,
    rows_text,
    rules,
    scale_place,
    symbol,
)
from nkc.tactics.quantising.proofs import M_MAJOR, M_MAJOR_PADDED, proof, up_to
from nkc.tactics.quantising.proofs import rules as code_rules
from nkc.tactics.quantising.requirements import few_rows, quantised, tensors
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

HELD = 72
"""Elements of a row that a lane may hold: as many registers in fp32, half as many again for weights and residual.

Half of it where the next row is held too. Nothing spilled there (compiled with Triton 3.9, both targets)."""

HELD_OF_SEVERAL = 64
"""The same where a workgroup takes several rows, or holds the next one too (half of it)."""

HELD_BY_SIXTEEN = 32
"""The same where a workgroup of sixteen waves leaves a lane 128 registers; at 64 some rules spill."""

HELD_TWICE = 80
"""What a lane may take of a row that is read twice, at most twice the above; at 144 some rules spill."""


class Row(NamedTuple):
    """One geometry: rows a workgroup takes, columns it takes at a time. max_m None: for any number of rows.

    persistent: workgroups a compute unit that share all rows and read ahead; 0 starts one for each tile of rows.
    part: columns of a group in one access. At 128 a lane meets one group an access. At 32 four accesses of a lane are
    parts of one group: its largest magnitude crosses 4 lanes instead of 16, and its scale is found once, not four
    times. A quotient by the scale is then one product with its rounded reciprocal, 1.5 u from it where y itself may be
    64 u off: these kernels have no instruction to spare, and two in fifteen went there.
    read_twice: once for the sum and, from a cache, once for the result, so that nothing is held in between.
    """

    rank: int
    rows: int
    columns: int
    waves: int
    max_m: int | None
    persistent: int
    note: str
    part: int = GROUP
    read_twice: bool = False


def tactic(
    target: str,
    row: Row,
    *,
    codes: bool,
    offsets: OffsetUnit,
    options: Mapping[str, int | bool | str],
    range_bits: int | None,
) -> Tactic:
    """Return the tactic of one row. codes: it quantises, else it stores y in bf16."""
    geometry = f"{row.rows}x{row.columns}_w{row.waves}"
    geometry += "_twice" if row.read_twice else ""
    geometry += f"_p{row.persistent}" if row.persistent else ""
    geometry += f"_m{row.max_m}" if row.max_m is not None else ""
    held = HELD_OF_SEVERAL if row.rows > 1 or row.persistent else HELD_BY_SIXTEEN if row.waves == 16 else HELD
    held = held // 2 if row.persistent else held
    held = min(2 * held, HELD_TWICE) if row.read_twice else held
    longest = held * row.waves * targets.get(target).wave // row.rows
    last: tuple[Predicate, ...] = quantised(offsets) if codes else dtypes(out=DType.BF16)
    return Tactic(
        name=f"{target}.rms_norm_quant.{'codes' if codes else 'bf16'}_{geometry}",
        operation="rms_norm_quant",
        target=target,
        rank=row.rank,
        requires=(
            *dtypes(x=DType.BF16),
            one_of("$.dtypes.weight", DType.BF16, DType.FP32),
            Serves("$.numerics.reduce", Reduce.TREE),
            *last,
            at_most("$.shape.k", longest, why=f"a lane takes {held} elements, unrolled"),
            *tensors("rms_norm_quant", offsets),
            *few_rows(row.max_m),
        ),
        guarantees=Guarantees(reduce=Reduce.TREE, deterministic=True, graph_capture=True),
        schedule=Schedule(waves=row.waves),
        geometry=geometry,
        lower=partial(_lower, row=row),
        kernel=Kernel(
            template="triton/rms_norm_quant.py.j2",
            constants=partial(constants, row=row),
            options={"enable_fp_fusion": False, "num_warps": row.waves, **options},
            pattern=CodePattern(matrix=(), at_least=0),
            pointer_range_bits=range_bits,
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(proofs, row=row, codes=codes, longest=longest),
        note=row.note,
    )


def _lower(contract: Contract, tactic: Tactic, *, row: Row) -> Contract:
    tiles = ceil_div(dim_max(contract.shape["m"]), row.rows)
    return lower(contract, tactic, _programs(contract, tactic, row) if row.persistent else tiles)


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return what the template places: the row in pieces of columns, its masks, and the walk over rows."""
    m, k = contract.shape["m"], contract.exact("k")
    codes = QUANTISED in contract.scales
    row_tail = isinstance(m, Bounded) or m % row.rows != 0
    assert contract.arguments is not None
    return {
        **(rules(contract) if codes else {"group": GROUP}),
        "symbol": symbol(contract, tactic),
        "arguments": ", ".join(argument.name for argument in contract.arguments),
        "m": rows_text(contract),
        "k": k,
        "tile_rows": row.rows,
        "tiles": f"(m + {row.rows - 1}) // {row.rows}" if isinstance(m, Bounded) else ceil_div(m, row.rows),
        "programs": _programs(contract, tactic, row) if row.persistent else 0,
        "row_tail": row_tail,
        "read_twice": row.read_twice,
        "by_tile": row.part < GROUP,
        "by_inverse": row.part < GROUP,
        "residual": "residual" in contract.dtypes,
        "staging": str(contract.numerics["staging"]),
        "epsilon": repr(contract.numerics["epsilon"]),
        "quantised": codes,
        "scale_place": scale_place(contract, "rows[:, None]", "groups[None, :]") if codes else "",
        "tiles_of_row": (pieced := _tiles(contract, row, row_tail=row_tail)),
        "pieces": (pieces := [piece for tile in pieced for piece in tile["pieces"]]),
        "sums": [piece["squares"] for piece in pieces if piece["opens"]],
    }


def tiles(k: int, row: Row) -> tuple[tuple[int, int], ...]:
    """Return how a row of k is cut: width and part of each tile, in order; only the last may reach past the end.

    Every access of every tile takes 16 bytes a lane. A tile of half the width has parts twice as long, so that what
    is left of a row fills the lanes too: 5120 columns at 4096 by 32 are 4096 by 32 and 1024 by 128. One tile covers
    the rest where it holds at most a third more than small ones would: each shape is another sum and another scale.
    Several rows have tiles of one size: their sums stay tensors, which meet in one layout.
    """
    parts = (32, 64, GROUP) if row.rows == 1 else (row.part,)
    sizes = [(row.columns * row.part // part, part) for part in parts if part >= row.part]
    least = sizes[-1][0]
    cut: list[tuple[int, int]] = []
    left = k
    while left > 0:
        held = ceil_div(left, least) * least
        covering = [size for size in sizes if left <= size[0] <= held * 4 // 3]
        cut.append(covering[-1] if covering else next(size for size in sizes if size[0] <= left))
        left -= cut[-1][0]
    return tuple(cut)


def _tiles(contract: Contract, row: Row, *, row_tail: bool) -> list[dict[str, Any]]:
    """Return what the template places of each tile: its groups, the mask of its scales, and its pieces."""
    k, first, count, shape = contract.exact("k"), 0, 0, 0
    found: list[dict[str, Any]] = []
    for width, part in tiles(k, row):
        groups = width // GROUP
        parts = range(GROUP // part)
        opens = not found or found[-1]["groups"] != groups
        shape += opens
        kept = [f"(rows < {rows_text(contract)})[:, None]"] * row_tail
        kept += [f"(groups < {k // GROUP})[None, :]"] * (first + width > k)
        found.append(
            {
                "index": count,
                "first_group": first // GROUP,
                "groups": groups,
                "scale_mask": f", mask={' & '.join(kept)}" if kept else "",
                "pieces": [
                    _piece(contract, count + place, (first, groups, place * part, part), row_tail=row_tail)
                    | {"squares": f"squares_{shape}" if shape > 1 else "squares", "opens": opens and place == 0}
                    for place in parts
                ],
            }
        )
        first, count = first + width, count + len(parts)
    return found


def _piece(contract: Contract, index: int, place: tuple[int, int, int, int], *, row_tail: bool) -> dict[str, object]:
    """Return one piece of a row: its columns, masks, and what its values are multiplied by.

    place: the tile's first column, its groups, and where in each group the piece begins and how long it is there. The
    last tile may reach past the row's end, by whole groups or, where the row is not made of them, from within one.
    """
    k = contract.exact("k")
    first, groups, begins, part = place
    past_end = first + groups * GROUP > k
    inside = f"columns_{index} < {k}"
    rows = [f"(rows < {rows_text(contract)})"] if row_tail else []
    kept = [f"{text}[:, None, None]" for text in rows] + [f"({inside})[None, :, :]"] * past_end
    weight = f"w_{index}.to(tl.float32)"
    return {
        "index": index,
        "first": first + begins,
        "groups": groups,
        "part": part,
        "column_mask": f"({inside})[None, :, :]" if past_end else "",
        "weight_mask": f", mask=every_{index} < {k}, other=0.0" if past_end else "",
        "store_mask": f", mask={' & '.join(kept)}" if kept else "",
        "factor": weight if contract.numerics["weight"] is Weight.PLAIN else f"(1.0 + {weight})",
    }


def _programs(contract: Contract, tactic: Tactic, row: Row) -> int:
    """Return how many workgroups share the rows: so many a compute unit, or one a tile of rows where that is fewer."""
    units = targets.get(tactic.target).compute_units
    return min(row.persistent * units, ceil_div(dim_max(contract.shape["m"]), row.rows))


def proofs(tactic: Tactic, *, row: Row, codes: bool, longest: int) -> tuple[Contract, ...]:
    """Return the proof set: residual or none by stagings, weights, flavours, layouts, both weights' dtypes; tails.

    k takes one step, part of one, and several of which the last is partly outside the row.
    longest: the most columns that the tactic serves.
    """
    out = "fp8_e4m3" if codes else "bf16"
    plain = {"x": "bf16", "weight": "bf16", "out": out}
    summed = {**plain, "residual": "bf16", "residual_out": "bf16"}
    wide = {"weight": "fp32"}
    base: dict[str, object] = {"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-6}
    k = row.columns if row.columns < longest else row.columns // 2
    tail = max(k // 2, GROUP)
    few = 3 * row.rows
    if not codes:
        return (
            proof(tactic, m=few, k=k, dtypes=plain, numerics=base, scales=None),
            proof(
                tactic,
                m=up_to(few + 2),
                k=min(k + tail, longest),
                dtypes=summed | wide,
                numerics=base | {"staging": "fp32", "weight": "one_plus"},
                scales=None,
            ),
            proof(tactic, m=few + 2, k=769, dtypes=summed, numerics=base | {"epsilon": 1e-5}, scales=None),
        )
    divide, reciprocal, ue8m0 = (
        code_rules(*pair) for pair in (("divide", "saturate"), ("reciprocal", "ieee"), ("ue8m0", "saturate"))
    )
    return (
        proof(tactic, m=few, k=k, dtypes=plain, numerics=base | divide),
        proof(
            tactic,
            m=few + 2,
            k=min(k + tail, longest),
            dtypes=summed,
            numerics=base | reciprocal,
            scales=M_MAJOR_PADDED,
        ),
        proof(
            tactic,
            m=up_to(few + 2),
            k=min(2 * k, longest),
            dtypes=summed | wide,
            numerics=base | {"staging": "fp32", "weight": "one_plus"} | ue8m0,
            scales=M_MAJOR,
        ),
        proof(
            tactic,
            m=up_to(few + 2),
            k=tail,
            dtypes=plain | wide,
            numerics=base | {"weight": "one_plus"} | code_rules("divide", "ieee"),
            scales=M_MAJOR_PADDED,
        ),
        proof(
            tactic,
            m=few + 2,
            k=min(k + GROUP, longest),
            dtypes=summed,
            numerics=base | {"staging": "fp32", "epsilon": 1e-12} | code_rules("divide", "saturate", 0.0),
        ),
    )
