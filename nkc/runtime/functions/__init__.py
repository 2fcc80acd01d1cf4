"""The public functions: each a semantic fallback in plain PyTorch with routes in front of it, and an operator of it.

Holds one module per function, what they share about quantising, and their `torch.library` operators. Needs torch.
Leaves out: which kernels exist; `nkc.runtime.use` brings them in.
"""

from nkc.runtime.functions.dense_fp8 import dense_fp8
from nkc.runtime.functions.dense_fp8_quant import dense_fp8_quant
from nkc.runtime.functions.group_quant import group_quant
from nkc.runtime.functions.rms_norm_quant import rms_norm_quant
from nkc.runtime.functions.silu_mul_quant import silu_mul_quant

__all__ = ["dense_fp8", "dense_fp8_quant", "group_quant", "rms_norm_quant", "silu_mul_quant"]
