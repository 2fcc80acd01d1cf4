"""What a decoded instruction is: operands, fields, and the registers it reads and writes.

Register sets are bit sets: bit r for VGPR r (AGPR r is 256 + r), bit 512 + s for the scalar register with encoding s,
and `SCC`.
"""

import enum
from dataclasses import dataclass

AGPR0 = 256
SGPR0 = 512
VCC, M0, EXEC = SGPR0 + 106, SGPR0 + 124, SGPR0 + 126
SCC = 1 << (SGPR0 + 128)
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


def wait_counts(simm16: int) -> tuple[int, int, int]:
    """Return (vmcnt, expcnt, lgkmcnt) of an s_waitcnt."""
    return simm16 & 15 | (simm16 >> 14 & 3) << 4, simm16 >> 4 & 7, simm16 >> 8 & 15


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
