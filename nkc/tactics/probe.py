"""Representative contracts of an operation: every combination that a contract can say, at the sizes deployments have.

Written from the operation's own declarations and read through the one door; what the reader refuses is no contract,
and no probe. Experiments are asked too: a probe tells what exists, not what is proven.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import TypeVar

import msgspec

from nkc.ir import epilogues, targets
from nkc.ir.contract import CONTRACT_SCHEMA, Access, Contract, DType, Epilogue, Gate, Layout, NumericValue, TargetRef
from nkc.ir.errors import ContractError
from nkc.ir.operation import NumericRule, Operand, Operation
from nkc.ir.reader import parse_document
from nkc.tactics.catalogue import tactics_of

T = TypeVar("T")


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One combination of what a contract says beside its sizes and its numerical rules.

    dtypes: of operands and intermediates, by name.
    layouts: of operands, by name.
    scale_layouts: of the scales of those operands whose dtype needs them, by name.
    epilogue: what follows the accumulator.
    """

    dtypes: Mapping[str, DType]
    layouts: Mapping[str, Layout]
    scale_layouts: Mapping[str, Layout]
    epilogue: Epilogue


def variants(operation: Operation) -> Iterator[Variant]:
    """Yield every combination, operands in the operation's order; some of them the reader may refuse."""
    named: dict[str, tuple[DType | None, ...]] = {
        operand.name: (*operand.dtypes, None) if operand.optional else operand.dtypes for operand in operation.operands
    }
    for chosen in _products(named | dict(operation.intermediate_dtypes)):
        dtypes = {name: dtype for name, dtype in chosen.items() if dtype is not None}
        scaled = {
            operand.name: operand.scales.layouts
            for operand in operation.operands
            if operand.scales is not None and operand.needs_scales(dtypes.get(operand.name))
        }
        placed = {operand.name: operand.layouts for operand in operation.present(dtypes)}
        for layouts, scale_layouts in product(_products(placed), _products(scaled)):
            for epilogue in _epilogues(operation):
                yield Variant(dtypes=dtypes, layouts=layouts, scale_layouts=scale_layouts, epilogue=epilogue)


def probes(operation: Operation, arch: str, variant: Variant) -> Iterator[Contract]:
    """Yield the contracts of a variant on a target, at every typical size and under every rule worth asking.

    A rule whose field no predicate names decides nothing: its first value that is legal stands for all.
    """
    sizes = {rule.name: rule.typical for rule in operation.dims}
    rules = {rule.name: _worth_asking(rule) for rule in operation.rules(variant.dtypes)}
    asked = _asked_fields(operation.name)
    deciding = [name for name in rules if f"$.numerics.{name}" in asked]
    yielded = set()
    for shape, numerics in product(_products(sizes), _products(rules)):
        decides = (*shape.values(), *(numerics[name] for name in deciding))
        if decides in yielded:
            continue
        document = {
            "schema": CONTRACT_SCHEMA,
            "target": {"arch": arch},
            "operation": operation.name,
            "shape": shape,
            "dtypes": variant.dtypes,
            "scales": {name: _scale(operation.operand(name), layout) for name, layout in variant.scale_layouts.items()},
            "layouts": variant.layouts,
            "epilogue": msgspec.to_builtins(variant.epilogue),
            "numerics": numerics,
        }
        try:
            contract = parse_document(document)
        except ContractError:
            continue
        yielded.add(decides)
        yield _with_constant_inputs(contract, operation)


def on_target(contract: Contract, arch: str) -> Contract:
    """Return the same contract for another chip; of what a contract says only the wave follows from the chip."""
    return msgspec.structs.replace(contract, target=TargetRef(arch=arch, wave=targets.get(arch).wave))


@lru_cache(maxsize=16)
def _asked_fields(operation: str) -> frozenset[str]:
    """Return every field that a predicate of the operation's tactics names."""
    predicates = (predicate for tactic in tactics_of(operation) for predicate in tactic.predicates)
    return frozenset(str(getattr(predicate, "field", "")) for predicate in predicates)


def _with_constant_inputs(contract: Contract, operation: Operation) -> Contract:
    """Return a contract that declares every input constant: that licenses more kernels, and forbids none."""
    inputs = [argument for argument in operation.arguments(contract) if argument.access is Access.READ]
    constant = tuple(sorted(argument.name for argument in inputs if argument.type.startswith("ptr<")))
    properties = msgspec.structs.replace(contract.properties, constant=constant)
    return msgspec.structs.replace(contract, properties=properties)


def _scale(operand: Operand, layout: Layout) -> dict[str, object]:
    assert operand.scales is not None
    return {"block": list(operand.scales.block), "layout": layout}


def _epilogues(operation: Operation) -> Iterator[Epilogue]:
    for kind in operation.epilogues:
        rule = epilogues.get(kind)
        gates: tuple[Gate | None, ...] = tuple(Gate) if rule.gated else (None,)
        for dtype, gate in product(rule.bias_dtypes or (None,), gates):
            yield Epilogue(kind=kind, dtype=dtype, gate=gate)


def _worth_asking(rule: NumericRule) -> tuple[NumericValue, ...]:
    """Return a rule's values; of an ordered one the last, which is served by whatever serves any of them."""
    if rule.default is not None:
        return (rule.default,)
    if issubclass(rule.type, StrEnum):
        values = tuple(rule.type)
        return values[-1:] if hasattr(rule.type, "serves") else values
    assert rule.typical is not None, f"{rule.name} has neither a default nor a typical value"
    return (rule.typical,)


def _products(choices: Mapping[str, tuple[T, ...]]) -> Iterator[dict[str, T]]:
    """Yield every way to choose one value for each name."""
    for chosen in product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))
