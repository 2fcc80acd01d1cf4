"""Reading an AMD code object: the AMDHSA metadata note, the kernel descriptor, and the code itself.

Note and descriptor say some things twice; they have to agree. Source: LLVM, User Guide for AMDGPU Backend.
"""

import struct

import msgspec

from nkc.emit.inspect import gfx9
from nkc.emit.inspect.elf import Elf, Symbol
from nkc.emit.inspect.resources import MatrixUse, ObjectArgument, Resources

EM_AMDGPU = 224

_NOTE_OWNER, _NOTE_METADATA = "AMDGPU", 32
_DESCRIPTOR_BYTES = 64
_FP32_NEAREST_WITH_DENORMALS = 0b11_00  # FLOAT_DENORM_MODE_32 above FLOAT_ROUND_MODE_32
_GFX9_MACHINES = range(0x2C, 0x60)  # EF_AMDGPU_MACH of the gfx9 family lies in here


class _Dotted(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: f".{name}"):
    """A metadata map, whose keys begin with a dot. Unknown keys are the format's own business."""


class _Argument(_Dotted, frozen=True):
    offset: int
    size: int
    value_kind: str
    name: str | None = None


class _Kernel(_Dotted, frozen=True):
    name: str
    symbol: str
    kernarg_segment_size: int
    group_segment_fixed_size: int
    private_segment_fixed_size: int
    wavefront_size: int
    max_flat_workgroup_size: int
    vgpr_count: int
    sgpr_count: int
    agpr_count: int = 0
    vgpr_spill_count: int = 0
    sgpr_spill_count: int = 0
    uses_dynamic_stack: bool = False
    args: tuple[_Argument, ...] = ()


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    kernels: tuple[_Kernel, ...] = msgspec.field(name="amdhsa.kernels")
    target: str = msgspec.field(name="amdhsa.target")


def _metadata(elf: Elf) -> _Metadata:
    for section in elf.sections:
        if section.note:
            for owner, kind, text in elf.notes(section):
                if (owner, kind) == (_NOTE_OWNER, _NOTE_METADATA):
                    try:
                        return msgspec.msgpack.decode(text, type=_Metadata)
                    except (msgspec.DecodeError, UnicodeDecodeError) as error:
                        raise elf.fault(f"its AMDHSA metadata cannot be read: {error}") from None
    raise elf.fault("it has no AMDHSA metadata note")


def _symbol(elf: Elf, symbols: tuple[Symbol, ...], name: str) -> Symbol:
    found = next((symbol for symbol in symbols if symbol.name == name), None)
    if found is None:
        raise elf.fault(f"its metadata names `{name}`, which is no symbol of it")
    return found


def _argument(argument: _Argument) -> ObjectArgument:
    kind = {"global_buffer": "pointer", "by_value": "value"}.get(argument.value_kind, argument.value_kind)
    return ObjectArgument(name=argument.name, offset=argument.offset, size=argument.size, kind=kind)


def read_hsaco(elf: Elf) -> Resources:
    """Return the resources of an AMD code object that holds one kernel. Raises ObjectError."""
    metadata = _metadata(elf)
    if len(metadata.kernels) != 1:
        raise elf.fault(f"it holds {len(metadata.kernels)} kernels, not one")
    kernel = metadata.kernels[0]
    symbols = elf.symbols
    descriptor = elf.contents(_symbol(elf, symbols, kernel.symbol))
    if len(descriptor) != _DESCRIPTOR_BYTES:
        raise elf.fault(f"its kernel descriptor has {len(descriptor)} bytes, not {_DESCRIPTOR_BYTES}")
    lds, scratch, kernarg = struct.unpack_from("<III", descriptor)
    rsrc1, properties = struct.unpack_from("<I", descriptor, 48)[0], struct.unpack_from("<H", descriptor, 56)[0]
    said_twice = {
        "LDS": (lds, kernel.group_segment_fixed_size),
        "private segment": (scratch, kernel.private_segment_fixed_size),
        "kernarg segment": (kernarg, kernel.kernarg_segment_size),
        "wave": (32 if properties & 1 << 10 else 64, kernel.wavefront_size),
    }
    for what, (here, there) in said_twice.items():
        if here != there:
            raise elf.fault(f"its descriptor and its metadata disagree on {what}: {here} and {there}")
    code = elf.contents(_symbol(elf, symbols, kernel.name))
    try:
        matrix = gfx9.matrix_counts(code) if elf.flags & 0xFF in _GFX9_MACHINES else {}
    except ValueError as error:
        raise elf.fault(str(error)) from None
    return Resources(
        container="hsaco",
        isa=metadata.target.rpartition("-")[2].partition(":")[0],
        wave=kernel.wavefront_size,
        symbol=kernel.name,
        registers=kernel.vgpr_count,
        accumulation_registers=kernel.agpr_count,
        sgprs=kernel.sgpr_count,
        spilled_registers=kernel.vgpr_spill_count + kernel.sgpr_spill_count,
        scratch_bytes=kernel.private_segment_fixed_size,
        dynamic_stack=kernel.uses_dynamic_stack,
        lds_fixed_bytes=kernel.group_segment_fixed_size,
        kernarg_bytes=kernel.kernarg_segment_size,
        arguments=tuple(_argument(argument) for argument in kernel.args),
        max_threads=kernel.max_flat_workgroup_size,
        denormals=rsrc1 >> 12 & 0b11 == 0 and rsrc1 >> 16 & 0b11 == 0b11,
        elf_flags=elf.flags,
        matrix=tuple(MatrixUse(mnemonic=name, count=count) for name, count in sorted(matrix.items())),
    )
