"""Near candidates as a document (`nkc.near/1`)."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from nkc.ir.canonical import contract_document, contract_id
from nkc.ir.written import write_contract
from nkc.tactics.near import Edit, Near
from nkc.tactics.reason import Reason

NEAR_SCHEMA: Literal["nkc.near/1"] = "nkc.near/1"


class NearRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rejected candidate and what would admit it.

    tactic: its name.
    rank: its effective rank, [0 or 1, n].
    edits: of the contract, by path.
    request: id of the edited contract.
    contract: the edited contract, notes included.
    remaining: reasons that no edit of a contract answers: maturity and policy.
    """

    tactic: str
    rank: tuple[int, int]
    edits: tuple[Edit, ...]
    request: str
    contract: dict[str, object]
    remaining: tuple[Reason, ...]


class NearList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is near a contract.

    schema: names this form of the document.
    near: fewest and smallest edits first.
    """

    schema: Literal["nkc.near/1"] = NEAR_SCHEMA
    near: tuple[NearRecord, ...]


def near_record(found: Iterable[Near]) -> NearList:
    """Return near candidates as the document that is written."""
    return NearList(
        near=tuple(
            NearRecord(
                tactic=entry.candidate.tactic.name,
                rank=entry.candidate.effective_rank,
                edits=entry.edits,
                request=contract_id(entry.contract),
                contract=contract_document(entry.contract, notes=True),
                remaining=entry.remaining,
            )
            for entry in found
        )
    )


def edited_document(entry: Near) -> bytes:
    """Return the edited contract as a file that an author might have written; a build takes it like any other."""
    return write_contract(entry.contract)
