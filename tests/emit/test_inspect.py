"""Reading code objects: two small ones that Triton 3.9 made, and whatever else a file may hold."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.emit.inspect import ObjectError, gfx9, inspect, occupancy, sass
from nkc.ir import targets

OBJECTS = Path(__file__).parent / "objects"
HSACO = (OBJECTS / "mfma.hsaco").read_bytes()
CUBIN = (OBJECTS / "qgmma.cubin").read_bytes()


def test_hsaco() -> None:
    said = inspect(HSACO, name="mfma.hsaco")
    assert (said.container, said.isa, said.wave, said.elf_flags) == ("hsaco", "gfx950", 64, 0x54F)
    assert said.symbol == "dense_fp8_mfma_16x64x128_s3_m0to16_n192_k256"
    assert (said.registers, said.accumulation_registers, said.sgprs, said.spilled_registers) == (38, 0, 31, 0)
    assert (said.scratch_bytes, said.dynamic_stack, said.lds_fixed_bytes, said.max_threads) == (0, False, 0, 128)
    assert said.denormals is True
    visible = [(item.offset, item.size, item.kind) for item in said.arguments[:8]]
    pointers = [(offset, 8, "pointer") for offset in (0, 8, 16, 24, 32)]
    assert visible == [*pointers, (40, 4, "value"), (48, 8, "pointer"), (56, 8, "pointer")]
    assert all(item.kind is not None and item.kind.startswith("hidden_") for item in said.arguments[8:])
    assert said.kernarg_bytes == 320
    assert said.matrix_count("v_mfma_f32_16x16x128_f8f6f4") == 4
    assert said.matrix_count("v_mfma_") == 4


def test_cubin() -> None:
    said = inspect(CUBIN, name="qgmma.cubin")
    assert (said.container, said.isa, said.wave) == ("cubin", "sm_90a", 32)
    assert said.symbol == "dense_fp8_wgmma_64x32x128_w4_s6_m0to64_n192_k256"
    assert (said.registers, said.scratch_bytes, said.lds_fixed_bytes, said.max_threads) == (56, 0, 0, 128)
    layout = [(item.offset, item.size) for item in said.arguments]
    assert layout == [(0, 8), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (48, 8), (56, 8)]
    assert said.kernarg_bytes == 64
    assert {use.mnemonic: use.count for use in said.matrix} == {"QGMMA": 4}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "x: not an ELF file"),
        (b"#!/bin/sh\n", "x: not an ELF file"),
        (HSACO[:40], "x: not a whole 64-bit little-endian ELF file"),
        (HSACO[:4] + b"\x01" + HSACO[5:], "x: not a whole 64-bit little-endian ELF file"),
        (HSACO[:3000], "x: reading section 0 at offset"),
        (CUBIN[:-8], "x: the segment table reaches outside the file"),
        (HSACO[:18] + struct.pack("<H", 62) + HSACO[20:], "x: ELF machine 62 is neither AMD GPU (224) nor CUDA (190)"),
        (HSACO[:60] + b"\0\0" + HSACO[62:], "x: it has no AMDHSA metadata note"),
        (CUBIN[:60] + b"\0\0" + CUBIN[62:], "x: it holds 0 kernels, not one"),
        (HSACO.replace(b".kernarg_segment_size", b".kernarg_segment_sise"), "x: its AMDHSA metadata cannot be read: "),
        (
            HSACO.replace(b".kernarg_segment_size\xcd\x01\x40", b".kernarg_segment_size\xcd\x01\x48"),
            "x: its descriptor and",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else len(value),
)
def test_what_is_no_code_object_is_a_one_line_error(data: bytes, said: str) -> None:
    with pytest.raises(ObjectError) as caught:
        inspect(data, name="x")
    assert str(caught.value).startswith(said)
    assert caught.value.lines() == (str(caught.value),)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def read(data: bytes) -> None:
    """Read bytes that may be anything: a result or one line, and nothing else."""
    with suppress(ObjectError):
        inspect(data, name="x")


@given(
    base=st.sampled_from([HSACO, CUBIN]),
    edits=st.lists(st.tuples(st.integers(0, 11_000), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4),
    end=st.integers(0, 11_000) | st.none(),
)
def test_damage_never_ends_in_a_traceback(base: bytes, edits: list[tuple[int, bytes]], end: int | None) -> None:
    data = bytearray(base)
    for at, patch in edits:
        place = at % len(data)
        data[place : place + len(patch)] = patch
    read(bytes(data[:end]))


@given(st.sampled_from([HSACO, CUBIN]), st.integers(0, 63), st.integers(0, 255))
def test_damage_to_the_header_never_ends_in_a_traceback(base: bytes, at: int, value: int) -> None:
    data = bytearray(base)
    data[at] = value
    read(bytes(data))


@given(st.binary(max_size=400))
def test_any_code_walks_to_its_end_or_says_where_it_stops(code: bytes) -> None:
    offsets = []
    with suppress(ValueError):
        offsets.extend(offset for offset, _ in gfx9.instructions(code))
    assert all(offset % 4 == 0 and offset < len(code) for offset in offsets)
    assert sum(sass.matrix_counts(code).values()) <= len(code) // 16


@pytest.mark.parametrize(
    ("words", "lengths"),
    [
        ([0xBF8C0070, 0xBF800000], [4, 4]),  # s_waitcnt, s_nop
        ([0x8004FF05, 0x12345678, 0xBE8000FF, 0x1, 0xBF0605FF, 0x2], [8, 8, 8]),  # s_add_u32, s_mov_b32, s_cmp_eq_u32
        ([0xB9801801, 0xBA000801, 0x1], [4, 8]),  # s_setreg_b32, s_setreg_imm32_b32
        (
            [0x7E0002FF, 0x1, 0x7E0002F9, 0x0, 0x7E0002FA, 0x0, 0x7E000301],
            [8, 8, 8, 4],
        ),  # v_mov_b32: literal, SDWA, DPP
        ([0x2E000101, 0x1, 0x30000101, 0x1], [8, 8]),  # v_madmk_f32, v_madak_f32
        ([0xC0060000, 0x0, 0xD3AD0000, 0x0, 0xD86C0000, 0x0, 0xDC500000, 0x0, 0xE0501000, 0x0], [8] * 5),
    ],
)
def test_instruction_lengths(words: list[int], lengths: list[int]) -> None:
    offsets = [offset for offset, _ in gfx9.instructions(struct.pack(f"<{len(words)}I", *words))]
    ends = [*offsets[1:], 4 * len(words)]
    assert [end - start for start, end in zip(offsets, ends, strict=True)] == lengths


def test_literals_that_look_like_mfma_are_not_counted() -> None:
    mfma = 0xD3AD8000
    code = struct.pack("<6I", 0x7E0002FF, mfma, mfma, 0x0, 0xBF810000, 0xBF800000)
    assert gfx9.matrix_counts(code) == {"v_mfma_f32_16x16x128_f8f6f4": 1}


def test_occupancy_on_gfx950() -> None:
    said = inspect(HSACO, name="x")
    target = targets.get("gfx950")
    by_lds = occupancy(said, target, threads=128, lds_dynamic_bytes=31_456)
    assert (by_lds.workgroups, by_lds.waves, by_lds.limit) == (5, 10, "lds")
    by_waves = occupancy(said, target, threads=256, lds_dynamic_bytes=0)
    assert (by_waves.workgroups, by_waves.limit) == (8, "waves")
    assert occupancy(said, target, threads=128, lds_dynamic_bytes=163_841).workgroups == 0


def test_occupancy_on_sm_90() -> None:
    said = inspect(CUBIN, name="x")
    target = targets.get("sm_90")
    by_lds = occupancy(said, target, threads=128, lds_dynamic_bytes=75_028)
    assert (by_lds.workgroups, by_lds.limit) == (3, "lds")
    by_registers = occupancy(said, target, threads=128, lds_dynamic_bytes=0)
    assert (by_registers.workgroups, by_registers.limit) == (9, "registers")
    assert occupancy(said, target, threads=128, lds_dynamic_bytes=232_449).workgroups == 0
