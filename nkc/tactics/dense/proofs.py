"""The small contracts that prove a dense kernel: full tiles, tails, partial scale blocks, bounded rows, bias."""

from nkc.ir import operations, targets
from nkc.ir.contract import (
    Bounded,
    Contract,
    Dim,
    DType,
    Epilogue,
    Layout,
    MultipleOf,
    Nan,
    Properties,
    Round,
    Scale,
    TargetRef,
)
from nkc.ir.frozen import FrozenMap
from nkc.tactics import predicate
from nkc.tactics.predicate import AtLeast, AtMost
from nkc.tactics.tactic import Tactic

IDENTITY = Epilogue(kind="identity")


def fp8_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a block-scaled kernel.

    Few K steps and more, an M tail, 1.5 scale blocks of N, M-major scales with padding, bounded m, both outputs, bias.
    """
    return _proofs(tactic, DType.FP8_E4M3)


def bf16_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of an unscaled kernel: few K steps and more, tails, bounded m, both outputs, bias."""
    return _proofs(tactic, DType.BF16)


def tma_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a persistent kernel that copies tiles and M-major scales by TMA.

    One scale block along k; several tiles a CTA, more blocks than stages and than scales that a warp holds at once,
    tails of m and n, fp32 results; bounded m; bias; row-major scales, and M-major ones without padding. Products of n
    stay below what is predicted bit by bit.
    """
    assert tactic.schedule.tile is not None
    tile_m, tile_n, _ = tactic.schedule.tile
    bias, fp8 = Epilogue(kind="bias", dtype=DType.BF16), DType.FP8_E4M3
    n = max(tile_n, 128)
    return (
        _contract(tactic, fp8, m=tile_m, n=n, k=128, out=DType.BF16, m_major=True),
        _contract(tactic, fp8, m=tile_m - 3, n=n + 72, k=67 * 128, out=DType.FP32, m_major=True),
        _contract(tactic, fp8, m=Bounded(min=0, max=2 * tile_m + 8), n=3 * n + 64, k=640, out=DType.BF16, m_major=True),
        _contract(tactic, fp8, m=9 * tile_m + 5, n=14 * tile_n + 40, k=256, out=DType.BF16, m_major=True),
        _contract(tactic, fp8, m=tile_m + 1, n=n + 40, k=1152, out=DType.FP32, m_major=True, epilogue=bias),
        _contract(tactic, fp8, m=Bounded(min=0, max=tile_m + 8), n=n + 64, k=1408, out=DType.BF16),
        _contract(tactic, fp8, m=tile_m + 5, n=tile_n + 40, k=640, out=DType.FP32, m_major=True, pitch=1),
    )


def cluster_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a kernel with one tile a CTA, whose cluster shares k.

    One block a part; parts of unequal length, and more blocks than a warp holds scales of, tails of m and n, fp32
    results; bounded m with row-major scales; several rows of tiles; M-major scales without padding, and bias.
    """
    assert tactic.schedule.tile is not None
    tile_m, tile_n, _ = tactic.schedule.tile
    split, n = tactic.schedule.split_k or 1, max(tile_n, 128)
    bias, fp8, bf16 = Epilogue(kind="bias", dtype=DType.BF16), DType.FP8_E4M3, DType.BF16
    some = Bounded(min=0, max=2 * tile_m + 8)
    return (
        _contract(tactic, fp8, m=tile_m, n=n, k=128 * split, out=bf16, m_major=True),
        _contract(tactic, fp8, m=tile_m - 3, n=n + 72, k=67 * 128, out=DType.FP32, m_major=True),
        _contract(tactic, fp8, m=some, n=3 * n + 64, k=128 * (7 * split + 2), out=bf16),
        _contract(tactic, fp8, m=4 * tile_m + 5, n=5 * tile_n + 40, k=128 * (2 * split + 1), out=bf16, m_major=True),
        _contract(tactic, fp8, m=tile_m + 1, n=n + 40, k=9 * 128, out=DType.FP32, m_major=True, pitch=1, epilogue=bias),
    )


def bf16_tma_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a persistent kernel in bf16 that copies tiles by TMA.

    One step along k; more steps than stages, tails of m and n, fp32 results; bounded m; several tiles a CTA; odd n and
    bias; bounded m and bias, n of whole 8 bytes. Products of n stay below what is predicted bit by bit.
    """
    assert tactic.schedule.tile is not None
    tile_m, tile_n, tile_k = tactic.schedule.tile
    bias, bf16 = Epilogue(kind="bias", dtype=DType.BF16), DType.BF16
    n = max(tile_n, 128)
    some, few = Bounded(min=0, max=2 * tile_m + 8), Bounded(min=0, max=tile_m + 8)
    return (
        _contract(tactic, bf16, m=tile_m, n=n, k=tile_k, out=bf16),
        _contract(tactic, bf16, m=tile_m - 3, n=n + 72, k=67 * tile_k, out=DType.FP32),
        _contract(tactic, bf16, m=some, n=3 * n + 64, k=5 * tile_k, out=bf16),
        _contract(tactic, bf16, m=9 * tile_m + 5, n=14 * tile_n + 40, k=2 * tile_k, out=bf16),
        _contract(tactic, bf16, m=tile_m + 1, n=n + 41, k=9 * tile_k, out=DType.FP32, epilogue=bias),
        _contract(tactic, bf16, m=few, n=n + 44, k=11 * tile_k, out=bf16, epilogue=bias),
    )


def bf16_cluster_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a kernel in bf16 with one tile a CTA, whose cluster shares k.

    One step a part; parts of unequal length, more steps than stages, tails of m and n, fp32 results; bounded m; several
    rows of tiles and odd n; n of whole 8 bytes with bias, in bf16 and, n even, in fp32.
    """
    assert tactic.schedule.tile is not None
    tile_m, tile_n, tile_k = tactic.schedule.tile
    bias, bf16 = Epilogue(kind="bias", dtype=DType.BF16), DType.BF16
    split, n, some = tactic.schedule.split_k or 1, max(tile_n, 128), Bounded(min=0, max=2 * tile_m + 8)
    return (
        _contract(tactic, bf16, m=tile_m, n=n, k=tile_k * split, out=bf16),
        _contract(tactic, bf16, m=tile_m - 3, n=tile_n + 72, k=tile_k * (25 * split + 1), out=DType.FP32),
        _contract(tactic, bf16, m=some, n=3 * n + 64, k=tile_k * (7 * split + 2), out=bf16),
        _contract(tactic, bf16, m=4 * tile_m + 5, n=5 * tile_n + 41, k=tile_k * (2 * split + 1), out=bf16),
        _contract(tactic, bf16, m=tile_m + 1, n=n + 44, k=tile_k * (3 * split + 1), out=bf16, epilogue=bias),
        _contract(tactic, bf16, m=tile_m - 1, n=n + 42, k=tile_k * (3 * split + 1), out=DType.FP32, epilogue=bias),
    )


def bf16_gemv_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a kernel in bf16 for one row whose warps share k in chunks of 256.

    Eight elements, where all lanes but one have nothing; whole rounds and a rest with tails of k and n, fp32 results;
    bounded m and whole rounds alone; a rest and bias.
    """
    assert tactic.schedule.waves is not None
    assert tactic.schedule.stages is not None
    whole = 256 * tactic.schedule.waves * tactic.schedule.stages
    bias, bf16 = Epilogue(kind="bias", dtype=DType.BF16), DType.BF16
    return (
        _contract(tactic, bf16, m=1, n=128, k=8, out=bf16),
        _contract(tactic, bf16, m=1, n=203, k=whole + 648, out=DType.FP32),
        _contract(tactic, bf16, m=Bounded(min=0, max=1), n=192, k=5 * whole, out=bf16),
        _contract(tactic, bf16, m=1, n=165, k=3 * whole + 384, out=DType.FP32, epilogue=bias),
    )


def skinny_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a kernel for few rows whose clusters share k.

    The least k, one stage a CTA; parts of unequal length, more blocks than a ring holds and than scales that a warp
    holds at once, once with scales by TMA and once row-major, tails of m and n, fp32 results; bounded m; odd n with
    M-major scales without padding; bias. Products of the long ones stay below what is predicted bit by bit.
    """
    assert tactic.schedule.tile is not None
    tile_m, tile_n, _ = tactic.schedule.tile
    bias, fp8, bf16 = Epilogue(kind="bias", dtype=DType.BF16), DType.FP8_E4M3, DType.BF16
    most_m = min(rule.limit for rule in tactic.requires if isinstance(rule, AtMost) and rule.field == "$.shape.m")
    least_k = max(rule.limit for rule in tactic.requires if isinstance(rule, AtLeast) and rule.field == "$.shape.k")
    split, n = tactic.schedule.split_k or 1, max(tile_n, 128)
    long_k, some = 128 * (33 * split + 1), Bounded(min=0, max=most_m)
    few = min(tile_m - 3, 16)
    return (
        _contract(tactic, fp8, m=tile_m, n=n, k=least_k, out=bf16, m_major=True),
        _contract(tactic, fp8, m=few, n=tile_n + 72, k=long_k, out=DType.FP32, m_major=True),
        _contract(tactic, fp8, m=few, n=tile_n + 40, k=long_k + 256, out=bf16, epilogue=bias),
        _contract(tactic, fp8, m=some, n=3 * n + 64, k=least_k + 384, out=bf16, m_major=True),
        _contract(tactic, fp8, m=tile_m - 1, n=n + 41, k=least_k + 128, out=bf16, m_major=True, pitch=1),
    )


def gemv_proofs(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the proof set of a kernel for one row whose warps share k in chunks of 512.

    One scale block, where most warps have nothing; a chunk for every warp, and tails of k and n; bounded m with M-major
    scales and whole rounds alone; bias. Of a kernel that takes whole rounds alone one, two, five and three of them.
    """
    assert tactic.schedule.tile is not None
    assert tactic.schedule.waves is not None
    whole = 512 * tactic.schedule.waves
    bias = Epilogue(kind="bias", dtype=DType.BF16)
    fp8 = DType.FP8_E4M3
    multiples = [rule for rule in tactic.requires if isinstance(rule, predicate.MultipleOf)]
    if (step := max(rule.divisor for rule in multiples if rule.field == "$.shape.k")) >= whole:
        return (
            _contract(tactic, fp8, m=1, n=128, k=step, out=DType.BF16),
            _contract(tactic, fp8, m=1, n=203, k=2 * step, out=DType.FP32),
            _contract(tactic, fp8, m=Bounded(min=0, max=1), n=192, k=5 * step, out=DType.BF16, m_major=True),
            _contract(tactic, fp8, m=1, n=165, k=3 * step, out=DType.FP32, epilogue=bias),
        )
    return (
        _contract(tactic, fp8, m=1, n=128, k=128, out=DType.BF16),
        _contract(tactic, fp8, m=1, n=203, k=whole + 640, out=DType.FP32),
        _contract(tactic, fp8, m=Bounded(min=0, max=1), n=192, k=5 * whole, out=DType.BF16, m_major=True),
        _contract(tactic, fp8, m=1, n=165, k=3 * whole + 384, out=DType.FP32, epilogue=bias),
    )


def _proofs(tactic: Tactic, operand: DType) -> tuple[Contract, ...]:
    assert tactic.schedule.tile is not None
    tile_m, tile_n, tile_k = tactic.schedule.tile
    n = max(tile_n, 128)
    least_k = max(
        (rule.limit for rule in tactic.requires if isinstance(rule, AtLeast) and rule.field == "$.shape.k"),
        default=tile_k,
    )
    bias = Epilogue(kind="bias", dtype=DType.BF16)
    return (
        _contract(tactic, operand, m=tile_m, n=n, k=least_k, out=DType.BF16),
        _contract(tactic, operand, m=max(tile_m - 3, 1), n=n + 64, k=least_k + 2 * tile_k, out=DType.FP32),
        _contract(
            tactic, operand, m=Bounded(min=0, max=tile_m), n=n + 64, k=least_k + tile_k, out=DType.BF16, m_major=True
        ),
        _contract(tactic, operand, m=max(tile_m - 5, 1), n=n + 40, k=least_k, out=DType.FP32, epilogue=bias),
    )


def _contract(
    tactic: Tactic,
    operand: DType,
    *,
    m: Dim,
    n: int,
    k: int,
    out: DType,
    m_major: bool = False,
    pitch: int = 4,
    epilogue: Epilogue = IDENTITY,
) -> Contract:
    accumulate, combine = tactic.guarantees.accumulate, tactic.guarantees.combine
    assert accumulate is not None
    assert combine is not None
    pointers = [entry.name for entry in operations.get("dense").operands]
    scales: dict[str, Scale] = {}
    if operand is DType.FP8_E4M3:
        pointers += ["a_scales", "b_scales"]
        scales = {
            "a": _activation_scale(m, m_major=m_major, pitch=pitch),
            "b": Scale(block=(128, 128), layout=Layout.ROW_MAJOR),
        }
    if epilogue.dtype is not None:
        pointers.append("bias")
    return Contract(
        target=TargetRef(arch=tactic.target, wave=targets.get(tactic.target).wave),
        operation="dense",
        shape=FrozenMap({"m": m, "n": n, "k": k}),
        dtypes=FrozenMap({"a": operand, "b": operand, "acc": DType.FP32, "out": out}),
        scales=FrozenMap(scales),
        layouts=FrozenMap({"a": Layout.ROW_MAJOR, "b": Layout.ROW_MAJOR_NK, "out": Layout.ROW_MAJOR}),
        epilogue=epilogue,
        numerics=FrozenMap(
            {"accumulate": accumulate, "combine": combine, "round": Round.RNE_ONCE, "nan": Nan.PROPAGATE}
        ),
        properties=_properties(tactic, pointers),
        alignment=FrozenMap(dict.fromkeys(pointers, 16)),
    )


def _properties(tactic: Tactic, pointers: list[str]) -> Properties:
    """Return what every caller asks, and as constant what the kernel reads before the kernels ahead have ended."""
    before = tactic.before_the_wait
    return Properties() if before is None else Properties(constant=tuple(sorted({*before.arguments} & {*pointers})))


def _activation_scale(m: Dim, *, m_major: bool, pitch: int) -> Scale:
    """Return 1x128 scales, row-major, or M-major with rows padded to so many: 4 make whole 16-byte accesses."""
    if not m_major:
        return Scale(block=(1, 128), layout=Layout.ROW_MAJOR)
    leading = MultipleOf(multiple_of=pitch) if isinstance(m, Bounded) else -(-m // pitch) * pitch
    return Scale(block=(1, 128), layout=Layout.M_MAJOR, leading_dim=leading)
