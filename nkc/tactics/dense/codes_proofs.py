"""The small contracts that prove a dense kernel whose result becomes codes: its tails, and every rule about codes."""

from collections.abc import Mapping
from functools import partial

from nkc.ir.contract import CONTRACT_SCHEMA, Contract
from nkc.ir.quantising import GROUP
from nkc.ir.reader import parse_document
from nkc.tactics.predicate import AtLeast, AtMost, MultipleOf
from nkc.tactics.quantising.proofs import M_MAJOR, M_MAJOR_PADDED, ROW_MAJOR, rules, up_to
from nkc.tactics.tactic import Tactic

BLOCK_K = 128
MANY_BLOCKS = 67
"""Of k: more than twice what a warp holds scales of. With few rows and columns products stay predictable bit by bit."""
FEW_ROWS = 13


def codes_proofs(tactic: Tactic, *, fp8: bool = True) -> tuple[Contract, ...]:
    """Return the proof set. fp8: operands are fp8 with block scales, else bf16.

    Flavours by overflow rules and by what the result waits in; both layouts of both scales, with padding and without;
    no floor; bias of both types; the least k and many blocks of unequal parts; tails of m, several tiles, bounded m.
    """
    assert tactic.schedule.tile is not None
    tile_m, tile_n, _ = tactic.schedule.tile
    split = tactic.schedule.split_k or 1
    least = _least_k(tactic)
    step = max(_k_step(tactic), BLOCK_K)
    uneven = -(-(least + (split + 1) * BLOCK_K) // step) * step
    most = _most_m(tactic)
    n, several = max(tile_n, GROUP), min(2 * tile_m + 8, most)

    def said(staging: str, quantize: str, overflow: str, *floor: float) -> dict[str, object]:
        return {"staging": staging, **rules(quantize, overflow, *floor)}

    _proof = partial(_contract, tactic, fp8=fp8)
    bias_bf16, bias_fp32 = ({"kind": "bias", "dtype": dtype} for dtype in ("bf16", "fp32"))
    few = min(FEW_ROWS, max(tile_m - 3, 1))
    # what a kernel in C++ writes out, a compiler knows: bundles of scales, walks over tiles
    written_out = tactic.kernel.language == "cuda"
    long_k = -(-MANY_BLOCKS * BLOCK_K // step) * step if written_out else uneven + 2 * step
    tiles = (4 * tile_m, 5 * GROUP) if written_out else (tile_m, n + GROUP)
    return (
        _proof(m=min(tile_m, most), n=n, k=least, numerics=said("bf16", "divide", "saturate"), a=M_MAJOR_PADDED),
        _proof(m=few, n=n + GROUP, k=long_k, numerics=said("fp32", "divide", "ieee"), out=M_MAJOR_PADDED),
        _proof(
            m=up_to(several),
            n=3 * GROUP,
            k=uneven,
            numerics=said("bf16", "reciprocal", "saturate"),
            a=M_MAJOR_PADDED,
            out=M_MAJOR,
        ),
        _proof(
            m=min(tiles[0] + 5, most),
            n=tiles[1],
            k=uneven,
            numerics=said("fp32", "ue8m0", "saturate"),
            a=M_MAJOR,
            out=M_MAJOR_PADDED,
        ),
        _proof(
            m=min(tile_m + 1, most),
            n=2 * n,
            k=uneven + step,
            numerics=said("bf16", "divide", "saturate", 0.0),
            epilogue=bias_bf16,
        ),
        _proof(
            m=max(min(tile_m, most) - 1, 1),
            n=n,
            k=least,
            numerics=said("fp32", "reciprocal", "ieee", 0.0),
            a=M_MAJOR_PADDED,
            epilogue=bias_fp32,
        ),
        _proof(m=up_to(few), n=n, k=uneven, numerics=said("bf16", "ue8m0", "ieee"), epilogue=bias_bf16),
    )


def _least_k(tactic: Tactic) -> int:
    """Return the least k that the predicates admit."""
    limits = (rule.limit for rule in tactic.requires if isinstance(rule, AtLeast) and rule.field == "$.shape.k")
    return max(limits, default=max(_k_step(tactic), BLOCK_K * (tactic.schedule.split_k or 1)))


def _k_step(tactic: Tactic) -> int:
    """Return what k is a multiple of."""
    steps = (rule.divisor for rule in tactic.requires if isinstance(rule, MultipleOf) and rule.field == "$.shape.k")
    return max(steps, default=BLOCK_K)


def _most_m(tactic: Tactic) -> int:
    limits = (rule.limit for rule in tactic.requires if isinstance(rule, AtMost) and rule.field == "$.shape.m")
    return min(limits, default=1 << 20)


def _contract(
    tactic: Tactic,
    *,
    fp8: bool,
    m: int | dict[str, int],
    n: int,
    k: int,
    numerics: Mapping[str, object],
    a: Mapping[str, object] = ROW_MAJOR,
    out: Mapping[str, object] = ROW_MAJOR,
    epilogue: Mapping[str, str] | None = None,
) -> Contract:
    """Return a proof contract; its document says no more than a user's would. a, out: their scales."""
    operand = "fp8_e4m3" if fp8 else "bf16"
    scales = {"a": dict(a), "b": {"block": [128, 128], "layout": "row_major"}} if fp8 else {}
    accumulate, combine = tactic.guarantees.accumulate, tactic.guarantees.combine
    assert accumulate is not None
    assert combine is not None
    before = tactic.before_the_wait
    constant = () if before is None else before.arguments
    return parse_document(
        {
            "schema": CONTRACT_SCHEMA,
            "target": {"arch": tactic.target},
            "operation": tactic.operation,
            "shape": {"m": m, "n": n, "k": k},
            "dtypes": {"a": operand, "b": operand, "acc": "fp32", "out": "fp8_e4m3"},
            "scales": {**scales, "out": dict(out)},
            "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
            "epilogue": None if epilogue is None else dict(epilogue),
            "numerics": {"accumulate": accumulate.value, "combine": combine.value, **numerics},
            "properties": {"constant": [name for name in constant if name != "bias" or epilogue is not None]},
        },
        f"proof of {tactic.name}",
    )
