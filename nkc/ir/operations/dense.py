"""dense: D[M,N] = epilogue(A[M,K] times W[N,K] transposed), with block scales where the operands are fp8."""

from nkc.ir import epilogues
from nkc.ir.budget import Stage
from nkc.ir.contract import (
    Access,
    Accumulate,
    Argument,
    Bounded,
    Combine,
    Contract,
    DType,
    Layout,
    Nan,
    Round,
)
from nkc.ir.errors import Problem
from nkc.ir.operation import DimRule, NumericRule, Operand, Operation, ScaleRule, pointer
from nkc.ir.scales import argument_name


def arguments(contract: Contract) -> tuple[Argument, ...]:
    """Return the visible arguments: a, b, their scales, the bias, out, the workspace, m where it is bounded."""
    listed = [Argument(name=name, type=pointer(contract.dtypes[name])) for name in ("a", "b")]
    listed += [
        Argument(name=argument_name(name), type=pointer(contract.scales[name].dtype))
        for name in ("a", "b")
        if name in contract.scales
    ]
    if contract.epilogue.dtype is not None:
        listed.append(Argument(name="bias", type=pointer(contract.epilogue.dtype)))
    listed.append(Argument(name="out", type=pointer(contract.dtypes["out"]), access=Access.WRITE))
    if contract.workspace is not None and contract.workspace.bytes:
        listed.append(Argument(name="workspace", type=pointer(DType.INT32), access=Access.READ_WRITE))
    if isinstance(contract.shape["m"], Bounded):
        listed.append(Argument(name="m", type="int32"))
    return tuple(listed)


def check(contract: Contract) -> list[Problem]:
    """Return what breaks a rule across fields: scale blocks along k, mixed operand types, gated epilogues."""
    problems = []
    k = contract.exact("k")
    for name in ("a", "b"):
        scale = contract.scales.get(name)
        if scale is not None and k % scale.block[1]:
            pad = -(-k // scale.block[1]) * scale.block[1]
            problems.append(
                Problem(
                    field="$.shape.k",
                    what=f"{k} is not a multiple of {scale.block[1]}, the FP8 scale block of `{name}` along k",
                    mend=f"pad k to {pad}, or use a contract without block scales",
                )
            )
            break
    if contract.dtypes["a"] is not contract.dtypes["b"]:
        problems.append(
            Problem(
                field="$.dtypes.b",
                what=f"`{contract.dtypes['b']}` is not the dtype of a, `{contract.dtypes['a']}`",
                mend="give both operands one dtype",
            )
        )
    if epilogues.get(contract.epilogue.kind).gated and contract.exact("n") % 2:
        problems.append(
            Problem(
                field="$.shape.n",
                what=f"{contract.exact('n')} is odd, but `{contract.epilogue.kind}` needs as many gate as up columns",
                mend="n counts gate and up columns together",
            )
        )
    return problems


def stages(contract: Contract) -> tuple[Stage, ...]:
    """Return the leaf stages with their budgets; `S_b` is the sum over a block of |a b|, `S` that of |sa sb| S_b."""
    scaled = bool(contract.scales)
    dot = Stage(
        name="gemm.dot",
        source="codes not NaN; scales fp32, positive, finite" if scaled else "bf16, finite",
        load="u8" if scaled else "bf16",
        operand="e4m3fn, exact" if scaled else "bf16, exact",
        accumulate=f"fp32 by `{contract.numerics['accumulate']}`"
        + (", restarted for each scale block" if scaled else ""),
        store="fp32 register",
        range="sum <= 2.57e7, products are multiples of 2^-18" if scaled else "fp32",
        error="gamma_127 S_b, u of the matrix unit" if scaled else "gamma_{k-1} S, u of the matrix unit",
        acceptance="bit-equal where every partial sum is representable, else the bound",
    )
    promote = Stage(
        name="gemm.promote",
        source="gemm.dot",
        load="fp32 scales",
        operand="s = fl(sa sb); acc = fma(block, s, acc)",
        accumulate=f"fp32, blocks by `{contract.numerics['combine']}`, one rounding a block",
        store="fp32 register",
        range=">= 1.9e-31 with scales above the quantisation floor, no underflow",
        error="gamma_{129+blocks} S, u of the matrix unit",
        acceptance="bound",
    )
    store = Stage(
        name="gemm.store",
        source="gemm.promote and the epilogue" if scaled else "gemm.dot and the epilogue",
        load="-",
        operand="fp32",
        accumulate="-",
        store=f"{contract.dtypes['out']}, one rounding to nearest even",
        range="beyond the largest finite value: infinity",
        error="u_b |y|" if contract.dtypes["out"] is DType.BF16 else "none",
        acceptance="bound; RMS error / RMS <= 2.5e-3 (bf16); a row is NaN exactly where an input code is",
    )
    return (dot, promote, store) if scaled else (dot, store)


OPERATION = Operation(
    name="dense",
    summary="D[M,N] = epilogue(A[M,K] W[N,K]^T), block-scaled where operands are fp8",
    dims=(
        DimRule(name="m", meaning="rows of A and D (tokens)", typical=(1, 64, 4096), bounded=True),
        DimRule(name="n", meaning="rows of W, columns of D", typical=(4096,)),
        DimRule(name="k", meaning="columns of A and W, summed over", typical=(4096,)),
    ),
    operands=(
        Operand(
            name="a",
            axes=("m", "k"),
            access=Access.READ,
            dtypes=(DType.FP8_E4M3, DType.BF16),
            layouts=(Layout.ROW_MAJOR,),
            scales=ScaleRule(dtypes=(DType.FP8_E4M3,), block=(1, 128)),
        ),
        Operand(
            name="b",
            axes=("n", "k"),
            access=Access.READ,
            dtypes=(DType.FP8_E4M3, DType.BF16),
            layouts=(Layout.ROW_MAJOR_NK, Layout.SHUFFLED_16X16),
            scales=ScaleRule(dtypes=(DType.FP8_E4M3,), block=(128, 128), layouts=(Layout.ROW_MAJOR,)),
        ),
        Operand(
            name="out",
            axes=("m", "n"),
            access=Access.WRITE,
            dtypes=(DType.BF16, DType.FP32),
            layouts=(Layout.ROW_MAJOR,),
        ),
    ),
    intermediate_dtypes=(("acc", (DType.FP32,)),),
    epilogues=("identity", "bias", "silu", "gelu_tanh", "gelu_erf", "gated_silu"),
    numerics=(
        NumericRule(name="accumulate", type=Accumulate),
        NumericRule(name="combine", type=Combine),
        NumericRule(name="round", type=Round, default=Round.RNE_ONCE),
        NumericRule(name="nan", type=Nan, default=Nan.PROPAGATE),
    ),
    arguments=arguments,
    stages=stages,
    check=check,
)
