"""The schema of a contract, generated from operations, epilogues, targets and the reader's limits.

As strict as a schema can be: names, types, limits, and what one field decides about another. It refuses nothing that
the reader accepts; null counts as left out, as it does there.
"""

from nkc.ir import contract, operations, targets
from nkc.ir.open_fields import MAX_GRID, MAX_LDS, MAX_THREADS, MAX_WORKSPACE
from nkc.ir.reader import OPTIONAL, REQUIRED
from nkc.ir.schema import DIALECT, Schema, schema_id
from nkc.ir.schema.document import descriptions, summary
from nkc.ir.schema.operation import operation_schema
from nkc.ir.schema.parts import closed, integer, optional, powers_of_two, text, triple, word

NAME = "contract"


def contract_schema() -> Schema:
    """Return the schema of contract.json, as written, lowered or sealed."""
    said = descriptions(contract.Contract)
    sections: dict[str, Schema] = {
        "schema": {"const": contract.CONTRACT_SCHEMA},
        "target": _target(),
        "operation": {"enum": list(operations.names())},
        **{name: {"type": "object"} for name in ("shape", "dtypes", "layouts", "numerics")},
        **{name: {"type": ["object", "null"]} for name in ("scales", "epilogue", "properties", "alignment")},
        **_notes(),
        **_open_fields(),
    }
    known = {operation: operations.get(operation) for operation in operations.names()}
    return {
        "$schema": DIALECT,
        "$id": schema_id(NAME),
        "title": f"nkc {NAME}",
        "description": summary(contract.Contract),
        **closed({name: sections[name] for name in (*REQUIRED, *OPTIONAL)}, said, required=REQUIRED),
        "allOf": [_for_operation(name) for name in known],
        "$defs": {name: operation_schema(operation) for name, operation in known.items()},
    }


def _for_operation(name: str) -> Schema:
    return {
        "if": {"properties": {"operation": {"const": name}}, "required": ["operation"]},
        "then": {"$ref": f"#/$defs/{name}"},
    }


def _target() -> Schema:
    """Return the schema of the target: any known chip, with its own wave where one is written."""
    said = descriptions(contract.TargetRef)
    sharing: dict[int, list[str]] = {}
    for name in targets.names():
        sharing.setdefault(targets.get(name).wave, []).append(name)
    waves = [
        {
            "if": {"properties": {"arch": {"enum": archs}}, "required": ["arch"]},
            "then": {"properties": {"wave": {"enum": [lanes, None]}}},
        }
        for lanes, archs in sorted(sharing.items())
    ]
    arch: Schema = {"enum": list(targets.names())}
    wave = optional(integer(1, 1024))
    return {**closed({"arch": arch, "wave": wave}, said, required=("arch",)), "allOf": waves}


def _notes() -> dict[str, Schema]:
    name: Schema = {"minLength": 1}
    constants: Schema = {
        "type": "object",
        "propertyNames": name,
        "additionalProperties": {
            **integer(-(1 << 62), 1 << 62),
            "description": "A value that a tactic must declare to serve the contract.",
        },
    }
    return {
        "constants": optional(constants),
        "maturity": optional(word(contract.Maturity)),
        "fallback": optional(text()),
        "provenance": optional({"type": "object", "propertyNames": name}),
    }


def _open_fields() -> dict[str, Schema]:
    """Return the schemas of what a contract may leave to the compiler."""
    count = optional(integer(1, 1 << 16))
    types = [*(f"ptr<{dtype}>" for dtype in contract.DType), "int32"]
    argument = closed(
        {"name": text(), "type": {"enum": types}, "access": optional(word(contract.Access))},
        descriptions(contract.Argument),
        required=("name", "type"),
    )
    return {
        "schedule": optional(
            closed(
                {"tile": optional(triple(1 << 20)), "stages": count, "waves": count, "split_k": count},
                descriptions(contract.Schedule),
            )
        ),
        "launch": optional(
            closed(
                {
                    "grid": optional(triple(MAX_GRID)),
                    "block": optional(triple(MAX_THREADS)),
                    "dependent": {"type": ["boolean", "null"]},
                },
                descriptions(contract.Launch),
            )
        ),
        "lds": optional(
            closed(
                {"fixed_bytes": optional(integer(0, MAX_LDS)), "dynamic_bytes": optional(integer(0, MAX_LDS))},
                descriptions(contract.Lds),
            )
        ),
        "workspace": optional(
            closed(
                {
                    "bytes": integer(0, MAX_WORKSPACE),
                    "alignment": optional(powers_of_two(1 << 20)),
                    "init": optional(word(contract.WorkspaceInit)),
                },
                descriptions(contract.Workspace),
                required=("bytes",),
            )
        ),
        "arguments": optional({"type": "array", "items": argument}),
        "code": optional(
            closed(
                {
                    "language": {"enum": ["triton", "cuda", "amdgcn"]},
                    "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                },
                descriptions(contract.Code),
                required=("language", "digest"),
            )
        ),
    }
