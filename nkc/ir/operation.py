"""What an operation is: its dims, its ordered typed operands, its epilogues and the numerical rules it declares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nkc.ir.budget import Stage
from nkc.ir.contract import Access, Argument, Contract, DType, Layout, NumericValue
from nkc.ir.errors import Problem


def pointer(dtype: DType) -> str:
    """Return the argument type of a pointer to elements of a dtype."""
    return f"ptr<{dtype.value}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class DimRule:
    """One dim: its name, what it counts, and whether a contract may give it as a range.

    typical: values that deployments have, at which a tactic is asked whether it serves the operation at all.
    """

    name: str
    meaning: str
    typical: tuple[int, ...]
    bounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRule:
    """Scales of an operand: which dtypes need them, the block deployments use (elements), the layouts to be said."""

    dtypes: tuple[DType, ...]
    block: tuple[int, ...]
    layouts: tuple[Layout, ...] = (Layout.ROW_MAJOR, Layout.M_MAJOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One tensor of the ABI. axes: the dims of its axes, outermost first, in logical order.

    times: how often the last axis holds its dim; a gated input has two columns for each one of the result.
    optional: a contract has this operand exactly where it gives its dtype.
    """

    name: str
    axes: tuple[str, ...]
    access: Access
    dtypes: tuple[DType, ...]
    layouts: tuple[Layout, ...]
    scales: ScaleRule | None = None
    times: int = 1
    optional: bool = False

    def needs_scales(self, dtype: DType | None) -> bool:
        """Return whether the operand means nothing without scales where its elements are of this dtype."""
        return self.scales is not None and dtype in self.scales.dtypes


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericRule:
    """One numerical field of a contract: an enum or a real. Without a default it must be written.

    typical: of a real without a default, the value that deployments use.
    quantises: the operand whose codes the rule is about; a contract has the rule exactly where that operand has scales.
    """

    name: str
    type: type[StrEnum] | type[float]
    default: NumericValue | None = None
    typical: float | None = None
    quantises: str | None = None


def _no_problems(_: Contract) -> list[Problem]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `dtypes` beside the operands' own: names such as `acc` with what they may be.

    check: rules across fields, after every section has been read. arguments: the ordered visible argument list of a
    kernel for this contract (workspace and bounded dims come last). stages: the leaf stages with their budgets.
    """

    name: str
    summary: str
    dims: tuple[DimRule, ...]
    operands: tuple[Operand, ...]
    intermediate_dtypes: tuple[tuple[str, tuple[DType, ...]], ...] = ()
    epilogues: tuple[str, ...] = ("identity",)
    numerics: tuple[NumericRule, ...] = ()
    arguments: Callable[[Contract], tuple[Argument, ...]]
    stages: Callable[[Contract], tuple[Stage, ...]]
    check: Callable[[Contract], list[Problem]] = field(default=_no_problems)

    def operand(self, name: str) -> Operand:
        """Return the operand of that name."""
        return next(operand for operand in self.operands if operand.name == name)

    def present(self, dtypes: Mapping[str, DType]) -> tuple[Operand, ...]:
        """Return the operands that a contract with these dtypes has, in order."""
        return tuple(operand for operand in self.operands if not operand.optional or operand.name in dtypes)

    def rules(self, dtypes: Mapping[str, DType]) -> tuple[NumericRule, ...]:
        """Return the numerical rules that a contract with these dtypes has, in order."""
        return tuple(
            rule
            for rule in self.numerics
            if rule.quantises is None or self.operand(rule.quantises).needs_scales(dtypes.get(rule.quantises))
        )
