"""rms_norm_quant on gfx950 by Triton: a wave reads 512 columns at a time, 16 bytes a lane.

Ranks follow the bytes in flight, not a measurement: nobody has run these on the chip.
"""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.rms_norm_quant.kernel import Row, tactic

ROWS = (
    Row(10, 1, 8192, 16, 64, 0, "sixteen waves a row: least latency for few rows"),
    Row(20, 4, 512, 4, None, 0, "a wave a row: the sum crosses no wave"),
    Row(30, 1, 2048, 4, None, 0, "four waves a row"),
    Row(40, 1, 2048, 4, None, 4, "four waves a row, the next row on its way"),
    Row(50, 1, 4096, 8, None, 0, "eight waves a row"),
    Row(60, 1, 8192, 16, None, 0, "sixteen waves a row, for the longest"),
)

TACTICS = tuple(
    tactic(
        "gfx950",
        row,
        codes=codes,
        offsets=OffsetUnit.BYTES,
        options={"num_stages": 1, "waves_per_eu": 0},
        range_bits=32,
    )
    for codes in (True, False)
    for row in ROWS
)
