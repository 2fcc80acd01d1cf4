"""bias: one fp32 addition of a vector over n, after the last product.

Written as acc * 1 + bias: Triton folds a plain addition into the accumulator that the matrix unit starts from, where
the bias would be rounded with every product that follows.
"""

from nkc.ir.budget import U
from nkc.ir.contract import DType
from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(
    kind="bias",
    meaning="acc + bias[n]",
    triton="tl.fma(acc, 1.0, bias_row)",
    cuda="__fadd_rn(acc, bias_row)",
    bias_dtypes=(DType.BF16, DType.FP32),
    error="u |y|",
    bound=f"{U:.3g} |y|",
)
