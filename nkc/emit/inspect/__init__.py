"""Reading code objects: what a kernel's HSACO or cubin says about itself, without a device or a disassembler.

Holds: the ELF reader, one reader per container, the matrix opcodes of both machine codes, resources and occupancy.
Leaves out: judging. What an object ought to say is the contract's and the tactic's business (`nkc.emit.hold`).
A file that is damaged, cut short or something else ends in one `ObjectError`, whatever its bytes.
"""

from nkc.emit.inspect.elf import ObjectError, read_elf
from nkc.emit.inspect.resources import MatrixUse, ObjectArgument, Occupancy, Resources, occupancy

__all__ = ["MatrixUse", "ObjectArgument", "ObjectError", "Occupancy", "Resources", "inspect", "occupancy"]


def inspect(data: bytes, *, name: str) -> Resources:
    """Return the resources of the one kernel in a code object; `name` is for error texts. Raises ObjectError."""
    from nkc.emit.inspect.cubin import EM_CUDA, read_cubin
    from nkc.emit.inspect.hsaco import EM_AMDGPU, read_hsaco

    elf = read_elf(data, name)
    if elf.machine == EM_AMDGPU:
        return read_hsaco(elf)
    if elf.machine == EM_CUDA:
        return read_cubin(elf)
    raise ObjectError(
        f"{name}: ELF machine {elf.machine} is neither AMD GPU ({EM_AMDGPU}) nor CUDA ({EM_CUDA}) "
        "(nkc inspects HSACO and cubin files)"
    )
