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
    """What a kernel parameter holds. `scratch`: an 8-byte pointer of the toolchain's own, null at launch."""

    POINTER = "pointer"
    INT32 = "int32"
    SCRATCH = "scratch"
    IMPLICIT = "implicit"


class LaunchArgument(_Record, frozen=True, kw_only=True):
    """One kernel parameter at its place in the argument buffer (bytes).

    dtype and access: of pointers. dim: the bounded dim whose value an `int32` carries. hidden: appended by the
    toolchain, not part of the contract. implicit: the HIP implicit-argument field (`hidden_block_count_x`, ...).
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


class Extent(_Record, frozen=True, kw_only=True):
    """One extent of a tensor: `ceil(dim / divisor)`, rounded up to `multiple_of`; a plain number where dim is None."""

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
    """A pointer argument must be a tensor of this dtype, shape and strides (elements), aligned to so many bytes.

    A stride of an axis whose extent is 1 does not matter. Where `m_major`, axis 0 is contiguous.
    """

    argument: str
    dtype: DType
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    alignment: int


class RangeGuard(_Record, frozen=True, kw_only=True, tag="range", tag_field="kind"):
    """The value of a bounded dim lies within these limits, both included; at 0 a launch does nothing and succeeds."""

    dim: str
    min: int
    max: int


class DistinctGuard(_Record, frozen=True, kw_only=True, tag="distinct", tag_field="kind"):
    """A written argument must not overlap any of these."""

    argument: str
    others: tuple[str, ...]


Guard: TypeAlias = TensorGuard | RangeGuard | DistinctGuard


class LaunchLds(_Record, frozen=True, kw_only=True):
    """LDS in bytes: fixed in the object, dynamic to ask for at launch."""

    fixed_bytes: int
    dynamic_bytes: int


class LaunchWorkspace(_Record, frozen=True, kw_only=True):
    """Workspace in bytes, its alignment, and what it must hold before the first launch."""

    bytes: int
    alignment: int
    init: WorkspaceInit


class LaunchTarget(_Record, frozen=True, kw_only=True):
    """The chip an object is for. isa: what the object itself says (`sm_90a`); wave: lanes."""

    arch: str
    isa: str
    wave: int


class Launch(_Record, frozen=True, kw_only=True):
    """One code object and how to launch it. grid counts workgroups, block threads; both are fixed."""

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
    workspace: LaunchWorkspace
    guards: tuple[Guard, ...]
    deterministic: bool
    graph_capture: bool
