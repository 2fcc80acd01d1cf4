"""silu: x / (1 + exp(-x)); for x < -88.7 the exponential is inf and the result -0, never NaN."""

from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(
    kind="silu", meaning="acc / (1 + exp(-acc))", triton="acc / (1.0 + tl.exp(-acc))", error="(8 + 2 |x|) u |y|"
)
