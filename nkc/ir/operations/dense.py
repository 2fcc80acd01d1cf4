"""dense: D[M,N] = epilogue(A[M,K] times W[N,K] transposed), with block scales where the operands are fp8.

Where D is fp8 it is what `group_quant` makes of the result: a code for each element, a scale for each 1 x 128. The
result waits for that in the precision that `staging` says: `bf16` is `dense` with a bf16 result, then `group_quant` of
it; in `fp32` it is not rounded in between.
"""

from nkc.ir import epilogues, quantising, targets
from nkc.ir.budget import U_BF16, Stage, U, gamma, together
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
    Staging,
)
from nkc.ir.errors import Problem
from nkc.ir.operation import DimRule, NumericRule, Operand, Operation, ScaleRule, pointer
from nkc.ir.quantising import QUANTISED
from nkc.ir.scales import argument_name


def arguments(contract: Contract) -> tuple[Argument, ...]:
    """Return the visible arguments: a, b, their scales, the bias, out, its scales, the workspace, m where bounded."""
    listed = [Argument(name=name, type=pointer(contract.dtypes[name])) for name in ("a", "b")]
    listed += [
        Argument(name=argument_name(name), type=pointer(contract.scales[name].dtype))
        for name in ("a", "b")
        if name in contract.scales
    ]
    if contract.epilogue.dtype is not None:
        listed.append(Argument(name="bias", type=pointer(contract.epilogue.dtype)))
    listed.append(Argument(name="out", type=pointer(contract.dtypes["out"]), access=Access.WRITE))
    if QUANTISED in contract.scales:
        scales = pointer(contract.scales[QUANTISED].dtype)
        listed.append(Argument(name=argument_name(QUANTISED), type=scales, access=Access.WRITE))
    if contract.workspace is not None and contract.workspace.bytes:
        listed.append(Argument(name="workspace", type=pointer(DType.INT32), access=Access.READ_WRITE))
    if isinstance(contract.shape["m"], Bounded):
        listed.append(Argument(name="m", type="int32"))
    return tuple(listed)


def check(contract: Contract) -> list[Problem]:
    """Return what breaks a rule across fields: scale blocks, mixed operand types, gated epilogues."""
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
    problems += quantising.whole_groups(contract, "n")
    gated = epilogues.get(contract.epilogue.kind).gated
    if gated and QUANTISED in contract.scales:
        problems.append(
            Problem(
                field="$.epilogue.kind",
                what=f"`{contract.epilogue.kind}` leaves n / 2 columns, and the scales of `{QUANTISED}` are over n",
                mend="use identity with a bf16 result, then silu_mul_quant",
            )
        )
    if gated and contract.exact("n") % 2:
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
    promote = (_promote(contract),) if block_scaled(contract) else ()
    last = quantising.stages(contract, source="gemm.stage", between="within the error of gemm.stage")
    return (_dot(contract), *promote, *_epilogue(contract), _store(contract), *last)


def block_scaled(contract: Contract) -> bool:
    """Return whether the operands have block scales."""
    return "a" in contract.scales


def dot_error(contract: Contract) -> float | None:
    """Return the worst relative error of one piece (a scale block, else K) against S_b; None on an unknown unit.

    A unit that keeps 23 bits or more rounds every addition into its register: gamma_{n-1}, any order. Hopper's FP8
    unit aligns: a step of g products loses (g + 1) 2^-kept of the largest addend, at most S_b and what was lost
    before, and the register another 2^-bits of the sum.
    """
    terms = contract.scales["a"].block[1] if block_scaled(contract) else contract.exact("k")
    accumulate = contract.numerics["accumulate"]
    if accumulate is Accumulate.FP32_SEQUENTIAL:
        return gamma(terms - 1)
    facts = targets.get(contract.target.arch).facts
    if accumulate is Accumulate.TENSOR_CORE_FP8:
        names = ("group", "kept_bits", "register_bits")
        if any(f"matrix_fp8_{name}" not in facts for name in names):
            return None
        group, kept, register = (int(facts[f"matrix_fp8_{name}"].value) for name in names)
        return together(*[(group + 1) * 2.0**-kept + 2.0**-register] * -(-terms // group))
    kind = _matrix_operand(contract)
    if f"matrix_{kind}_truncates" not in facts:
        return None
    return gamma(terms - 1, 2 * U if facts[f"matrix_{kind}_truncates"].value else U)


def product_error(contract: Contract) -> float | None:
    """Return the worst relative error of the accumulator against S; None on an unknown unit.

    Promotion rounds the scale product, the term, and once per block; chains that are added later round once each, and
    there are at most as many as blocks.
    """
    dot = dot_error(contract)
    if dot is None or not block_scaled(contract):
        return dot
    blocks = contract.exact("k") // contract.scales["a"].block[1]
    ascending = contract.numerics["combine"] is Combine.ASCENDING
    return together(dot, gamma(2 + blocks + (0 if ascending else blocks - 1)))


def _matrix_operand(contract: Contract) -> str:
    """Return what a unit with 23 bits or more is fed: e4m3 as f16 where the fp8 unit keeps fewer."""
    if not block_scaled(contract):
        return "bf16"
    native = targets.get(contract.target.arch).facts.get("matrix_fp8_kept_bits")
    return "fp8" if native is not None and int(native.value) >= 23 else "f16"


def _number(error: float | None, unit: str) -> str:
    return "unknown: the target states no matrix unit" if error is None else f"{error:.3g} {unit}"


def _dot(contract: Contract) -> Stage:
    scaled = block_scaled(contract)
    tensor_core = contract.numerics["accumulate"] is Accumulate.TENSOR_CORE_FP8
    error = "gamma_127 S_b, u of the matrix unit" if scaled else "gamma_{k-1} S, u of the matrix unit"
    if tensor_core:
        error = "a step of 32: 33 addends truncated at 2^-13 of the largest, and the register at 2^-13"
    return Stage(
        name="gemm.dot",
        source="codes not NaN; scales fp32, positive, finite" if scaled else "bf16, finite",
        load="u8" if scaled else "bf16",
        operand="e4m3fn, exact" if scaled else "bf16, exact",
        accumulate=f"fp32 by `{contract.numerics['accumulate']}`"
        + (", 13 fraction bits kept, truncated, 128 terms at most" if tensor_core else "")
        + (", restarted for each scale block" if scaled else ""),
        store="fp32 register, 13 fraction bits used" if tensor_core else "fp32 register",
        range="sum <= 2.57e7, products are multiples of 2^-18" if scaled else "fp32",
        error=error,
        bound=_number(dot_error(contract), "S_b" if scaled else "S"),
        acceptance="bit-equal where every partial sum is representable, else the bound",
    )


def _promote(contract: Contract) -> Stage:
    chains = "" if contract.numerics["combine"] is Combine.ASCENDING else ", one a chain added"
    roundings = "2 + blocks" if not chains else "2 blocks + 1"
    return Stage(
        name="gemm.promote",
        source="gemm.dot",
        load="fp32 scales",
        operand="s = fl(sa sb); acc = fma(block, s, acc)",
        accumulate=f"fp32, blocks by `{contract.numerics['combine']}`, one rounding a block{chains}",
        store="fp32 register",
        range=">= 1.9e-31 with scales above the quantisation floor, no underflow",
        error=f"gemm.dot's of S, then gamma_{{{roundings}}} S",
        bound=_number(product_error(contract), "S"),
        acceptance="bound",
    )


def _epilogue(contract: Contract) -> tuple[Stage, ...]:
    kind = epilogues.get(contract.epilogue.kind)
    if kind.error is None:
        return ()
    return (
        Stage(
            name=f"epi.{kind.kind}",
            source="the accumulator" + (", a bias" if kind.bias_dtypes else ""),
            load=f"{contract.epilogue.dtype}, widened" if contract.epilogue.dtype is not None else "-",
            operand=kind.meaning,
            accumulate="-",
            store="fp32 register",
            range="fp32",
            error=kind.error,
            bound=kind.bound,
            acceptance="bound",
        ),
    )


def _store(contract: Contract) -> Stage:
    """Return the rounding of the result: where it is stored, or where it waits to be quantised."""
    codes = QUANTISED in contract.scales
    kept = contract.numerics["staging"] if codes else contract.dtypes["out"]
    rounds = kept in (DType.BF16, Staging.BF16)
    return Stage(
        name="gemm.stage" if codes else "gemm.store",
        source="gemm.promote and the epilogue" if block_scaled(contract) else "gemm.dot and the epilogue",
        load="-",
        operand="fp32",
        accumulate="-",
        store=f"{kept}, one rounding to nearest even" if rounds or not codes else "fp32 register",
        range="beyond the largest finite value: infinity",
        error="u_b |y|" if rounds else "none",
        bound=f"{U_BF16:.3g} |y|" if rounds else "0",
        acceptance="through quant.scale and quant.code; a row is NaN exactly where an input code is"
        if codes
        else "bound; RMS error / RMS <= 2.5e-3 (bf16); a row is NaN exactly where an input code is",
    )


OPERATION = Operation(
    name="dense",
    summary="D[M,N] = epilogue(A[M,K] W[N,K]^T), block-scaled where operands are fp8; D in codes with their scales",
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
        quantising.codes(DType.BF16, DType.FP32, axes=("m", "n")),
    ),
    intermediate_dtypes=(("acc", (DType.FP32,)),),
    epilogues=("identity", "bias", "silu", "gelu_tanh", "gelu_erf", "gated_silu"),
    numerics=(
        NumericRule(name="accumulate", type=Accumulate),
        NumericRule(name="combine", type=Combine),
        NumericRule(name="staging", type=Staging, quantises=QUANTISED),
        *quantising.RULES,
        NumericRule(name="round", type=Round, default=Round.RNE_ONCE),
        NumericRule(name="nan", type=Nan, default=Nan.PROPAGATE),
    ),
    arguments=arguments,
    stages=stages,
    check=check,
)
