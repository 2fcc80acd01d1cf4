"""Order between workgroups: which writes of one workgroup another may rely on.

Two workgroups are ordered only through an atomic on the same address: the writer has its stores retired and
written back (`buffer_wbl2 sc1`), then does the atomic (release); the reader does an atomic there later and
invalidates its caches (`buffer_inv sc1`, acquire). L2 is not coherent between the dies of gfx950, so both cache
operations are required. Stores carry the number of releases their workgroup had done before them.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Synchronisation:
    """Release epochs of workgroups and what each has acquired. Workgroups are numbered over the whole grid."""

    workgroups: int
    epoch: Array = field(init=False)
    outstanding: Array = field(init=False)
    written_back: Array = field(init=False)
    released: dict[int, dict[int, int]] = field(default_factory=dict)  # address -> writer -> epoch
    seen: dict[int, dict[int, int]] = field(default_factory=dict)  # reader -> writer -> epoch, not yet invalidated
    acquired: dict[int, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.epoch = np.zeros(self.workgroups, np.int32)
        self.outstanding = np.zeros(self.workgroups, np.int32)
        self.written_back = np.zeros(self.workgroups, bool)

    def epochs(self, groups: Array) -> Array:
        """Return the release epoch of each workgroup, the stamp of its stores."""
        return self.epoch[groups]

    def issue_store(self, groups: Array) -> None:
        """One store instruction per wave was issued; `groups` holds each wave's workgroup."""
        np.add.at(self.outstanding, groups, 1)
        self.written_back[groups] = False

    def retire_store(self, groups: Array) -> None:
        """Those stores are complete (a wait on vmcnt said so)."""
        np.subtract.at(self.outstanding, groups, 1)

    def write_back(self, groups: Array) -> None:
        """`buffer_wbl2 sc1`: takes effect for stores that are complete or issued before it."""
        self.written_back[groups] = True

    def atomic(self, group: int, address: int, *, own_stores_retired: bool) -> None:
        """One atomic access by a workgroup: release what is complete, then see what others released there."""
        users = self.released.setdefault(address, {})
        seen = self.seen.setdefault(group, {})
        for writer, epoch in users.items():
            if writer != group:
                seen[writer] = max(seen.get(writer, 0), epoch)
        # Releases are transitive: what this workgroup has acquired passes on with its own release.
        if self.written_back[group] and own_stores_retired and not self.outstanding[group]:
            self.epoch[group] += 1
            users[group] = int(self.epoch[group])

    def invalidate(self, groups: Array) -> None:
        """`buffer_inv sc1`: what was seen through atomics may now be read."""
        for group in {int(item) for item in groups}:
            have = self.acquired.setdefault(group, {})
            for writer, epoch in self.seen.get(group, {}).items():
                have[writer] = max(have.get(writer, 0), epoch)

    def ordered(self, reader: int, writer: int, stamp: int) -> bool:
        """Whether `reader` may rely on a store of `writer` that carries `stamp`."""
        return self.acquired.get(reader, {}).get(writer, 0) > stamp
