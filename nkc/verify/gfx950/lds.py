"""LDS of a batch of workgroups with a shadow that sees races, uninitialised reads and pending loads.

The shadow works on units of `grain` bytes, the smallest access the code object makes, so that wide accesses are
cheap and narrow ones exact. Each unit holds epoch << 16 | waves (a bit each) of its last writers and readers; an
epoch is the number of barriers the workgroup has passed. Zero means: never touched.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.hazards import HazardKind

if TYPE_CHECKING:
    from nkc.verify.gfx950.waves import Waves

Array = npt.NDArray[Any]

POISON = 0xA5
_WAVES = np.uint32(0xFFFF)


class GrainTooCoarse(Exception):  # noqa: N818  a signal to start over, not a failure
    """An access is not a multiple of the shadow's unit; the caller starts again with a finer one."""


def _restore(marks: Array, units: Array, updates: Array) -> None:
    """Put back the bits that were lost where lanes of several waves marked one unit in the same instruction."""
    lost = np.flatnonzero(updates & ~marks[units])
    while lost.size:
        units, updates = units[lost], updates[lost]
        marks[units] |= updates
        lost = np.flatnonzero(updates & ~marks[units])


class Lds:
    """The LDS of `workgroups` workgroups, `size` bytes each."""

    def __init__(self, workgroups: int, size: int, grain: int, *, checked: bool) -> None:
        self.size = size
        self.stride = (size + 15) // 16 * 16 + 16
        self.grain = grain
        self.shift = grain.bit_length() - 1
        self.checked = checked
        self.data = np.full(workgroups * self.stride, POISON, np.uint8)
        units = self.data.size >> self.shift if checked else 0
        self.writers = np.zeros(units, np.uint32)
        self.readers = np.zeros(units, np.uint32)
        self.pending = np.zeros(units, np.uint16)
        self.late: Array | None = None  # readers that were still outstanding when they passed a barrier

    def locate(self, waves: "Waves", pc: int, address: Array, size: int, active: Array) -> tuple[Array, Array]:
        """Return (offsets into `data`, lanes that are inside the allocation); report the lanes that are not.

        Shapes: address int64 [W, 64] within the workgroup, active bool [W, 64].
        """
        inside = (address >= 0) & (address <= self.size - size)
        bad = active & ~inside
        if bad.any():
            wave, lane = np.argwhere(bad)[0]
            detail = f"lane {lane}, {size} bytes at {int(address[wave, lane])} of {self.size}"
            waves.report(HazardKind.LDS_OUT_OF_BOUNDS, pc, int(wave), detail, int(bad.sum()))
            active = active & inside
            address = np.where(inside, address, 0)
        return address + (waves.local * self.stride)[:, None], active

    def _units(self, offset: Array, size: int, lanes: Array) -> Array:
        """Return unit numbers [n, units per access] of the chosen lanes."""
        at = offset[lanes]
        if size < self.grain or (self.grain > 1 and (at & (self.grain - 1)).any()):
            raise GrainTooCoarse
        first = at >> self.shift
        count = size >> self.shift
        return first[:, None] if count == 1 else first[:, None] + np.arange(count)

    def note_read(self, waves: "Waves", pc: int, offset: Array, size: int, lanes: Array) -> None:
        """Check and record that `lanes` read `size` bytes at `offset`."""
        waves.lds_reads += 1
        if not self.checked:
            return
        units = self._units(offset, size, lanes)
        epoch, bit = waves.lane_marks(lanes)
        mark = epoch << np.uint32(16)
        seen = self.writers.take(units)
        if (fresh := seen == 0).any():
            self._report(waves, pc, HazardKind.UNINITIALISED_LDS, lanes, offset, fresh)
        race = (seen ^ mark) <= _WAVES
        race &= seen & bit == 0
        race &= ~fresh
        if race.any():
            self._report(waves, pc, HazardKind.LDS_RACE, lanes, offset, race)
        self._check_pending(waves, pc, lanes, offset, units)
        old = self.readers.take(units)
        new = np.where((old ^ mark) <= _WAVES, old, mark) | bit
        if np.array_equal(old, new):
            return
        flat, updates = units.ravel(), new.ravel()
        self.readers[flat] = updates
        _restore(self.readers, flat, updates)

    def note_late_read(self, waves: "Waves", pc: int, offset: Array, size: int, lanes: Array) -> None:
        """Record reads that complete in a later barrier epoch than they were issued in."""
        units = self._units(offset, size, lanes)
        epoch, bit = waves.lane_marks(lanes)
        mark = epoch << np.uint32(16)
        written = self.writers.take(units)
        clash = ((written ^ mark) <= _WAVES) & (written & bit == 0)
        if clash.any():
            self._report(waves, pc, HazardKind.LDS_READ_ACROSS_BARRIER, lanes, offset, clash)
        if self.late is None:
            self.late = np.zeros(self.writers.size, np.uint32)
        old = self.late.take(units)
        flat, kept = units.ravel(), np.where((old ^ mark) <= _WAVES, old, mark).ravel()
        updates = kept | np.broadcast_to(bit, units.shape).ravel()
        self.late[flat] = updates
        _restore(self.late, flat, updates)

    def _check_pending(self, waves: "Waves", pc: int, lanes: Array, offset: Array, units: Array) -> None:
        if waves.batch.dma_in_flight:
            pending = self.pending.take(units) != 0
            if pending.any():
                self._report(waves, pc, HazardKind.LDS_PENDING_DMA, lanes, offset, pending)

    def note_write(
        self,
        waves: "Waves",
        pc: int,
        offset: Array,
        size: int,
        lanes: Array,
        *,
        same: Array,
        kept: Array,
        landing: bool = False,
    ) -> None:
        """Check and record a write.

        `same` [n]: lanes that store what was already there; `kept` [n]: lanes whose value is there afterwards.
        Storing an equal value is no race.
        """
        waves.lds_writes += 1
        if not self.checked:
            return
        units = self._units(offset, size, lanes)
        epoch, bit = waves.lane_marks(lanes)
        mark = epoch << np.uint32(16)
        writers, readers = self.writers.take(units), self.readers.take(units)
        now = (writers ^ mark) <= _WAVES
        race = now & (writers & ~bit & _WAVES != 0)
        read_now = (readers ^ mark) <= _WAVES
        race |= read_now & (readers & ~bit & _WAVES != 0)
        race &= writers | readers != 0
        race &= ~same[:, None]
        if race.any():
            self._report(waves, pc, HazardKind.LDS_RACE, lanes, offset, race)
        if self.late is not None:
            late = self.late.take(units)
            across = ((late ^ mark) <= _WAVES) & (late & ~bit & _WAVES != 0) & ~same[:, None]
            if across.any():
                self._report(waves, pc, HazardKind.LDS_READ_ACROSS_BARRIER, lanes, offset, across)
        if not landing:
            self._check_pending(waves, pc, lanes, offset, units)
        keep = now & same[:, None]
        new = np.where(keep, writers, mark) | bit
        flat, updates = units.ravel(), new.ravel()
        self.writers[flat] = updates
        lost = self.writers[flat] != updates
        if lost.any():
            # Two waves wrote one unit in the same instruction: a race unless all wrote the same.
            clash = lost.reshape(units.shape) & ~kept[:, None]
            if clash.any():
                self._report(waves, pc, HazardKind.LDS_RACE, lanes, offset, clash)
            _restore(self.writers, flat, updates)

    def _report(self, waves: "Waves", pc: int, kind: HazardKind, lanes: Array, offset: Array, bad: Array) -> None:
        which = np.flatnonzero(bad.any(axis=1))[0]
        wave, lane = np.argwhere(lanes)[which]
        at = int(offset[wave, lane]) - int(waves.local[wave]) * self.stride
        waves.report(kind, pc, int(wave), f"lane {lane}, LDS byte {at}", int(bad.any(axis=1).sum()))

    def read(self, offset: Array, size: int, lanes: Array) -> Array:
        """Return uint32 words [W, 64, max(1, size // 4)], narrow values zero-extended; lanes left out read 0."""
        at = offset if lanes.all() else np.where(lanes, offset, 0)
        if size >= 4:
            words = size // 4
            if words in (1, 2, 4) and not (at & (size - 1)).any():
                return self.data.view(np.uint32)[: self.data.size // 4].reshape(-1, words).take(at // size, axis=0)
            if not (at & 3).any():
                return self.data.view(np.uint32).take((at >> 2)[..., None] + np.arange(words))
            return self.data.take(at[..., None] + np.arange(size)).view(np.uint32)
        if size == 2:
            return (self.data.take(at).astype(np.uint32) | self.data.take(at + 1).astype(np.uint32) << 8)[..., None]
        return self.data.take(at).astype(np.uint32)[..., None]

    def write(self, offset: Array, values: Array, size: int, lanes: Array) -> tuple[Array, Array]:
        """Store the low `size` bytes of words [W, 64, n] where `lanes`.

        Returns, for the chosen lanes in order, whether the value was there before and whether it is there now.
        """
        at = offset[lanes]
        if size >= 4 and values.shape[-1] == size // 4 and not (at & (size - 1)).any() and size in (4, 8, 16):
            words = size // 4
            rows = self.data.view(np.uint32).reshape(-1, words)
            index = at // size
            data = values[lanes]
            same = (rows[index] == data).all(axis=1)
            rows[index] = data
            return np.asarray(same), np.asarray((rows[index] == data).all(axis=1))
        data = np.ascontiguousarray(values[lanes]).view(np.uint8).reshape(len(at), -1)[:, :size]
        every = at[:, None] + np.arange(size)
        same = (self.data[every] == data).all(axis=1)
        self.data[every] = data
        return np.asarray(same), np.asarray((self.data[every] == data).all(axis=1))
