"""Walking gfx9 machine code far enough to find its matrix instructions: lengths of all, names of the MFMA ones."""

import struct
from collections import Counter
from collections.abc import Iterator

_LITERAL = 255
_SDWA, _DPP = 249, 250
_EIGHT_BYTES = frozenset({0b110000, 0b110100, 0b110110, 0b110111, 0b111000, 0b111010, 0b111100})
"""Leading six bits of SMEM, VOP3 with VOP3P, DS, FLAT, MUBUF, MTBUF, MIMG."""

_VOP3P_MAI = 0b110100111

MFMA = {
    45: "v_mfma_f32_16x16x128_f8f6f4",
    46: "v_mfma_f32_32x32x64_f8f6f4",
    53: "v_mfma_f32_16x16x32_bf16",
    54: "v_mfma_i32_16x16x64_i8",
    55: "v_mfma_f32_32x32x16_bf16",
    56: "v_mfma_i32_32x32x32_i8",
    84: "v_mfma_f32_16x16x32_f16",
    85: "v_mfma_f32_32x32x16_f16",
    112: "v_mfma_f32_16x16x32_bf8_bf8",
    113: "v_mfma_f32_16x16x32_bf8_fp8",
    114: "v_mfma_f32_16x16x32_fp8_bf8",
    115: "v_mfma_f32_16x16x32_fp8_fp8",
    116: "v_mfma_f32_32x32x16_bf8_bf8",
    117: "v_mfma_f32_32x32x16_bf8_fp8",
    118: "v_mfma_f32_32x32x16_fp8_bf8",
    119: "v_mfma_f32_32x32x16_fp8_fp8",
}
"""Opcode (bits 16-22 of the first dword) to mnemonic. Source: CDNA4 ISA, table of VOP3P-MAI opcodes; the ones a kernel
uses are held against the compiler's own listing by a test. The scaled form is the plain one behind a prefix."""

_FIRST_MFMA, _LAST_MFMA = 45, 127
_NOT_MFMA = frozenset({48, 49, 50, 51, 88, 89})
"""Packed fp32 arithmetic and accumulation register moves share the encoding."""


def _length(word: int) -> int | None:
    """Return the bytes of the instruction that begins with a dword, or None for an encoding gfx9 does not have."""
    if word >> 31 == 0:  # VOP1, VOP2, VOPC: one may carry a literal, SDWA or DPP dword
        fused_literal = (word >> 25) in {23, 24, 36, 37}  # v_madmk, v_madak
        return 8 if fused_literal or word & 0x1FF in {_LITERAL, _SDWA, _DPP} else 4
    if word >> 30 == 0b10:
        return 8 if _scalar_literal(word) else 4
    return 8 if word >> 26 in _EIGHT_BYTES else None


def _scalar_literal(word: int) -> bool:
    """Return whether a SOP1, SOP2, SOPC, SOPK or SOPP instruction carries a literal dword."""
    head = word >> 23
    if head == 0b101111111:  # SOPP
        return False
    if head == 0b101111101:  # SOP1
        return word & 0xFF == _LITERAL
    if word >> 28 == 0b1011 and head != 0b101111110:  # SOPK; s_setreg_imm32_b32 alone has one
        return (word >> 23) & 0x1F == 20
    return _LITERAL in (word & 0xFF, (word >> 8) & 0xFF)


def instructions(code: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and first dword of every instruction. Raises ValueError where the code cannot be followed."""
    at = 0
    while at + 4 <= len(code):
        (word,) = struct.unpack_from("<I", code, at)
        length = _length(word)
        if length is None or at + length > len(code):
            raise ValueError(f"no gfx9 instruction at offset {at:#x}: {word:#010x}")
        yield at, word
        at += length


def matrix_counts(code: bytes) -> Counter[str]:
    """Count the matrix instructions of a kernel's code by mnemonic; an MFMA not in the table counts as its opcode."""
    counts: Counter[str] = Counter()
    for _, word in instructions(code):
        opcode = (word >> 16) & 0x7F
        if word >> 23 == _VOP3P_MAI and _FIRST_MFMA <= opcode <= _LAST_MFMA and opcode not in _NOT_MFMA:
            counts[MFMA.get(opcode, f"v_mfma_opcode_{opcode}")] += 1
    return counts
