"""What is near: the fewest and smallest edits of a contract that would admit a candidate it rejects.

Every edit is what a reason offers as nearest, or leaves out what no kernel of the candidate takes. The edited contract
goes through the one door and is asked again, until predicates and properties hold; a candidate for which that does not
end is not near. Another chip is another contract, so candidates of other targets are never near. Maturity and policy
are no part of a contract: what they still say is carried along.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

import msgspec

from nkc.ir.canonical import contract_document
from nkc.ir.contract import Contract
from nkc.ir.errors import ContractError
from nkc.ir.reader import DEFAULT_ALIGNMENT, parse_document
from nkc.tactics.reason import Nearest, Reason, StageName
from nkc.tactics.select import Candidate, Selection, obstacles
from nkc.tactics.tactic import Tactic

ROUNDS = 8  # an edit may call for another one, in a chain; no predicate of ours needs more than three

_LEFT_OUT = frozenset({"declares", "as_written"})  # predicates about what a contract says beyond need

Document: TypeAlias = dict[str, object]


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One field of the contract to change. before and after: JSON values; None is a field that is not there."""

    path: str
    before: object
    after: object

    @property
    def size(self) -> Fraction:
        """How far the values are apart: 0 to 1, relative for numbers (of a range, the mean of its ends), else 1."""
        return _distance(self.before, self.after)


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected candidate, the edits that admit it, the edited contract, and what is no matter of the contract."""

    candidate: Candidate
    edits: tuple[Edit, ...]
    contract: Contract
    remaining: tuple[Reason, ...]

    @property
    def order(self) -> tuple[int, Fraction, tuple[tuple[int, int], int, str]]:
        """The key by which near candidates are listed: fewest edits, then smallest, then as selection would."""
        return len(self.edits), sum((edit.size for edit in self.edits), Fraction(0)), self.candidate.order


def near(selection: Selection) -> tuple[Near, ...]:
    """Return the rejected candidates that an edit of the contract would admit, nearest first."""
    start = _without_defaults(selection.contract)
    found = []
    for candidate in selection.candidates:
        if candidate.tactic.target != selection.contract.target.arch or not obstacles(
            selection.contract, candidate.tactic
        ):
            continue
        edits = _search(selection.contract, start, candidate.tactic)
        if edits is not None:
            found.append(_near(selection.contract, start, candidate, edits))
    return tuple(sorted(found, key=lambda entry: entry.order))


def edited(contract: Contract, edits: tuple[Edit, ...]) -> Contract:
    """Return a contract with edits applied, through the one door. Raises ContractError where they break a rule."""
    return _apply(_without_defaults(contract), {edit.path: edit.after for edit in edits})


def _near(contract: Contract, start: Document, candidate: Candidate, edits: Mapping[str, object]) -> Near:
    written = contract_document(contract, notes=True)
    return Near(
        candidate=candidate,
        edits=tuple(Edit(path=path, before=_get(written, path), after=after) for path, after in sorted(edits.items())),
        contract=_apply(start, edits),
        remaining=tuple(
            reason for reason in candidate.reasons if reason.stage in (StageName.MATURITY, StageName.POLICY)
        ),
    )


def _search(contract: Contract, start: Document, tactic: Tactic) -> dict[str, object] | None:
    """Return edits (path to value) after which nothing stands in the tactic's way, none of them idle, or None."""
    edits: dict[str, object] = {}
    for _ in range(ROUNDS):
        reasons = obstacles(contract, tactic)
        if not reasons:
            return _needed(start, edits, tactic)
        mended = _mend(reasons)
        if not mended:
            return None
        edits.update(mended)
        read = _read(start, edits)
        if read is None:
            return None
        contract = read
    return None


def _mend(reasons: list[Reason]) -> dict[str, object]:
    """Return what the reasons offer; of two that name one field the first is heard, and the other is asked again."""
    mended: dict[str, object] = {}
    for reason in reasons:
        if reason.nearest is not None:
            mended.setdefault(reason.field, _written(reason.nearest))
        elif reason.predicate in _LEFT_OUT:
            mended.setdefault(reason.field, None)
    return mended


def _read(start: Document, edits: dict[str, object]) -> Contract | None:
    """Return the edited contract. A field that the edits leave without a place goes too, as an edit of its own."""
    for _ in range(ROUNDS):
        try:
            return _apply(start, edits)
        except ContractError as error:
            misplaced = {
                problem.field for problem in error.problems if problem.field not in edits and _get(start, problem.field)
            }
            if not misplaced:
                return None
            edits.update(dict.fromkeys(misplaced))
    return None


def _needed(start: Document, edits: dict[str, object], tactic: Tactic) -> dict[str, object]:
    """Leave out every edit without which the tactic is admitted too, the largest first."""
    largest_first = sorted(edits, key=lambda path: (-_distance(_get(start, path), edits[path]), path))
    for path in largest_first:
        fewer = {other: value for other, value in edits.items() if other != path}
        try:
            admitted = not obstacles(_apply(start, fewer), tactic)
        except ContractError:
            continue
        if admitted:
            edits = fewer
    return edits


def _apply(start: Document, edits: Mapping[str, object]) -> Contract:
    document = start
    for path, value in edits.items():
        document = _put(document, _steps(path), value)
    return parse_document(document, "the edited contract")


def _without_defaults(contract: Contract) -> Document:
    """Return a contract's document without the defaults that follow from other fields, so that they follow an edit."""
    document = contract_document(contract, notes=True)
    document["alignment"] = {name: size for name, size in contract.alignment.items() if size != DEFAULT_ALIGNMENT}
    for name in contract.scales:
        shorter = _put(document, ["scales", name, "leading_dim"], None)
        if parse_document(shorter) == contract:
            document = shorter
    return document


def _steps(path: str) -> list[str]:
    """Return the keys along a path; a constant's name is the author's own and may hold dots."""
    section, _, rest = path.removeprefix("$.").partition(".")
    if section == "constants":
        return [section, rest]
    return path.split(".")[1:]


def _get(document: Document, path: str) -> object:
    value: object = document
    for step in _steps(path):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _put(document: Document, steps: list[str], value: object) -> Document:
    """Return a document with one value exchanged, copied along the way to it; None takes it out."""
    name, *deeper = steps
    if deeper:
        inner = document.get(name, {})
        assert isinstance(inner, dict), steps
        value = _put(inner, deeper, value)
    changed = {**document, name: value}
    if value is None:
        del changed[name]
    return changed


def _written(nearest: Nearest) -> object:
    """Return the JSON value that is written for what a reason offers."""
    return list(nearest) if isinstance(nearest, tuple) else msgspec.to_builtins(nearest)


def _distance(before: object, after: object) -> Fraction:
    match before, after:
        case bool(), _:
            return Fraction(before != after)
        case int(), int() if not isinstance(after, bool):
            return Fraction(abs(after - before), max(abs(after), abs(before), 1))
        case {"min": low, "max": high}, {"min": new_low, "max": new_high}:
            return (_distance(low, new_low) + _distance(high, new_high)) / 2
        case {"min": low, "max": high}, int():
            return (_distance(low, after) + _distance(high, after)) / 2
        case list() | tuple(), list() | tuple() if len(before) == len(after) > 0:
            pairs = [_distance(old, new) for old, new in zip(before, after, strict=True)]
            return sum(pairs, Fraction(0)) / len(pairs)
        case _:
            return Fraction(before != after)


__all__ = ["Edit", "Near", "edited", "near"]
