"""What the dense Triton templates place: every number of it is computed here, for one lowered contract."""

from collections.abc import Mapping

from nkc.ir import epilogues, targets
from nkc.ir.contract import Bounded, Contract, DType, Layout, MultipleOf, Staging
from nkc.ir.quantising import QUANTISED
from nkc.tactics.dense.codes import placed
from nkc.tactics.dense.plan import ceil_div, counter_elements, split_of, tile_of, tiles
from nkc.tactics.tactic import Tactic

GROUP_M = 8  # row tiles that walk along n together, so that A and B tiles are still in L2 when they are read again
TRITON_STORE = {DType.BF16: ".to(tl.bfloat16)", DType.FP32: ""}
TRITON_STAGING = {Staging.BF16: ".to(tl.bfloat16).to(tl.float32)", Staging.FP32: ""}


def fp8_constants(contract: Contract, tactic: Tactic, *, convert: str = "") -> Mapping[str, object]:
    """Return the block-scaled template's constants.

    convert: what turns a loaded fp8 block into the type that the matrix unit adds.
    """
    _, tile_n, tile_k = tile_of(tactic)
    n, k = contract.exact("n"), contract.exact("k")
    block_n, block_k = contract.scales["b"].block
    row_stride, block_stride = scale_strides(contract)
    return {
        **_common(contract, tactic, part_columns=min(tile_n, block_n)),
        "scale_block_n": block_n,
        "scale_block_k": block_k,
        "k_blocks": k // block_k,
        "blocks_per_step": list(range(tile_k // block_k)),
        "b_scale_rows": ceil_div(n, block_n),
        "a_scale_row_stride": row_stride,
        "a_scale_block_stride": block_stride,
        "convert": convert,
    }


def bf16_constants(contract: Contract, tactic: Tactic) -> Mapping[str, object]:
    """Return the unscaled bf16 template's constants."""
    _, tile_n, tile_k = tile_of(tactic)
    return {**_common(contract, tactic, part_columns=tile_n), "tile_k": tile_k}


def symbol(contract: Contract, tactic: Tactic) -> str:
    """Return the kernel's name: the tactic and the dims, so that a profile can be read."""
    dims = (
        f"{name}{dim.min}to{dim.max}" if isinstance(dim, Bounded) else f"{name}{dim}"
        for name, dim in sorted(contract.shape.items(), key=lambda item: "mnk".index(item[0]))
    )
    return "_".join([tactic.name.split(".", 1)[1].replace(".", "_"), *dims])


def _common(contract: Contract, tactic: Tactic, *, part_columns: int) -> dict[str, object]:
    """Return what every dense template places: names, tails, the walk over tiles, the split along k, the epilogue."""
    tile_m, tile_n, tile_k = tile_of(tactic)
    n, k, m = contract.exact("n"), contract.exact("k"), contract.shape["m"]
    m_tail = isinstance(m, Bounded) or m % tile_m != 0
    n_tail = n % tile_n != 0
    split = split_of(tactic)
    steps = k // tile_k
    assert contract.arguments is not None
    assert contract.launch is not None
    assert contract.launch.block is not None
    return {
        "symbol": symbol(contract, tactic),
        "arguments": ", ".join(argument.name for argument in contract.arguments),
        "m": _rows(contract),
        "n": n,
        "k": k,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "stages": tactic.schedule.stages,
        "m_tail": m_tail,
        "n_tail": n_tail,
        "split_k": split,
        "first_step": f"piece * {steps} // {split}" if split > 1 else "0",
        "end_step": f"(piece + 1) * {steps} // {split}" if split > 1 else str(steps),
        "lanes": contract.launch.block[0],
        "counter_elements": counter_elements(contract, tactic),
        "bias": contract.epilogue.dtype is not None,
        "epilogue": epilogues.get(contract.epilogue.kind).triton,
        "round": _rounding(contract),
        **placed(contract, row="rows", group="tile_column", in_c=False),
        "parts": [
            {
                "index": index,
                "first_column": index * part_columns,
                "columns": part_columns,
                "mask": _store_mask(index, m_tail=m_tail, n_tail=n_tail, m=_rows(contract), n=n),
                "scale_mask": f", mask=rows < {_rows(contract)}" if m_tail else "",
                **placed(contract, row="rows", group=f"(tile_column * {tile_n // part_columns} + {index})", in_c=False),
            }
            for index in range(tile_n // part_columns)
        ],
        **_order(contract, tactic),
    }


def _rows(contract: Contract) -> str:
    """Return the number of rows as the kernel knows it: a number, or its argument."""
    m = contract.shape["m"]
    return "m" if isinstance(m, Bounded) else str(m)


def scale_strides(contract: Contract) -> tuple[str, str]:
    """Return the strides of the activation scales (elements) along rows and along k blocks, as expressions."""
    scale = contract.scales["a"]
    if scale.layout is Layout.ROW_MAJOR:
        return str(contract.exact("k") // scale.block[1]), "1"
    rows = _rows(contract)
    match scale.leading_dim:
        case MultipleOf(multiple_of=1):
            return "1", rows
        case MultipleOf(multiple_of=multiple):
            return "1", f"(({rows} + {multiple - 1}) // {multiple} * {multiple})"
        case leading_dim:
            return "1", str(leading_dim)


def _rounding(contract: Contract) -> str:
    """Return how an fp32 result is rounded: to be stored, or to wait for its scale."""
    if QUANTISED in contract.scales:
        return TRITON_STAGING[Staging(str(contract.numerics["staging"]))]
    return TRITON_STORE[contract.dtypes["out"]]


def _store_mask(index: int, *, m_tail: bool, n_tail: bool, m: str, n: int) -> str:
    rows, columns = f"(rows[:, None] < {m})", f"(columns_{index}[None, :] < {n})"
    kept = [text for text, tail in ((rows, m_tail), (columns, n_tail)) if tail]
    return f", mask={' & '.join(kept)}" if kept else ""


def _order(contract: Contract, tactic: Tactic) -> dict[str, int]:
    """Return how the one-dimensional grid walks the tiles: a run per XCD, then groups of row tiles."""
    m_tiles, n_tiles = tiles(contract, tactic)
    facts = targets.get(contract.target.arch).facts
    xcds = facts["chiplets"].value if "chiplets" in facts else 1
    assert isinstance(xcds, int)
    if m_tiles * n_tiles <= xcds:
        xcds = 1
    group_m = min(m_tiles, GROUP_M)
    return {
        "tiles": m_tiles * n_tiles,
        "m_tiles": m_tiles,
        "xcds": xcds,
        "tiles_per_xcd": m_tiles * n_tiles // xcds,
        "xcds_with_one_more": m_tiles * n_tiles % xcds,
        "group_m": group_m,
        "group_tiles": group_m * n_tiles,
        "last_group_m": m_tiles % group_m or group_m,
    }
