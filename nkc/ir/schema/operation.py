"""What one operation makes of a contract's sections: its dims, dtypes, scales, layouts, epilogues, numerical rules."""

from enum import StrEnum

from nkc.ir import contract, epilogues
from nkc.ir.contract import DType, Gate, Layout
from nkc.ir.operation import DimRule, NumericRule, Operand, Operation
from nkc.ir.read_scales import MAX_BLOCK
from nkc.ir.reader import MAX_ALIGNMENT, MAX_DIM
from nkc.ir.scales import argument_name
from nkc.ir.schema import Schema
from nkc.ir.schema.document import descriptions
from nkc.ir.schema.parts import closed, integer, optional, powers_of_two, word

_LARGEST_FP32 = 3.4028235677973366e38  # halfway to the next power of two; what is below rounds to a finite value


def operation_schema(operation: Operation) -> Schema:
    """Return what holds of a contract for one operation, beside what holds of all."""
    scaled = [operand for operand in operation.operands if operand.scales is not None]
    said = descriptions(contract.Contract)
    sections: dict[str, Schema] = {
        "shape": closed(
            {rule.name: _dim(rule) for rule in operation.dims},
            {rule.name: f"{rule.meaning}; elements" for rule in operation.dims},
            required=[rule.name for rule in operation.dims],
        ),
        "dtypes": _dtypes(operation),
        "scales": optional(
            closed(
                {operand.name: optional(_scale(operand)) for operand in scaled},
                {operand.name: f"Scales of {_tensor(operand)}" for operand in scaled},
            )
        ),
        "layouts": closed(
            {operand.name: word(Layout, operand.layouts) for operand in operation.operands},
            {operand.name: f"How {_tensor(operand)} lies in memory" for operand in operation.operands},
            required=[operand.name for operand in operation.operands if not operand.optional],
        ),
        "epilogue": optional(_epilogue(operation)) if "identity" in operation.epilogues else _epilogue(operation),
        "numerics": _numerics(operation),
        "properties": optional(_properties(operation)),
        "alignment": optional(_alignment(operation)),
    }
    properties = {name: {**schema, "description": said[name]} for name, schema in sections.items()}
    required: Schema = {} if "identity" in operation.epilogues else {"required": ["epilogue"]}
    return {
        "description": operation.summary,
        "properties": properties,
        **required,
        "allOf": [
            *(_present_by_dtype(operand) for operand in operation.operands if operand.optional),
            *map(_scales_follow_dtype, scaled),
            *(_rule_follows_dtype(operation, rule) for rule in operation.numerics if rule.quantises is not None),
            *_bias_is_aligned_where_it_is_read(operation),
        ],
    }


def _tensor(operand: Operand) -> str:
    return f"`{operand.name}` [{', '.join(operand.axes)}]"


def _dim(rule: DimRule) -> Schema:
    exact = integer(1, MAX_DIM)
    if not rule.bounded:
        return exact
    limits = {"min": integer(0, MAX_DIM), "max": integer(1, MAX_DIM)}
    return {
        **exact,
        **closed(limits, descriptions(contract.Bounded), required=limits),
        "type": ["integer", "object"],
    }


def _dtypes(operation: Operation) -> Schema:
    allowed = {operand.name: operand.dtypes for operand in operation.operands} | dict(operation.intermediate_dtypes)
    said = dict.fromkeys(allowed, "Element type of an intermediate") | {
        operand.name: f"Element type of {_tensor(operand)}" for operand in operation.operands
    }
    optional_names = {operand.name for operand in operation.operands if operand.optional}
    words = {name: word(DType, dtypes) for name, dtypes in allowed.items()}
    properties = {name: optional(schema) if name in optional_names else schema for name, schema in words.items()}
    return closed(properties, said, required=[name for name in allowed if name not in optional_names])


def _scale(operand: Operand) -> Schema:
    assert operand.scales is not None
    rank = {"minItems": len(operand.axes), "maxItems": len(operand.axes)}
    multiple = closed(
        {"multiple_of": integer(1, 1 << 20)}, descriptions(contract.MultipleOf), required=("multiple_of",)
    )
    properties: dict[str, Schema] = {
        "block": {"type": "array", "items": integer(1, MAX_BLOCK), **rank},
        "layout": word(Layout, operand.scales.layouts),
        "dtype": optional(word(DType, (DType.FP32,))),
        "leading_dim": {**integer(1, 1 << 40), **multiple, "type": ["integer", "object", "null"]},
        "shape": {"type": ["array", "null"], "items": {"type": ["integer", "object"]}, **rank},
    }
    said = {
        **descriptions(contract.Scale),
        "shape": "A cross-check: ceil(dim / block) along each axis, in elements; never hashed.",
    }
    return {
        **closed(properties, said, required=("block", "layout")),
        "if": {"properties": {"layout": {"const": Layout.M_MAJOR.value}}},
        "else": {"properties": {"leading_dim": {"type": "null"}}},
    }


def _where_dtype(name: str, schema: Schema) -> Schema:
    """Return the condition that an operand has such a dtype."""
    return {
        "properties": {"dtypes": {"properties": {name: schema}, "required": [name]}},
        "required": ["dtypes"],
    }


def _present_by_dtype(operand: Operand) -> Schema:
    """Return that an optional operand has a layout, and may have an alignment, exactly where it has a dtype."""
    absent = {"properties": {operand.name: False}}
    return {
        "if": _where_dtype(operand.name, {"type": "string"}),
        "then": {"properties": {"layouts": {"required": [operand.name]}}},
        "else": {"properties": {"layouts": absent, "alignment": absent}},
    }


def _rule_follows_dtype(operation: Operation, rule: NumericRule) -> Schema:
    """Return that a rule about codes is there exactly where its operand is quantised."""
    assert rule.quantises is not None
    scales = operation.operand(rule.quantises).scales
    assert scales is not None
    there: Schema = {"properties": {"numerics": {"required": [rule.name]}}} if rule.default is None else {}
    return {
        "if": _where_dtype(rule.quantises, {"enum": [dtype.value for dtype in scales.dtypes]}),
        "then": there,
        "else": {"properties": {"numerics": {"properties": {rule.name: {"type": "null"}}}}},
    }


def _scales_follow_dtype(operand: Operand) -> Schema:
    """Return that an operand has scales exactly where its dtype needs them."""
    assert operand.scales is not None
    needing = [dtype.value for dtype in operand.scales.dtypes]
    name = operand.name
    return {
        "if": _where_dtype(name, {"enum": needing}),
        "then": {
            "properties": {"scales": {"type": "object", "properties": {name: {"type": "object"}}, "required": [name]}},
            "required": ["scales"],
        },
        "else": {
            "properties": {
                "scales": {"properties": {name: {"type": "null"}}},
                "alignment": {"properties": {argument_name(name): False}},
            }
        },
    }


def _epilogue(operation: Operation) -> Schema:
    kinds = {kind: epilogues.get(kind) for kind in operation.epilogues}
    dtypes = tuple(dict.fromkeys(dtype for rule in kinds.values() for dtype in rule.bias_dtypes))
    properties: dict[str, Schema] = {"kind": {"enum": list(kinds)}}
    properties["dtype"] = optional(word(DType, dtypes)) if dtypes else {"type": "null"}
    properties["gate"] = optional(word(Gate)) if any(rule.gated for rule in kinds.values()) else {"type": "null"}
    meanings = "; ".join(f"{kind}: {rule.meaning}" for kind, rule in kinds.items())
    said = {**descriptions(contract.Epilogue), "kind": f"What is computed. {meanings}"}
    rules = []
    for kind, rule in kinds.items():
        fields: dict[str, Schema] = {
            "dtype": word(DType, rule.bias_dtypes) if rule.bias_dtypes else {"type": "null"},
            "gate": word(Gate) if rule.gated else {"type": "null"},
        }
        required = [name for name, wanted in (("dtype", rule.bias_dtypes), ("gate", rule.gated)) if wanted]
        for schema in fields.values():
            schema.pop("description", None)
        rules.append(
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"properties": fields, **({"required": required} if required else {})},
            }
        )
    return {**closed(properties, said, required=("kind",)), "allOf": rules}


def _bias_is_aligned_where_it_is_read(operation: Operation) -> tuple[Schema, ...]:
    reading = _reading_bias(operation)
    if not reading:
        return ()
    kind: Schema = {"type": "object", "properties": {"kind": {"enum": reading}}, "required": ["kind"]}
    return (
        {
            "if": {"properties": {"epilogue": kind}, "required": ["epilogue"]},
            "else": {"properties": {"alignment": {"properties": {"bias": False}}}},
        },
    )


def _reading_bias(operation: Operation) -> list[str]:
    return [kind for kind in operation.epilogues if epilogues.get(kind).bias_dtypes]


def _numerics(operation: Operation) -> Schema:
    return closed(
        {rule.name: _rule(rule) for rule in operation.numerics},
        {},
        required=[rule.name for rule in operation.numerics if rule.default is None and rule.quantises is None],
    )


def _rule(rule: NumericRule) -> Schema:
    if issubclass(rule.type, StrEnum):
        schema = word(rule.type)
    else:
        schema = {
            "type": "number",
            "minimum": 0,
            "maximum": _LARGEST_FP32,
            "description": f"{rule.name}, rounded to fp32",
        }
    if rule.default is not None:
        return {**optional(schema), "default": rule.default}
    return schema if rule.quantises is None else optional(schema)


def _properties(operation: Operation) -> Schema:
    read = [operand for operand in operation.operands if operand.access == "read"]
    readable = [operand.name for operand in read]
    readable += [argument_name(operand.name) for operand in read if operand.scales is not None]
    readable += ["bias"] if _reading_bias(operation) else []
    flag: Schema = {"type": ["boolean", "null"], "default": True}
    return closed(
        {
            "deterministic": flag,
            "graph_capture": flag,
            "constant": {"type": ["array", "null"], "items": {"enum": readable}, "uniqueItems": True},
        },
        descriptions(contract.Properties),
    )


def _alignment(operation: Operation) -> Schema:
    pointers = [operand.name for operand in operation.operands]
    pointers += [argument_name(operand.name) for operand in operation.operands if operand.scales is not None]
    pointers += ["bias"] if _reading_bias(operation) else []
    return closed(
        {name: optional(powers_of_two(MAX_ALIGNMENT)) for name in pointers},
        {name: f"Alignment of `{name}`, bytes, a power of two" for name in pointers},
    )
