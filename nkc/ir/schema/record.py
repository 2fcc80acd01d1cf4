"""The schema of a record that nkc writes, from its type."""

from typing import Any

import msgspec

from nkc.ir.schema import DIALECT, Schema, schema_id
from nkc.ir.schema.document import descriptions, summary

_REFERENCE = "#/$defs/{name}"


def record_schema(kind: type[msgspec.Struct], name: str) -> Schema:
    """Return the schema of the document whose root is `kind`; every property has a description."""
    _, components = msgspec.json.schema_components((kind,), schema_hook=_any, ref_template=_REFERENCE)
    kinds = {struct.__name__: struct for struct in _structs(kind)}
    for title, component in components.items():
        if title in kinds:
            _describe(component, kinds[title])
        elif "description" in component:
            component["description"] = " ".join(component["description"].split())
        _without_discriminators(component)
    root = components.pop(kind.__name__)
    head: Schema = {"$schema": DIALECT, "$id": schema_id(name), **root, "title": f"nkc {name}"}
    return {**head, "$defs": dict(sorted(components.items()))} if components else head


def _any(kind: type) -> Schema:
    """Return the schema of plain JSON values that no type of ours describes."""
    if kind is object:
        return {"$comment": "any JSON value"}
    raise NotImplementedError


def _describe(component: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    component["description"] = summary(kind)
    said = descriptions(kind)
    tag = kind.__struct_config__.tag_field
    if tag is not None:
        said[tag] = f"Marks this form of the record, {kind.__name__}."
    for name, property_schema in component["properties"].items():
        if name in said:
            property_schema["description"] = said[name]


def _structs(kind: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    """Return a record and all records within it."""
    found: set[type[msgspec.Struct]] = set()
    waiting: list[msgspec.inspect.Type] = [msgspec.inspect.type_info(kind)]
    while waiting:
        match waiting.pop():
            case msgspec.inspect.StructType(cls=cls, fields=fields) if cls not in found:
                found.add(cls)
                waiting += [field.type for field in fields]
            case msgspec.inspect.UnionType(types=types):
                waiting += types
            case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
                waiting.append(item)
            case msgspec.inspect.TupleType(item_types=items):
                waiting += items
            case msgspec.inspect.DictType(value_type=value):
                waiting.append(value)
    return found


def _without_discriminators(value: object) -> None:
    """Take out OpenAPI's `discriminator`, which is no word of JSON Schema."""
    if isinstance(value, dict):
        value.pop("discriminator", None)
        for item in value.values():
            _without_discriminators(item)
    elif isinstance(value, list):
        for item in value:
            _without_discriminators(item)
