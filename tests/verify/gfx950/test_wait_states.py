"""The linter: no finding on compiled objects, each rule tripped by one state too few, and satisfied by enough."""

import pytest

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.flow import reachable
from nkc.verify.gfx950.wait_states import lint
from tests.verify.gfx950.cases import FOLDER
from tests.verify.gfx950.snippets import END, V, const, encode, kernel

CMP = encode("v_cmp_eq_u32", "VOP3", vdst=20, src0=V, src1=V + 1)  # writes s[20:21]
CMP_VCC = encode("v_cmp_eq_u32", "VOPC", src0=V, vsrc1=1)
CMPX = encode("v_cmpx_eq_u32", "VOPC", src0=V, vsrc1=1)
MOVE = encode("v_mov_b32", "VOP1", vdst=2, src0=V)
FP8 = encode("v_mfma_f32_16x16x128_f8f6f4", vdst=40, src0=V + 8, src1=V + 16, src2=V + 40)
BIG = encode("v_mfma_f32_32x32x64_f8f6f4", vdst=40, src0=V + 8, src1=V + 16, src2=V + 40)
BF16 = encode("v_mfma_f32_16x16x32_bf16", vdst=40, src0=V + 8, src1=V + 12, src2=V + 40)
READ = encode("v_mov_b32", "VOP1", vdst=3, src0=V + 41)

RULES = {  # name -> (first, second, wait states between)
    "SGPR to vector memory": (
        CMP,
        encode("buffer_load_dword", vaddr=2, vdata=3, srsrc=5, soffset=const(0), offen=1),
        5,
    ),
    "SGPR to VALU": (CMP, encode("v_mov_b32", "VOP1", vdst=3, src0=20), 2),
    "VCC to v_div_fmas": (CMP_VCC, encode("v_div_fmas_f32", vdst=3, src0=V, src1=V, src2=V), 4),
    "lane select": (CMP, encode("v_readlane_b32", vdst=5, src0=V + 4, src1=20), 4),
    "VGPR to DPP": (MOVE, encode("v_mov_b32", "VOP1", vdst=3, src0=V + 2, dpp={"dpp": 0x141}), 2),
    "EXEC to DPP": (CMPX, encode("v_mov_b32", "VOP1", vdst=3, src0=V + 2, dpp={"dpp": 0x141}), 5),
    "VGPR to readlane": (MOVE, encode("v_readlane_b32", vdst=5, src0=V + 2, src1=const(0)), 1),
    "VGPR to swap": (MOVE, encode("v_permlane32_swap_b32", "VOP1", vdst=2, src0=V + 3), 2),
    "EXEC to readfirstlane": (CMPX, encode("v_readfirstlane_b32", "VOP1", vdst=5, src0=V + 2), 4),
    "VGPR to MFMA": (encode("v_mov_b32", "VOP1", vdst=9, src0=V), FP8, 2),
    "transcendental": (encode("v_rcp_f32", "VOP1", vdst=2, src0=V), encode("v_mov_b32", "VOP1", vdst=3, src0=V + 2), 1),
    "half result": (
        encode("v_cvt_scalef32_pk_fp8_f32", vdst=2, src0=V, src1=V, src2=V, opsel=8),
        encode("v_mov_b32", "VOP1", vdst=3, src0=V + 2),
        1,
    ),
    "M0 to load into LDS": (
        encode("s_mov_b32", sdst=124, ssrc0=4),
        encode("buffer_load_dword", vaddr=2, srsrc=5, soffset=const(0), offen=1, lds=1),
        1,
    ),
    "store data": (
        encode("global_store_dwordx4", addr=2, saddr=0x7F, data=8),
        encode("v_mov_b32", "VOP1", vdst=9, src0=V),
        2,
    ),
    "fp8 MFMA result read": (FP8, READ, 12),
    "32x32 MFMA result read": (BIG, READ, 20),
    "bf16 MFMA result read": (BF16, READ, 8),
    "MFMA result stored": (FP8, encode("global_store_dword", addr=2, saddr=0x7F, data=41), 12),
    "MFMA result overwritten": (FP8, encode("v_mov_b32", "VOP1", vdst=41, src0=V), 12),
    "MFMA result as A": (FP8, encode("v_mfma_f32_16x16x32_bf16", vdst=60, src0=V + 40, src1=V + 12, src2=V + 60), 12),
    "MFMA result as shifted C": (
        FP8,
        encode("v_mfma_f32_16x16x32_bf16", vdst=60, src0=V + 8, src1=V + 12, src2=V + 42),
        10,
    ),
}


def findings(*code: bytes) -> int:
    return len(lint(reachable(kernel(b"".join(code) + END))))


@pytest.mark.parametrize("name", RULES)
def test_rules(name):
    first, second, states = RULES[name]
    assert (
        findings(first, *[encode("s_nop", simm16=min(15, states - 1 - at)) for at in range(0, states, 16)], second) == 0
    )
    enough_less_one = [encode("s_nop")] * (states - 1)
    assert findings(first, *enough_less_one, second) == 1


def test_back_to_back_accumulation_needs_no_wait():
    assert findings(FP8, FP8) == 0


def test_every_path_counts():
    """The short way round a branch is the one that decides."""
    skip = encode("s_cbranch_scc1", simm16=12)
    assert findings(FP8, skip, *[encode("s_nop")] * 12, READ) == 1
    assert findings(FP8, encode("s_cbranch_scc1", simm16=1), encode("s_nop"), encode("s_nop", simm16=10), READ) == 0


def test_loops_are_followed_around():
    back = encode("s_cbranch_scc1", simm16=0x10000 - 5)
    body = [READ, encode("s_nop", simm16=15), FP8]
    assert findings(*body, back) == 1
    roomy = [encode("s_nop", simm16=15), READ, FP8]
    assert findings(*roomy, back) == 0


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.hsaco"))])
def test_compiled_objects_have_no_finding(name):
    data = (FOLDER / f"{name}.hsaco").read_bytes()
    assert lint(reachable(read_code_object(data))) == ()
