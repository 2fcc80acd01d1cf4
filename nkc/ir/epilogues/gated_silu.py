"""gated_silu: silu(gate) * up, where the columns of the product are gate and up, as halves or interleaved."""

from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(
    kind="gated_silu",
    meaning="silu(gate) * up",
    triton="gate / (1.0 + tl.exp(-gate)) * up",
    gated=True,
    error="(9 + 2 |gate|) u |y|",
)
