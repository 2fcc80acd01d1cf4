"""group_quant on sm_90 by Triton, few rows: eight elements a thread, so that workgroups are enough."""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.group_quant.kernel import tactic
from nkc.tactics.quantising.run import Row

ROWS = (Row(10, 8, 4, 64, "eight elements a thread: enough workgroups for few rows"),)

TACTICS = tuple(
    tactic("sm_90", row, offsets=OffsetUnit.ELEMENTS, options={"num_stages": 1}, range_bits=None) for row in ROWS
)
