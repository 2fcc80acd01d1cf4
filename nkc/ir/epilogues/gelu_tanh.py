"""gelu_tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written with one exponential so that tanh saturates."""

from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(
    kind="gelu_tanh",
    meaning="0.5 acc (1 + tanh(0.7978845608 (acc + 0.044715 acc^3)))",
    triton="acc / (1.0 + tl.exp(-1.5957691216057308 * (acc + 0.044715 * acc * acc * acc)))",
    error="max(4 u |x|, (4 + share (4 + 14 |t|)) u |y|), t the argument of tanh, share 1 - y/x",
)
