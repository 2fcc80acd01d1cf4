"""Read a gfx950 code object: ELF sections, the kernel descriptor and the AMDHSA note.

Source of the layouts: LLVM's "User Guide for AMDGPU Backend", code object v5, kernel descriptor and metadata.
"""

import struct
from dataclasses import dataclass

import msgspec

from nkc.emit.inspect import elf
from nkc.emit.inspect.elf import read_elf

EM_AMDGPU = 224
EF_GFX950 = 0x4F
NT_AMDGPU_METADATA = 32


class ObjectError(ValueError):
    """The bytes are not a gfx950 code object that holds one usable kernel."""


class KernelArgument(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: "." + name):
    """One entry of `.args` in the note; other keys of the format are not needed here."""

    offset: int
    size: int
    value_kind: str
    name: str = ""


class KernelNote(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: "." + name):
    """What the AMDHSA note says about one kernel."""

    name: str
    symbol: str
    kernarg_segment_size: int
    group_segment_fixed_size: int
    private_segment_fixed_size: int
    wavefront_size: int
    max_flat_workgroup_size: int
    sgpr_count: int
    vgpr_count: int
    agpr_count: int = 0
    sgpr_spill_count: int = 0
    vgpr_spill_count: int = 0
    uses_dynamic_stack: bool = False
    args: tuple[KernelArgument, ...] = ()


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The AMDHSA note."""

    kernels: tuple[KernelNote, ...] = msgspec.field(name="amdhsa.kernels")
    target: str = msgspec.field(name="amdhsa.target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """The 64-byte kernel descriptor, its bit fields taken apart."""

    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_size: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_length: int
    preload_offset: int

    def bits(self, word: str, high: int, low: int) -> int:
        """Return a bit field of `rsrc1`, `rsrc2`, `rsrc3` or `properties`."""
        return int(getattr(self, word)) >> low & ((1 << (high - low + 1)) - 1)

    @property
    def vgprs(self) -> int:
        """Registers a lane has, VGPR and AGPR together (granules of 8)."""
        return 8 * (self.bits("rsrc1", 5, 0) + 1)

    @property
    def accum_offset(self) -> int:
        """First AGPR in the unified file, in registers."""
        return 4 * (self.bits("rsrc3", 5, 0) + 1)

    @property
    def user_sgprs(self) -> int:
        """SGPRs filled by the dispatcher before the workgroup ids."""
        return self.bits("rsrc2", 5, 1)

    @property
    def denorm_modes(self) -> tuple[int, int]:
        """(fp32, fp16/fp64) denormal modes; 3 keeps denormals."""
        return self.bits("rsrc1", 17, 16), self.bits("rsrc1", 19, 18)

    @property
    def round_modes(self) -> tuple[int, int]:
        """(fp32, fp16/fp64) rounding modes; 0 is nearest even."""
        return self.bits("rsrc1", 13, 12), self.bits("rsrc1", 15, 14)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObject:
    """One kernel: its code from `entry` to `end` inside .text, its descriptor and its note."""

    symbol: str
    text: bytes
    text_address: int
    text_offset: int  # of .text in the file
    entry: int
    end: int
    descriptor: Descriptor
    note: KernelNote
    target: str
    flags: int
    sections: tuple[str, ...]
    file_bytes: bytes


def read_code_object(data: bytes, symbol: str | None = None) -> CodeObject:
    """Return the kernel `symbol` of a code object (the only kernel when None).

    Errors: `ObjectError` saying what is missing or not gfx950.
    """
    try:
        return _read(data, read_elf(data, "object"), symbol)
    except (elf.ObjectError, struct.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ObjectError(f"not a readable AMDGPU code object: {error}") from None


def _read(data: bytes, file: elf.Elf, symbol: str | None) -> CodeObject:
    if file.machine != EM_AMDGPU or file.flags & 0xFF != EF_GFX950:
        raise ObjectError(
            f"machine {file.machine}, flags {file.flags:#x}: not gfx950 (expected {EM_AMDGPU} and flags 0x..4f)"
        )
    note = _note(file)
    names = [kernel.name for kernel in note.kernels]
    chosen = [kernel for kernel in note.kernels if symbol is None or kernel.name == symbol]
    if len(chosen) != 1:
        raise ObjectError(f"kernel {symbol!r} not found or not unique (the note names: {', '.join(names) or 'none'})")
    kernel = chosen[0]
    symbols = {item.name: item for item in file.symbols}
    if kernel.name not in symbols or kernel.symbol not in symbols:
        raise ObjectError(f"symbols {kernel.name} and {kernel.symbol} are not both defined")
    function, where = symbols[kernel.name], symbols[kernel.symbol]
    text = file.section(".text")
    if text is None or file.section(".rodata") is None:
        raise ObjectError(".text and .rodata must both be there")
    descriptor, entry_offset = _descriptor(file.contents(where))
    entry = where.value + entry_offset - text.address
    if function.value - text.address != entry:
        raise ObjectError(f"the descriptor's entry {entry:#x} is not the symbol {kernel.name}")
    return CodeObject(
        symbol=kernel.name,
        text=text.data,
        text_address=text.address,
        text_offset=text.offset,
        entry=entry,
        end=entry + function.size,
        descriptor=descriptor,
        note=kernel,
        target=note.target,
        flags=file.flags,
        sections=tuple(section.name for section in file.sections),
        file_bytes=data,
    )


def _note(file: elf.Elf) -> Note:
    for section in file.sections:
        if section.note:
            for _, kind, text in file.notes(section):
                if kind == NT_AMDGPU_METADATA:
                    return msgspec.msgpack.decode(text, type=Note)
    raise ObjectError("no AMDHSA note (type 32) is there")


def _descriptor(raw: bytes) -> tuple[Descriptor, int]:
    if len(raw) != 64:
        raise ObjectError("the kernel descriptor is cut off")
    lds, private, kernarg = struct.unpack_from("<III", raw, 0)
    (entry,) = struct.unpack_from("<q", raw, 16)
    rsrc3, rsrc1, rsrc2 = struct.unpack_from("<III", raw, 44)
    properties, preload = struct.unpack_from("<HH", raw, 56)
    if any(raw[12:16]) or any(raw[24:44]) or any(raw[60:64]):
        raise ObjectError("reserved bytes of the kernel descriptor are not zero")
    value = Descriptor(
        group_segment_fixed_size=lds,
        private_segment_fixed_size=private,
        kernarg_size=kernarg,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        preload_length=preload & 0x7F,
        preload_offset=preload >> 7,
    )
    return value, entry
