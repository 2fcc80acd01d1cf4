"""rms_norm_quant on sm_90 by Triton: a warp reads 256 columns at a time, 16 bytes a thread."""

from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.rms_norm_quant.kernel import Row, tactic

ROWS = (
    Row(10, 1, 16384, 16, 64, 0, "sixteen warps a row: least latency for few rows", part=32),
    Row(20, 1, 2048, 2, None, 0, "two warps a row", part=32),
    Row(30, 1, 4096, 4, None, 0, "four warps a row", part=32),
    Row(40, 1, 8192, 8, None, 0, "eight warps a row", part=32),
    Row(50, 1, 8192, 8, None, 2, "eight warps a row, the next row on its way", part=32),
    Row(60, 1, 8192, 8, None, 0, "eight warps a row, long rows from a cache", part=32, read_twice=True),
    Row(70, 1, 16384, 16, None, 0, "sixteen warps a row, the longest from a cache", part=32, read_twice=True),
)

TACTICS = tuple(
    tactic("sm_90", row, codes=codes, offsets=OffsetUnit.ELEMENTS, options={"num_stages": 1}, range_bits=None)
    for codes in (True, False)
    for row in ROWS
)
