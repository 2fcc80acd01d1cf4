"""gelu_erf: 0.5 x (1 + erf(x / sqrt(2))).

No kernel claims it yet. Below -4 the sum 1 + erf has lost its digits and the budget asks for 0.5 x erfc(-x / sqrt(2)),
which Triton has no word for: the text below is within it from -4 up alone, and verification fails it beyond.
"""

from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(
    kind="gelu_erf",
    meaning="0.5 acc (1 + erf(acc / sqrt(2)))",
    triton="0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))",
    error="4 u |x| from -4 up, (2 x^2 + 12) u |y| below",
)
