"""Global memory: one arena with red zones around every buffer and a shadow for permissions and writers.

Buffers have their exact size; what lies between them is never valid, so an access one byte past an end is seen.
The shadow holds, per byte, whether it may be read (is defined) or written, and which workgroup wrote it last.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.hazards import HazardKind

if TYPE_CHECKING:
    from nkc.verify.gfx950.waves import Waves

Array = npt.NDArray[Any]

BASE = 0x10_0000_0000
RED_ZONE = 4096
READABLE, WRITABLE = 1, 2
FRESH = -1  # owner of bytes written by the host, before the launch
ATOMIC = -2  # owner of bytes that atomics touch: any workgroup may


class Arena:
    """All memory that a launch can reach. Addresses are `BASE` plus an offset into `data`."""

    def __init__(self) -> None:
        self._size = RED_ZONE
        self._parts: list[tuple[int, Array, int]] = []
        self.spans: dict[str, tuple[int, int]] = {}
        self.data: Array = np.zeros(0, np.uint8)
        self.state: Array = np.zeros(0, np.uint8)
        self.owner: Array = np.zeros(0, np.int32)
        self.stamp: Array = np.zeros(0, np.int32)
        self.wave: Array = np.zeros(0, np.uint8)

    def add(self, name: str, content: Array, permissions: int) -> int:
        """Place `content` (bytes) in the arena before `seal`; return its address."""
        start = (self._size + 255) // 256 * 256
        self._parts.append((start, content, permissions))
        self.spans[name] = (start, start + content.size)
        self._size = start + content.size + RED_ZONE
        return BASE + start

    def seal(self) -> None:
        """Lay the arena out; no buffer may be added afterwards. Only what may be written has owners and stamps."""
        size = (self._size + 255) // 256 * 256
        self.data = np.empty(size, np.uint8)
        self.state = np.zeros(size, np.uint8)
        ends = [start + content.size for start, content, permissions in self._parts if permissions & WRITABLE]
        owned = (max(ends, default=0) + 255) // 256 * 256
        self.owner = np.full(owned, FRESH, np.int32)
        self.stamp = np.zeros(owned, np.int32)
        self.wave = np.zeros(owned, np.uint8)
        for start, content, permissions in self._parts:
            self.data[start : start + content.size] = content
            self.state[start : start + content.size] = permissions

    def bytes_of(self, name: str) -> Array:
        """Return a view of a buffer's bytes."""
        start, end = self.spans[name]
        return self.data[start:end]

    def describe(self, offset: int) -> str:
        """Say where an offset lies, for messages."""
        best = min(
            self.spans.items(), key=lambda item: max(item[1][0] - offset, offset - item[1][1] + 1, 0), default=None
        )
        if best is None:
            return "no buffer exists"
        name, (start, end) = best
        if offset < start:
            return f"{start - offset} bytes before `{name}`"
        return (
            f"{offset - end} bytes past the end of `{name}`" if offset >= end else f"byte {offset - start} of `{name}`"
        )

    def check(self, waves: "Waves", pc: int, offset: Array, size: int, active: Array, needed: int) -> Array:
        """Return the lanes of `active` that may access `size` bytes at `offset`; report the others.

        Shapes: offset int64 [W, 64], active bool [W, 64]. First and last byte decide: red zones are longer than
        any access. A load from a buffer that the kernel may write is also checked against the last writer.
        """
        inside = (offset >= 0) & (offset <= self.data.size - size)
        at = np.where(inside, offset, 0)
        granted = self.state.take(at) & self.state.take(at + (size - 1))
        good = inside & ((granted & needed) == needed)
        bad = active & ~good
        if bad.any():
            self._report(waves, pc, at, offset, size, granted, bad)
            active = active & good
        if needed == READABLE and (granted & WRITABLE).any():
            self._foreign_read(waves, pc, at, size, active)
        return active

    def _foreign_read(self, waves: "Waves", pc: int, at: Array, size: int, active: Array) -> None:
        """Report reads of bytes that another wave of this launch wrote and that nothing orders before the read."""
        for step in (0, size - 1):
            here = at + step
            written = active & (here < self.owner.size)
            owner = self.owner.take(here, mode="clip")
            written &= owner >= 0
            mine = owner == waves.workgroup[:, None]
            other = written & ~(mine & (self.wave.take(here, mode="clip") == waves.wave_id[:, None]))
            if not other.any():
                continue
            stamp = self.stamp.take(here, mode="clip")
            done: set[tuple[int, int, int, int]] = set()
            for row, lane in np.argwhere(other):
                writer, wave = int(owner[row, lane]), int(self.wave[here[row, lane]])
                key = (int(row), writer, wave, int(stamp[row, lane]))
                if key not in done:
                    done.add(key)
                    self._judge_read(waves, pc, int(row), int(lane), int(here[row, lane]), writer, wave)

    def _judge_read(self, waves: "Waves", pc: int, row: int, lane: int, at: int, writer: int, wave: int) -> None:
        sync, stamp, group = waves.launch.sync, int(self.stamp[at]), int(waves.workgroup[row])
        where = f"lane {lane}, {self.describe(at)}, written by"
        if writer != group:
            if not sync.ordered(group, writer, stamp):
                waves.report(HazardKind.CROSS_WORKGROUP_READ, pc, row, f"{where} workgroup {writer}")
        elif not sync.ordered_within(group, wave, stamp, int(waves.epoch[row])):
            waves.report(HazardKind.MEMORY_RACE, pc, row, f"{where} wave {wave}")

    def _report(self, waves: "Waves", pc: int, at: Array, offset: Array, size: int, granted: Array, bad: Array) -> None:
        for wave, lane in np.argwhere(bad)[:1]:
            got = int(self.state[at[wave, lane]] | self.state[at[wave, lane] + size - 1])
            edge = int(offset[wave, lane])
            inside = 0 <= edge <= self.data.size - size and all(self.state[edge + k] for k in (0, size - 1))
            if not inside:
                kind = HazardKind.OUT_OF_BOUNDS
                past = edge if not 0 <= edge < self.data.size or not self.state[edge] else edge + size - 1
                detail = f"lane {lane}, {size} bytes, {self.describe(past)}"
            else:
                kind = HazardKind.NOT_WRITABLE if not got & WRITABLE else HazardKind.NOT_READABLE
                detail = f"lane {lane}, {self.describe(edge)}"
            waves.report(kind, pc, int(wave), detail, int(bad.sum()))

    def read(self, offset: Array, size: int, lanes: Array) -> Array:
        """Return uint32 words [W, 64, max(1, size // 4)]; sub-dword values are zero-extended, other lanes read 0."""
        at = np.where(lanes, offset, 0)
        if size >= 4:
            words = size // 4
            if words in (1, 2, 4) and not (at & (size - 1)).any():
                out = self.data.view(np.uint32).reshape(-1, words).take(at // size, axis=0)
            elif not (at & 3).any():
                dwords = (at >> 2)[..., None] + np.arange(words)
                out = self.data.view(np.uint32).take(dwords)
            else:
                out = self.data.take(at[..., None] + np.arange(size)).view(np.uint32)
        elif size == 2:
            low, high = (self.data.take(at + k).astype(np.uint32) for k in (0, 1))
            out = (low | high << np.uint32(8))[..., None]
        else:
            out = self.data.take(at).astype(np.uint32)[..., None]
        if not lanes.all():
            out[~lanes] = 0
        return out

    def write(self, waves: "Waves", pc: int, offset: Array, values: Array, size: int, lanes: Array, stamp: int) -> None:
        """Store the low `size` bytes of uint32 words [W, 64, n] where `lanes`; the highest lane wins a clash."""
        wave, lane = np.nonzero(lanes)
        if not wave.size:
            return
        at = offset[wave, lane]
        group = waves.workgroup[wave].astype(np.int32)
        data = np.ascontiguousarray(values[wave, lane]).view(np.uint8).reshape(len(at), -1)[:, :size]
        wave_id = waves.wave_id[wave].astype(np.uint8)[:, None]
        if size in (4, 8, 16) and not (at & (size - 1)).any():
            row = at // size
            data_rows, owner_rows = self.data.reshape(-1, size), self.owner.reshape(-1, size)
            self._overlap(waves, pc, wave, owner_rows[row], self.stamp.reshape(-1, size)[row], group, at)
            data_rows[row] = data
            owner_rows[row] = group[:, None]
            self.stamp.reshape(-1, size)[row] = stamp
            self.wave.reshape(-1, size)[row] = wave_id
            self.state.reshape(-1, size)[row] |= READABLE
            after = owner_rows[row]
        else:
            every = at[:, None] + np.arange(size)
            self._overlap(waves, pc, wave, self.owner[every], self.stamp[every], group, at)
            self.data[every] = data
            self.owner[every] = group[:, None]
            self.stamp[every] = stamp
            self.wave[every] = wave_id
            self.state[every] |= READABLE
            after = self.owner[every]
        clash = (after != group[:, None]).any(axis=1)
        if clash.any():  # two workgroups of the batch inside one instruction
            self._report_overlap(waves, pc, wave, after, group, at, clash)

    def _overlap(
        self, waves: "Waves", pc: int, wave: Array, owner: Array, stamp: Array, group: Array, at: Array
    ) -> None:
        """Report bytes that another workgroup wrote before, unless an acquire orders the two writes."""
        foreign = (owner != group[:, None]) & (owner >= 0)
        if not foreign.any():
            return
        for row, column in np.argwhere(foreign):
            if waves.launch.sync.ordered(int(group[row]), int(owner[row, column]), int(stamp[row, column])):
                foreign[row, column] = False
        clash = foreign.any(axis=1)
        if clash.any():
            self._report_overlap(waves, pc, wave, owner, group, at, clash)

    def _report_overlap(
        self, waves: "Waves", pc: int, wave: Array, owner: Array, group: Array, at: Array, clash: Array
    ) -> None:
        first = int(np.argmax(clash))
        other = int(owner[first][(owner[first] != group[first]) & (owner[first] >= 0)][0])
        detail = f"{self.describe(int(at[first]))} also written by workgroup {other}"
        waves.report(HazardKind.WORKGROUP_OVERLAP, pc, int(wave[first]), detail, int(clash.sum()))
