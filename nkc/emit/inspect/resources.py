"""What an object says about itself, in one shape for both vendors."""

import msgspec

from nkc.ir.target import Target, Vendor


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class ObjectArgument(_Record, frozen=True):
    """One kernel parameter at its place in the argument buffer.

    name: None where the container does not say (cubin).
    offset: bytes from the start of the argument buffer.
    size: bytes that it takes.
    kind: `pointer`, `value`, or the HIP name of an implicit argument; None where the container does not say (cubin).
    """

    name: str | None
    offset: int
    size: int
    kind: str | None


class MatrixUse(_Record, frozen=True):
    """How often a matrix instruction stands in the code (statically, over the whole kernel).

    mnemonic: the instruction.
    count: occurrences.
    """

    mnemonic: str
    count: int


class Resources(_Record, frozen=True):
    """The resources of one kernel, read from its code object.

    container: `hsaco` or `cubin`.
    isa: as the object names it.
    wave: lanes of a wave (warp).
    symbol: the kernel's name.
    registers: a lane's, with accumulation registers.
    accumulation_registers: a lane's AGPRs; AMD only.
    sgprs: scalar registers of a wave; AMD only.
    spilled_registers: vector registers that went to scratch; AMD only.
    scratch_bytes: private (local) memory of a lane, where spills go.
    dynamic_stack: whether the size of the stack is only known at run time.
    lds_fixed_bytes: allocated by the object itself; what is asked for at launch is not in it.
    kernarg_bytes: size of the argument buffer.
    arguments: every kernel parameter in order.
    max_threads: largest workgroup that the object allows.
    denormals: fp32 denormals are kept and rounding is to nearest even, from the descriptor; None where every
        instruction says it for itself (CUDA).
    elf_flags: e_flags of the ELF header.
    matrix: matrix instructions, by mnemonic.
    fp32_fma: fused multiply-adds of fp32 vectors in the code; CUDA only.
    cluster: workgroups along x, y, z that the object is started in together; CUDA only.
    grid_waits: places where the code waits for the kernels ahead in the stream to end; CUDA only.
    grid_triggers: places where it lets the kernel behind begin; CUDA only.
    """

    container: str
    isa: str
    wave: int
    symbol: str
    registers: int
    accumulation_registers: int | None
    sgprs: int | None
    spilled_registers: int | None
    scratch_bytes: int
    dynamic_stack: bool
    lds_fixed_bytes: int
    kernarg_bytes: int
    arguments: tuple[ObjectArgument, ...]
    max_threads: int
    denormals: bool | None
    elf_flags: int
    matrix: tuple[MatrixUse, ...]
    fp32_fma: int | None = None
    cluster: tuple[int, int, int] | None = None
    grid_waits: int | None = None
    grid_triggers: int | None = None

    def matrix_count(self, prefix: str) -> int:
        """Return how many matrix instructions begin with a prefix."""
        return sum(use.count for use in self.matrix if use.mnemonic.startswith(prefix))

    @property
    def starts_alone(self) -> bool:
        """Whether the code neither waits for the kernels ahead nor lets the one behind begin."""
        return not self.grid_waits and not self.grid_triggers


class Occupancy(_Record, frozen=True):
    """How much of one kernel a compute unit holds at once.

    workgroups: that fit together.
    waves: of those workgroups.
    limit: what stops one more: `registers`, `lds`, `waves`.
    """

    workgroups: int
    waves: int
    limit: str


_AMD_REGISTER_GRANULE = 8
_AMD_WAVES_A_SIMD = 8
_CUDA_REGISTER_GRANULE = 256  # registers, allocated for a warp
_CUDA_WARPS = 64
_CUDA_BLOCKS = 32
_CUDA_RESERVED_LDS = 1024  # bytes of every block that belong to the system


def occupancy(resources: Resources, target: Target, *, threads: int, lds_dynamic_bytes: int) -> Occupancy:
    """Return how many workgroups of `threads` lanes one compute unit holds. Zero: the kernel cannot be launched.

    Source: CDNA4 ISA (512 registers a lane of a SIMD, 8 waves) and CUDA C++ programming guide, compute capability 9.0.
    """
    waves = -(-threads // target.wave)
    lds = resources.lds_fixed_bytes + lds_dynamic_bytes
    registers = max(resources.registers, 1)
    if target.vendor is Vendor.AMD:
        simds = target.integer("simds")
        granules = -(-registers // _AMD_REGISTER_GRANULE) * _AMD_REGISTER_GRANULE
        a_simd = -(-waves // simds)
        limits = {
            "registers": target.integer("registers") // granules // a_simd,
            "waves": _AMD_WAVES_A_SIMD // a_simd,
            "lds": target.lds_bytes // lds if lds else _AMD_WAVES_A_SIMD * simds,
        }
    else:
        a_warp = -(-registers * target.wave // _CUDA_REGISTER_GRANULE) * _CUDA_REGISTER_GRANULE
        limits = {
            "registers": target.integer("registers") // a_warp // waves,
            "waves": min(_CUDA_WARPS // waves, _CUDA_BLOCKS),
            "lds": (target.lds_bytes + _CUDA_RESERVED_LDS) // (lds + _CUDA_RESERVED_LDS),
        }
    limit = min(sorted(limits), key=lambda name: limits[name])
    return Occupancy(workgroups=limits[limit], waves=limits[limit] * waves, limit=limit)
