"""Machine code to instructions. Whatever the tables do not know, or a field that should be zero, is an error.

Addressing widths are corrected where the ISA tables give the widest case.
"""

import functools
import struct

from nkc.verify.gfx950 import isa
from nkc.verify.gfx950.instruction import AGPR0, INLINE_FLOAT, SGPR0, DecodeError, Instruction, Kind, Operand
from nkc.verify.gfx950.register_sets import register_sets

LITERAL, DPP, SDWA = 255, 250, 249


def _select_format(word: int) -> str:
    """Return the format of an instruction from its first dword."""
    if word >> 31 == 0:
        return {0x3E: "VOPC", 0x3F: "VOP1"}.get(word >> 25, "VOP2")
    if word >> 30 == 0b10:
        return {0x17D: "SOP1", 0x17E: "SOPC", 0x17F: "SOPP"}.get(word >> 23, "SOPK" if word >> 28 == 0b1011 else "SOP2")
    if word >> 23 == 0b110100111:
        op = isa.opcodes()["VOP3P"].get(word >> 16 & 0x7F)
        if op is not None and op.mnemonic == "v_mfma_ld_scale_b32":
            return "VOP3PX2"
        return "MFMA" if op is not None and op.mnemonic.startswith(("v_mfma", "v_smfmac", "v_accvgpr")) else "VOP3P"
    match word >> 26:
        case 0b110000:
            return "SMEM"
        case 0b110100:
            return "VOP3SD" if word >> 16 & 0x3FF in isa.opcodes()["VOP3SD"] else "VOP3"
        case 0b110110:
            return "DS"
        case 0b110111:
            return {0: "FLAT", 1: "SCRATCH", 2: "GLOBAL"}.get(word >> 14 & 3, "unknown")
        case 0b111000:
            return "MUBUF"
    return "unknown"


def _extract(raw: int, layout: isa.Format) -> dict[str, int]:
    return {name: raw >> low & ((1 << (high - low + 1)) - 1) for name, (high, low) in layout.fields.items()}


@functools.cache
def _uncovered(name: str) -> int:
    """Return the mask of bits that no field and no prefix of format `name` covers."""
    layout = isa.FORMATS[name]
    covered = 0
    spans = [*layout.fields.values()]
    if name in isa.PREFIX:
        spans.append(isa.Field(*isa.PREFIX[name]))
    if name == "VOP3PX2":
        spans.append(isa.Field(95, 87))
    for high, low in spans:
        covered |= ((1 << (high - low + 1)) - 1) << low
    return ~covered & ((1 << (32 * layout.dwords)) - 1)


def source(code: int, registers: int, literal: int = 0) -> Operand:
    """Return the operand that a 9-bit (or 8-bit) source encoding names."""
    if code >= 256:
        return Operand(Kind.VECTOR, code - 256, registers)
    if code < 128:
        return Operand(Kind.SCALAR, SGPR0 + code, registers)
    if code <= 192:
        return Operand(Kind.CONSTANT, code, registers, code - 128)
    if code <= 208:
        return Operand(Kind.CONSTANT, code, registers, 192 - code)
    if code in INLINE_FLOAT or code in (251, 252, 253):
        return Operand(Kind.CONSTANT, code, registers)
    if code == LITERAL:
        return Operand(Kind.CONSTANT, code, registers, literal)
    raise DecodeError(f"source operand encoding {code} is not supported")


def _vector(index: int, bits: int, acc: int = 0) -> Operand:
    return Operand(Kind.VECTOR, index + (AGPR0 if acc else 0), max(1, bits // 32))


def _scalar(index: int, bits: int) -> Operand:
    return Operand(Kind.SCALAR, SGPR0 + index, max(1, bits // 32))


_F8F6F4_REGISTERS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}


def decode(code: bytes, pc: int) -> Instruction:
    """Return the instruction at byte offset `pc` of `code`.

    Errors: `DecodeError` naming the offset and the word, opcode, modifier or field that is not known.
    """
    if pc % 4 or pc + 4 > len(code):
        raise DecodeError(f"pc {pc:#x}: not an instruction inside .text of {len(code)} bytes")
    word = struct.unpack_from("<I", code, pc)[0]
    name = _select_format(word)
    try:
        return _decode(code, pc, name)
    except DecodeError as error:
        raise DecodeError(f"pc {pc:#x} ({word:#010x}, {name}): {error}") from None


def _decode(code: bytes, pc: int, name: str) -> Instruction:
    if name not in isa.FORMATS:
        raise DecodeError("unknown encoding")
    layout = isa.FORMATS[name]
    size = 4 * layout.dwords
    raw = int.from_bytes(code[pc : pc + size].ljust(size, b"\0"), "little")
    if len(code) < pc + size:
        raise DecodeError("the instruction is cut off at the end of .text")
    fields = _extract(raw, layout)
    if name == "VOP3PX2":
        second = raw >> 87 & 0x1FF
        if second != 0b110100111 or any(fields[key] for key in ("zero0", "zero1", "zero2")):
            raise DecodeError("v_mfma_ld_scale_b32 is not followed by a scaled MFMA")
    table = {"MFMA": "VOP3P"}.get(name, name)
    opcode = isa.opcodes()[table].get(fields["op"])
    if opcode is None:
        raise DecodeError(f"unknown opcode {fields['op']}")
    mnemonic, widths = opcode
    if name in ("MFMA", "VOP3P") and "vdst" not in widths:
        raise DecodeError(f"{mnemonic} does not exist on gfx950")
    if stray := raw & _uncovered(name):
        raise DecodeError(f"{mnemonic}: reserved bits {stray:#x} are set")
    extra: dict[str, int] = {}
    literal = 0
    sources = {key: fields[key] for key in ("src0", "src1", "ssrc0", "ssrc1") if key in fields and key in widths}
    if LITERAL in sources.values() or mnemonic in _TRAILING_CONSTANT:
        if name not in ("SOP1", "SOP2", "SOPC", "SOPK", "VOP1", "VOP2", "VOPC"):
            raise DecodeError(f"{mnemonic}: a literal constant is not allowed in {name}")
        if len(code) < pc + size + 4:
            raise DecodeError("the literal is cut off at the end of .text")
        literal = struct.unpack_from("<I", code, pc + size)[0]
        extra["literal"] = literal
        size += 4
    if name in ("VOP1", "VOP2", "VOPC") and fields["src0"] in (DPP, SDWA):
        kind = "DPP" if fields["src0"] == DPP else "SDWAB" if name == "VOPC" else "SDWA"
        if len(code) < pc + size + 4:
            raise DecodeError(f"the {kind} dword is cut off at the end of .text")
        word = struct.unpack_from("<I", code, pc + size)[0]
        if stray := word & _uncovered(kind):
            raise DecodeError(f"{mnemonic}: reserved bits {stray:#x} of the {kind} dword are set")
        modifiers = _extract(word, isa.FORMATS[kind])
        _check_modifiers(mnemonic, modifiers)
        scalar0 = modifiers.get("s0", 0)
        fields = {**fields, "src0": modifiers.pop("src0") + (0 if scalar0 else 256)}
        extra |= modifiers
        extra["dpp_word" if kind == "DPP" else "sdwa_word"] = word
        size += 4
    operands = _operands(name, mnemonic, widths, fields, extra, literal)
    if name not in ("VOP3PX2",):
        _unused_are_zero(name, mnemonic, widths, fields)
    kept = {key: value for key, value in (fields | extra).items() if not key.startswith("zero")}
    draft = Instruction(pc, size, name, mnemonic, operands, kept, raw)
    reads, writes = register_sets(draft)
    return Instruction(pc, size, name, mnemonic, operands, kept, raw, reads, writes)


def _check_modifiers(mnemonic: str, modifiers: dict[str, int]) -> None:
    """Refuse DPP controls and SDWA selections that the ISA does not define."""
    control = modifiers.get("dpp", 0)
    if control >= 0x100 and control not in _DPP_CONTROLS:
        raise DecodeError(f"{mnemonic}: unknown DPP control {control:#x}")
    for key in ("dst_sel", "src0_sel", "src1_sel"):
        if modifiers.get(key, 0) == 7:
            raise DecodeError(f"{mnemonic}: unknown SDWA selection {key} 7")
    if modifiers.get("dst_unused", 0) == 3:
        raise DecodeError(f"{mnemonic}: unknown SDWA modifier dst_unused 3")


_DPP_CONTROLS = {
    *range(0x101, 0x110),
    *range(0x111, 0x120),
    *range(0x121, 0x130),
    *(0x130, 0x134, 0x138, 0x13C),
    *range(0x140, 0x144),
    *range(0x150, 0x160),
}
_TRAILING_CONSTANT = {"v_fmamk_f32", "v_fmaak_f32", "v_madmk_f16", "v_madak_f16", "s_setreg_imm32_b32"}


def _unused_are_zero(name: str, mnemonic: str, widths: dict[str, int], fields: dict[str, int]) -> None:
    """Refuse a register field that the mnemonic does not use but that is not zero: the tables would be wrong."""
    for key in ("src0", "src1", "src2", "vdst", "data", "data0", "data1", "ssrc0"):
        used = key in widths or (key == "vdst" and "sdst" in widths) or (key == "data0" and "data" in widths)
        if name in ("VOP3", "VOP3SD", "VOP3P", "MFMA", "DS", "GLOBAL", "FLAT", "SCRATCH", "SOP1") and key in fields:
            ignored = name == "MFMA" and not mnemonic.startswith(("v_mfma", "v_smfmac"))
            if not used and fields[key] and not ignored:
                raise DecodeError(f"{mnemonic}: unused field {key} is {fields[key]}, expected 0")


def _operands(
    name: str, mnemonic: str, widths: dict[str, int], fields: dict[str, int], extra: dict[str, int], literal: int
) -> dict[str, Operand]:
    """Return the operands in the order destination, sources, addresses."""
    out: dict[str, Operand] = {}
    regs = {key: max(1, bits // 32) for key, bits in widths.items()}
    acc = fields.get("acc", 0)
    if name == "SMEM":
        if fields["nv"]:
            raise DecodeError(f"{mnemonic}: modifier nv is not supported")
        if "sdata" in widths:
            out["sdata"] = _scalar(fields["sdata"], widths["sdata"])
        if "sbase" in widths:
            out["sbase"] = _scalar(2 * fields["sbase"], widths["sbase"])
            if fields["soffset_en"]:
                out["soffset"] = _scalar(fields["soffset"], 32)
        return out
    if name == "DS":
        if "vdst" in widths:
            out["vdst"] = _vector(fields["vdst"], widths["vdst"], acc)
        if "addr" in widths:
            out["addr"] = _vector(fields["addr"], widths["addr"])
        for key in ("data0", "data1"):
            if key in widths:
                out[key] = _vector(fields[key], widths[key], acc)
        return out
    if name in ("FLAT", "GLOBAL", "SCRATCH"):
        if "vdst" in widths and (fields["sc0"] or "atomic" not in mnemonic):
            out["vdst"] = _vector(fields["vdst"], widths["vdst"], acc)
        use_saddr = name != "FLAT" and fields["saddr"] != 0x7F
        if name == "SCRATCH":
            if fields["sve"]:
                out["addr"] = _vector(fields["addr"], 32)
            if use_saddr:
                out["saddr"] = _scalar(fields["saddr"], 32)
        else:
            if fields["sve"]:
                raise DecodeError(f"{mnemonic}: field sve is set outside scratch")
            out["addr"] = _vector(fields["addr"], 32 if use_saddr else 64)
            if use_saddr:
                out["saddr"] = _scalar(fields["saddr"], 64)
        if "data" in widths:
            out["data"] = _vector(fields["data"], widths["data"], acc)
        return out
    if name == "MUBUF":
        if fields["lds"] and "_load_" not in mnemonic:
            raise DecodeError(f"{mnemonic}: modifier lds on something that is not a load")
        if "vdata" in widths and not fields["lds"]:
            out["vdata"] = _vector(fields["vdata"], widths["vdata"], acc)
        if "srsrc" in widths:
            if count := fields["offen"] + fields["idxen"]:
                out["vaddr"] = _vector(fields["vaddr"], 32 * count)
            out["srsrc"] = _scalar(4 * fields["srsrc"], 128)
            out["soffset"] = source(fields["soffset"], 1)
        return out
    if name in ("MFMA", "VOP3PX2"):
        out["vdst"] = _vector(fields["vdst"], widths["vdst"], fields["acc_cd"])
        for position, key in enumerate(("src0", "src1", "src2")):
            if key not in widths:
                continue
            count = regs[key]
            if "f8f6f4" in mnemonic and key != "src2":
                form = fields["cbsz" if key == "src0" else "blgp"]
                if form not in _F8F6F4_REGISTERS:
                    raise DecodeError(f"{mnemonic}: unknown matrix format {form}")
                count = _F8F6F4_REGISTERS[form]
            operand = source(fields[key], count)
            from_acc = fields["acc"] >> position & 1 if key != "src2" else fields["acc_cd"]
            if operand.kind is Kind.VECTOR and from_acc:
                operand = Operand(Kind.VECTOR, operand.index + AGPR0, count)
            out[key] = operand
        if mnemonic == "v_accvgpr_read_b32":  # the acc bits are fixed here and say nothing
            out["src0"] = Operand(Kind.VECTOR, fields["src0"] - 256 + AGPR0)
            out["vdst"] = Operand(Kind.VECTOR, fields["vdst"])
        if mnemonic == "v_accvgpr_write_b32":
            out["src0"] = source(fields["src0"], 1)
            out["vdst"] = Operand(Kind.VECTOR, fields["vdst"] + AGPR0)
        if name == "VOP3PX2":
            out["scale_src0"] = source(fields["scale_src0"], 1)
            out["scale_src1"] = source(fields["scale_src1"], 1)
        return out
    if name == "SOPK":
        if mnemonic not in ("s_setreg_imm32_b32",):
            out["sdst"] = _scalar(fields["sdst"], widths.get("sdst", 32))
        return out
    # scalar and vector arithmetic
    if "sdst" in widths:
        out_key = "sdst"
        out[out_key] = _scalar(fields["sdst"] if "sdst" in fields else fields["vdst"], widths["sdst"])
    if name == "VOPC" and "sd" in extra and extra["sd"]:
        out["sdst"] = _scalar(extra["sdst"], 64)
    if "vdst" in widths:
        out["vdst"] = _vector(fields["vdst"], widths["vdst"])
    if mnemonic == "v_accvgpr_mov_b32":
        out["vdst"] = Operand(Kind.VECTOR, fields["vdst"] + AGPR0)
    neg, absolute = fields.get("neg", 0), fields.get("abs", 0)
    if name == "VOP3P" or mnemonic.startswith("v_bitop3"):
        neg = absolute = 0  # kept in the fields: packed operations negate halves
    for position, key in enumerate(("src0", "src1", "src2")):
        if key in widths and key in fields:
            base = source(fields[key], regs[key], literal)
            if mnemonic == "v_accvgpr_mov_b32":
                base = Operand(Kind.VECTOR, base.index + AGPR0)
            n = bool(neg >> position & 1) or bool(extra.get(f"neg{position}", 0))
            a = bool(absolute >> position & 1) or bool(extra.get(f"abs{position}", 0))
            out[key] = Operand(base.kind, base.index, base.registers, base.value, n, a)
    if "vsrc1" in widths:
        index = fields["vsrc1"] if extra.get("s1") else fields["vsrc1"] + 256
        base = source(index, regs["vsrc1"])
        out["vsrc1"] = Operand(
            base.kind, base.index, base.registers, 0, bool(extra.get("neg1")), bool(extra.get("abs1"))
        )
    for key in ("ssrc0", "ssrc1"):
        if key in widths:
            out[key] = source(fields[key], regs[key], literal)
    return out


def decode_all(code: bytes, start: int, end: int) -> tuple[Instruction, ...]:
    """Return the instructions of [start, end), in order. Errors: as `decode`."""
    out = []
    pc = start
    while pc < end:
        inst = decode(code, pc)
        out.append(inst)
        pc = inst.next_pc
    return tuple(out)


__all__ = ["DecodeError", "decode", "decode_all", "source"]
