"""The small contracts on which a dense tile is proven: full tiles, tails, partial scale blocks, bounded rows."""

from nkc.ir import operations, targets
from nkc.ir.contract import (
    Bounded,
    Contract,
    Dim,
    DType,
    Layout,
    MultipleOf,
    Nan,
    Round,
    Scale,
    TargetRef,
)
from nkc.ir.frozen import FrozenMap
from nkc.tactics.tactic import Tactic


def fp8_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set: one K step and several, an M tail, 1.5 scale blocks of N, M-major scales, bounded m."""
    assert tactic.schedule.tile is not None
    tile_m, tile_n, tile_k = tactic.schedule.tile
    whole_n = max(tile_n, 128)
    return (
        _fp8(tactic, m=tile_m, n=whole_n, k=tile_k, out=DType.BF16),
        _fp8(tactic, m=max(tile_m - 3, 1), n=whole_n + 64, k=3 * tile_k, out=DType.FP32),
        _fp8(tactic, m=Bounded(min=0, max=tile_m), n=whole_n + 64, k=2 * tile_k, out=DType.BF16, m_major=True),
    )


def _fp8(tactic: Tactic, *, m: Dim, n: int, k: int, out: DType, m_major: bool = False) -> Contract:
    accumulate, combine = tactic.guarantees.accumulate, tactic.guarantees.combine
    assert accumulate is not None
    assert combine is not None
    leading = None
    if m_major:
        leading = MultipleOf(multiple_of=4) if isinstance(m, Bounded) else -(-m // 4) * 4
    pointers = [operand.name for operand in operations.get("dense").operands] + ["a_scales", "b_scales"]
    return Contract(
        target=TargetRef(arch=tactic.target, wave=targets.get(tactic.target).wave),
        operation="dense",
        shape=FrozenMap({"m": m, "n": n, "k": k}),
        dtypes=FrozenMap({"a": DType.FP8_E4M3, "b": DType.FP8_E4M3, "acc": DType.FP32, "out": out}),
        scales=FrozenMap(
            {
                "a": Scale(block=(1, 128), layout=Layout.M_MAJOR if m_major else Layout.ROW_MAJOR, leading_dim=leading),
                "b": Scale(block=(128, 128), layout=Layout.ROW_MAJOR),
            }
        ),
        layouts=FrozenMap({"a": Layout.ROW_MAJOR, "b": Layout.ROW_MAJOR_NK, "out": Layout.ROW_MAJOR}),
        numerics=FrozenMap(
            {"accumulate": accumulate, "combine": combine, "round": Round.RNE_ONCE, "nan": Nan.PROPAGATE}
        ),
        alignment=FrozenMap(dict.fromkeys(pointers, 16)),
    )
