"""What the quantising operations share: the codes' operand, the numerical rules about them, their leaf stages."""

from nkc.ir.budget import Stage, U
from nkc.ir.contract import Access, Contract, DType, Layout, Overflow, Quantize
from nkc.ir.errors import Problem
from nkc.ir.operation import NumericRule, Operand, ScaleRule

GROUP = 128
"""Elements of a row that deployments give one scale."""
FP8_MAX = 448.0
"""Largest finite e4m3fn value; what the largest magnitude of a group becomes."""
AMAX_FLOOR = 1e-10
"""The floor deployments use: a product of two scales and two smallest codes stays above fp32's smallest normal."""

QUANTISED = "out"

RULES = (
    NumericRule(name="quantize", type=Quantize, quantises=QUANTISED),
    NumericRule(name="overflow", type=Overflow, quantises=QUANTISED),
    NumericRule(name="amax_floor", type=float, typical=AMAX_FLOOR, quantises=QUANTISED),
)


def codes(*dtypes: DType, axes: tuple[str, str] = ("m", "k")) -> Operand:
    """Return the written operand, quantised along its last axis where it is fp8; dtypes: what else it may be."""
    return Operand(
        name=QUANTISED,
        axes=axes,
        access=Access.WRITE,
        dtypes=(DType.FP8_E4M3, *dtypes),
        layouts=(Layout.ROW_MAJOR,),
        scales=ScaleRule(dtypes=(DType.FP8_E4M3,), block=(1, GROUP)),
    )


def whole_groups(contract: Contract, dim: str = "k") -> list[Problem]:
    """Return a problem where a row of the result, whose columns are `dim`, is not made of whole groups."""
    scale = contract.scales.get(QUANTISED)
    columns = contract.exact(dim)
    if scale is None or columns % scale.block[1] == 0:
        return []
    pad = -(-columns // scale.block[1]) * scale.block[1]
    what = f"{columns} is not a multiple of {scale.block[1]}, the scale block of `{QUANTISED}` along {dim}"
    return [Problem(field=f"$.shape.{dim}", what=what, mend=f"pad {dim} to {pad}")]


def stages(
    contract: Contract, *, source: str, value_error: float = 0.0, between: str | None = None
) -> tuple[Stage, ...]:
    """Return the two leaf stages of quantising; none where the result has no scales.

    source: what is quantised. value_error: its relative error, which scale and ratio inherit. between: where its error
    is not a part of the value itself, the two values that it lies between, in words; scale and code then lie between
    theirs.
    """
    if QUANTISED not in contract.scales:
        return ()
    floor = contract.numerics["amax_floor"]
    assert isinstance(floor, float)
    flavour = contract.numerics["quantize"]
    operand, loss = {
        Quantize.DIVIDE: ("fl(x / scale)", U),
        Quantize.RECIPROCAL: ("fl(x fl(1 / scale))", 2 * U),
        Quantize.UE8M0: ("x / scale, exact", 0.0),
    }[Quantize(str(flavour))]
    exact = value_error == 0.0
    beyond = "NaN" if contract.numerics["overflow"] is Overflow.IEEE else "448"
    scale = Stage(
        name="quant.scale",
        source=source,
        load="fp32, or widened exactly",
        operand=f"amax = max(|x|, {floor:.9g}) over {contract.scales[QUANTISED].block[1]}, exact; NaN stays",
        accumulate="max",
        store="fp32, fl(amax / 448) by IEEE division"
        + (", then the power of two at or above it" if flavour is Quantize.UE8M0 else "")
        + ("; 1 where amax is 0" if floor == 0 else ""),
        range=f">= {floor / FP8_MAX:.4g}" if floor else "down to 0; a group of zeros has scale 1",
        error="u",
        bound=f"{value_error + U:.3g} scale" if between is None else f"{U:.3g} scale beside its value's",
        acceptance=f"one that a group of values {between} has"
        if between is not None
        else "bit-exact"
        if exact
        else "within the ulp of its value's error",
    )
    code = Stage(
        name="quant.code",
        source="quant.scale",
        load="-",
        operand=operand,
        accumulate="-",
        store=f"u8, e4m3fn to nearest even; beyond 464: {beyond}",
        range="|q| <= 448 (1 + 2 u); the largest magnitude becomes 448",
        error="dequantised: max(2^-4 |x|, 2^-10 scale)",
        bound=f"{2 * value_error + U + loss:.3g} |q| before the code",
        acceptance=f"the code, by the scale that was stored, of a value {between}; the group's largest gives the scale"
        if between is not None
        else "bit-exact"
        if exact
        else "every code the rounding of a ratio within the bound, at most 0.1 % differ",
    )
    return scale, code
