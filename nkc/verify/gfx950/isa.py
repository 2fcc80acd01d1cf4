"""The instruction encodings of gfx950 as facts: field positions here, opcodes and operand widths in isa.json.

Source: AMD's published CDNA4 ISA description (opcodes and widths by way of tinygrad 0.14's tables, see
`tests/verify/gfx950/isa_from_tinygrad.py`). Positions are (high bit, low bit) of the little-endian instruction.
"""

import functools
import json
from importlib.resources import files
from typing import NamedTuple


class Field(NamedTuple):
    """One bit field; `high` and `low` count from bit 0 of the first dword."""

    high: int
    low: int


class Opcode(NamedTuple):
    """A mnemonic and the width in bits of each operand it really uses."""

    mnemonic: str
    operands: dict[str, int]


class Format(NamedTuple):
    """One encoding: its length without a literal and its fields (`op` among them)."""

    name: str
    dwords: int
    fields: dict[str, Field]


def _format(name: str, dwords: int, **fields: tuple[int, int]) -> Format:
    return Format(name, dwords, {key: Field(*bits) for key, bits in fields.items()})


_FLAT = {
    "offset": (12, 0),
    "sve": (13, 13),
    "seg": (15, 14),
    "sc0": (16, 16),
    "nt": (17, 17),
    "op": (24, 18),
    "sc1": (25, 25),
    "addr": (39, 32),
    "data": (47, 40),
    "saddr": (54, 48),
    "acc": (55, 55),
    "vdst": (63, 56),
}

FORMATS = {
    item.name: item
    for item in (
        _format("SOP1", 1, ssrc0=(7, 0), op=(15, 8), sdst=(22, 16)),
        _format("SOP2", 1, ssrc0=(7, 0), ssrc1=(15, 8), sdst=(22, 16), op=(29, 23)),
        _format("SOPC", 1, ssrc0=(7, 0), ssrc1=(15, 8), op=(22, 16)),
        _format("SOPK", 1, simm16=(15, 0), sdst=(22, 16), op=(27, 23)),
        _format("SOPP", 1, simm16=(15, 0), op=(22, 16)),
        _format(
            "SMEM",
            2,
            sbase=(5, 0),
            sdata=(12, 6),
            soffset_en=(14, 14),
            nv=(15, 15),
            glc=(16, 16),
            imm=(17, 17),
            op=(25, 18),
            offset=(52, 32),
            soffset=(63, 57),
        ),
        _format("VOP1", 1, src0=(8, 0), op=(16, 9), vdst=(24, 17)),
        _format("VOP2", 1, src0=(8, 0), vsrc1=(16, 9), vdst=(24, 17), op=(30, 25)),
        _format("VOPC", 1, src0=(8, 0), vsrc1=(16, 9), op=(24, 17)),
        _format(
            "VOP3",
            2,
            vdst=(7, 0),
            abs=(10, 8),
            opsel=(14, 11),
            clamp=(15, 15),
            op=(25, 16),
            src0=(40, 32),
            src1=(49, 41),
            src2=(58, 50),
            omod=(60, 59),
            neg=(63, 61),
        ),
        _format(
            "VOP3SD",
            2,
            vdst=(7, 0),
            sdst=(14, 8),
            clamp=(15, 15),
            op=(25, 16),
            src0=(40, 32),
            src1=(49, 41),
            src2=(58, 50),
            omod=(60, 59),
            neg=(63, 61),
        ),
        _format(
            "VOP3P",
            2,
            vdst=(7, 0),
            neg_hi=(10, 8),
            opsel=(13, 11),
            opsel_hi2=(14, 14),
            clamp=(15, 15),
            op=(22, 16),
            src0=(40, 32),
            src1=(49, 41),
            src2=(58, 50),
            opsel_hi=(60, 59),
            neg=(63, 61),
        ),
        _format(
            "MFMA",
            2,
            vdst=(7, 0),
            cbsz=(10, 8),
            abid=(14, 11),
            acc_cd=(15, 15),
            op=(22, 16),
            src0=(40, 32),
            src1=(49, 41),
            src2=(58, 50),
            acc=(60, 59),
            blgp=(63, 61),
        ),
        _format(  # a v_mfma_ld_scale_b32 dword pair in front of a plain MFMA
            "VOP3PX2",
            4,
            zero0=(7, 0),
            neg_hi=(10, 8),
            opsel=(13, 11),
            zero1=(15, 14),
            scale_src0=(40, 32),
            scale_src1=(49, 41),
            zero2=(58, 50),
            opsel_hi=(60, 59),
            neg=(63, 61),
            vdst=(71, 64),
            cbsz=(74, 72),
            abid=(78, 75),
            acc_cd=(79, 79),
            op=(86, 80),
            src0=(104, 96),
            src1=(113, 105),
            src2=(122, 114),
            acc=(124, 123),
            blgp=(127, 125),
        ),
        _format(
            "DS",
            2,
            offset0=(7, 0),
            offset1=(15, 8),
            gds=(16, 16),
            op=(24, 17),
            acc=(25, 25),
            addr=(39, 32),
            data0=(47, 40),
            data1=(55, 48),
            vdst=(63, 56),
        ),
        _format("FLAT", 2, **_FLAT),
        _format("GLOBAL", 2, **_FLAT),
        _format("SCRATCH", 2, **_FLAT),
        _format(
            "MUBUF",
            2,
            offset=(11, 0),
            offen=(12, 12),
            idxen=(13, 13),
            sc0=(14, 14),
            sc1=(15, 15),
            lds=(16, 16),
            nt=(17, 17),
            op=(24, 18),
            vaddr=(39, 32),
            vdata=(47, 40),
            srsrc=(52, 48),
            acc=(55, 55),
            soffset=(63, 56),
        ),
        # The second dword that replaces src0 = 250 (DPP) or 249 (SDWA) in VOP1, VOP2 and VOPC.
        _format(
            "DPP",
            1,
            src0=(7, 0),
            dpp=(16, 8),
            bound_ctrl=(19, 19),
            neg0=(20, 20),
            abs0=(21, 21),
            neg1=(22, 22),
            abs1=(23, 23),
            bank_mask=(27, 24),
            row_mask=(31, 28),
        ),
        _format(
            "SDWA",
            1,
            src0=(7, 0),
            dst_sel=(10, 8),
            dst_unused=(12, 11),
            clamp=(13, 13),
            omod=(15, 14),
            src0_sel=(18, 16),
            src0_sext=(19, 19),
            neg0=(20, 20),
            abs0=(21, 21),
            s0=(23, 23),
            src1_sel=(26, 24),
            src1_sext=(27, 27),
            neg1=(28, 28),
            abs1=(29, 29),
            s1=(31, 31),
        ),
        _format(  # the VOPC form of SDWA
            "SDWAB",
            1,
            src0=(7, 0),
            sdst=(14, 8),
            sd=(15, 15),
            src0_sel=(18, 16),
            src0_sext=(19, 19),
            neg0=(20, 20),
            abs0=(21, 21),
            s0=(23, 23),
            src1_sel=(26, 24),
            src1_sext=(27, 27),
            neg1=(28, 28),
            abs1=(29, 29),
            s1=(31, 31),
        ),
    )
}

# Bits that must be zero because no field covers them are checked by the decoder from these masks.
PREFIX = {  # format -> the fixed top bits as (high, low) of the first dword
    "SOP1": (31, 23),
    "SOP2": (31, 30),
    "SOPC": (31, 23),
    "SOPK": (31, 28),
    "SOPP": (31, 23),
    "SMEM": (31, 26),
    "VOP1": (31, 25),
    "VOP2": (31, 31),
    "VOPC": (31, 25),
    "VOP3": (31, 26),
    "VOP3SD": (31, 26),
    "VOP3P": (31, 23),
    "MFMA": (31, 23),
    "VOP3PX2": (31, 16),
    "DS": (31, 26),
    "FLAT": (31, 26),
    "GLOBAL": (31, 26),
    "SCRATCH": (31, 26),
    "MUBUF": (31, 26),
}


@functools.cache
def opcodes() -> dict[str, dict[int, Opcode]]:
    """Return format -> opcode number -> `Opcode`, read once from isa.json."""
    raw = json.loads(files(__package__).joinpath("isa.json").read_text(encoding="utf-8"))
    return {name: {int(code): Opcode(row[0], row[1]) for code, row in rows.items()} for name, rows in raw.items()}


@functools.cache
def vop_mnemonics() -> frozenset[str]:
    """Return the mnemonics that exist in a short vector encoding; their VOP3 form is printed with _e64."""
    table = opcodes()
    return frozenset(op.mnemonic for name in ("VOP1", "VOP2", "VOPC") for op in table[name].values())
