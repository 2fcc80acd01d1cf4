"""`launch.json`: everything a loader needs to launch one code object, as data (`nkc.launch/1`).

Guards are the promises that the object makes unchecked, lowered from predicates when the kernel was compiled: a
launcher evaluates them on the caller's tensors and names the one that fails. No compiler is needed to read this.
"""

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from nkc.ir.contract import Access, DType, Triple, WorkspaceInit

LAUNCH_SCHEMA: Literal["nkc.launch/1"] = "nkc.launch/1"


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class ArgumentKind(StrEnum):
    """What a kernel parameter holds.

    `scratch`: an 8-byte pointer of the toolchain's own, null at launch. `tensor_map`: a CUtensorMap of 128 bytes by
    value, over the tensor that the caller passes under the parameter's name.
    """

    POINTER = "pointer"
    TENSOR_MAP = "tensor_map"
    INT32 = "int32"
    SCRATCH = "scratch"
    IMPLICIT = "implicit"


class TensorMap(_Record, frozen=True, kw_only=True):
    """How TMA copies a tensor: extents and strides are its guard's, elements out of bounds read as zero.

    box: elements that one copy takes along each axis, in the order of the tensor's axes.
    swizzle_bytes: span in which 16-byte pieces are permuted in shared memory: 0, 32, 64 or 128.
    l2_promotion_bytes: what a miss fetches into L2 at least: 0, 64, 128 or 256.
    """

    box: tuple[int, ...]
    swizzle_bytes: Literal[0, 32, 64, 128]
    l2_promotion_bytes: Literal[0, 64, 128, 256] = 0


class LaunchArgument(_Record, frozen=True, kw_only=True):
    """One kernel parameter at its place in the argument buffer.

    name: as the contract calls it; of what the toolchain appended, what it is.
    kind: what the parameter holds.
    offset: bytes from the start of the argument buffer.
    size: bytes that it takes.
    hidden: appended by the toolchain, not part of the contract.
    dtype: element type of a pointer.
    access: what the kernel does to the memory of a pointer.
    dim: the bounded dim whose value an `int32` carries.
    implicit: the HIP implicit argument (`hidden_block_count_x`, ...).
    tensor_map: how the map of a `tensor_map` is made.
    constant: the kernel may read it before the kernels ahead in the stream have ended, so that none of them may be
        writing it still; the caller's promise, which no launcher can check.
    """

    name: str
    kind: ArgumentKind
    offset: int
    size: int
    hidden: bool = False
    dtype: DType | None = None
    access: Access | None = None
    dim: str | None = None
    implicit: str | None = None
    tensor_map: TensorMap | None = None
    constant: bool = False


class Extent(_Record, frozen=True, kw_only=True):
    """One extent of a tensor: `ceil(dim / divisor)`, rounded up to `multiple_of`; a plain number where dim is None.

    value: elements, where the extent is fixed.
    dim: the bounded dim that it follows.
    divisor: elements of the dim that share one entry (a scale block).
    multiple_of: entries to which it is padded.
    """

    value: int | None = None
    dim: str | None = None
    divisor: int = 1
    multiple_of: int = 1

    def of(self, dims: dict[str, int]) -> int:
        """Return the extent in elements for the given values of the bounded dims."""
        size = self.value if self.dim is None else dims[self.dim]
        assert size is not None
        groups = -(-size // self.divisor)
        return -(-groups // self.multiple_of) * self.multiple_of


class TensorGuard(_Record, frozen=True, kw_only=True, tag="tensor", tag_field="kind"):
    """A pointer argument must be such a tensor. A stride of an axis whose extent is 1 does not matter.

    argument: the parameter's name.
    dtype: element type.
    shape: extents, outermost first, in elements.
    strides: elements between neighbours along each axis; 1 marks the contiguous one.
    alignment: bytes, a power of two.
    """

    argument: str
    dtype: DType
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    alignment: int


class RangeGuard(_Record, frozen=True, kw_only=True, tag="range", tag_field="kind"):
    """The value of a bounded dim lies within these limits; at 0 a launch does nothing and succeeds.

    dim: the bounded dim.
    min: least value, included.
    max: largest value, included.
    """

    dim: str
    min: int
    max: int


class DistinctGuard(_Record, frozen=True, kw_only=True, tag="distinct", tag_field="kind"):
    """A written argument must not overlap any of these.

    argument: the parameter that is written.
    others: parameters whose memory it must not share.
    """

    argument: str
    others: tuple[str, ...]


Guard: TypeAlias = TensorGuard | RangeGuard | DistinctGuard


class LaunchLds(_Record, frozen=True, kw_only=True):
    """LDS (shared memory) of one workgroup: two different things, both constant.

    fixed_bytes: allocated by the object itself.
    dynamic_bytes: to be asked for at launch.
    """

    fixed_bytes: int
    dynamic_bytes: int


class LaunchAttributes(_Record, frozen=True, kw_only=True):
    """How workgroups are started, beyond grid and block; CUDA alone knows more than the defaults.

    cluster: workgroups along x, y, z that run together and reach into each other's LDS. The object itself says so, and
        a launch passes nothing for it; the grid is whole clusters.
    programmatic_dependent_launch: launched so that it may begin before the kernels ahead in the stream have ended; the
        object waits for their end by itself (`griddepcontrol.wait`).
    """

    cluster: Triple = (1, 1, 1)
    programmatic_dependent_launch: bool = False


class LaunchWorkspace(_Record, frozen=True, kw_only=True):
    """Scratch memory that the caller provides; one workspace serves one stream at a time.

    bytes: least size; 0 where none is needed.
    alignment: bytes, a power of two.
    init: what it must hold before the first launch.
    """

    bytes: int
    alignment: int
    init: WorkspaceInit


class LaunchTarget(_Record, frozen=True, kw_only=True):
    """The chip an object is for.

    arch: the chip's name, `gfx950`.
    isa: as the object itself names it, `sm_90a`.
    wave: lanes of a wave (warp).
    """

    arch: str
    isa: str
    wave: int


class Launch(_Record, frozen=True, kw_only=True):
    """One code object and how to launch it; grid and block are fixed.

    schema: names this form of the document.
    id: of the sealed contract.
    operation: what is computed, `dense`.
    tactic: the one that was built.
    target: the chip.
    object: file name of the code object, beside this record.
    sha256: digest of the object's bytes, 64 hex digits.
    symbol: the kernel's name in the object.
    arguments: every kernel parameter in order, hidden ones last.
    kernarg_bytes: size of the argument buffer.
    grid: workgroups along x, y, z.
    block: threads of a workgroup along x, y, z.
    lds: LDS of a workgroup.
    attributes: how workgroups are started beyond that.
    workspace: scratch memory to be passed as `workspace`.
    guards: what a launcher has to check, since the kernel does not.
    deterministic: same inputs, same bits, every launch.
    graph_capture: may be captured in a graph and replayed.
    """

    schema: Literal["nkc.launch/1"] = LAUNCH_SCHEMA
    id: str
    operation: str
    tactic: str
    target: LaunchTarget
    object: str
    sha256: str
    symbol: str
    arguments: tuple[LaunchArgument, ...]
    kernarg_bytes: int
    grid: Triple
    block: Triple
    lds: LaunchLds
    attributes: LaunchAttributes = LaunchAttributes()
    workspace: LaunchWorkspace
    guards: tuple[Guard, ...]
    deterministic: bool
    graph_capture: bool
