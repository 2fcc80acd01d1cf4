"""Sampling, memory traffic and the loop model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.verify.gfx950.emulate import emulate
from nkc.verify.gfx950.loop_model import LATENCIES, loops, read_loop, readings, resident_workgroups
from nkc.verify.gfx950.sampling import choose_workgroups
from nkc.verify.gfx950.traffic import Traffic, conflict_ways
from tests.verify.gfx950.cases import CASES, code, facts, quant
from tests.verify.gfx950.snippets import END, V, encode, kernel

LANES = np.arange(64)


@given(st.tuples(*[st.integers(1, 60)] * 3), st.integers(1, 100), st.integers(0, 3))
def test_samples_hold_the_corners_and_repeat(grid, count, seed):
    chosen = choose_workgroups(grid, count, seed=seed)
    total = grid[0] * grid[1] * grid[2]
    assert chosen == choose_workgroups(grid, count, seed=seed)
    assert list(chosen) == sorted(set(chosen))
    assert {0, total - 1} <= set(chosen)
    assert chosen[-1] < total
    assert min(total, count) <= len(chosen) <= max(8, count)


def test_the_seed_matters():
    assert choose_workgroups((100, 100, 1), 20, seed=0) != choose_workgroups((100, 100, 1), 20, seed=1)


def test_a_sampled_run_is_checked_where_it_stored():
    case = quant("quant", 400)
    chosen = choose_workgroups(case.launch.grid, 12)
    report = emulate(case.data, case.launch, case.buffers, workgroups=chosen)
    assert report.hazards == ()
    assert report.sampled_fraction == 12 / 100
    for name, value in case.expected.items():
        mask = report.written[name]
        assert 0.1 < mask.mean() < 0.14
        got = report.outputs[name].reshape(-1).view(np.uint8)
        assert (got[mask] == np.ascontiguousarray(value).reshape(-1).view(np.uint8)[mask]).all()


def test_traffic_of_the_quantisation_kernel_is_coalesced():
    case = CASES["quant"]()
    traffic = Traffic()
    emulate(case.data, case.launch, case.buffers, trace=traffic)
    loads = [item for item in traffic.memory.values() if item.mnemonic == "buffer_load_dwordx4"]
    assert len(loads) == 1
    assert loads[0].coalescing == 1.0
    assert loads[0].bytes == case.buffers["X"].nbytes


def test_the_gemm_reads_lds_without_conflicts():
    case = CASES["fp8_64x64"]()
    traffic = Traffic()
    emulate(case.data, case.launch, case.buffers, trace=traffic, workgroups=(0,))
    assert {item.conflict_ways for item in traffic.lds.values() if item.mnemonic == "ds_read_b128"} == {1}


@pytest.mark.parametrize(
    ("address", "size", "ways"),
    [
        (4 * LANES, 4, 1),
        (128 * LANES, 4, 32),  # every second bank row: 64 lanes on two banks
        (256 * LANES, 4, 64),
        (0 * LANES, 4, 1),  # one dword for all is a broadcast
        (16 * LANES, 16, 1),
        (256 * LANES, 16, 16),
    ],
)
def test_bank_conflicts(address, size, ways):
    assert conflict_ways("lds_read", address, np.ones(64, bool), size) == ways


def test_resident_workgroups():
    from nkc.verify.gfx950.code_object import read_code_object

    small = read_code_object(code("fp8_64x64"))  # 112 registers: four waves a SIMD
    assert resident_workgroups(small, 4, 33_000) == 4
    assert resident_workgroups(small, 4, 70_000) == 2
    assert resident_workgroups(small, 16, 0) == 1


def loop_of(*body: bytes) -> bytes:
    """Return a code object's text: the body, then a branch back to its start."""
    size = sum(map(len, body))
    return b"".join(body) + encode("s_cbranch_scc1", simm16=0x10000 - size // 4 - 1) + END


def test_the_model_on_loops_whose_clocks_are_plain(monkeypatch):
    """One wave: an MFMA every 32 clocks, alone, beside plain vector work, and held back by packed work and s_nop."""
    from nkc.verify.gfx950 import loop_model

    mfma = encode("v_mfma_f32_16x16x128_f8f6f4", vdst=40, src0=V + 8, src1=V + 16, src2=V + 40)
    plain = encode("v_fma_f32", vdst=1, src0=V + 2, src1=V + 3, src2=V + 4)
    packed = encode("v_pk_fma_f32", vdst=2, src0=V + 2, src1=V + 4, src2=V + 6)

    def clocks(*body: bytes) -> float:
        monkeypatch.setattr(loop_model, "read_code_object", lambda data, symbol=None: kernel(data))
        monkeypatch.setattr(loop_model, "WAVES_A_SIMD", 1)
        reading = read_loop(loop_of(*body), waves=4)
        assert reading is not None
        assert reading.label == "model"
        return reading.clocks_a_step

    assert clocks(mfma, mfma) == pytest.approx(64, rel=0.01)
    assert clocks(mfma, *[plain] * 4, mfma, *[plain] * 4) == pytest.approx(
        64, rel=0.01
    )  # 8 + 4 * 4 clocks fit beside each
    assert clocks(mfma, packed, packed) == pytest.approx(32 + 4 + 4 + 4, rel=0.01)
    assert clocks(mfma, encode("s_nop", simm16=15), plain) == pytest.approx(4 + 64 + 4 + 4, rel=0.01)


def test_readings_come_at_three_latencies_and_only_for_loops():
    known = facts("fp8_64x64")
    assert readings(code("quant"), waves=4) == ()
    assert readings(code("fp8_64x64"), waves=4, dynamic_lds_bytes=known["dynamic_lds_bytes"]) == ()  # unrolled whole
    from nkc.verify.gfx950.code_object import read_code_object

    looped = [name for name in CASES if any(loop.mfma_count for loop in loops(read_code_object(code(name))))]
    for name in looped:
        made = readings(code(name), waves=facts(name)["waves"], dynamic_lds_bytes=facts(name)["dynamic_lds_bytes"])
        assert [item.latency for item in made] == list(LATENCIES)
        assert made[0].clocks_a_step <= made[-1].clocks_a_step
        assert all(0 < item.mfma_share <= 1 for item in made)
    assert looped


def test_a_profile_joins_counts_and_model():
    from nkc.verify.gfx950.profile import profile

    case = CASES["fp8_128x128"]()
    reading = profile(case.data, case.launch, case.buffers, workgroups=(0,))
    assert reading.label == "model"
    assert reading.conflict_ways >= 1
    assert 0.2 < reading.coalescing <= 1
    assert reading.instructions["v_mfma_f32_16x16x128_f8f6f4"] == 4 * 16 * 4  # waves, MFMAs a wave and step, steps
    assert sum(item.operations for item in reading.waits) > 0
    assert reading.workgroups == (0,)
