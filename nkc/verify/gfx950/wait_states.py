"""The wait states that an assembler does not insert: too short a distance between two instructions, on any path.

The compiler's back end inserts them; hand-written assembly and inline assembly do not get them, and nothing in the
values that an emulator computes shows it. A wait state is one issued instruction; `s_nop n` is n + 1 of them.
Source: the CDNA3 ISA document, "Required Software-inserted Wait States", and LLVM's GCNHazardRecognizer for gfx940
and gfx950 (passes of an MFMA are its busy cycles / 4). Known by their documents, not measured on a card.
"""

from collections.abc import Iterator, Mapping

from nkc.verify.gfx950.flow import predecessors
from nkc.verify.gfx950.hazards import Hazard, HazardKind
from nkc.verify.gfx950.instruction import EXEC, M0, SGPR0, VCC, Instruction, Kind

HORIZON = 20  # no rule asks for more: 16 passes + 4
VECTORS = (1 << SGPR0) - 1
SCALARS = ((1 << 128) - 1) << SGPR0
_TRANS = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")


def wait_states(inst: Instruction) -> int:
    """Return how many wait states an instruction gives to what stands around it."""
    return inst.fields["simm16"] + 1 if inst.mnemonic == "s_nop" else 1


def passes(inst: Instruction) -> int:
    """Return the passes (4 cycles each) an MFMA occupies the matrix pipe. Source: CDNA4 MFMA cycle table."""
    name = inst.mnemonic
    if "f8f6f4" in name:
        narrow = inst.fields["cbsz"] >= 2 and inst.fields["blgp"] >= 2  # 6 and 4 bits run at twice the rate
        base = 16 if "32x32" in name else 8
        return base // 2 if narrow else base
    if "_f64_" in name:
        return 16 if "16x16" in name else 4
    for shape, count in (
        ("32x32x16", 8),
        ("16x16x32", 4),
        ("32x32x8", 16),
        ("16x16x16", 8),
        ("32x32", 16),
        ("16x16", 8),
    ):
        if shape in name:
            return count
    return 2  # 4x4


def _is_trans(inst: Instruction) -> bool:
    return inst.mnemonic.startswith(_TRANS)


def _partial_result(inst: Instruction) -> bool:
    """Whether it fills the upper part of a register (SDWA, op_sel on the result): forwarding needs a gap."""
    return "sdwa_word" in inst.fields or (inst.format == "VOP3" and bool(inst.fields["opsel"] & 8))


def _store_data(inst: Instruction) -> int:
    """Return the registers of store data wider than 64 bits, which are read late."""
    if "_store_" not in inst.mnemonic or not inst.is_vmem:
        return 0
    data = inst.operands.get("data") or inst.operands.get("vdata")
    if data is None or data.registers <= 2:
        return 0
    if inst.format == "MUBUF" and inst.operands["soffset"].kind is Kind.SCALAR:
        return 0
    return data.mask


def required(first: Instruction, second: Instruction) -> Iterator[tuple[int, str]]:
    """Yield (wait states needed between the two, why) for every rule that the pair falls under."""
    vector_flow = first.writes & second.reads & VECTORS
    scalar_flow = first.writes & second.reads & SCALARS
    if first.is_mfma:
        yield from _after_mfma(first, second)
        return
    if first.is_valu:
        yield from _after_valu(first, second, vector_flow, scalar_flow)
    elif (
        first.writes >> M0 & 1
        and not first.is_vmem
        and second.reads >> M0 & 1
        and (second.is_lds_load or second.format == "DS")
    ):
        yield 1, "M0 written by a scalar instruction, then used by a load into LDS"
    if (data := _store_data(first)) and second.is_valu and second.writes & data:
        yield 2, "store data overwritten before the store has read it"


def _after_valu(
    first: Instruction, second: Instruction, vector_flow: int, scalar_flow: int
) -> Iterator[tuple[int, str]]:
    if scalar_flow:
        if second.is_vmem:
            yield 5, "scalar register written by a vector instruction, then read by vector memory"
        if second.mnemonic in ("v_readlane_b32", "v_writelane_b32") and _selects_lane(second, scalar_flow):
            yield 4, "lane select written by a vector instruction"
        if second.mnemonic.startswith("v_div_fmas") and scalar_flow >> VCC & 3:
            yield 4, "VCC written by a vector instruction, then read by v_div_fmas"
        elif second.is_valu or second.is_mfma:
            yield 2, "scalar register written by a vector instruction, then read by one"
    if first.writes >> EXEC & 3:
        if "dpp_word" in second.fields:
            yield 5, "EXEC written by a vector instruction before a DPP operation"
        if second.is_mfma or second.mnemonic in ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32"):
            yield 4, "EXEC written by a vector instruction before a lane access or MFMA"
        if "permlane" in second.mnemonic:
            yield 4, "EXEC written by a vector instruction before a lane swap"
    if not vector_flow:
        return
    if "dpp_word" in second.fields:
        yield 2, "register written by a vector instruction, then read through DPP"
    if "permlane" in second.mnemonic:
        yield 2, "register written by a vector instruction, then swapped between lanes"
    if second.mnemonic in ("v_readlane_b32", "v_readfirstlane_b32"):
        yield 1, "register written by a vector instruction, then read by a lane access"
    if second.is_mfma:
        yield 2, "register written by a vector instruction, then read by an MFMA"
    elif second.is_valu:
        if _is_trans(first) and not _is_trans(second):
            yield 1, "result of a transcendental instruction"
        if _partial_result(first):
            yield 1, "result that fills part of a register"


def _selects_lane(inst: Instruction, scalars: int) -> bool:
    select = inst.operands.get("src1")
    return select is not None and bool(select.mask & scalars)


def _after_mfma(first: Instruction, second: Instruction) -> Iterator[tuple[int, str]]:
    count = passes(first)
    extra = 1 if count != 2 else 0  # gfx950 needs one more than gfx942
    result = first.operands["vdst"].mask
    if second.is_mfma:
        c = second.operands.get("src2")
        for key in ("src0", "src1"):
            if second.operands[key].mask & result:
                yield count + 3 + extra, "MFMA result used as A or B of an MFMA"
        if c is not None and c.mask & result and c.mask != result:
            yield count + 1 + extra, "MFMA result used as an overlapping C of an MFMA"
        if second.operands["vdst"].mask & result and (c is None or c.mask != result):
            yield count + 1 + extra, "MFMA result overwritten by an MFMA"
        return
    reads = second.reads & result
    if reads and (second.is_valu or second.is_vmem or second.format == "DS"):
        yield count + 3 + extra, "MFMA result read"
    if second.writes & result and second.is_valu:
        yield count + 3 + extra, "MFMA result overwritten"
    c = first.operands.get("src2")
    if c is not None and second.is_valu and second.writes & c.mask & ~result:
        yield count - 1, "C of an MFMA overwritten before it is read"


def lint(insts: Mapping[int, Instruction]) -> tuple[Hazard, ...]:
    """Return every pair of instructions that can follow each other too closely, the reader's pc first.

    insts: what a kernel reaches, by pc (`flow.reachable`).
    """
    before = predecessors(insts)
    found: dict[tuple[int, int], Hazard] = {}
    for pc, inst in insts.items():
        if not (inst.reads | inst.writes):
            continue
        best: dict[int, int] = {}
        todo = [(previous, 0) for previous in before[pc]]
        while todo:
            at, distance = todo.pop()
            if best.get(at, HORIZON) <= distance:
                continue
            best[at] = distance
            for needed, why in required(insts[at], inst):
                if needed > distance and (pc, at) not in found:
                    detail = f"{why}: {needed} wait states behind {insts[at].mnemonic} at pc {at:#x}, here {distance}"
                    found[pc, at] = Hazard(
                        kind=HazardKind.STALL_MISSING,
                        pc=pc,
                        mnemonic=inst.mnemonic,
                        workgroup=0,
                        wave=0,
                        detail=detail,
                    )
            behind = distance + wait_states(insts[at])
            if behind < HORIZON:
                todo += [(previous, behind) for previous in before[at]]
    return tuple(found[key] for key in sorted(found))
