"""Print decoded instructions in the syntax of LLVM's assembler, so that a listing can be assembled again."""

from collections.abc import Iterable

from nkc.verify.gfx950.code_object import CodeObject
from nkc.verify.gfx950.decode import decode_all
from nkc.verify.gfx950.instruction import AGPR0, INLINE_FLOAT, SGPR0, Instruction, Kind, Operand, wait_counts
from nkc.verify.gfx950.isa import vop_mnemonics

_SPECIAL = {106: "vcc", 124: "m0", 126: "exec", 102: "flat_scratch", 104: "xnack_mask"}
_HALVES = {106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi", 124: "m0", 102: "flat_scratch_lo"}
_HALVES |= {103: "flat_scratch_hi", 104: "xnack_mask_lo", 105: "xnack_mask_hi"}
_CONSTANT_NAMES = {251: "src_vccz", 252: "src_execz", 253: "src_scc"}


def operand_text(operand: Operand) -> str:
    """Return one operand: `v[2:3]`, `s7`, `vcc`, `-1`, `0x70`, `-|v4|`."""
    text = _plain(operand)
    if operand.abs:
        text = f"|{text}|"
    return f"-{text}" if operand.neg else text


def _plain(operand: Operand) -> str:
    index, count = operand.index, operand.registers
    if operand.kind is Kind.CONSTANT:
        if index in INLINE_FLOAT:
            return "0.15915494309189532" if index == 248 else str(INLINE_FLOAT[index])
        if index in _CONSTANT_NAMES:
            return _CONSTANT_NAMES[index]
        return hex(operand.value) if index == 255 else str(operand.value)
    if operand.kind is Kind.VECTOR:
        letter, base = ("a", index - AGPR0) if index >= AGPR0 else ("v", index)
        return f"{letter}{base}" if count == 1 else f"{letter}[{base}:{base + count - 1}]"
    s = index - SGPR0
    if count == 2 and s in _SPECIAL:
        return _SPECIAL[s]
    if count == 1 and s in _HALVES:
        return _HALVES[s]
    if s >= 108:
        return f"ttmp{s - 108}" if count == 1 else f"ttmp[{s - 108}:{s - 108 + count - 1}]"
    return f"s{s}" if count == 1 else f"s[{s}:{s + count - 1}]"


def instruction_text(inst: Instruction, labels: dict[int, str] | None = None) -> str:
    """Return one instruction as the assembler writes it."""
    mnemonic, operands, modifiers = inst.mnemonic, dict(inst.operands), []
    fields = inst.fields
    match inst.format:
        case "SOPP":
            return _sopp(inst, labels or {})
        case "SOPK":
            return _sopk(inst)
        case "VOP1" | "VOP2" | "VOPC":
            mnemonic += _suffix(inst)
            order = _vector_order(inst)
            if "dpp_word" in fields:
                modifiers.append(_dpp_text(fields))
            if "sdwa_word" in fields:
                modifiers.append(_sdwa_text(inst))
        case "VOP3" | "VOP3SD":
            mnemonic += "_e64" if mnemonic in vop_mnemonics() else ""
            order = _vector_order(inst)
            modifiers += _vop3_modifiers(inst)
        case "VOP3P":
            order = [_plain(item) for item in operands.values()]
            modifiers += _packed_modifiers(inst)
        case "MFMA" | "VOP3PX2":
            order = [operand_text(item) for item in operands.values()]
            modifiers += _mfma_modifiers(inst)
        case "SMEM":
            order = _smem(inst)
        case "DS":
            order = [operand_text(item) for item in operands.values()]
            modifiers += _ds_modifiers(inst)
        case "MUBUF":
            order = _mubuf(inst)
            modifiers += _flags(inst, ("idxen", "offen"), ("offset",), ("sc0", "nt", "sc1", "lds"))
        case "FLAT" | "GLOBAL" | "SCRATCH":
            order = _flat(inst)
            signed = (
                fields["offset"] - 0x2000 if inst.format != "FLAT" and fields["offset"] & 0x1000 else fields["offset"]
            )
            modifiers += [f"offset:{signed}"] if signed else []
            modifiers += [flag for flag in ("sc0", "nt", "sc1") if fields[flag]]
        case _:
            order = [operand_text(item) for item in operands.values()]
    return " ".join(part for part in (mnemonic, ", ".join(order), *modifiers) if part)


def _suffix(inst: Instruction) -> str:
    if "dpp_word" in inst.fields:
        return "_dpp"
    if "sdwa_word" in inst.fields:
        return "_sdwa"
    return (
        ""
        if inst.mnemonic
        in ("v_fmamk_f32", "v_fmaak_f32", "v_accvgpr_mov_b32", "v_readfirstlane_b32", "v_nop", "v_swap_b32")
        else "_e32"
    )


def _vector_order(inst: Instruction) -> list[str]:
    """Return operands in assembler order, with the implicit VCC that the syntax spells out."""
    operands = inst.operands
    names = [key for key in ("vdst", "sdst", "src0", "vsrc1", "src1", "src2") if key in operands]
    text = [operand_text(operands[key]) for key in names]
    carries = ("_co_u32" in inst.mnemonic) and inst.format == "VOP2"
    if carries:
        text.insert(1, "vcc")
    if inst.format == "VOPC" and "sdst" not in operands:
        text.insert(0, "vcc")
    if (
        inst.mnemonic in ("v_cndmask_b32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
        and inst.format == "VOP2"
    ):
        text.append("vcc")
    if inst.mnemonic == "v_fmamk_f32":
        text.insert(2, hex(inst.fields["literal"]))
    if inst.mnemonic == "v_fmaak_f32":
        text.append(hex(inst.fields["literal"]))
    return text


def _bits(value: int, count: int) -> str:
    return "[" + ",".join(str(value >> position & 1) for position in range(count)) + "]"


def _vop3_modifiers(inst: Instruction) -> list[str]:
    fields, out = inst.fields, []
    if inst.mnemonic.startswith("v_bitop3"):
        return [f"bitop3:{hex(fields['omod'] << 6 | fields['abs'] << 3 | fields['neg'])}"]
    if opsel := fields.get("opsel", 0):
        out.append("op_sel:" + _bits_with_result(opsel, inst))
    if fields["clamp"]:
        out.append("clamp")
    if fields["omod"]:
        out.append(("", "mul:2", "mul:4", "div:2")[fields["omod"]])
    return out


def _bits_with_result(opsel: int, inst: Instruction) -> str:
    count = sum(key in inst.operands for key in ("src0", "src1", "src2"))
    bits = [opsel >> position & 1 for position in range(count)] + [opsel >> 3 & 1]
    return "[" + ",".join(map(str, bits)) + "]"


def _packed_modifiers(inst: Instruction) -> list[str]:
    fields = inst.fields
    count = sum(key in inst.operands for key in ("src0", "src1", "src2"))
    full = (1 << count) - 1
    high = (fields["opsel_hi"] | fields["opsel_hi2"] << 2) & full
    out = [f"op_sel:{_bits(fields['opsel'], count)}"] if fields["opsel"] else []
    out += [f"op_sel_hi:{_bits(high, count)}"] if high != full else []
    out += [f"neg_lo:{_bits(fields['neg'], count)}"] if fields["neg"] else []
    out += [f"neg_hi:{_bits(fields['neg_hi'], count)}"] if fields["neg_hi"] else []
    return out + (["clamp"] if fields["clamp"] else [])


def _mfma_modifiers(inst: Instruction) -> list[str]:
    fields = inst.fields
    if inst.mnemonic.startswith("v_accvgpr"):
        return []
    out = []
    if inst.format == "VOP3PX2":
        out += [f"op_sel:{_bits(fields['opsel'], 3)}"] if fields["opsel"] else []
        out.append(f"op_sel_hi:{_bits(fields['opsel_hi'], 2)[:-1]},0]")
    out += [f"{key}:{fields[key]}" for key in ("cbsz", "abid", "blgp") if fields[key] and not (key == "abid" and out)]
    return out


def _dpp_text(fields: dict[str, int]) -> str:
    control = fields["dpp"]
    if control < 0x100:
        text = "quad_perm:[" + ",".join(str(control >> 2 * lane & 3) for lane in range(4)) + "]"
    elif control in _DPP_NAMES:
        text = _DPP_NAMES[control]
    else:
        kind = {0x10: "row_shl", 0x11: "row_shr", 0x12: "row_ror", 0x15: "row_newbcast"}.get(
            control >> 4, "row_unknown"
        )
        text = f"{kind}:{control & 15}"
    text += f" row_mask:{hex(fields['row_mask'])} bank_mask:{hex(fields['bank_mask'])}"
    return text + (" bound_ctrl:1" if fields["bound_ctrl"] else "")


_DPP_NAMES = {
    0x130: "wave_shl:1",
    0x134: "wave_rol:1",
    0x138: "wave_shr:1",
    0x13C: "wave_ror:1",
    0x140: "row_mirror",
    0x141: "row_half_mirror",
    0x142: "row_bcast:15",
    0x143: "row_bcast:31",
}
_SELECTIONS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")


def _sdwa_text(inst: Instruction) -> str:
    fields = inst.fields
    parts = []
    if inst.format != "VOPC":
        parts.append(f"dst_sel:{_SELECTIONS[fields['dst_sel']]}")
        parts.append("dst_unused:" + ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")[fields["dst_unused"]])
    parts.append(f"src0_sel:{_SELECTIONS[fields['src0_sel']]}")
    if "vsrc1" in inst.operands:
        parts.append(f"src1_sel:{_SELECTIONS[fields['src1_sel']]}")
    return " ".join(parts)


def _sopp(inst: Instruction, labels: dict[int, str]) -> str:
    name, value = inst.mnemonic, inst.fields["simm16"]
    if name in ("s_endpgm", "s_barrier", "s_icache_inv"):
        return name
    if name == "s_waitcnt":
        counts = zip(("vmcnt", "expcnt", "lgkmcnt"), wait_counts(value), (63, 7, 15), strict=True)
        parts = [f"{key}({count})" for key, count, most in counts if count != most]
        return " ".join([name, *parts]) if parts else f"{name} 0x{value:x}"
    if name in ("s_branch",) or name.startswith("s_cbranch"):
        return f"{name} {labels.get(inst.target, hex(inst.target))}"
    return f"{name} {value}"


def _sopk(inst: Instruction) -> str:
    value = inst.fields["simm16"]
    if inst.mnemonic.startswith("s_setreg") or inst.mnemonic == "s_getreg_b32":
        register = {1: "HW_REG_MODE", 4: "HW_REG_HW_ID", 20: "HW_REG_XCC_ID"}.get(value & 63, str(value & 63))
        size, offset = (value >> 11 & 31) + 1, value >> 6 & 31
        where = f"hwreg({register})" if (offset, size) == (0, 32) else f"hwreg({register}, {offset}, {size})"
        if inst.mnemonic == "s_setreg_imm32_b32":
            literal = inst.fields["literal"]
            return f"{inst.mnemonic} {where}, {literal if literal <= 64 else hex(literal)}"
        first = operand_text(inst.operands["sdst"])
        return (
            f"s_getreg_b32 {first}, {where}" if inst.mnemonic == "s_getreg_b32" else f"{inst.mnemonic} {where}, {first}"
        )
    shown = hex(value) if inst.mnemonic != "s_nop" else str(value)
    return f"{inst.mnemonic} {operand_text(inst.operands['sdst'])}, {shown}"


def _smem(inst: Instruction) -> list[str]:
    text = [operand_text(item) for item in inst.operands.values()]
    if inst.fields["imm"] and "sbase" in inst.operands:
        offset = inst.fields["offset"]
        offset -= (1 << 21) if offset >> 20 & 1 else 0
        if "soffset" in inst.operands:
            return [*text, f"offset:{hex(offset)}"] if offset else text
        text.append(hex(offset))
    return text


def _ds_modifiers(inst: Instruction) -> list[str]:
    low, high = inst.fields["offset0"], inst.fields["offset1"]
    if "read2" in inst.mnemonic or "write2" in inst.mnemonic or "xchg2" in inst.mnemonic:
        return [f"{key}:{value}" for key, value in (("offset0", low), ("offset1", high)) if value]
    if inst.mnemonic == "ds_swizzle_b32":
        return [f"offset:{low | high << 8}"]
    both = low | high << 8
    return [f"offset:{both}"] if both else []


def _flags(inst: Instruction, first: Iterable[str], valued: Iterable[str], last: Iterable[str]) -> list[str]:
    out = [flag for flag in first if inst.fields[flag]]
    out += [f"{key}:{inst.fields[key]}" for key in valued if inst.fields[key]]
    return out + [flag for flag in last if inst.fields[flag]]


def _mubuf(inst: Instruction) -> list[str]:
    operands = inst.operands
    if "srsrc" not in operands:
        return []
    text = [operand_text(operands["vdata"])] if "vdata" in operands else []
    text.append(operand_text(operands["vaddr"]) if "vaddr" in operands else "off")
    return [*text, operand_text(operands["srsrc"]), operand_text(operands["soffset"])]


def _flat(inst: Instruction) -> list[str]:
    operands = inst.operands
    text = [operand_text(operands["vdst"])] if "vdst" in operands else []
    text.append(operand_text(operands["addr"]) if "addr" in operands else "off")
    if "data" in operands:
        text.append(operand_text(operands["data"]))
    if inst.format != "FLAT":
        text.append(operand_text(operands["saddr"]) if "saddr" in operands else "off")
    return text


def listing(code: CodeObject) -> str:
    """Return the whole kernel, a line each: offset, machine code, text; branch targets as labels."""
    insts = decode_all(code.text, code.entry, code.end)
    targets = sorted({inst.target for inst in insts if inst.mnemonic.startswith(("s_branch", "s_cbranch"))})
    labels = {pc: f"L{number}" for number, pc in enumerate(targets)}
    lines = [f"{code.symbol}:"]
    for inst in insts:
        if inst.pc in labels:
            lines.append(f"{labels[inst.pc]}:")
        raw = code.text[inst.pc : inst.next_pc]
        words = " ".join(f"{int.from_bytes(raw[at : at + 4], 'little'):08x}" for at in range(0, len(raw), 4))
        lines.append(f"    {instruction_text(inst, labels):<72} // {inst.pc:06x}: {words}")
    return "\n".join(lines) + "\n"
