"""gelu_erf: 0.5 x (1 + erf(x / sqrt(2)))."""

from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(
    kind="gelu_erf",
    meaning="0.5 acc (1 + erf(acc / sqrt(2)))",
    triton="0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))",
)
