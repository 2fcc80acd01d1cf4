"""silu_mul_quant on gfx950 by Triton: gate, up and codes in 16-byte accesses.

Ranks follow the bytes in flight, not a measurement: nobody has run these on the chip.
"""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.quantising.run import Row
from nkc.tactics.silu_mul_quant.kernel import tactic

ROWS = (
    Row(10, 8, 1, 64, "one wave, eight groups: enough workgroups for few rows"),
    Row(20, 32, 4, None, "16 results a lane: 64 bytes in flight"),
    Row(30, 64, 4, None, "32 results a lane"),
)

TACTICS = tuple(
    tactic("gfx950", row, offsets=OffsetUnit.BYTES, options={"num_stages": 1, "waves_per_eu": 0}, range_bits=32)
    for row in ROWS
)
