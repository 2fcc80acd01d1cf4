"""Make the opcode table `nkc/verify/gfx950/isa.json` from tinygrad 0.14's CDNA enums.

Only facts are taken: opcode numbers, mnemonics and operand widths in bits. Run as a script to rewrite the
table; `test_isa.py` calls `build` and compares, so the checked-in data and its source cannot drift apart.
The few corrections to the source stand below, each with its reason.
"""

import json
import re
from pathlib import Path

TABLE = Path(__file__).parents[3] / "nkc" / "verify" / "gfx950" / "isa.json"

FORMATS = (
    "SOP1",
    "SOP2",
    "SOPC",
    "SOPK",
    "SOPP",
    "SMEM",
    "VOP1",
    "VOP2",
    "VOPC",
    "VOP3",
    "VOP3SD",
    "VOP3P",
    "VOP3PX2",
    "DS",
    "FLAT",
    "GLOBAL",
    "SCRATCH",
    "MUBUF",
)

RENAMED = {  # LLVM spells these with the type that the source leaves out
    "v_accvgpr_read": "v_accvgpr_read_b32",
    "v_accvgpr_write": "v_accvgpr_write_b32",
}

# Corrections. The source calls these results vector registers, but the field names a scalar register;
# and the loads that go to LDS have a vdst field that the hardware ignores.
SCALAR_RESULT = {"v_readlane_b32", "v_readfirstlane_b32"}


def build() -> dict[str, dict[str, list[object]]]:
    """Return format -> opcode (decimal text) -> [mnemonic, {operand: bits}]."""
    from tinygrad.runtime.autogen.amd.cdna import enum
    from tinygrad.runtime.autogen.amd.cdna.operands import OPERANDS

    table: dict[str, dict[str, list[object]]] = {}
    for name in FORMATS:
        rows: dict[str, list[object]] = {}
        for op in getattr(enum, f"{name}Op"):
            mnemonic = re.sub(r"_e(32|64)$", "", op.name.lower())
            operands: dict[str, int] = {}
            for field, (_, bits, kind) in sorted(OPERANDS.get(op, {}).items()):
                scalar = field == "vdst" and kind.name in ("OPR_SREG", "OPR_SDST")
                operands["sdst" if scalar else field] = bits
            mnemonic = RENAMED.get(mnemonic, mnemonic)
            if mnemonic in SCALAR_RESULT:
                operands["sdst"] = operands.pop("vdst")
            if "_load_lds_" in mnemonic:
                operands.pop("vdst")
            rows[str(op.value)] = [mnemonic, operands]
        table[name] = rows
    return table


def text() -> str:
    """Return the table as the file holds it: one opcode a line, sorted, so that a change reads as a diff."""
    parts = []
    for name, rows in build().items():
        lines = [
            f"  {json.dumps(code)}: {json.dumps(row)}"
            for code, row in sorted(rows.items(), key=lambda item: int(item[0]))
        ]
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
