"""Loads, stores, LDS accesses, scratch and atomics of every width and addressing form, against plain byte arrays."""

import numpy as np
import pytest

from nkc.verify.gfx950.atomics import ATOMIC_FUNCTIONS
from nkc.verify.gfx950.hazards import HazardKind
from nkc.verify.gfx950.operands import MissingFeatureError
from tests.verify.gfx950.snippets import Machine, V, const, encode, waitcnt
from tests.verify.gfx950.test_valu import signed

LANES = np.arange(64)
BYTES = np.random.default_rng(0).integers(0, 256, 4096).astype(np.uint8)
WIDTHS = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}


def words(lane: int, size: int, stride: int, base: int = 0) -> list[int]:
    raw = BYTES[base + lane * stride :][:size].tobytes()
    return [int.from_bytes(raw[at : at + 4], "little") for at in range(0, size, 4)]


def resource(m: Machine, register: int, name: str, records: int) -> None:
    base = m.at(name)
    m.w.S[:, register : register + 4] = [base & 0xFFFFFFFF, base >> 32, records, 0x27000]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("form", ["global", "global_saddr", "buffer", "flat"])
@pytest.mark.parametrize("misaligned", [0, 4, 1])
def test_wide_loads(width, form, misaligned):
    size = WIDTHS[width]
    m = Machine(buffers={"x": BYTES}, read_only=("x",))
    offset = 32 * LANES + misaligned
    if form in ("global", "flat"):
        m.vgpr64(2, np.uint64(m.at("x")) + offset.astype(np.uint64))
        saddr = {"saddr": 0x7F} if form == "global" else {}
        code = encode(f"{form}_load_{width}", addr=2, vdst=8, offset=16, **saddr)
    elif form == "global_saddr":
        m.vgpr(2, offset)
        m.sgpr64(4, m.at("x"))
        code = encode(f"global_load_{width}", addr=2, saddr=4, vdst=8, offset=16)
    else:
        m.vgpr(2, offset)
        m.w.S[:, 3] = 6
        resource(m, 4, "x", 4096)
        code = encode(f"buffer_load_{width}", vaddr=2, vdata=8, srsrc=1, soffset=3, offen=1, offset=10)
    m.run(code, waitcnt(vmcnt=0, lgkmcnt=0))
    assert m.kinds == set()
    for lane in range(64):
        assert [int(v) for v in m.w.V[8 : 8 + size // 4, 0, lane]] == words(lane, size, 32, 16 + misaligned)


@pytest.mark.parametrize(
    ("kind", "size", "sign"), [("ubyte", 1, False), ("sbyte", 1, True), ("ushort", 2, False), ("sshort", 2, True)]
)
def test_narrow_loads(kind, size, sign):
    m = Machine(buffers={"x": BYTES}, read_only=("x",))
    m.vgpr(2, 3 * LANES)
    resource(m, 4, "x", 4096)
    m.run(encode(f"buffer_load_{kind}", vaddr=2, vdata=8, srsrc=1, soffset=const(0), offen=1), waitcnt(vmcnt=0))
    for lane in range(64):
        value = int.from_bytes(BYTES[3 * lane :][:size].tobytes(), "little")
        assert int(m.w.V[8, 0, lane]) == ((signed(value, 8 * size) if sign else value) & 0xFFFFFFFF)


def test_half_register_loads_and_stores():
    m = Machine(buffers={"x": BYTES, "y": np.zeros(256, np.uint8)})
    m.vgpr64(2, np.uint64(m.at("x")) + (2 * LANES).astype(np.uint64))
    m.vgpr64(4, np.uint64(m.at("y")) + (4 * LANES).astype(np.uint64))
    m.vgpr(8, 0xAAAABBBB)
    m.vgpr(9, 0xAAAABBBB)
    m.run(
        encode("global_load_short_d16", addr=2, saddr=0x7F, vdst=8),
        encode("global_load_short_d16_hi", addr=2, saddr=0x7F, vdst=9),
        waitcnt(vmcnt=0),
        encode("global_store_short_d16_hi", addr=4, saddr=0x7F, data=9),
        encode("global_store_byte", addr=4, saddr=0x7F, data=9, offset=3),
    )
    halves = BYTES[:128].view(np.uint16).astype(np.uint32)
    assert np.array_equal(m.w.V[8, 0], 0xAAAA0000 | halves)
    assert np.array_equal(m.w.V[9, 0], halves << 16 | 0xBBBB)
    written = m.arena.bytes_of("y").reshape(64, 4)
    assert np.array_equal(written[:, :2].copy().view(np.uint16)[:, 0], halves)
    assert (written[:, 2] == 0).all()
    assert (written[:, 3] == 0xBB).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_stores(width):
    size = WIDTHS[width]
    m = Machine(buffers={"y": np.zeros(64 * 32, np.uint8)})
    m.execute(0xFFFF0000FFFF0000)
    m.vgpr(2, 32 * LANES)
    resource(m, 4, "y", 64 * 32)
    for item in range(4):
        m.vgpr(8 + item, LANES * 4 + item)
    m.run(encode(f"buffer_store_{width}", vaddr=2, vdata=8, srsrc=1, soffset=const(4), offen=1, offset=4))
    stored = m.arena.bytes_of("y").reshape(64, 32)
    for lane in range(64):
        wanted = np.zeros(32, np.uint8)
        if lane // 16 % 2:
            wanted[8 : 8 + size] = np.asarray([lane * 4 + item for item in range(size // 4)], np.uint32).view(np.uint8)
        assert np.array_equal(stored[lane], wanted)
    assert m.kinds == set()


def test_lanes_past_num_records_load_zero_and_store_nothing():
    m = Machine(buffers={"x": BYTES[:256], "y": np.zeros(256, np.uint8)})
    offset = np.where(LANES % 2 == 0, 4 * LANES, 0x80000000)
    m.vgpr(2, offset)
    m.vgpr(3, 0x11111111)
    resource(m, 4, "x", 0x7FFFFFFE)
    resource(m, 8, "y", 0x7FFFFFFE)
    m.run(
        encode("buffer_load_dword", vaddr=2, vdata=9, srsrc=1, soffset=const(0), offen=1),
        encode("buffer_store_dword", vaddr=2, vdata=3, srsrc=2, soffset=const(0), offen=1),
        waitcnt(vmcnt=0),
    )
    assert m.kinds == set()
    values = BYTES[:256].view(np.uint32)
    assert np.array_equal(m.w.V[9, 0], np.where(LANES % 2 == 0, values, 0))
    assert np.array_equal(m.arena.bytes_of("y").view(np.uint32) != 0, LANES % 2 == 0)


def test_swizzled_and_indexed_buffers_are_named_as_missing():
    m = Machine(buffers={"x": BYTES})
    resource(m, 4, "x", 4096)
    m.w.S[:, 5] |= 0x80000000
    m.vgpr(2, 0)
    with pytest.raises(MissingFeatureError, match="swizzle"):
        m.run(encode("buffer_load_dword", vaddr=2, vdata=9, srsrc=1, soffset=const(0), offen=1))
    with pytest.raises(MissingFeatureError, match="idxen"):
        Machine().run(encode("buffer_load_dword", vaddr=2, vdata=9, srsrc=1, soffset=const(0), idxen=1))


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_scalar_loads(count):
    m = Machine(buffers={"x": BYTES})
    m.sgpr64(2, m.at("x"))
    m.w.S[:, 6] = 8
    name = "s_load_dword" + (f"x{count}" if count > 1 else "")
    m.run(encode(name, sbase=1, sdata=16, imm=1, offset=12, soffset_en=1, soffset=6), waitcnt(lgkmcnt=0))
    assert [int(v) for v in m.w.S[0, 16 : 16 + count]] == [int(v) for v in BYTES[20 : 20 + 4 * count].view(np.uint32)]


def lds_machine() -> Machine:
    m = Machine(lds_bytes=4096)
    m.batch.lds.data[:4096] = BYTES
    m.batch.lds.writers[:] = 1 << 16 | 1  # as if this wave had written all
    return m


@pytest.mark.parametrize(("suffix", "size"), [("b32", 4), ("b64", 8), ("b96", 12), ("b128", 16)])
def test_lds_reads_and_writes(suffix, size):
    m = lds_machine()
    m.vgpr(1, 32 * LANES)
    m.run(
        encode(f"ds_read_{suffix}", addr=1, vdst=8, offset0=16),
        waitcnt(lgkmcnt=0),
        encode(f"ds_write_{suffix}", addr=1, data0=8, offset0=0, offset1=0),
    )
    for lane in range(64):
        assert [int(v) for v in m.w.V[8 : 8 + size // 4, 0, lane]] == words(lane, size, 32, 16)
        assert np.array_equal(m.batch.lds.data[32 * lane :][:size], BYTES[32 * lane + 16 :][:size])
    assert m.kinds == set()


def test_lds_pairs_and_narrow_accesses():
    m = lds_machine()
    m.vgpr(1, 4 * LANES)
    m.vgpr(2, LANES + 0x12340000)
    m.vgpr(12, 0xAAAABBBB)
    m.run(
        encode("ds_read2_b32", addr=1, vdst=4, offset0=1, offset1=70),
        encode("ds_read2st64_b32", addr=1, vdst=6, offset0=1, offset1=3),
        encode("ds_read_u8", addr=1, vdst=8, offset0=3),
        encode("ds_read_i16", addr=1, vdst=9, offset0=2),
        encode("ds_read_u16_d16_hi", addr=1, vdst=12),
        waitcnt(lgkmcnt=0),
        encode("ds_write_b8", addr=1, data0=2, offset0=1),
        encode("ds_write_b16_d16_hi", addr=1, data0=2, offset0=2),
        encode("ds_write2_b64", addr=1, data0=4, data1=6, offset0=128, offset1=192),
    )
    for lane in range(64):
        word = lambda at: int.from_bytes(BYTES[at : at + 4].tobytes(), "little")  # noqa: E731
        assert m.w.V[4, 0, lane] == word(4 * lane + 4)
        assert m.w.V[5, 0, lane] == word(4 * lane + 280)
        assert m.w.V[6, 0, lane] == word(4 * lane + 256)
        assert m.w.V[7, 0, lane] == word(4 * lane + 768)
        assert m.w.V[8, 0, lane] == BYTES[4 * lane + 3]
        assert int(m.w.V[9, 0, lane]) == signed(word(4 * lane + 2) & 0xFFFF, 16) & 0xFFFFFFFF
        assert m.w.V[12, 0, lane] == (word(4 * lane) & 0xFFFF) << 16 | 0xBBBB
        assert m.batch.lds.data[4 * lane + 1] == lane
        assert m.batch.lds.data[4 * lane + 2 : 4 * lane + 4].tolist() == [0x34, 0x12]
    assert np.array_equal(m.batch.lds.data[1024 + 4 * 63 :][:8].view(np.uint32), m.w.V[4:6, 0, 63])


@pytest.mark.parametrize("bits", [8, 16])
def test_transposed_reads(bits):
    """16 lanes read 16 rows of 8 bytes; lane l gets column l % n of the rows that its position selects."""
    m = lds_machine()
    m.vgpr(1, 8 * LANES)
    m.run(encode(f"ds_read_b64_tr_b{bits}", addr=1, vdst=8), waitcnt(lgkmcnt=0))
    elements = BYTES[:512].view(np.uint8 if bits == 8 else np.uint16).reshape(64, 64 // bits)
    got = np.ascontiguousarray(m.w.V[8:10, 0].T).view(elements.dtype)
    for lane in range(64):
        first = lane // 16 * 16
        for j in range(64 // bits):
            row = first + (4 * j + lane % 16 // 4 if bits == 16 else 2 * j + lane % 16 // 8)
            assert got[lane, j] == elements[row, lane % 16 % (64 // bits)]


def test_loads_into_lds_are_contiguous_by_lane():
    m = Machine(waves=2, lds_bytes=4096, buffers={"x": BYTES})
    m.vgpr(2, 16 * LANES[::-1] + 1024 * np.arange(2)[:, None])
    resource(m, 4, "x", 4096)
    m.w.S[:, 124] = [0, 2048]
    m.run(encode("buffer_load_dwordx4", vaddr=2, srsrc=1, soffset=const(0), offen=1, lds=1), waitcnt(vmcnt=0))
    for wave in range(2):
        landed = m.batch.lds.data[2048 * wave :][:1024].reshape(64, 16)
        assert np.array_equal(landed, BYTES[1024 * wave :][:1024].reshape(64, 16)[::-1])
    assert m.kinds == set()


def test_scratch_is_private_to_a_lane():
    m = Machine(scratch_bytes=64)
    m.vgpr(1, LANES)
    m.w.S[:, 4] = 8
    m.run(
        encode("scratch_store_dword", saddr=0x7F, data=1, offset=4),
        encode("scratch_store_dword", saddr=4, data=1, offset=4),
        waitcnt(vmcnt=0),
        encode("scratch_load_dword", saddr=0x7F, vdst=2, offset=4),
        encode("scratch_load_dword", saddr=0x7F, vdst=3, offset=12),
        waitcnt(vmcnt=0),
    )
    assert np.array_equal(m.w.V[2, 0], LANES)
    assert np.array_equal(m.w.V[3, 0], LANES)
    assert m.kinds == set()
    assert Machine(scratch_bytes=8).run(encode("scratch_load_dword", saddr=0x7F, vdst=2)).kinds == {
        HazardKind.NOT_READABLE
    }
    m = Machine(scratch_bytes=8)
    assert m.run(encode("scratch_store_dword", saddr=0x7F, data=2, offset=8)).kinds == {HazardKind.OUT_OF_BOUNDS}


MEANING = {
    "swap": lambda old, v: v,
    "add": lambda old, v: (old + v) % 2**32,
    "sub": lambda old, v: (old - v) % 2**32,
    "umin": min,
    "umax": max,
    "smin": lambda old, v: min(old, v, key=signed),
    "smax": lambda old, v: max(old, v, key=signed),
    "and": lambda old, v: old & v,
    "or": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "inc": lambda old, v: 0 if old >= v else old + 1,
    "dec": lambda old, v: v if old == 0 or old > v else old - 1,
}


@pytest.mark.parametrize("name", MEANING)
@pytest.mark.parametrize("returns", [0, 1])
def test_atomics(name, returns):
    assert set(MEANING) == set(ATOMIC_FUNCTIONS)
    start = np.asarray([7, 0x80000001], np.uint32)
    value = np.asarray([5, 0xFFFFFFF0, 7, 0] * 16)
    m = Machine(buffers={"x": start})
    m.vgpr64(2, np.uint64(m.at("x")) + (LANES % 2 * 4).astype(np.uint64))
    m.vgpr(4, value)
    m.vgpr(5, 99)
    m.execute(0x00FF)
    m.run(encode(f"global_atomic_{name}", addr=2, saddr=0x7F, data=4, vdst=5 * returns, sc0=returns), waitcnt(vmcnt=0))
    state = [int(v) for v in start]
    for lane in range(8):
        old = state[lane % 2]
        assert m.w.V[5, 0, lane] == (old if returns else 99)
        state[lane % 2] = MEANING[name](old, int(value[lane]))
    assert m.arena.bytes_of("x").view(np.uint32).tolist() == state


def test_compare_and_swap_wide_and_in_lds():
    m = Machine(buffers={"x": np.asarray([5, 6], np.uint64)}, lds_bytes=8)
    m.vgpr64(2, np.uint64(m.at("x")) + (LANES % 2 * 8).astype(np.uint64))
    m.vgpr64(4, 1 << 40)
    m.vgpr64(6, 5)
    m.vgpr(10, 0)
    m.vgpr(11, 3)
    m.execute(3)
    m.run(
        encode("global_atomic_cmpswap_x2", addr=2, saddr=0x7F, data=4, vdst=8, sc0=1),
        waitcnt(vmcnt=0),
        encode("ds_write_b32", addr=10, data0=11),
        waitcnt(lgkmcnt=0),
        encode("ds_add_rtn_u32", addr=10, data0=11, vdst=12),
        waitcnt(lgkmcnt=0),
    )
    assert m.arena.bytes_of("x").view(np.uint64).tolist() == [1 << 40, 6]
    assert [int(v) for v in m.get64(8)[0, :2]] == [5, 6]
    assert m.w.V[12, 0, :2].tolist() == [3, 6]
    assert m.batch.lds.data[:4].view(np.uint32)[0] == 9


def test_floating_point_atomics_are_named_as_missing():
    with pytest.raises(MissingFeatureError, match="floating-point atomics"):
        Machine().run(encode("global_atomic_add_f32", addr=2, saddr=0x7F, data=4))
    assert V == 256
