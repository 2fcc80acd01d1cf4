"""silu_mul_quant on sm_90 by Triton: gate, up and codes in 16-byte accesses."""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.quantising.run import Row
from nkc.tactics.silu_mul_quant.kernel import tactic

ROWS = (
    Row(10, 8, 4, 64, "eight results a thread: enough workgroups for few rows"),
    Row(20, 16, 4, None, "16 results a thread: 64 bytes in flight"),
    Row(30, 32, 4, None, "32 results a thread"),
    Row(40, 32, 8, None, "16 results a thread, large workgroups"),
)

TACTICS = tuple(
    tactic("sm_90", row, offsets=OffsetUnit.ELEMENTS, options={"num_stages": 1}, range_bits=None) for row in ROWS
)
