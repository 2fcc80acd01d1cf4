"""Static checks: clean objects pass, and each check is tripped by a change of the one thing it looks at."""

import struct
from dataclasses import replace

import pytest

from nkc.verify.gfx950.code_object import ObjectError, read_code_object
from nkc.verify.gfx950.static_checks import Expectation, check_object
from tests.verify.gfx950.cases import FOLDER, code, facts
from tests.verify.gfx950.snippets import encode

CLEAN = [path.stem for path in sorted(FOLDER.glob("*.hsaco")) if path.stem != "fp8_256x128"]


@pytest.mark.parametrize("name", CLEAN)
def test_real_objects_pass(name):
    assert check_object(code(name), expect=Expectation(dynamic_lds_bytes=facts(name)["dynamic_lds_bytes"])) == ()


def test_spills_are_seen_unless_declared():
    found = {defect.check for defect in check_object(code("fp8_256x128"))}
    assert found == {"spill", "forbidden"}
    assert check_object(code("fp8_256x128"), expect=Expectation(scratch=True)) == ()


def descriptor_at(data: bytes) -> int:
    """Return the file offset of the kernel descriptor: the 64 bytes at .rodata."""
    from io import BytesIO

    from elftools.elf.elffile import ELFFile

    return int(ELFFile(BytesIO(data)).get_section_by_name(".rodata")["sh_offset"])


def patched(data: bytes, at: int, word: int) -> bytes:
    return data[:at] + struct.pack("<I", word & 0xFFFFFFFF) + data[at + 4 :]


def word(data: bytes, at: int) -> int:
    return struct.unpack_from("<I", data, at)[0]


def test_descriptor_checks():
    data = code("quant")
    at = descriptor_at(data)
    rsrc1 = word(data, at + 48)

    def checks(spoilt: bytes, **expect: object) -> list[str]:
        return [defect.check for defect in check_object(spoilt, expect=Expectation(**expect))]

    assert checks(patched(data, at, 64)) == ["lds"]
    assert checks(patched(data, at + 4, 16)) == ["spill", "private"]
    assert checks(patched(data, at + 8, 8)) == ["kernarg"]
    assert checks(patched(data, at + 48, rsrc1 & ~(3 << 16))) == ["denormals"]
    assert checks(patched(data, at + 48, rsrc1 | 1 << 12)) == ["rounding"]
    assert checks(patched(data, at + 48, rsrc1 & ~(1 << 23))) == ["mode"]
    assert checks(patched(data, at + 48, rsrc1 & ~63)) == ["vgprs"]
    assert checks(data, vgprs=16) == ["vgprs"]
    assert checks(data, dynamic_lds_bytes=200_000) == ["lds"]
    assert checks(data, lds_bytes=100, dynamic_lds_bytes=128) == ["lds"]
    assert checks(data, kernarg_bytes=8) == ["kernarg"]
    assert checks(data, threads=1024) == ["threads"]
    assert checks(data, mfma={"v_mfma_f32_16x16x128_f8f6f4": 1}) == ["mfma"]
    assert checks(data, contraction=False) == ["contraction"]
    assert checks(code("fp8_64x64"), mfma={"v_mfma_f32_16x16x128_f8f6f4": 16}, contraction=True) == []


def test_paths_and_targets():
    data = code("quant")
    assert [defect.check for defect in check_object(data + b"\0/home/someone/kernel.py\0")] == ["path"]
    read = read_code_object(data)
    behind = read.text_offset + len(read.text) - 16  # padding, which nothing reaches
    assert check_object(data[:behind] + b"/cbv/j" + data[behind + 6 :]) == check_object(data)
    flags = data[:48] + struct.pack("<I", 0x54C) + data[52:]
    with pytest.raises(ObjectError, match="not gfx950"):
        check_object(flags)


@pytest.mark.parametrize(
    ("instruction", "check", "message"),
    [
        (encode("s_memtime", sdata=4), "forbidden", "s_memtime"),
        (encode("s_sleep", simm16=1), "forbidden", "s_sleep"),
        (encode("global_atomic_add_f32", addr=2, saddr=0x7F, data=4), "forbidden", "floating-point atomics"),
        (encode("s_getreg_b32", sdst=4, simm16=4), "forbidden", "hardware ids"),
        (encode("s_setreg_imm32_b32", simm16=1 | 31 << 11, literal=0), "mode", "only MODE bit 23"),
    ],
)
def test_forbidden_instructions(instruction, check, message):
    data = code("quant")
    kernel = read_code_object(data)
    at = kernel.text_offset + kernel.entry + 256  # where a preloading launch starts: straight-line code
    spoilt = data[:at] + instruction + b"\0\0\x80\xbf" * ((16 - len(instruction)) // 4) + data[at + 16 :]
    defects = [defect for defect in check_object(spoilt) if defect.check == check]
    assert len(defects) == 1
    assert message in defects[0].message


def test_notes_that_lie_are_refused():
    with pytest.raises(ObjectError, match="kernel 'nothing' not found"):
        read_code_object(code("quant"), "nothing")
    with pytest.raises(ObjectError, match="not a readable AMDGPU code object"):
        read_code_object(b"\x7fELF" + bytes(60))
    kernel = read_code_object(code("quant"))
    assert replace(kernel, symbol="x").note.symbol == "quant.kd"
