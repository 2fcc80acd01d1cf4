"""The pieces that schemas are made of. Null stands for a field that is left out, wherever it may be."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from nkc.ir.schema import Schema
from nkc.ir.schema.document import summary


def integer(minimum: int, maximum: int) -> Schema:
    """Return the schema of an integer within limits, both included."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def text() -> Schema:
    """Return the schema of a string that is more than white space."""
    return {"type": "string", "pattern": r"\S"}


def triple(maximum: int) -> Schema:
    """Return the schema of three positive integers."""
    return {"type": "array", "items": integer(1, maximum), "minItems": 3, "maxItems": 3}


def powers_of_two(maximum: int) -> Schema:
    """Return the schema of a power of two up to a limit, itself one."""
    return {"enum": [1 << bit for bit in range(maximum.bit_length())]}


def word(kind: type[StrEnum], allowed: Iterable[StrEnum] | None = None) -> Schema:
    """Return the schema of an enum's words, or of those that can be used here."""
    words = [member.value for member in (kind if allowed is None else allowed)]
    return {"enum": words, "description": summary(kind)}


def optional(schema: Schema) -> Schema:
    """Return a schema that lets null pass too."""
    loose = dict(schema)
    if "type" in loose:
        kinds = loose["type"] if isinstance(loose["type"], list) else [loose["type"]]
        loose["type"] = [*kinds, "null"]
    if isinstance(loose.get("enum"), list):
        loose["enum"] = [*schema["enum"], None]  # type: ignore[misc]
    return loose


def closed(properties: Mapping[str, Schema], said: Mapping[str, str], *, required: Iterable[str] = ()) -> Schema:
    """Return the schema of an object that has these properties and no others; `said` describes them."""
    described = {
        name: {**schema, "description": said.get(name) or schema.get("description", "")}
        for name, schema in properties.items()
    }
    closed_schema: Schema = {"type": "object", "properties": described, "additionalProperties": False}
    wanted = list(required)
    return {**closed_schema, "required": wanted} if wanted else closed_schema
