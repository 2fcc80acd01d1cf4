"""group_quant on sm_90 by Triton: 16 elements a thread, so that codes are stored in 16-byte accesses too."""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.group_quant.kernel import tactic
from nkc.tactics.quantising.run import Row

ROWS = (
    Row(10, 8, 4, 64, "eight elements a thread: enough workgroups for few rows"),
    Row(20, 32, 4, None, "32 elements a thread, in flight at once"),
    Row(30, 16, 4, None, "16 elements a thread"),
    Row(40, 64, 8, None, "32 elements a thread, large workgroups"),
)

TACTICS = tuple(
    tactic("sm_90", row, offsets=OffsetUnit.ELEMENTS, options={"num_stages": 1}, range_bits=None) for row in ROWS
)
