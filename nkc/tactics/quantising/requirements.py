"""The predicates that our quantising kernels share."""

from nkc.ir import operations
from nkc.ir.contract import DType, Layout
from nkc.ir.quantising import GROUP, QUANTISED
from nkc.ir.scales import argument_name
from nkc.tactics.addressing import Aligned, OffsetUnit, ScaleOffsetsFitInt32, offsets_fit_int32
from nkc.tactics.hardware import TargetHas
from nkc.tactics.predicate import Predicate, at_most, dtypes, equals, multiple_of, one_of

ALIGNMENT = 16  # bytes: one 128-bit access


def quantised(offsets: OffsetUnit) -> tuple[Predicate, ...]:
    """Return what a contract must say of the codes and their scales, and the chip must have."""
    return (TargetHas("ocp_fp8", f"$.dtypes.{QUANTISED}"), *in_groups(offsets))


def in_groups(offsets: OffsetUnit, columns: str = "k") -> tuple[Predicate, ...]:
    """Return what a contract must say of the codes and their scales. columns: the dim along which groups lie."""
    return (
        *dtypes(out=DType.FP8_E4M3),
        equals(f"$.scales.{QUANTISED}.block", (1, GROUP)),
        one_of(f"$.scales.{QUANTISED}.layout", Layout.ROW_MAJOR, Layout.M_MAJOR),
        multiple_of(f"$.shape.{columns}", GROUP, why="a row holds whole groups"),
        ScaleOffsetsFitInt32(QUANTISED, offsets),
    )


def tensors(operation: str, offsets: OffsetUnit) -> tuple[Predicate, ...]:
    """Return what is asked of every tensor of an operation: rows dense, offsets within 32 bits, 16-byte alignment."""
    operands = operations.get(operation).operands
    pointers = [operand.name for operand in operands]
    pointers += [argument_name(operand.name) for operand in operands if operand.scales is not None]
    return (
        *(equals(f"$.layouts.{operand.name}", Layout.ROW_MAJOR) for operand in operands if not operand.optional),
        *(offsets_fit_int32(operand, offsets) for operand in operands if len(operand.axes) == 2),
        *(Aligned(pointer, ALIGNMENT) for pointer in pointers),
    )


def few_rows(max_m: int | None) -> tuple[Predicate, ...]:
    """Return the limit on rows of a kernel for few of them; none where it serves any number."""
    if max_m is None:
        return ()
    return (at_most("$.shape.m", max_m, why="short pieces for a grid that would leave compute units idle"),)
