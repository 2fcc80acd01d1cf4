"""The contract and the facts it is read against: types, strict reading, canonical form and ids.

Holds: contract types, the one door (`read`), defaults, operations, epilogues, targets as facts, numerical rules
and budgets, launch records, errors. Leaves out: everything that chooses, compiles, verifies or prints.
Imports nothing of ours, and of others only msgspec (orjson when a canonical form is written).
"""

from nkc.ir.canonical import canonical_bytes, contract_document, contract_id
from nkc.ir.contract import Bounded, Contract, DType, Layout
from nkc.ir.errors import ContractError, NkcError, Problem, ToolError, UnsupportedError, UsageError, VerificationError
from nkc.ir.reader import parse, read

__all__ = [
    "Bounded",
    "Contract",
    "ContractError",
    "DType",
    "Layout",
    "NkcError",
    "Problem",
    "ToolError",
    "UnsupportedError",
    "UsageError",
    "VerificationError",
    "canonical_bytes",
    "contract_document",
    "contract_id",
    "parse",
    "read",
]
