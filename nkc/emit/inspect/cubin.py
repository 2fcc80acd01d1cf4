"""Reading a CUDA cubin: the attributes of its one kernel, its parameter layout, and the code itself.

The format is not documented by its vendor. Source: the listings of cuobjdump and nvdisasm, against which tests hold it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from nkc.emit.inspect import sass
from nkc.emit.inspect.elf import Elf, Section
from nkc.emit.inspect.resources import MatrixUse, ObjectArgument, Resources

EM_CUDA = 190

_NO_VALUE, _BYTE, _HALF, _SIZED = 1, 2, 3, 4
_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F
_PARAMETER, _PARAMETER_BYTES = 0x17, 0x19
_CLUSTER = 0x3D
_COMPAT_ACCELERATOR = 0x09

_NEW_ABI = 8  # since then the architecture lies in the second byte of e_flags
_OLD_ABI_ACCELERATOR_FLAG = 0x800
_RESERVED_LDS = 1024  # of a block, the system's own since sm_90; ptxas counts it in
_FIRST_ARCH_WITH_RESERVED_LDS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attribute:
    kind: int
    value: bytes

    def words(self) -> tuple[int, ...]:
        """Return the value as 32-bit words."""
        return tuple(word for (word,) in struct.iter_unpack("<I", self.value[: len(self.value) // 4 * 4]))


def _attributes(elf: Elf, section: Section | None) -> Iterator[_Attribute]:
    """Yield the attributes of an `.nv.info` or `.nv.compat` section: format, kind, then a short value or its size."""
    data, at = (section.data if section else b""), 0
    while at + 4 <= len(data):
        form, kind, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form not in {_NO_VALUE, _BYTE, _HALF, _SIZED}:
            raise elf.fault(f"`{section.name if section else ''}` holds an attribute of unknown format {form}")
        size = value if form == _SIZED else 0
        if at + size > len(data):
            raise elf.fault(f"an attribute reaches outside `{section.name if section else ''}`")
        yield _Attribute(kind=kind, value=data[at : at + size] if size else struct.pack("<I", value))
        at += size


def _isa(elf: Elf) -> tuple[int, str]:
    """Return the compute capability, and the architecture with its `a` where the code needs that very one."""
    if elf.abi_version >= _NEW_ABI:
        number = elf.flags >> 8 & 0xFF
        compat = _attributes(elf, elf.section(".nv.compat"))
        accelerator = any(item.kind == _COMPAT_ACCELERATOR and item.value[0] == 1 for item in compat)
    else:
        number = elf.flags & 0xFF
        accelerator = bool(elf.flags & _OLD_ABI_ACCELERATOR_FLAG)
    return number, f"sm_{number}{'a' if accelerator else ''}"


def _per_kernel(elf: Elf, kind: int) -> int:
    """Return a value that `.nv.info` keeps as (symbol, value); there is one kernel, so one such pair."""
    for item in _attributes(elf, elf.section(".nv.info")):
        words = item.words()
        if item.kind == kind and len(words) == 2:
            return words[1]
    raise elf.fault(f"`.nv.info` lacks attribute {kind:#x}")


def _parameters(elf: Elf, attributes: tuple[_Attribute, ...]) -> tuple[ObjectArgument, ...]:
    """Return the parameters in order: each attribute holds index, (ordinal, offset), and the size above bit 18."""
    found = {}
    for item in attributes:
        if item.kind == _PARAMETER:
            if len(item.value) != 12:
                raise elf.fault("a parameter attribute has not 12 bytes")
            _, ordinal, offset, rest = struct.unpack("<IHHI", item.value)
            found[ordinal] = ObjectArgument(name=None, offset=offset, size=rest >> 18, kind=None)
    return tuple(found[ordinal] for ordinal in sorted(found))


def _threads(attributes: tuple[_Attribute, ...]) -> int:
    for item in attributes:
        words = item.words()
        if item.kind in {_REQUIRED_THREADS, _MAX_THREADS} and len(words) == 3:
            return words[0] * words[1] * words[2]
    return 1024


def _cluster(attributes: tuple[_Attribute, ...]) -> tuple[int, int, int]:
    """Return the workgroups that are started together; of a kernel that says nothing of it, each alone."""
    for item in attributes:
        words = item.words()
        if item.kind == _CLUSTER and len(words) == 3 and min(words) > 0:
            return words[0], words[1], words[2]
    return 1, 1, 1


def read_cubin(elf: Elf) -> Resources:
    """Return the resources of a cubin that holds one kernel. Raises ObjectError."""
    texts = [section for section in elf.sections if section.name.startswith(".text.")]
    if len(texts) != 1:
        raise elf.fault(f"it holds {len(texts)} kernels, not one")
    text = texts[0]
    symbol = text.name.removeprefix(".text.")
    attributes = tuple(_attributes(elf, elf.section(f".nv.info.{symbol}")))
    sizes = [
        struct.unpack("<I", item.value[:4].ljust(4, b"\0"))[0] for item in attributes if item.kind == _PARAMETER_BYTES
    ]
    parameters = _parameters(elf, attributes)
    number, isa = _isa(elf)
    shared = elf.section(f".nv.shared.{symbol}")
    reserved = _RESERVED_LDS if number >= _FIRST_ARCH_WITH_RESERVED_LDS else 0
    matrix = sass.matrix_counts(text.data)
    return Resources(
        container="cubin",
        isa=isa,
        wave=32,
        symbol=symbol,
        registers=_per_kernel(elf, _REGISTERS),
        accumulation_registers=None,
        sgprs=None,
        spilled_registers=None,
        scratch_bytes=_per_kernel(elf, _FRAME_SIZE),
        dynamic_stack=False,
        lds_fixed_bytes=max(shared.size - reserved, 0) if shared else 0,
        kernarg_bytes=sizes[0] if sizes else 0,
        arguments=parameters,
        max_threads=_threads(attributes),
        denormals=None,
        elf_flags=elf.flags,
        matrix=tuple(MatrixUse(mnemonic=name, count=count) for name, count in sorted(matrix.items())),
        fp32_fma=sass.fp32_fma_count(text.data),
        cluster=_cluster(attributes),
        grid_waits=sass.count(text.data, sass.GRID_WAIT),
        grid_triggers=sass.count(text.data, sass.GRID_TRIGGER),
    )
