"""Finding matrix instructions in CUDA machine code: 16 bytes each since sm_70, the opcode in the lowest nine bits."""

import struct
from collections import Counter

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


def matrix_counts(code: bytes) -> Counter[str]:
    """Count the matrix instructions of a kernel's code by mnemonic, shapes and types left out."""
    opcodes = (low & 0x1FF for low, _ in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]))
    return Counter(MATRIX[opcode] for opcode in opcodes if opcode in MATRIX)
