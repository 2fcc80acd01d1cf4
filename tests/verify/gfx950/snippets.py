"""Run a few hand-encoded instructions without an object file: the encoder is the tests' own, from the field table."""

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkc.verify.gfx950 import isa
from nkc.verify.gfx950.code_object import CodeObject, Descriptor, KernelNote
from nkc.verify.gfx950.engine import Engine
from nkc.verify.gfx950.hazards import HazardKind, HazardLog
from nkc.verify.gfx950.lds import Lds
from nkc.verify.gfx950.memory import BASE, READABLE, WRITABLE, Arena
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.program import Program
from nkc.verify.gfx950.sync import Synchronisation
from nkc.verify.gfx950.waves import Batch, Launch, Waves

V = 256  # source encoding of v0
LITERAL = 255


def const(value: int) -> int:
    """Return the source encoding of a small integer."""
    return 128 + value if value >= 0 else 192 - value


def encode(
    mnemonic: str,
    form: str | None = None,
    *,
    literal: int | None = None,
    dpp: dict[str, int] | None = None,
    **fields: int,
) -> bytes:
    """Return the bytes of one instruction; fields as `isa.FORMATS` names them, all others zero."""
    for name, rows in isa.opcodes().items():
        if form is not None and name != form:
            continue
        for op, row in rows.items():
            if row.mnemonic == mnemonic:
                return _pack(name, mnemonic, op, fields, literal, dpp)
    raise KeyError(mnemonic)


def _pack(
    name: str, mnemonic: str, op: int, fields: dict[str, int], literal: int | None, dpp: dict[str, int] | None
) -> bytes:
    layout = isa.FORMATS["MFMA" if name == "VOP3P" and mnemonic.startswith(("v_mfma", "v_accvgpr")) else name]
    if dpp is not None:
        source = fields.pop("src0")
        fields["src0"] = 250
    word = sum(value << layout.fields[key].low for key, value in {**fields, "op": op}.items())
    high, low = isa.PREFIX[layout.name]
    prefix = {
        "SOP1": 0x17D,
        "SOP2": 2,
        "SOPC": 0x17E,
        "SOPK": 0xB,
        "SOPP": 0x17F,
        "SMEM": 0x30,
        "VOP1": 0x3F,
        "VOP2": 0,
        "VOPC": 0x3E,
        "VOP3": 0x34,
        "VOP3SD": 0x34,
        "VOP3P": 0x1A7,
        "MFMA": 0x1A7,
        "DS": 0x36,
        "FLAT": 0x37,
        "GLOBAL": 0x37,
        "SCRATCH": 0x37,
        "MUBUF": 0x38,
        "VOP3PX2": 0xD3AC,
    }[layout.name]
    assert prefix < 1 << (high - low + 1)
    word |= prefix << low
    if layout.name == "VOP3PX2":
        word |= 0x1A7 << 87
    if layout.name in ("GLOBAL", "SCRATCH"):
        word |= {"GLOBAL": 2, "SCRATCH": 1}[layout.name] << 14
    data = word.to_bytes(4 * layout.dwords, "little")
    if literal is not None:
        data += struct.pack("<I", literal & 0xFFFFFFFF)
    if dpp is not None:
        full = {"row_mask": 15, "bank_mask": 15, **dpp}
        fields = isa.FORMATS["DPP"].fields
        data += (sum(value << fields[key].low for key, value in full.items()) | (source - 256)).to_bytes(4, "little")
    return data


def waitcnt(vmcnt: int = 63, lgkmcnt: int = 15) -> bytes:
    """Return s_waitcnt."""
    return encode("s_waitcnt", simm16=vmcnt & 15 | 7 << 4 | lgkmcnt << 8 | vmcnt >> 4 << 14)


END = encode("s_endpgm")
BARRIER = encode("s_barrier")


@dataclass
class Machine:
    """Waves, memory and LDS for snippets. Buffers are named arrays at 256-byte boundaries."""

    waves: int = 1
    workgroups: int = 1
    lds_bytes: int = 0
    buffers: dict[str, Any] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    late_dma: bool = False
    scratch_bytes: int = 0
    model: MfmaModel = MfmaModel.ONCE
    registers: int = 288

    def __post_init__(self) -> None:
        self.arena = Arena()
        self.address = {}
        for name, content in self.buffers.items():
            permissions = (
                READABLE if name in self.read_only else WRITABLE if name in self.undefined else READABLE | WRITABLE
            )
            self.address[name] = self.arena.add(
                name, np.ascontiguousarray(content).reshape(-1).view(np.uint8), permissions
            )
        self.arena.seal()
        self.log = HazardLog()
        launch = Launch(self.arena, self.log, Synchronisation(self.workgroups), self.late_dma, True, {})
        count = self.waves * self.workgroups
        self.batch = Batch(
            launch,
            Lds(self.workgroups, self.lds_bytes, 1, checked=True),
            np.full((count, 64, self.scratch_bytes), 0xA5, np.uint8),
            np.zeros((count, 64, self.scratch_bytes), bool),
            live=np.full(self.workgroups, self.waves),
        )
        local = np.repeat(np.arange(self.workgroups), self.waves)
        wave_id = np.tile(np.arange(self.waves), self.workgroups)
        self.w = Waves(self.batch, self.registers, local=local, workgroup=local, wave_id=wave_id, row=np.arange(count))
        self.w.defined = (1 << 700) - 1

    def vgpr(self, index: int, values: Any) -> None:
        """Set a vector register from values that broadcast to [waves, 64]."""
        array = np.asarray(values)
        if array.dtype == np.float32:
            self.w.F[index] = array
        else:
            self.w.V[index] = (array.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)

    def vgpr64(self, index: int, values: Any) -> None:
        """Set a register pair from 64-bit patterns."""
        wide = np.broadcast_to(np.asarray(values, np.uint64), self.w.mask.shape)
        self.w.V[index], self.w.V[index + 1] = wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)

    def get64(self, index: int) -> Any:
        """Return a register pair as 64-bit patterns."""
        return self.w.V[index].astype(np.uint64) | self.w.V[index + 1].astype(np.uint64) << np.uint64(32)

    def sgpr64(self, index: int, value: Any) -> None:
        """Set a scalar pair."""
        self.w.S64[:, index // 2] = np.asarray(value, np.uint64)

    def execute(self, mask: int) -> None:
        """Set EXEC."""
        self.sgpr64(126, mask)
        self.w.exec_changed()

    def run(self, *code: bytes, budget: int = 10_000) -> "Machine":
        """Run the code from its start; s_endpgm is added."""
        text = b"".join(code) + END
        program = Program(kernel(text), self.model)
        self.batch.launch.mnemonics = program.mnemonics
        self.w.pc = 0
        self.engine = Engine(program, self.batch, budget)
        with np.errstate(all="ignore"):
            self.engine.run(self.w)
        return self

    @property
    def kinds(self) -> set[HazardKind]:
        """The kinds of hazard that were reported."""
        return {hazard.kind for hazard in self.log.hazards()}

    def at(self, name: str, offset: int = 0) -> int:
        """Return the address of a byte of a buffer."""
        return self.address[name] + offset


def kernel(text: bytes) -> CodeObject:
    """Return a code object around bare code."""
    descriptor = Descriptor(
        group_segment_fixed_size=0,
        private_segment_fixed_size=0,
        kernarg_size=0,
        rsrc1=0,
        rsrc2=0,
        rsrc3=0,
        properties=0,
        preload_length=0,
        preload_offset=0,
    )
    note = KernelNote(
        name="snippet",
        symbol="snippet.kd",
        kernarg_segment_size=0,
        group_segment_fixed_size=0,
        private_segment_fixed_size=0,
        wavefront_size=64,
        max_flat_workgroup_size=1024,
        sgpr_count=0,
        vgpr_count=0,
    )
    return CodeObject(
        symbol="snippet",
        text=text,
        text_address=0,
        text_offset=0,
        entry=0,
        end=len(text),
        descriptor=descriptor,
        note=note,
        target="amdgcn-amd-amdhsa--gfx950",
        flags=0x54F,
        sections=(),
        file_bytes=b"",
    )


__all__ = ["BARRIER", "BASE", "END", "LITERAL", "Machine", "V", "const", "encode", "kernel", "waitcnt"]
