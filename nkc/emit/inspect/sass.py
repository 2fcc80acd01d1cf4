"""Finding arithmetic in CUDA machine code: instructions of 16 bytes since sm_70, the opcode in the lowest nine bits."""

import struct
from collections import Counter
from collections.abc import Iterator

MATRIX = {
    0x037: "IMMA",
    0x03C: "HMMA",
    0x03F: "DMMA",
    0x07A: "QMMA",
    0x1EA: "UTCQMMA",
    0x1F0: "HGMMA",
    0x1F1: "IGMMA",
    0x1F3: "QGMMA",
}
"""Opcode to mnemonic. Source: nvdisasm's listing of kernels compiled for the purpose, which a test repeats."""

FP32_FMA = 0x023
"""FFMA, whatever the kinds of its operands. Source: the same."""

GRID_TRIGGER, GRID_WAIT = 0x02D, 0x02E
"""PREEXIT and ACQBULK: griddepcontrol.launch_dependents and .wait. Source: the same."""


def matrix_counts(code: bytes) -> Counter[str]:
    """Count the matrix instructions of a kernel's code by mnemonic, shapes and types left out."""
    return Counter(MATRIX[opcode] for opcode in _opcodes(code) if opcode in MATRIX)


def fp32_fma_count(code: bytes) -> int:
    """Count the fused multiply-adds of fp32 vectors."""
    return count(code, FP32_FMA)


def count(code: bytes, opcode: int) -> int:
    """Count one opcode."""
    return sum(found == opcode for found in _opcodes(code))


def _opcodes(code: bytes) -> Iterator[int]:
    return (low & 0x1FF for low, _ in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]))
