"""Each scalar instruction against Python integers: result and SCC."""

import numpy as np
import pytest

from nkc.verify.gfx950.salu import OPS
from tests.verify.gfx950.snippets import LITERAL, Machine, const, encode
from tests.verify.gfx950.test_valu import EDGES, M32, M64, signed

VALUES32 = [*EDGES, 5, 0xFFFFFFFE, 0x80000001, 0x00200004, 0x00080010]
VALUES64 = [0, 1, M64, 1 << 63, 0x123456789ABCDEF0, 0xFFFFFFFF, 1 << 32]


def bits(width: int):
    mask = (1 << width) - 1
    return {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "andn2": lambda a, b: a & ~b & mask,
        "orn2": lambda a, b: (a | ~b) & mask,
        "nand": lambda a, b: ~(a & b) & mask,
        "nor": lambda a, b: ~(a | b) & mask,
        "xnor": lambda a, b: ~(a ^ b) & mask,
        "lshl": lambda a, b: a << (b % width) & mask,
        "lshr": lambda a, b: a >> (b % width),
        "ashr": lambda a, b: signed(a, width) >> (b % width) & mask,
    }


def field(a: int, spec: int, width: int) -> int:
    return a >> (spec % width) & (1 << min(spec >> 16 & 127, width)) - 1


def signed_field(a: int, spec: int, width: int) -> int:
    count = spec >> 16 & 127
    if not count:
        return 0
    value = signed(a, width) >> (spec % width)
    return signed(value & (1 << count) - 1, count) if count < width else value


# mnemonic -> (function giving the result, function giving SCC from operands and result, or None where SCC is kept)
def _nonzero(*args):
    return args[-1] != 0


MEANING = {"s_mov_b32": (lambda a: a, None), "s_mov_b64": (lambda a: a, None)}
for _width in (32, 64):
    for _name, _run in bits(_width).items():
        _kind = "i" if _name == "ashr" else "b"
        MEANING[f"s_{_name}_{_kind}{_width}"] = (_run, _nonzero)
    _mask = (1 << _width) - 1
    MEANING |= {
        f"s_not_b{_width}": (lambda a, m=_mask: ~a & m, _nonzero),
        f"s_bcnt1_i32_b{_width}": (lambda a: f"{a:b}".count("1"), _nonzero),
        f"s_bcnt0_i32_b{_width}": (lambda a, w=_width: w - f"{a:b}".count("1"), _nonzero),
        f"s_ff1_i32_b{_width}": (lambda a: (a & -a).bit_length() - 1 if a else M32, None),
        f"s_flbit_i32_b{_width}": (lambda a, w=_width: w - a.bit_length() if a else M32, None),
        f"s_bfm_b{_width}": (lambda a, b, w=_width: ((1 << a % w) - 1) << (b % w) & (1 << w) - 1, None),
        f"s_brev_b{_width}": (lambda a, w=_width: int(f"{a:0{w}b}"[::-1], 2), None),
        f"s_bfe_u{_width}": (lambda a, b, w=_width: field(a, b, w), _nonzero),
        f"s_bfe_i{_width}": (lambda a, b, w=_width: signed_field(a, b, w) & (1 << w) - 1, _nonzero),
        f"s_bitcmp0_b{_width}": (None, lambda a, b, w=_width: not a >> (b % w) & 1),
        f"s_bitcmp1_b{_width}": (None, lambda a, b, w=_width: bool(a >> (b % w) & 1)),
    }


def _overflow(total: int) -> bool:
    return not -(2**31) <= total < 2**31


MEANING |= {
    "s_sext_i32_i8": (lambda a: signed(a & 255, 8) & M32, None),
    "s_sext_i32_i16": (lambda a: signed(a & 65535, 16) & M32, None),
    "s_add_u32": (lambda a, b: a + b & M32, lambda a, b, r: a + b > M32),
    "s_sub_u32": (lambda a, b: a - b & M32, lambda a, b, r: b > a),
    "s_add_i32": (lambda a, b: a + b & M32, lambda a, b, r: _overflow(signed(a) + signed(b))),
    "s_sub_i32": (lambda a, b: a - b & M32, lambda a, b, r: _overflow(signed(a) - signed(b))),
    "s_mul_i32": (lambda a, b: a * b & M32, None),
    "s_mul_hi_u32": (lambda a, b: a * b >> 32, None),
    "s_mul_hi_i32": (lambda a, b: signed(a) * signed(b) >> 32 & M32, None),
    "s_min_u32": (min, lambda a, b, r: a < b),
    "s_max_u32": (max, lambda a, b, r: a > b),
    "s_min_i32": (lambda a, b: min(a, b, key=signed), lambda a, b, r: signed(a) < signed(b)),
    "s_max_i32": (lambda a, b: max(a, b, key=signed), lambda a, b, r: signed(a) > signed(b)),
    "s_abs_i32": (lambda a: abs(signed(a)) & M32, _nonzero),
    "s_absdiff_i32": (lambda a, b: abs(signed(a - b & M32)) & M32, _nonzero),
    "s_pack_ll_b32_b16": (lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16, None),
    "s_pack_lh_b32_b16": (lambda a, b: a & 0xFFFF | b & 0xFFFF0000, None),
    "s_pack_hh_b32_b16": (lambda a, b: a >> 16 | b & 0xFFFF0000, None),
}
for _shift in (1, 2, 3, 4):
    MEANING[f"s_lshl{_shift}_add_u32"] = (
        lambda a, b, s=_shift: (a << s) + b & M32,
        lambda a, b, r, s=_shift: (a << s) + b > M32,
    )
_RELATIONS = {
    "eq": int.__eq__,
    "lg": int.__ne__,
    "gt": int.__gt__,
    "ge": int.__ge__,
    "lt": int.__lt__,
    "le": int.__le__,
}
for _name, _relation in _RELATIONS.items():
    MEANING[f"s_cmp_{_name}_u32"] = (None, lambda a, b, f=_relation: f(a, b))
    MEANING[f"s_cmp_{_name}_i32"] = (None, lambda a, b, f=_relation: f(signed(a), signed(b)))
MEANING["s_cmp_eq_u64"] = (None, int.__eq__)
MEANING["s_cmp_lg_u64"] = (None, int.__ne__)
ABSENT = {f"s_cmp_{name}_u64" for name in ("gt", "ge", "lt", "le")}  # the table has no such opcode


def test_every_operation_has_a_test():
    immediate = {"s_movk_i32", "s_addk_i32", "s_mulk_i32"} | {name for name in OPS if name.startswith("s_cmpk_")}
    assert {*MEANING, *immediate, *ABSENT} == set(OPS)


@pytest.mark.parametrize("mnemonic", MEANING)
def test_scalar_operations(mnemonic):
    op = OPS[mnemonic]
    result, scc = MEANING[mnemonic]
    left = VALUES64 if op.ins[0].endswith("64") else VALUES32
    right = (
        VALUES64 if len(op.ins) > 1 and op.ins[1].endswith("64") else [*VALUES32, 0x00100008, 0x00400000, 0x00050003]
    )
    pairs = [(a, b) for a in left for b in (right if len(op.ins) > 1 else [0])]
    m = Machine(waves=len(pairs))
    m.sgpr64(4, [a for a, _ in pairs])
    m.sgpr64(6, [b for _, b in pairs])
    m.w.scc[:] = np.arange(len(pairs)) % 2 == 0
    places = {"ssrc0": 4} | ({"ssrc1": 6} if len(op.ins) > 1 else {}) | ({"sdst": 8} if result else {})
    m.run(encode(mnemonic, **places))
    wide = op.out.endswith("64")
    for lane, (a, b) in enumerate(pairs):
        operands = (a, b)[: len(op.ins)]
        wanted = None
        if result is not None:
            wanted = result(*operands)
            got = int(m.w.S64[lane, 4]) if wide else int(m.w.S[lane, 8])
            assert got == wanted, (mnemonic, hex(a), hex(b), hex(got), hex(wanted))
        flag = (lane % 2 == 0) if scc is None else scc(*operands) if result is None else scc(*operands, wanted)
        assert bool(m.w.scc[lane]) == bool(flag), (mnemonic, hex(a), hex(b))


def test_immediate_forms():
    m = Machine(waves=2)
    m.w.S[:, 4] = [100, 0x7FFFFFFF]
    m.w.S[:, 5] = [7, 0xFFFFFFF0]
    m.run(
        encode("s_movk_i32", sdst=6, simm16=0xFFFE),
        encode("s_addk_i32", sdst=4, simm16=5),
        encode("s_cselect_b32", sdst=7, ssrc0=const(1), ssrc1=const(2)),
        encode("s_mulk_i32", sdst=5, simm16=0xFFFF),
        encode("s_cmpk_eq_i32", sdst=5, simm16=16),
        encode("s_cselect_b32", sdst=8, ssrc0=const(1), ssrc1=const(2)),
        encode("s_cmpk_gt_u32", sdst=5, simm16=0x8000),
        encode("s_cselect_b32", sdst=9, ssrc0=const(1), ssrc1=const(2)),
        encode("s_mov_b32", sdst=10, ssrc0=LITERAL, literal=0xDEADBEEF),
    )
    assert m.w.S[:, 4:11].tolist() == [
        [105, 0xFFFFFFF9, 0xFFFFFFFE, 2, 2, 1, 0xDEADBEEF],
        [0x80000004, 16, 0xFFFFFFFE, 1, 1, 2, 0xDEADBEEF],
    ]


def test_exec_and_selection():
    m = Machine()
    m.execute(0xFF00)
    m.sgpr64(4, 0x0FF0)
    m.run(
        encode("s_and_saveexec_b64", sdst=8, ssrc0=4),
        encode("s_cselect_b64", sdst=10, ssrc0=4, ssrc1=const(-1)),
        encode("s_bitset1_b32", sdst=4, ssrc0=const(31)),
        encode("s_bitset0_b32", sdst=4, ssrc0=const(4)),
        encode("s_getpc_b64", sdst=12),
    )
    assert int(m.w.S64[0, 4]) == 0xFF00
    assert int(m.w.S64[0, 63]) == 0x0F00
    assert m.w.mask[0].tolist() == [8 <= lane < 12 for lane in range(64)]
    assert int(m.w.S64[0, 5]) == 0x0FF0
    assert int(m.w.S[0, 4]) == 0x80000FE0
    assert int(m.w.S64[0, 6]) == 20
    m = Machine()
    m.execute(0xFF00)
    m.sgpr64(4, 0x0FF0)
    m.run(encode("s_andn2_saveexec_b64", sdst=8, ssrc0=4))
    assert int(m.w.S64[0, 63]) == 0x00F0
    m = Machine()
    m.execute(0xFF00)
    m.sgpr64(4, 0x0FF0)
    m.run(encode("s_or_saveexec_b64", sdst=8, ssrc0=4))
    assert int(m.w.S64[0, 63]) == 0xFFF0


def test_carry_chain():
    m = Machine(waves=2)
    m.sgpr64(4, [0xFFFFFFFF_FFFFFFFF, 5])
    m.sgpr64(6, [1, 0xFFFFFFFF])
    m.run(
        encode("s_add_u32", sdst=8, ssrc0=4, ssrc1=6),
        encode("s_addc_u32", sdst=9, ssrc0=5, ssrc1=7),
        encode("s_sub_u32", sdst=10, ssrc0=4, ssrc1=6),
        encode("s_subb_u32", sdst=11, ssrc0=5, ssrc1=7),
    )
    assert [int(v) for v in m.w.S64[:, 4]] == [0, 5 + 0xFFFFFFFF]
    assert [int(v) for v in m.w.S64[:, 5]] == [M64 - 1, (5 - 0xFFFFFFFF) & M64]


def test_branches():
    m = Machine()
    move = [encode("s_mov_b32", sdst=4, ssrc0=const(value)) for value in (1, 2)]
    m.w.S[:, 4] = 0
    m.sgpr64(106, 0)
    m.run(encode("s_cbranch_vccnz", simm16=1), move[0], encode("s_cbranch_vccz", simm16=1), move[1])
    assert int(m.w.S[0, 4]) == 1
