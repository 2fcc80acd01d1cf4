"""group_quant on gfx950 by Triton: 16 elements a lane, so that codes are stored in 16-byte accesses too.

Ranks follow the bytes in flight, not a measurement: nobody has run these on the chip.
"""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.group_quant.kernel import tactic
from nkc.tactics.quantising.run import Row

ROWS = (
    Row(10, 8, 1, 64, "one wave, eight groups: enough workgroups for few rows"),
    Row(20, 64, 4, None, "32 elements a lane, in flight at once"),
    Row(30, 32, 4, None, "16 elements a lane"),
)

TACTICS = tuple(
    tactic("gfx950", row, offsets=OffsetUnit.BYTES, options={"num_stages": 1, "waves_per_eu": 0}, range_bits=32)
    for row in ROWS
)
