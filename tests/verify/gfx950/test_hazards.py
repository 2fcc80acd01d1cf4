"""Each detector: a program with the fault, which that detector alone reports, and the mended one, which none does."""

import numpy as np
import pytest

from nkc.verify.gfx950.hazards import HazardKind
from tests.verify.gfx950.snippets import BARRIER, Machine, V, const, encode, waitcnt

LANES = np.arange(64)


def ds_write(address: int, data: int, offset: int = 0) -> bytes:
    return encode("ds_write_b32", addr=address, data0=data, offset0=offset & 255, offset1=offset >> 8)


def ds_read(destination: int, address: int, offset: int = 0) -> bytes:
    return encode("ds_read_b32", addr=address, vdst=destination, offset0=offset & 255, offset1=offset >> 8)


def load(destination: int, address: int, offset: int = 0) -> bytes:
    return encode("global_load_dword", addr=address, saddr=0x7F, vdst=destination, offset=offset & 0x1FFF)


def store(address: int, data: int, offset: int = 0) -> bytes:
    return encode("global_store_dword", addr=address, saddr=0x7F, data=data, offset=offset & 0x1FFF)


def move(destination: int, source: int) -> bytes:
    return encode("v_mov_b32", "VOP1", vdst=destination, src0=source)


def pointing(m: Machine, register: int, name: str, offset: object = 0) -> None:
    m.vgpr64(register, np.uint64(m.at(name)) + np.asarray(offset, np.uint64))


def test_reading_a_pending_register():
    def machine() -> Machine:
        m = Machine(buffers={"x": np.arange(64, dtype=np.int32)})
        pointing(m, 2, "x", 4 * LANES)
        return m

    assert machine().run(load(1, 2), move(4, V + 1)).kinds == {HazardKind.PENDING_READ}
    good = machine().run(load(1, 2), waitcnt(vmcnt=0), move(4, V + 1))
    assert good.kinds == set()
    assert (good.w.V[4, 0] == LANES).all()


def test_overwriting_a_pending_register():
    m = Machine(buffers={"x": np.zeros(64, np.int32)})
    pointing(m, 2, "x")
    assert m.run(load(1, 2), move(1, const(3))).kinds == {HazardKind.PENDING_WRITE}


def test_two_loads_into_one_register_are_ordered():
    m = Machine(buffers={"x": np.zeros(64, np.int32)})
    pointing(m, 2, "x")
    assert m.run(load(1, 2), load(1, 2), waitcnt(vmcnt=0), move(4, V + 1)).kinds == set()


def test_counts_retire_in_order_but_not_scalar_loads():
    m = Machine(buffers={"x": np.arange(64, dtype=np.int32)})
    pointing(m, 2, "x")
    assert m.run(load(1, 2), load(4, 2), waitcnt(vmcnt=1), move(5, V + 1)).kinds == set()
    m = Machine(buffers={"x": np.arange(64, dtype=np.int32)}, lds_bytes=256)
    m.sgpr64(2, m.at("x"))
    scalar = encode("s_load_dword", sbase=1, sdata=8, imm=1)
    again = encode("s_load_dword", sbase=1, sdata=9, imm=1)
    use = encode("s_mov_b32", ssrc0=8, sdst=10)
    assert m.run(scalar, again, waitcnt(lgkmcnt=1), use).kinds == {HazardKind.PENDING_READ}


def test_reading_what_nothing_has_written():
    m = Machine()
    m.w.defined &= ~(1 << 7)
    bad = m.run(move(1, V + 7))
    assert bad.kinds == {HazardKind.UNINITIALISED_REGISTER}
    assert bad.log.hazards()[0].detail == "v7"


def test_uninitialised_lds():
    m = Machine(lds_bytes=256)
    m.vgpr(1, 4 * LANES)
    assert m.run(ds_read(2, 1), waitcnt(lgkmcnt=0)).kinds == {HazardKind.UNINITIALISED_LDS}


@pytest.mark.parametrize(("barrier", "kinds"), [(b"", {HazardKind.LDS_RACE}), (BARRIER, set())])
def test_a_missing_barrier_between_write_and_read(barrier, kinds):
    m = Machine(waves=2, lds_bytes=512)
    mine = 4 * (LANES + 64 * np.arange(2)[:, None])
    m.vgpr(1, mine)
    m.vgpr(2, 256 - mine + 4 * 63)
    m.vgpr(3, LANES)
    m.run(ds_write(1, 3), waitcnt(lgkmcnt=0), barrier, ds_read(4, 2), waitcnt(lgkmcnt=0))
    assert m.kinds == kinds
    assert (m.w.V[4] == LANES[::-1]).all()  # lock-step hides the race from the values


@pytest.mark.parametrize(("barrier", "kinds"), [(b"", {HazardKind.LDS_RACE}), (BARRIER, set())])
def test_a_missing_barrier_between_read_and_overwrite(barrier, kinds):
    m = Machine(waves=2, lds_bytes=256)
    m.vgpr(1, 4 * LANES)
    m.vgpr(3, LANES)
    first = [ds_write(1, 3), waitcnt(lgkmcnt=0), BARRIER, ds_read(4, 1), waitcnt(lgkmcnt=0), barrier]
    m.vgpr(5, LANES + 1)
    assert m.run(*first, ds_write(1, 5)).kinds == kinds


def test_equal_values_do_not_race_and_different_ones_do():
    m = Machine(waves=2, lds_bytes=256)
    m.vgpr(1, 4 * LANES)
    m.vgpr(3, LANES)
    assert m.run(ds_write(1, 3)).kinds == set()
    m = Machine(waves=2, lds_bytes=256)
    m.vgpr(1, 4 * LANES)
    m.vgpr(3, LANES + np.arange(2)[:, None])
    assert m.run(ds_write(1, 3)).kinds == {HazardKind.LDS_RACE}


def test_a_write_outstanding_at_a_barrier():
    m = Machine(lds_bytes=256)
    m.vgpr(1, 4 * LANES)
    assert m.run(ds_write(1, 1), BARRIER).kinds == {HazardKind.LDS_OUTSTANDING_AT_BARRIER}


def test_a_read_outstanding_at_a_barrier_meets_a_write_behind_it():
    def machine() -> Machine:
        m = Machine(waves=2, lds_bytes=256)
        m.vgpr(1, 4 * LANES)
        m.vgpr(3, LANES)
        m.vgpr(5, LANES + 9)
        return m

    begin = [ds_write(1, 3), waitcnt(lgkmcnt=0), BARRIER, ds_read(4, 1)]
    end = [ds_write(1, 5), waitcnt(lgkmcnt=0)]
    bad = machine().run(*begin, BARRIER, waitcnt(lgkmcnt=0), *end)
    assert bad.kinds == {HazardKind.LDS_READ_ACROSS_BARRIER}
    assert machine().run(*begin, waitcnt(lgkmcnt=0), BARRIER, *end).kinds == set()


def dma(address: int) -> bytes:
    return encode("global_load_lds_dword", addr=address, saddr=0x7F)


@pytest.mark.parametrize(("wait", "kinds"), [(waitcnt(vmcnt=0), set()), (b"", {HazardKind.LDS_PENDING_DMA})])
@pytest.mark.parametrize("late", [False, True])
def test_reading_lds_before_a_load_has_landed(wait, kinds, late):
    m = Machine(lds_bytes=256, buffers={"x": np.arange(64, dtype=np.int32)}, late_dma=late)
    pointing(m, 2, "x", 4 * LANES)
    m.vgpr(1, 4 * LANES)
    m.w.S[:, 124] = 0
    m.run(dma(2), wait, ds_read(4, 1), waitcnt(lgkmcnt=0))
    assert m.kinds == kinds
    expected = LANES if not late or wait else np.full(64, 0xA5A5A5A5)
    assert (m.w.V[4, 0] == expected).all()


def test_another_wave_needs_a_barrier_behind_the_wait():
    def machine() -> Machine:
        m = Machine(waves=2, lds_bytes=512, buffers={"x": np.arange(128, dtype=np.int32)})
        pointing(m, 2, "x", 4 * LANES + 256 * np.arange(2)[:, None])
        m.w.S[:, 124] = [0, 256]
        m.vgpr(1, 4 * LANES + np.asarray([[256], [0]]))
        return m

    rest = [ds_read(4, 1), waitcnt(lgkmcnt=0)]
    assert machine().run(dma(2), waitcnt(vmcnt=0), *rest).kinds == {HazardKind.LDS_RACE}
    assert machine().run(dma(2), waitcnt(vmcnt=0), BARRIER, *rest).kinds == set()


def test_lds_bounds():
    m = Machine(lds_bytes=252)
    m.vgpr(1, 4 * LANES)
    bad = m.run(ds_write(1, 1))
    assert bad.kinds == {HazardKind.LDS_OUT_OF_BOUNDS}
    assert bad.log.hazards()[0].detail == "lane 63, 4 bytes at 252 of 252"


@pytest.mark.parametrize(("offset", "where"), [(4, "past the end"), (-4, "before")])
def test_red_zones(offset, where):
    m = Machine(buffers={"x": np.zeros(64, np.int32)})
    pointing(m, 2, "x", 4 * LANES)
    bad = m.run(load(1, 2, offset), waitcnt(vmcnt=0))
    assert bad.kinds == {HazardKind.OUT_OF_BOUNDS}
    assert where in bad.log.hazards()[0].detail
    assert "`x`" in bad.log.hazards()[0].detail


def test_permissions():
    m = Machine(buffers={"x": np.zeros(64, np.int32)}, read_only=("x",))
    pointing(m, 2, "x", 4 * LANES)
    assert m.run(store(2, 1)).kinds == {HazardKind.NOT_WRITABLE}
    m = Machine(buffers={"x": np.zeros(64, np.int32)}, undefined=("x",))
    pointing(m, 2, "x", 4 * LANES)
    assert m.run(load(1, 2)).kinds == {HazardKind.NOT_READABLE}
    m = Machine(buffers={"x": np.zeros(64, np.int32)}, undefined=("x",))
    pointing(m, 2, "x", 4 * LANES)
    m.vgpr(1, 5)
    assert m.run(store(2, 1), waitcnt(vmcnt=0), load(1, 2)).kinds == set()


def test_two_workgroups_write_the_same_bytes_even_the_same_value():
    m = Machine(workgroups=2, buffers={"x": np.zeros(64, np.int32)})
    pointing(m, 2, "x", 4 * LANES)
    m.vgpr(1, 5)
    assert m.run(store(2, 1)).kinds == {HazardKind.WORKGROUP_OVERLAP}
    m = Machine(workgroups=2, buffers={"x": np.zeros(128, np.int32)})
    pointing(m, 2, "x", 4 * LANES + 256 * np.arange(2)[:, None])
    m.vgpr(1, 5)
    assert m.run(store(2, 1)).kinds == set()


@pytest.mark.parametrize(
    ("between", "kinds"),
    [
        ([waitcnt(vmcnt=0), BARRIER], set()),
        ([BARRIER], {HazardKind.MEMORY_RACE}),
        ([waitcnt(vmcnt=0)], {HazardKind.MEMORY_RACE}),
        ([BARRIER, waitcnt(vmcnt=0)], {HazardKind.MEMORY_RACE}),
    ],
)
def test_reading_what_another_wave_of_the_workgroup_wrote(between, kinds):
    m = Machine(waves=2, buffers={"x": np.zeros(128, np.int32)})
    place = 4 * LANES + 256 * np.arange(2)[:, None]
    pointing(m, 2, "x", place)
    pointing(m, 4, "x", 256 - place % 512 + 4 * LANES * 2)
    m.vgpr(1, LANES + 1)
    m.run(store(2, 1), *between, load(6, 4), waitcnt(vmcnt=0))
    assert m.kinds == kinds
    assert (m.w.V[6] == LANES + 1).all()


WRITE_BACK, INVALIDATE = encode("buffer_wbl2", sc1=1), encode("buffer_inv", sc1=1)
ARRIVE = encode("global_atomic_add", addr=8, saddr=0x7F, data=1, vdst=10, sc0=1)


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        ([WRITE_BACK, waitcnt(vmcnt=0), ARRIVE, waitcnt(vmcnt=0), INVALIDATE], set()),
        ([WRITE_BACK, ARRIVE, waitcnt(vmcnt=0), INVALIDATE], {HazardKind.CROSS_WORKGROUP_READ}),
        ([waitcnt(vmcnt=0), ARRIVE, waitcnt(vmcnt=0), INVALIDATE], {HazardKind.CROSS_WORKGROUP_READ}),
        ([WRITE_BACK, waitcnt(vmcnt=0), ARRIVE, waitcnt(vmcnt=0)], {HazardKind.CROSS_WORKGROUP_READ}),
    ],
)
def test_reading_what_another_workgroup_wrote(steps, kinds):
    """Both store, both arrive; workgroup 1 arrives last and reads what 0 stored. EXEC of the others is off."""
    m = Machine(workgroups=2, buffers={"x": np.zeros(2, np.int32), "n": np.zeros(1, np.int32)})
    pointing(m, 2, "x", 4 * np.arange(2)[:, None])
    pointing(m, 4, "x")
    pointing(m, 8, "n")
    m.vgpr(1, 1)
    m.execute(1)
    last = encode("v_cmp_eq_u32", "VOPC", src0=const(1), vsrc1=10)
    only = encode("s_and_saveexec_b64", ssrc0=106, sdst=20)
    m.run(store(2, 1), *steps, waitcnt(vmcnt=0), last, only, load(6, 4), waitcnt(vmcnt=0))
    assert m.kinds == kinds
    assert m.w.V[6, 1, 0] == 1


def test_a_barrier_that_a_wave_never_reaches():
    m = Machine(waves=2)
    m.w.scc[:] = [False, True]
    wait_for_me = [encode("s_cbranch_scc1", simm16=1), BARRIER, encode("s_nop")]
    assert m.run(*wait_for_me).kinds == set()  # a wave that ended counts as arrived
    m = Machine(waves=2)
    m.w.scc[:] = [False, True]
    spin = [
        encode("s_cbranch_scc1", simm16=2),
        BARRIER,
        encode("s_branch", simm16=1),
        encode("s_branch", simm16=0xFFFF),
    ]
    assert m.run(*spin, budget=500).kinds == {HazardKind.NO_TERMINATION}


def test_leaving_the_code():
    m = Machine()
    assert m.run(encode("s_branch", simm16=100)).kinds == {HazardKind.BAD_BRANCH}


def test_divergent_waves_join_again():
    m = Machine(waves=4, lds_bytes=64)
    m.w.scc[:] = [True, False, True, False]
    m.vgpr(1, 0)
    code = [encode("s_cbranch_scc1", simm16=1), move(1, const(7)), move(2, V + 1), BARRIER]
    m.run(*code)
    assert m.kinds == set()
    assert m.engine.counts[4] == 2
    assert m.engine.counts[8] == 4
    assert m.engine.steps < 9
