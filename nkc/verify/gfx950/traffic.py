"""How well a run used memory: lines touched a wave instruction against the least, and LDS bank conflicts.

A `Traffic` is handed to `emulate` as its trace. Both are counted from the addresses of the run, so they are exact for
these inputs; what they cost on a card is not said. LDS phases: HipKittens' measurement for ds_read_b128 (lanes 0-3,
12-15, 20-27 and so on share a phase of 64 banks); other widths as `GROUPS` says.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.instruction import Instruction
from nkc.verify.gfx950.waves import Waves

Array = npt.NDArray[Any]

LINE_BYTES = 128
BANKS = 64
_B128 = [*range(4), *range(12, 16), *range(20, 28)], [*range(4, 12), *range(16, 20), *range(28, 32)]
PHASES: dict[tuple[str, int], tuple[list[list[int]], int]] = {  # (direction, bytes) -> (lanes of each phase, banks)
    ("lds_read", 16): ([*_B128, *([lane + 32 for lane in part] for part in _B128)], 64),
    ("lds_read", 8): ([[*range(32)], [*range(32, 64)]], 64),
    ("lds_write", 16): ([[*range(at, at + 8)] for at in range(0, 64, 8)], 32),
    ("lds_write", 8): ([[*range(at, at + 16)] for at in range(0, 64, 16)], 32),
    ("lds_read", 12): ([[*range(at, at + 8)] for at in range(0, 64, 8)], 32),
}


@dataclass(slots=True)
class Access:
    """One instruction's accesses, summed over the waves that ran it."""

    mnemonic: str
    waves: int = 0
    bytes: int = 0
    lines: int = 0  # distinct 128-byte lines, summed over wave instructions
    least_lines: int = 0  # what the same bytes need when packed
    conflict_ways: int = 0  # worst phase of an LDS access: 1 is free of conflicts

    @property
    def coalescing(self) -> float:
        """Least lines over touched lines: 1 is perfect."""
        return self.least_lines / self.lines if self.lines else 1.0


@dataclass(slots=True)
class Traffic:
    """Collects accesses by pc. An instance is a trace function."""

    memory: dict[int, Access] = field(default_factory=dict)
    lds: dict[int, Access] = field(default_factory=dict)

    def __call__(self, kind: str, inst: Instruction, w: Waves, offset: Array, size: int, lanes: Array) -> None:
        if kind in ("issue", "landing"):  # the LDS side of a load into LDS: contiguous by lane
            return
        table = self.lds if kind.startswith("lds_") else self.memory
        item = table.setdefault(inst.pc, Access(inst.mnemonic))
        item.waves += int(lanes.any(axis=1).sum())
        item.bytes += size * int(lanes.sum())
        for wave in range(w.count):
            at = offset[wave][lanes[wave]]
            if not at.size:
                continue
            if kind.startswith("lds_"):
                ways = conflict_ways(kind, offset[wave], lanes[wave], size)
                item.conflict_ways = max(item.conflict_ways, ways)
            else:
                lines = np.unique(np.concatenate([at // LINE_BYTES, (at + size - 1) // LINE_BYTES]))
                item.lines += len(lines)
                unique = len(np.unique((at[:, None] + np.arange(size)).ravel()))
                item.least_lines += -(-unique // LINE_BYTES)


def conflict_ways(kind: str, address: Array, lanes: Array, size: int) -> int:
    """Return the most distinct dwords that one bank must give in a phase of one wave's LDS access."""
    groups, banks = PHASES.get((kind, size), ([[*range(64)]], BANKS))
    worst = 1
    for group in groups:
        members = [lane for lane in group if lanes[lane]]
        if not members:
            continue
        dwords = (address[members][:, None] // 4 + np.arange(max(1, size // 4))).ravel()
        dwords = np.unique(dwords)
        worst = max(worst, int(np.bincount(dwords % banks).max()))
    return worst
