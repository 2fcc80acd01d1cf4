"""JSON Schema (2020-12) of what nkc reads and writes, for editors and for checks outside of it.

The contract's is generated from operations, epilogues, targets and enums; those of records from their types. What
they say of a field stands where the field is defined. Leaves out: everything that spans fields, which only the reader
knows; a document that a schema refuses, the reader refuses too.
"""

from typing import TypeAlias

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema: TypeAlias = dict[str, object]


def schema_id(name: str) -> str:
    """Return the `$id` of a schema, with the version of the document it describes."""
    return f"urn:nkc:schema:{name}:1"
