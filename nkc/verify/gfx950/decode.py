"""Machine code to instructions. Whatever the tables do not know, or a field that should be zero, is an error.

An `Instruction` carries its operands as `Operand` values and its remaining fields as integers, and says which
registers it reads and writes as bit sets: bit r for VGPR r (AGPR r is 256 + r), bit 512 + s for the scalar
register with encoding s, and `SCC`. Addressing widths are corrected where the ISA tables give the widest case.
"""

import enum
import functools
import struct
from dataclasses import dataclass

from nkc.verify.gfx950 import isa

AGPR0 = 256
SGPR0 = 512
VCC, M0, EXEC = SGPR0 + 106, SGPR0 + 124, SGPR0 + 126
SCC = 1 << (SGPR0 + 128)
LITERAL, DPP, SDWA = 255, 250, 249
INLINE_FLOAT = {
    240: 0.5,
    241: -0.5,
    242: 1.0,
    243: -1.0,
    244: 2.0,
    245: -2.0,
    246: 4.0,
    247: -4.0,
    248: 0.15915494309189532,
}


class DecodeError(ValueError):
    """The bytes hold an opcode, modifier or field value that this emulator does not know."""


class Kind(enum.Enum):
    """What an operand names."""

    VECTOR = "vector"
    SCALAR = "scalar"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: a run of registers (`index` in the numbering of the module docstring) or a constant.

    For a constant, `index` is the source encoding (128..208 integers, 240..248 floats, 255 a literal, 251..253
    vccz, execz and scc) and `value` its integer value; inline floats get their bits from the reader's type.
    """

    kind: Kind
    index: int
    registers: int = 1
    value: int = 0
    neg: bool = False
    abs: bool = False

    @property
    def mask(self) -> int:
        """The registers it covers, as a bit set."""
        return 0 if self.kind is Kind.CONSTANT else ((1 << self.registers) - 1) << self.index


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction at byte offset `pc` of .text."""

    pc: int
    size: int
    format: str
    mnemonic: str
    operands: dict[str, Operand]
    fields: dict[str, int]
    raw: int = 0
    reads: int = 0
    writes: int = 0

    @property
    def next_pc(self) -> int:
        """Byte offset of the instruction behind it."""
        return self.pc + self.size

    @property
    def target(self) -> int:
        """Byte offset that a SOPP branch jumps to."""
        offset = self.fields["simm16"]
        return self.next_pc + 4 * (offset - 0x10000 if offset & 0x8000 else offset)

    @property
    def is_mfma(self) -> bool:
        """Whether it runs on the matrix pipe."""
        return self.mnemonic.startswith(("v_mfma_", "v_smfmac_"))

    @property
    def is_valu(self) -> bool:
        """Whether it runs on the vector pipe (MFMA excluded)."""
        return (self.format.startswith("VOP") and not self.is_mfma) or self.mnemonic.startswith("v_accvgpr")

    @property
    def is_lds_load(self) -> bool:
        """Whether it loads from memory straight into LDS."""
        return bool(self.fields.get("lds")) or "_load_lds_" in self.mnemonic

    @property
    def is_vmem(self) -> bool:
        """Whether it goes through vector memory and counts in vmcnt."""
        return self.format in ("MUBUF", "GLOBAL", "FLAT", "SCRATCH")


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
    reads, writes = _register_sets(draft)
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


_READS_VCC = {"v_cndmask_b32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"}
_WRITES_VCC = {"v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"}
_ACCUMULATING = ("v_fmac_", "v_pk_fmac_", "v_mac_", "v_dot2c_", "v_dot4c_", "v_dot8c_")
_PRESERVING = ("_d16_hi", "_d16")  # loads into half a register keep the other half
_SCC_WRITERS = (
    "s_add_",
    "s_sub_",
    "s_addc_",
    "s_subb_",
    "s_min_",
    "s_max_",
    "s_and_",
    "s_or_",
    "s_xor_",
    "s_andn1_",
    "s_andn2_",
    "s_orn1_",
    "s_orn2_",
    "s_nand_",
    "s_nor_",
    "s_xnor_",
    "s_lshl_",
    "s_lshr_",
    "s_ashr_",
    "s_bfe_",
    "s_absdiff_",
    "s_lshl1_",
    "s_lshl2_",
    "s_lshl3_",
    "s_lshl4_",
    "s_not_",
    "s_wqm_",
    "s_bcnt0_",
    "s_bcnt1_",
    "s_abs_",
    "s_quadmask_",
    "s_cmp_",
    "s_cmpk_",
    "s_bitcmp0_",
    "s_bitcmp1_",
    "s_addk_",
)
_SCC_READERS = {
    "s_addc_u32",
    "s_subb_u32",
    "s_cselect_b32",
    "s_cselect_b64",
    "s_cbranch_scc0",
    "s_cbranch_scc1",
    "s_cmov_b32",
    "s_cmov_b64",
    "s_cmovk_i32",
}
_STORES = ("_store_", "ds_write", "_atomic_")


def _register_sets(inst: Instruction) -> tuple[int, int]:
    """Return (reads, writes) as bit sets, implicit registers included; EXEC is left out of reads (always defined)."""
    name, mnemonic, fields = inst.format, inst.mnemonic, inst.fields
    reads = writes = 0
    for key, operand in inst.operands.items():
        if key in ("vdst", "sdst", "sdata") or (key == "vdata" and "_load_" in mnemonic):
            writes |= operand.mask
        else:
            reads |= _halves_read(inst, key, operand)
            if operand.kind is Kind.CONSTANT:
                reads |= {251: 3 << VCC, 253: SCC}.get(operand.index, 0)
    if name == "MUBUF" and "atomic" in mnemonic and fields["sc0"]:
        writes |= inst.operands["vdata"].mask
    if (name in ("VOP2", "VOP1") and mnemonic in _READS_VCC) or mnemonic.startswith("v_div_fmas"):
        reads |= 3 << VCC
    if (name == "VOP2" and mnemonic in _WRITES_VCC) or (name == "VOPC" and "sdst" not in inst.operands):
        writes |= 3 << VCC
    if mnemonic.startswith("v_cmpx"):
        writes |= 3 << EXEC
    destination = inst.operands.get("vdst") or inst.operands.get("vdata")
    if destination is not None:
        partial = fields.get("opsel", 0) & 8 or (mnemonic.endswith(_PRESERVING) and "_load_" in mnemonic)
        partial = partial or (mnemonic.startswith("ds_read") and mnemonic.endswith(_PRESERVING))
        partial = partial or ("dpp_word" in fields and not _dpp_writes_all(fields)) or fields.get("dst_unused") == 2
        if partial or mnemonic.startswith(_ACCUMULATING) or mnemonic in ("v_writelane_b32",) or "_swap_b32" in mnemonic:
            reads |= destination.mask
    if "_swap_b32" in mnemonic and name.startswith("VOP"):
        writes |= inst.operands["src0"].mask
    if name == "SOPK" and mnemonic in ("s_addk_i32", "s_mulk_i32", "s_cmovk_i32"):
        reads |= inst.operands["sdst"].mask
    if name == "SOPK" and mnemonic.startswith("s_cmpk"):
        reads, writes = reads | inst.operands["sdst"].mask, 0
    if mnemonic == "s_setreg_b32":
        reads, writes = reads | inst.operands["sdst"].mask, 0
    if mnemonic in ("s_bitset0_b32", "s_bitset1_b32", "s_bitset0_b64", "s_bitset1_b64"):
        reads |= inst.operands["sdst"].mask
    if mnemonic.startswith(_SCC_WRITERS) and not mnemonic.startswith(("s_lshl_add", "s_bfm")):
        writes |= SCC
    if "saveexec" in mnemonic or "wrexec" in mnemonic:
        writes |= 3 << EXEC
    if mnemonic in _SCC_READERS:
        reads |= SCC
    if mnemonic in ("s_cbranch_vccz", "s_cbranch_vccnz"):
        reads |= 3 << VCC
    if inst.is_lds_load:
        reads |= 1 << M0
    if mnemonic == "v_readlane_b32":
        reads |= inst.operands["src1"].mask
    reads &= ~(3 << EXEC)
    return reads, writes


def _halves_read(inst: Instruction, key: str, operand: Operand) -> int:
    """Return the registers of a source that are really read: packed 32-bit operations may use one half only."""
    if inst.format != "VOP3P" or operand.registers != 2 or operand.kind is Kind.CONSTANT:
        return operand.mask
    position = ("src0", "src1", "src2").index(key)
    low = inst.fields["opsel"] >> position & 1
    high = (inst.fields["opsel_hi"] | inst.fields["opsel_hi2"] << 2) >> position & 1
    if inst.mnemonic == "v_pk_mov_b32":
        high = low
    return 1 << (operand.index + low) | 1 << (operand.index + high)


def _dpp_writes_all(fields: dict[str, int]) -> bool:
    """Whether a DPP operation writes every active lane, so that the old destination does not matter."""
    full = fields["row_mask"] == 15 and fields["bank_mask"] == 15
    moves_inside = fields["dpp"] < 0x100 or 0x121 <= fields["dpp"] <= 0x12F or fields["dpp"] in (0x140, 0x141)
    return full and (bool(fields["bound_ctrl"]) or moves_inside)


def decode_all(code: bytes, start: int, end: int) -> tuple[Instruction, ...]:
    """Return the instructions of [start, end), in order. Errors: as `decode`."""
    out = []
    pc = start
    while pc < end:
        inst = decode(code, pc)
        out.append(inst)
        pc = inst.next_pc
    return tuple(out)
