"""bias: one fp32 addition of a vector over n."""

from nkc.ir.contract import DType
from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(
    kind="bias", meaning="acc + bias[n]", triton="acc + bias_row", bias_dtypes=(DType.BF16, DType.FP32)
)
