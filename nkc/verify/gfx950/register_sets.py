"""Which registers an instruction reads and writes, implicit ones included.

Half results, DPP with masked lanes and accumulating forms read their old destination; EXEC counts as always defined.
"""

from nkc.verify.gfx950.instruction import EXEC, M0, SCC, VCC, Instruction, Kind, Operand

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


def register_sets(inst: Instruction) -> tuple[int, int]:
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
