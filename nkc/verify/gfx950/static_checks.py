"""What the object alone must satisfy: descriptor, note, sections and instruction inventory. No execution.

Checks that depend on the path taken (waits, races, undefined reads, bounds) belong to the emulator; distances between
instructions to `wait_states`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from nkc.verify.gfx950.code_object import CodeObject, read_code_object
from nkc.verify.gfx950.flow import reachable
from nkc.verify.gfx950.instruction import Instruction
from nkc.verify.gfx950.wait_states import lint

LDS_LIMIT_BYTES = 160 * 1024  # one compute unit; source: CDNA4 white paper
E_FLAGS = 0x54F  # gfx950, xnack and sramecc "any"
REGISTER_FILE = 512  # VGPR and AGPR of a lane
KNOWN_ARGUMENTS = {"global_buffer", "by_value"}

CHECKS = {
    "target": "ELF flags and note name gfx950, xnack and sramecc any",
    "debug": "no debug sections",
    "path": "no absolute path is embedded",
    "wave": "wavefront size 64",
    "vgprs": "the descriptor allocates the registers that the note counts, at most 512 and what was agreed",
    "accum_offset": "the AGPRs fit behind accum_offset",
    "sgprs": "at most 108 SGPRs",
    "spill": "no register is spilled, no private memory",
    "stack": "no dynamic stack",
    "kernarg": "descriptor and note agree on the kernel arguments' size, as agreed",
    "lds": "descriptor and note agree, and LDS fits a compute unit",
    "private": "descriptor and note agree on private memory",
    "arguments": "every argument is of a known kind and lies inside the kernel arguments",
    "threads": "the object allows the threads that are launched",
    "denormals": "fp32, fp16 and fp64 denormals are kept",
    "rounding": "to nearest even",
    "mode": "dx10_clamp and ieee_mode are on, and code writes MODE bit 23 alone",
    "forbidden": "no clock, hardware id, sleep, message, trap, floating-point atomic, undeclared scratch access",
    "mfma": "the matrix instructions that were agreed",
    "contraction": "multiplications and additions are fused as agreed",
    "wait_states": "no instruction follows another too soon, on any path",
}
"""Every check by name, and what holds where it finds nothing."""

FORBIDDEN = (
    (
        re.compile(r"_atomic_(add|min|max|pk_add)_(f|bf)|ds_(add|min|max|pk_add)(_rtn)?_(f|bf)"),
        "floating-point atomics are not deterministic",
    ),
    (re.compile(r"s_memtime|s_memrealtime|s_getreg_b32"), "clocks and hardware ids are not deterministic"),
    (re.compile(r"s_sleep|s_wakeup|s_sethalt|s_trap|s_sendmsg"), "timing and messages have no place in a kernel here"),
)
SCRATCH = re.compile(r"scratch_")
ABSOLUTE_PATH = re.compile(rb"(?<![\w./:])/(?:[\w.+-]+/)+[\w.+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One failed check: its name and one line of what was wanted and what is there."""

    check: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a contract says about its object; None leaves a field open."""

    vgprs: int | None = None
    lds_bytes: int | None = None  # limit, fixed and dynamic together
    dynamic_lds_bytes: int = 0
    kernarg_bytes: int | None = None
    threads: int | None = None
    scratch: bool = False  # spills and private memory are declared
    mfma: dict[str, int] | None = None  # mnemonic -> static count
    contraction: bool | None = None  # True: v_fma only; False: no v_fma at all


def check_object(data: bytes, symbol: str | None = None, expect: Expectation | None = None) -> tuple[Defect, ...]:
    """Return every failed check. Errors: `ObjectError` and `DecodeError` when the object cannot be read at all."""
    code = read_code_object(data, symbol)
    wanted = expect or Expectation()
    insts = reachable(code)
    mnemonics = Counter(inst.mnemonic for inst in insts.values())
    found = [*_container(code), *_registers(code, wanted), *_memory(code, wanted), *_modes(code)]
    found += [*_inventory(insts, mnemonics, wanted)]
    found += [
        Defect(check="wait_states", message=f"pc {item.pc:#x} {item.mnemonic}: {item.detail}") for item in lint(insts)
    ]
    return tuple(found)


def _container(code: CodeObject) -> list[Defect]:
    out = []
    if code.flags != E_FLAGS:
        out.append(Defect(check="target", message=f"ELF flags {code.flags:#x}, expected {E_FLAGS:#x}"))
    if not code.target.endswith("gfx950"):
        out.append(Defect(check="target", message=f"the note names target {code.target}, expected gfx950"))
    if debug := [name for name in code.sections if name.startswith(".debug")]:
        out.append(Defect(check="debug", message=f"debug sections {', '.join(debug)} (build without line info)"))
    # instructions are no text: four bytes of one may well read as a path
    end = code.text_offset + len(code.text)
    words = code.file_bytes[: code.text_offset] + b"\0" + code.file_bytes[end:]
    if path := ABSOLUTE_PATH.search(words):
        out.append(
            Defect(check="path", message=f"an absolute path is embedded: {path.group().decode(errors='replace')}")
        )
    return out


def _registers(code: CodeObject, wanted: Expectation) -> list[Defect]:
    note, descriptor = code.note, code.descriptor
    out = []
    if note.wavefront_size != 64:
        out.append(Defect(check="wave", message=f"wavefront size {note.wavefront_size}, expected 64"))
    if descriptor.vgprs < note.vgpr_count or descriptor.vgprs > REGISTER_FILE:
        message = f"the descriptor allocates {descriptor.vgprs} registers, the note counts {note.vgpr_count}"
        out.append(Defect(check="vgprs", message=message))
    if note.agpr_count and descriptor.vgprs - descriptor.accum_offset < note.agpr_count:
        message = (
            f"{note.agpr_count} AGPRs do not fit behind accum_offset {descriptor.accum_offset} of {descriptor.vgprs}"
        )
        out.append(Defect(check="accum_offset", message=message))
    if wanted.vgprs is not None and descriptor.vgprs > wanted.vgprs:
        out.append(Defect(check="vgprs", message=f"{descriptor.vgprs} registers a lane, at most {wanted.vgprs} agreed"))
    if note.sgpr_count > 108:
        out.append(Defect(check="sgprs", message=f"{note.sgpr_count} SGPRs, at most 108 exist"))
    if not wanted.scratch:
        for name, value in (
            ("VGPRs spilled", note.vgpr_spill_count),
            ("SGPRs spilled", note.sgpr_spill_count),
            ("bytes of private memory", descriptor.private_segment_fixed_size),
        ):
            if value:
                out.append(Defect(check="spill", message=f"{value} {name}, expected none"))
    if note.uses_dynamic_stack:
        out.append(Defect(check="stack", message="the kernel uses a dynamic stack"))
    return out


def _memory(code: CodeObject, wanted: Expectation) -> list[Defect]:
    note, descriptor = code.note, code.descriptor
    out = []
    for name, first, second in (
        ("kernarg", descriptor.kernarg_size, note.kernarg_segment_size),
        ("lds", descriptor.group_segment_fixed_size, note.group_segment_fixed_size),
        ("private", descriptor.private_segment_fixed_size, note.private_segment_fixed_size),
    ):
        if first != second:
            out.append(Defect(check=name, message=f"the descriptor says {first} bytes, the note {second}"))
    lds = descriptor.group_segment_fixed_size + wanted.dynamic_lds_bytes
    limit = LDS_LIMIT_BYTES if wanted.lds_bytes is None else min(LDS_LIMIT_BYTES, wanted.lds_bytes)
    if lds > limit:
        out.append(Defect(check="lds", message=f"{lds} bytes of LDS, at most {limit}"))
    if wanted.kernarg_bytes is not None and note.kernarg_segment_size != wanted.kernarg_bytes:
        message = f"{note.kernarg_segment_size} bytes of kernel arguments, {wanted.kernarg_bytes} agreed"
        out.append(Defect(check="kernarg", message=message))
    for item in note.args:
        known = item.value_kind in KNOWN_ARGUMENTS or item.value_kind.startswith("hidden_")
        if not known or item.offset + item.size > note.kernarg_segment_size:
            out.append(
                Defect(
                    check="arguments", message=f"argument at offset {item.offset}: {item.value_kind}, {item.size} bytes"
                )
            )
    if wanted.threads is not None and note.max_flat_workgroup_size < wanted.threads:
        message = f"{wanted.threads} threads are launched, the object allows {note.max_flat_workgroup_size}"
        out.append(Defect(check="threads", message=message))
    return out


def _modes(code: CodeObject) -> list[Defect]:
    descriptor = code.descriptor
    out = []
    if descriptor.denorm_modes != (3, 3):
        out.append(
            Defect(check="denormals", message=f"denormal modes {descriptor.denorm_modes}, expected (3, 3): kept")
        )
    if descriptor.round_modes != (0, 0):
        out.append(
            Defect(check="rounding", message=f"rounding modes {descriptor.round_modes}, expected (0, 0): nearest even")
        )
    for name, bit in (("dx10_clamp", 21), ("ieee_mode", 23)):
        if not descriptor.bits("rsrc1", bit, bit):
            out.append(Defect(check="mode", message=f"{name} is off, expected on"))
    return out


def _inventory(insts: Mapping[int, Instruction], mnemonics: Counter[str], wanted: Expectation) -> list[Defect]:
    out = []
    for name, count in sorted(mnemonics.items()):
        for pattern, why in FORBIDDEN:
            if pattern.search(name):
                out.append(Defect(check="forbidden", message=f"{name} ({count} times): {why}"))
        if SCRATCH.match(name) and not wanted.scratch:
            out.append(
                Defect(check="forbidden", message=f"{name} ({count} times): private memory that nobody declared")
            )
    for inst in insts.values():
        if inst.mnemonic.startswith("s_setreg") and inst.fields["simm16"] != 1 | 23 << 6:
            out.append(
                Defect(check="mode", message=f"pc {inst.pc:#x} {inst.mnemonic}: only MODE bit 23 may be written")
            )
    if wanted.mfma is not None:
        have = {name: count for name, count in mnemonics.items() if name.startswith(("v_mfma", "v_smfmac"))}
        if have != wanted.mfma:
            out.append(Defect(check="mfma", message=f"matrix instructions {have}, expected {wanted.mfma}"))
    fused = sum(
        count for name, count in mnemonics.items() if name.startswith(("v_fma_f32", "v_fmac_f32", "v_pk_fma_f32"))
    )
    split = sum(count for name, count in mnemonics.items() if name.startswith(("v_mul_f32", "v_pk_mul_f32")))
    if wanted.contraction is True and not fused:
        out.append(
            Defect(check="contraction", message=f"no fused multiply-add ({split} multiplications), expected fused")
        )
    if wanted.contraction is False and fused:
        out.append(Defect(check="contraction", message=f"{fused} fused multiply-adds, expected none"))
    return out
