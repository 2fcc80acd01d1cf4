"""The kernels behind `objects/`: what nkc's templates emit in small, plus forms that only these tests need."""

import triton
import triton.language as tl


@triton.jit
def gemm_fp8(A, B, C, SA, SB, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, 128)
    mm = rm < M
    acc = tl.zeros((BM, BN), tl.float32)
    for kb in tl.range(0, K // 128, num_stages=S):
        a = tl.load(A + rm[:, None] * K + kb * 128 + rk[None, :], mask=mm[:, None], other=0.0)
        b = tl.load(B + rn[None, :] * K + kb * 128 + rk[:, None])
        sa = tl.load(SA + rm * (K // 128) + kb, mask=mm, other=0.0)
        sb = tl.load(SB + (pn * BN // 128) * (K // 128) + kb)
        acc = tl.fma(tl.dot(a, b), tl.broadcast_to((sa * sb)[:, None], (BM, BN)), acc)
    tl.store(C + rm[:, None] * N + rn[None, :], acc.to(C.dtype.element_ty), mask=mm[:, None])


@triton.jit
def gemm(
    A, B, C, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, S: tl.constexpr
):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    mm = rm < M
    acc = tl.zeros((BM, BN), tl.float32)
    for kb in tl.range(0, K // BK, num_stages=S):
        a = tl.load(A + rm[:, None] * K + kb * BK + rk[None, :], mask=mm[:, None], other=0.0)
        b = tl.load(B + (kb * BK + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(C + rm[:, None] * N + rn[None, :], acc.to(C.dtype.element_ty), mask=mm[:, None])


@triton.jit
def gemm_mx(A, B, C, SA, SB, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr):
    """OCP MX: one E8M0 scale for 32 elements along k; it pins the K layout, which plain fp8 leaves open."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, 128)
    rs = tl.arange(0, 4)
    acc = tl.zeros((BM, BN), tl.float32)
    for kb in tl.range(0, K // 128, num_stages=S):
        a = tl.load(A + rm[:, None] * K + kb * 128 + rk[None, :])
        b = tl.load(B + rn[None, :] * K + kb * 128 + rk[:, None])
        sa = tl.load(SA + rm[:, None] * (K // 32) + kb * 4 + rs[None, :])
        sb = tl.load(SB + rn[:, None] * (K // 32) + kb * 4 + rs[None, :])
        acc = tl.dot_scaled(a, sa, "e4m3", b, sb, "e4m3", acc)
    tl.store(C + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None])


@triton.jit
def quant(X, Q, S, M, D: tl.constexpr, ROWS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    g = tl.program_id(1)
    c = g * 128 + tl.arange(0, 128)
    m = r < M
    x = tl.load(X + r[:, None] * D + c[None, :], mask=m[:, None], other=0.0).to(tl.float32)
    s = tl.math.div_rn(tl.maximum(tl.max(tl.abs(x), axis=1), 1e-10), 448.0)
    q = tl.math.div_rn(x, tl.broadcast_to(s[:, None], (ROWS, 128)))
    q = tl.minimum(tl.maximum(q, -448.0), 448.0)
    tl.store(Q + r[:, None] * D + c[None, :], q.to(tl.float8e4nv), mask=m[:, None])
    tl.store(S + r * (D // 128) + g, s, mask=m)


@triton.jit
def softmax(X, Y, M, D: tl.constexpr, DP: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, DP)
    m = c < D
    x = tl.load(X + r * D + c, mask=m, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(Y + r * D + c, (e / tl.sum(e, axis=0)).to(tl.bfloat16), mask=m)


@triton.jit
def split_k(
    A,
    B,
    C,
    WS,
    CNT,
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    SK: tl.constexpr,
    ARRIVE: tl.constexpr,
    LANES: tl.constexpr,
):
    """ARRIVE 0: one lane counts the workgroup, behind a barrier that does not wait for stores. 1: every lane counts."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    ps = tl.program_id(2)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, 128)
    mm = rm < M
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.range(0, K // 128 // SK, num_stages=2):
        kb = ps * (K // 128 // SK) + i
        a = tl.load(A + rm[:, None] * K + kb * 128 + rk[None, :], mask=mm[:, None], other=0.0)
        b = tl.load(B + rn[None, :] * K + kb * 128 + rk[:, None])
        acc += tl.dot(a, b)
    tile = pm * tl.num_programs(1) + pn
    base = WS + tile * SK * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(base + ps * BM * BN, acc)
    if ARRIVE == 0:
        tl.debug_barrier()
        last = tl.atomic_add(CNT + tile, 1, sem="acq_rel", scope="gpu") == SK - 1
        tl.debug_barrier()
    else:
        arrived = tl.atomic_add(CNT + tile + tl.zeros((LANES,), tl.int32), 1, sem="acq_rel", scope="gpu")
        last = tl.max(arrived, axis=0) == SK * LANES - 1
    if last:
        total = tl.load(base, cache_modifier=".cg")
        for j in tl.static_range(1, SK):
            total += tl.load(base + j * BM * BN, cache_modifier=".cg")
        tl.store(C + rm[:, None] * N + rn[None, :], total.to(C.dtype.element_ty), mask=mm[:, None])
        tl.store(CNT + tile, 0)
