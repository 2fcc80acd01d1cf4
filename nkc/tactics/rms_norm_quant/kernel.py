"""The one kernel of rms_norm_quant: a row is read once, held in registers, and written once.

Rules, layouts and dtypes are placed from the contract; tactics differ in geometry.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

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

HELD = 64
"""Elements of a row that a lane may hold: as many registers in fp32, half as many again for weights and residual.

Half of it where the next row is held too. Nothing spilled there (compiled with Triton 3.9, both targets)."""

HELD_BY_SIXTEEN = 40
"""The same where a workgroup of sixteen waves leaves a lane 128 registers; at 64 some rules spill."""


class Row(NamedTuple):
    """One geometry: rows a workgroup takes, columns it takes at a time. max_m None: for any number of rows.

    persistent: workgroups a compute unit that share all rows and read ahead; 0 starts one for each tile of rows.
    """

    rank: int
    rows: int
    columns: int
    waves: int
    max_m: int | None
    persistent: int
    note: str


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
    geometry += f"_p{row.persistent}" if row.persistent else ""
    geometry += f"_m{row.max_m}" if row.max_m is not None else ""
    held = HELD // 2 if row.persistent else HELD_BY_SIXTEEN if row.waves == 16 else HELD
    lanes = row.waves * targets.get(target).wave // row.rows
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
            at_most("$.shape.k", held * lanes, why=f"a lane holds {held} elements in registers"),
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
        proofs=partial(proofs, row=row, codes=codes),
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
        "tile_groups": row.columns // GROUP,
        "tiles": f"(m + {row.rows - 1}) // {row.rows}" if isinstance(m, Bounded) else ceil_div(m, row.rows),
        "programs": _programs(contract, tactic, row) if row.persistent else 0,
        "row_tail": row_tail,
        "residual": "residual" in contract.dtypes,
        "staging": str(contract.numerics["staging"]),
        "epsilon": repr(contract.numerics["epsilon"]),
        "quantised": codes,
        "scale_place": scale_place(contract, "rows[:, None]", "groups[None, :]") if codes else "",
        "pieces": [_piece(contract, row, index, row_tail=row_tail) for index in range(ceil_div(k, row.columns))],
    }


def _piece(contract: Contract, row: Row, index: int, *, row_tail: bool) -> dict[str, object]:
    """Return one piece of a row: its columns, masks, and what its values are multiplied by.

    All pieces have one width, so that they are laid out alike. The last may reach past the row's end, by whole groups
    or, where the row is not made of them, from within one.
    """
    k, first = contract.exact("k"), index * row.columns
    past_end = first + row.columns > k
    inside = f"columns_{index} < {k}"
    rows = [f"(rows < {rows_text(contract)})"] if row_tail else []
    kept = [f"{text}[:, None, None]" for text in rows] + [f"({inside})[None, :, :]"] * past_end
    kept_scales = [f"{text}[:, None]" for text in rows] + [f"(groups < {k // GROUP})[None, :]"] * past_end
    weight = f"w_{index}.to(tl.float32)"
    return {
        "index": index,
        "first": first,
        "first_group": first // GROUP,
        "column_mask": f"({inside})[None, :, :]" if past_end else "",
        "weight_mask": f", mask=every_{index} < {k}, other=0.0" if past_end else "",
        "store_mask": f", mask={' & '.join(kept)}" if kept else "",
        "scale_mask": f", mask={' & '.join(kept_scales)}" if kept_scales else "",
        "factor": weight if contract.numerics["weight"] is Weight.PLAIN else f"(1.0 + {weight})",
    }


def _programs(contract: Contract, tactic: Tactic, row: Row) -> int:
    """Return how many workgroups share the rows: so many a compute unit, or one a tile of rows where that is fewer."""
    units = targets.get(tactic.target).compute_units
    return min(row.persistent * units, ceil_div(dim_max(contract.shape["m"]), row.rows))


def proofs(tactic: Tactic, *, row: Row, codes: bool) -> tuple[Contract, ...]:
    """Return the proof set: residual or none by stagings, weights, flavours, layouts, both weights' dtypes; tails.

    k takes one step, part of one, and several of which the last is partly outside the row.
    """
    out = "fp8_e4m3" if codes else "bf16"
    plain = {"x": "bf16", "weight": "bf16", "out": out}
    summed = {**plain, "residual": "bf16", "residual_out": "bf16"}
    wide = {"weight": "fp32"}
    base: dict[str, object] = {"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-6}
    k, tail = row.columns, max(row.columns // 2, GROUP)
    few = 3 * row.rows
    if not codes:
        return (
            proof(tactic, m=few, k=k, dtypes=plain, numerics=base, scales=None),
            proof(
                tactic,
                m=up_to(few + 2),
                k=k + tail,
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
        proof(tactic, m=few + 2, k=k + tail, dtypes=summed, numerics=base | reciprocal, scales=M_MAJOR_PADDED),
        proof(
            tactic,
            m=up_to(few + 2),
            k=2 * k,
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
            k=k + GROUP,
            dtypes=summed,
            numerics=base | {"staging": "fp32", "epsilon": 1e-12} | code_rules("divide", "saturate", 0.0),
        ),
    )
