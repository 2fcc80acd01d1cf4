"""The decoder refuses what it does not know, and says what."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.decode import decode, decode_all
from nkc.verify.gfx950.instruction import SCC, SGPR0, DecodeError
from nkc.verify.gfx950.listing import instruction_text
from tests.verify.gfx950.cases import FOLDER


def _decode(*words: int):
    return decode(struct.pack(f"<{len(words)}I", *words), 0)


@given(st.binary(min_size=4, max_size=20))
def test_any_bytes_decode_or_are_refused(data):
    data = data[: len(data) // 4 * 4]
    try:
        inst = decode(data, 0)
    except DecodeError as error:
        message = str(error)
    else:
        message = f"pc 0x0: {instruction_text(inst)}"
        assert 4 <= inst.size <= len(data)
    assert message.startswith("pc 0x0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((0xBEFFFF00,), "unknown opcode 255"),
        ((0xE8000000, 0), "unknown encoding"),
        ((0x7E0002FF,), "the literal is cut off"),
        ((0xD1010000 | 0, 255), "a literal constant is not allowed in VOP3"),
        ((0x7E0002D1,), "source operand encoding 209 is not supported"),
        ((0xD3AC0000, 0, 0, 0), "not followed by a scaled MFMA"),
        ((0xC0020000 | 1 << 13, 0), "reserved bits 0x2000 are set"),
        ((0xD8000000,), "cut off"),
    ],
)
def test_what_is_not_known_is_named(words, message):
    with pytest.raises(DecodeError, match=message):
        _decode(*words)


def test_unused_register_fields_must_be_zero():
    with pytest.raises(DecodeError, match="v_add_f32: unused field src2 is 5, expected 0"):
        _decode(0xD1010000, 5 << 18)


def test_register_sets():
    add = _decode(0x32020403)  # v_add_co_u32 v1, vcc, s3, v2
    assert add.writes == 1 << 1 | 3 << SGPR0 + 106
    assert add.reads == 1 << 2 | 1 << SGPR0 + 3
    select = _decode(0x00020403)  # v_cndmask_b32 v1, s3, v2, vcc
    assert select.reads & 3 << SGPR0 + 106
    compare = _decode(0xBF060102)  # s_cmp_eq_u32 s2, s1
    assert compare.writes == SCC
    # v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel_hi:[0,1]: src0 gives its low half twice
    pk = _decode(0xD3B14002, 0x10020D04)
    assert instruction_text(pk) == "v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel_hi:[0,1]"
    assert (pk.reads, pk.writes) == (1 << 4 | 1 << 6 | 1 << 7, 1 << 2 | 1 << 3)


def test_all_objects_decode_to_the_end():
    for path in sorted(FOLDER.glob("*.hsaco")):
        kernel = read_code_object(path.read_bytes())
        insts = decode_all(kernel.text, kernel.entry, kernel.end)
        assert insts[-1].mnemonic == "s_endpgm"
        assert insts[-1].next_pc == kernel.end
