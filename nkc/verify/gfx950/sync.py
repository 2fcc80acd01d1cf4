"""Order between waves: which stores of another wave or workgroup a load may rely on.

Every store instruction of a set of waves has a number, its stamp. Waves of one workgroup are ordered by a wait on
vmcnt in the writer and a barrier behind it. Two workgroups are ordered only through an atomic on the same address: the
writer has its stores complete and written back (`buffer_wbl2 sc1`), then does the atomic (release); the reader does an
atomic there later and invalidates its caches (`buffer_inv sc1`, acquire). L2 is not coherent between the dies of
gfx950, so both cache operations are required. Chains over several addresses are not followed.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Synchronisation:
    """What is complete, released and acquired. Workgroups are numbered over the whole grid."""

    workgroups: int
    stamp: int = 0  # of the last store instruction
    outstanding: Array = field(init=False)
    written_back: Array = field(init=False)
    completed: dict[int, list[tuple[Array, Array, Array]]] = field(default_factory=dict)
    released: dict[int, dict[int, int]] = field(default_factory=dict)  # address -> writer -> stamp
    seen: dict[int, dict[int, int]] = field(default_factory=dict)  # reader -> writer -> stamp, not yet invalidated
    acquired: dict[int, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outstanding = np.zeros(self.workgroups, np.int32)
        self.written_back = np.zeros(self.workgroups, bool)

    def new_batch(self) -> None:
        """Forget what only waves that have ended could ask for."""
        self.completed.clear()

    def issue_store(self, groups: Array) -> int:
        """One store instruction per wave is issued, `groups` holds each wave's workgroup; return its stamp."""
        np.add.at(self.outstanding, groups, 1)
        self.written_back[groups] = False
        self.stamp += 1
        return self.stamp

    def complete_store(self, stamp: int, groups: Array, waves: Array, epochs: Array) -> None:
        """That store is complete for these waves (a wait on vmcnt said so), in their barrier epochs."""
        np.subtract.at(self.outstanding, groups, 1)
        self.completed.setdefault(stamp, []).append((groups, waves, epochs))

    def write_back(self, groups: Array) -> None:
        """`buffer_wbl2 sc1`: takes effect for stores that are complete or issued before it."""
        self.written_back[groups] = True

    def atomic(self, group: int, address: int, *, own_stores_complete: bool) -> None:
        """One atomic access by a workgroup: see what others released there, and release what is complete."""
        users = self.released.setdefault(address, {})
        seen = self.seen.setdefault(group, {})
        for writer, stamp in users.items():
            if writer != group:
                seen[writer] = max(seen.get(writer, 0), stamp)
        if self.written_back[group] and own_stores_complete and not self.outstanding[group]:
            users[group] = self.stamp

    def invalidate(self, groups: Array) -> None:
        """`buffer_inv sc1`: what was seen through atomics may now be read."""
        for group in {int(item) for item in groups}:
            have = self.acquired.setdefault(group, {})
            for writer, stamp in self.seen.get(group, {}).items():
                have[writer] = max(have.get(writer, 0), stamp)

    def ordered(self, reader: int, writer: int, stamp: int) -> bool:
        """Whether workgroup `reader` may rely on a store of workgroup `writer`."""
        return self.acquired.get(reader, {}).get(writer, 0) >= stamp

    def ordered_within(self, group: int, writer_wave: int, stamp: int, epoch: int) -> bool:
        """Whether a wave in barrier epoch `epoch` may rely on a store of another wave of its workgroup."""
        for groups, waves, epochs in self.completed.get(stamp, ()):
            mine = (groups == group) & (waves == writer_wave)
            if mine.any():
                return bool(epochs[mine][0] < epoch)
        return False
