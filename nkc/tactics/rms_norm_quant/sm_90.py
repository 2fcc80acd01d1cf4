"""rms_norm_quant on sm_90 by Triton: a warp reads 256 columns at a time, 16 bytes a thread."""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.rms_norm_quant.kernel import Row, tactic

ROWS = (
    Row(10, 1, 4096, 16, 64, 0, "sixteen warps a row: least latency for few rows"),
    Row(30, 1, 1024, 4, None, 0, "four warps a row"),
    Row(40, 1, 2048, 8, None, 0, "eight warps a row"),
    Row(50, 1, 2048, 8, None, 2, "eight warps a row, the next row on its way"),
    Row(60, 4, 256, 4, None, 0, "a warp a row: the sum crosses no warp"),
    Row(70, 1, 4096, 16, None, 0, "sixteen warps a row, for the longest"),
)

TACTICS = tuple(
    tactic("sm_90", row, codes=codes, offsets=OffsetUnit.ELEMENTS, options={"num_stages": 1}, range_bits=None)
    for codes in (True, False)
    for row in ROWS
)
