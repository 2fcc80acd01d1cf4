"""The kernel contract as typed, frozen values.

A contract is *open* when it leaves schedule, launch, LDS or workspace to the compiler, *lowered* when a tactic has
filled them in, and *sealed* when the built object has told the rest. It is one type throughout: what is still open
is None. `nkc.ir.reader` is the only door through which JSON becomes one of these.
"""

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from nkc.ir.frozen import FrozenMap

CONTRACT_SCHEMA = "nkc.contract/1"

Triple: TypeAlias = tuple[int, int, int]


class DType(StrEnum):
    """Element types. `fp8_e4m3` is OCP e4m3fn: no infinities, NaN at 0x7f and 0xff, largest value 448."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    FP8_E4M3 = "fp8_e4m3"
    INT32 = "int32"

    @property
    def size_bytes(self) -> int:
        """Return the size of one element in bytes."""
        return {"bf16": 2, "fp16": 2, "fp32": 4, "fp8_e4m3": 1, "int32": 4}[self.value]


class Layout(StrEnum):
    """How a tensor lies in memory. Ids exist for what deployments use, whether or not a tactic serves them."""

    ROW_MAJOR = "row_major"
    ROW_MAJOR_NK = "row_major_nk"
    M_MAJOR = "m_major"
    SHUFFLED_16X16 = "shuffled_16x16"


class Accumulate(StrEnum):
    """How the products inside one scale block (or along k, without scales) are added; strictest first.

    fp32_sequential: IEEE fp32, k ascending, an oracle gives every bit. matrix_unit_fp32: exact products, at least 23
    fraction bits kept at every addition, the order inside the block fixed by the lowered contract.
    tensor_core_fp8: Hopper's FP8 unit, about 13 bits below the largest addend, truncated, at most 128 terms.
    """

    FP32_SEQUENTIAL = "fp32_sequential"
    MATRIX_UNIT_FP32 = "matrix_unit_fp32"
    TENSOR_CORE_FP8 = "tensor_core_fp8"

    def serves(self, asked: "Accumulate") -> bool:
        """Return whether a kernel that guarantees this rule may serve a contract that asks for `asked`."""
        order = list(Accumulate)
        return order.index(self) <= order.index(asked)


class Combine(StrEnum):
    """How block sums become the result: `ascending` is one chain, `fixed_order` partial chains in a fixed order."""

    ASCENDING = "ascending"
    FIXED_ORDER = "fixed_order"

    def serves(self, asked: "Combine") -> bool:
        """Return whether a kernel that guarantees this rule may serve a contract that asks for `asked`."""
        order = list(Combine)
        return order.index(self) <= order.index(asked)


class Reduce(StrEnum):
    """How a normalising operation adds along a row: k ascending, or a tree whose order the lowered contract fixes."""

    SEQUENTIAL = "sequential"
    TREE = "tree"

    def serves(self, asked: "Reduce") -> bool:
        """Return whether a kernel that guarantees this rule may serve a contract that asks for `asked`."""
        order = list(Reduce)
        return order.index(self) <= order.index(asked)


class Staging(StrEnum):
    """The precision in which a value waits for the next stage: a product to be quantised, a sum to be normalised."""

    FP32 = "fp32"
    BF16 = "bf16"


class Quantize(StrEnum):
    """How a value meets its scale: IEEE division, the correctly rounded reciprocal, or a power of two not below it."""

    DIVIDE = "divide"
    RECIPROCAL = "reciprocal"
    UE8M0 = "ue8m0"


class Overflow(StrEnum):
    """What becomes of a value that rounds past the largest finite code: that code, or NaN as in IEEE arithmetic."""

    SATURATE = "saturate"
    IEEE = "ieee"


class Weight(StrEnum):
    """What a norm multiplies by: the weight as it is stored, or one more than it."""

    PLAIN = "plain"
    ONE_PLUS = "one_plus"


class Round(StrEnum):
    """Rounding of the stored result: to nearest, ties to even, once."""

    RNE_ONCE = "rne_once"


class Nan(StrEnum):
    """What happens to NaN: it reaches every output that depends on it, and no other."""

    PROPAGATE = "propagate"


class Gate(StrEnum):
    """How the gate and up columns of a gated epilogue lie: one half after the other, or in turn."""

    HALVES = "halves"
    INTERLEAVED = "interleaved"


class Maturity(StrEnum):
    """How far a tactic's proof has come."""

    EXPERIMENT = "experiment"
    VERIFIED = "verified"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class Access(StrEnum):
    """What a kernel does to an argument's memory."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read_write"


class WorkspaceInit(StrEnum):
    """What the workspace holds before the first launch: anything, or zeros (and zeros again after each launch)."""

    NONE = "none"
    ZERO = "zero"


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The manner of every value in this file: frozen, keyword-only, strict, open fields left out."""


class Bounded(_Value, frozen=True, kw_only=True):
    """A dim known only within limits. One launch serves every value; the value is an argument.

    min: least value, included; at 0 a launch does nothing and succeeds.
    max: largest value, included.
    """

    min: int
    max: int


Dim: TypeAlias = int | Bounded


def dim_min(dim: Dim) -> int:
    """Return the smallest value a dim can take."""
    return dim.min if isinstance(dim, Bounded) else dim


def dim_max(dim: Dim) -> int:
    """Return the largest value a dim can take."""
    return dim.max if isinstance(dim, Bounded) else dim


class MultipleOf(_Value, frozen=True, kw_only=True):
    """A leading dimension that is its natural value rounded up to a multiple.

    multiple_of: elements to which it is rounded up.
    """

    multiple_of: int


class TargetRef(_Value, frozen=True, kw_only=True):
    """The chip a contract is for.

    arch: the chip's name.
    wave: lanes of a wave (warp); the chip's own.
    """

    arch: str
    wave: int


class Scale(_Value, frozen=True, kw_only=True):
    """Scales of one operand: one per block, ceil(dim / block) along each axis.

    block: elements along each axis of the operand that share one scale.
    dtype: of the scales.
    layout: how they lie in memory.
    leading_dim: elements between consecutive k groups of an `m_major` tensor; left out, the rows of the operand.
    """

    block: tuple[int, int]
    dtype: DType = DType.FP32
    layout: Layout
    leading_dim: int | MultipleOf | None = None


class Epilogue(_Value, frozen=True, kw_only=True):
    """What follows the accumulator, before the one rounding store.

    kind: what is computed.
    dtype: of the bias vector over n (`bias`).
    gate: how gate and up columns lie (`gated_silu`).
    """

    kind: str
    dtype: DType | None = None
    gate: Gate | None = None


class Properties(_Value, frozen=True, kw_only=True):
    """What the caller needs of every launch.

    deterministic: same inputs, same bits, every launch.
    graph_capture: may be captured in a graph and replayed.
    constant: pointer arguments that nothing ahead of a launch in its stream may still write, as weights are (`b`,
        `b_scales`, `bias`); a kernel may read them before the kernels ahead have ended.
    """

    deterministic: bool = True
    graph_capture: bool = True
    constant: tuple[str, ...] = ()


class Schedule(_Value, frozen=True, kw_only=True):
    """How the work is cut. A written field is an exact demand; what is left out is the tactic's.

    tile: elements (m, n, k) of one workgroup.
    stages: tiles in flight along k.
    waves: per workgroup.
    split_k: partial chains along k.
    """

    tile: Triple | None = None
    stages: int | None = None
    waves: int | None = None
    split_k: int | None = None


class Launch(_Value, frozen=True, kw_only=True):
    """Extents along x, y, z. A written field is an exact demand; what is left out is the tactic's.

    grid: workgroups.
    block: threads of a workgroup, at most 1024 together.
    dependent: begin before the kernels ahead in the stream have ended (programmatic dependent launch); left out, where
        `properties.constant` allows it and a tactic does so.
    """

    grid: Triple | None = None
    block: Triple | None = None
    dependent: bool | None = None


class Lds(_Value, frozen=True, kw_only=True):
    """LDS (shared memory) of a workgroup: two different things. A written field is an exact demand.

    fixed_bytes: bytes allocated in the code object.
    dynamic_bytes: bytes asked for at launch.
    """

    fixed_bytes: int | None = None
    dynamic_bytes: int | None = None


class Workspace(_Value, frozen=True, kw_only=True):
    """Scratch memory that the caller provides; one workspace serves one stream at a time.

    bytes: size; 0 where none is needed.
    alignment: bytes, a power of two.
    init: what it holds before the first launch.
    """

    bytes: int
    alignment: int = 256
    init: WorkspaceInit = WorkspaceInit.NONE


class Argument(_Value, frozen=True, kw_only=True):
    """One visible kernel argument.

    name: of an operand, of its scales (`a_scales`), `bias`, `workspace`, or of a bounded dim.
    type: `ptr<dtype>` or `int32`.
    access: what the kernel does to its memory.
    """

    name: str
    type: str
    access: Access = Access.READ


class Code(_Value, frozen=True, kw_only=True):
    """The kernel itself.

    language: of its source.
    digest: SHA-256 of its normalised source with the options that matter, 64 hex digits.
    """

    language: Literal["triton", "cuda", "amdgcn"]
    digest: str


NumericValue: TypeAlias = StrEnum | float


class Contract(_Value, frozen=True, kw_only=True):
    """An immutable computational identity, with the notes that travel beside it and are never part of an id.

    Notes: maturity, fallback, provenance. Everything else is hashed (see `nkc.ir.canonical`).

    schema: names this form of the document.
    target: the chip.
    operation: what is computed.
    shape: the operation's dims, in elements; some may be a range.
    dtypes: element types of operands and intermediates.
    scales: of the operands whose dtype needs them.
    layouts: how operands lie in memory.
    epilogue: what follows the accumulator; left out, nothing.
    numerics: the numerical rules that the operation declares.
    properties: what the caller needs of every launch.
    alignment: bytes promised for pointer arguments, 16 where left out.
    constants: further integers, by name, that a tactic must know to serve the contract.
    schedule: how the work is cut; left to the compiler where left out.
    launch: workgroups and threads; left to the compiler where left out.
    lds: LDS (shared memory) in bytes; left to the compiler where left out.
    workspace: scratch memory; left to the compiler where left out.
    arguments: the ordered visible kernel arguments; left to the compiler where left out.
    code: the kernel itself; known once it was built.
    maturity: a note, never hashed.
    fallback: the route to take where no tactic serves the contract; a note, never hashed.
    provenance: model, layer, anything; a note, never hashed.
    """

    schema: str = CONTRACT_SCHEMA
    target: TargetRef
    operation: str
    shape: FrozenMap[str, Dim]
    dtypes: FrozenMap[str, DType]
    scales: FrozenMap[str, Scale] = FrozenMap()
    layouts: FrozenMap[str, Layout]
    epilogue: Epilogue = Epilogue(kind="identity")
    numerics: FrozenMap[str, NumericValue]
    properties: Properties = Properties()
    alignment: FrozenMap[str, int] = FrozenMap()
    constants: FrozenMap[str, int] = FrozenMap()
    schedule: Schedule | None = None
    launch: Launch | None = None
    lds: Lds | None = None
    workspace: Workspace | None = None
    arguments: tuple[Argument, ...] | None = None
    code: Code | None = None
    maturity: Maturity | None = None
    fallback: str | None = None
    provenance: FrozenMap[str, object] = FrozenMap()

    def dim(self, name: str) -> Dim:
        """Return one dim, exact or bounded."""
        return self.shape[name]

    def exact(self, name: str) -> int:
        """Return a dim that the operation does not let be bounded."""
        value = self.shape[name]
        assert isinstance(value, int), f"{name} is bounded"
        return value
