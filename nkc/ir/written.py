"""A contract as an author writes it: nothing that follows by default, and a line for what fits on one."""

import json
from collections.abc import Iterator

from nkc.ir.canonical import contract_document
from nkc.ir.contract import Contract
from nkc.ir.errors import ContractError
from nkc.ir.reader import parse_document

WIDTH = 120
_INDENT = 2

Document = dict[str, object]


def write_contract(contract: Contract) -> bytes:
    """Return the file, notes included; it reads back as this very contract."""
    return (_lines(short_document(contract), 0) + "\n").encode()


def short_document(contract: Contract) -> Document:
    """Return a contract's document without every field that comes back by itself when it is left out."""
    document: Document = dict(contract_document(contract, notes=True))
    for path in tuple(_paths(document)):
        shorter = _without(document, path)
        try:
            if parse_document(shorter) == contract:
                document = shorter
        except ContractError:
            continue
    return document


def _paths(document: Document, *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the path of every field of an object, a whole object before what is in it."""
    for name, value in document.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _paths(value, *above, name)


def _without(document: Document, path: tuple[str, ...]) -> Document:
    """Return a document without one field; the same where it is gone already with what held it."""
    name, *deeper = path
    if not deeper:
        return {key: value for key, value in document.items() if key != name}
    inner = document.get(name)
    return {**document, name: _without(inner, tuple(deeper))} if isinstance(inner, dict) else document


def _lines(value: object, depth: int) -> str:
    """Return a value on one line, or an object field by field where that would be too long."""
    line = json.dumps(value, ensure_ascii=False)
    if (depth and depth * _INDENT + len(line) <= WIDTH) or not isinstance(value, dict):
        return line
    pad = " " * _INDENT * (depth + 1)
    fields = [f"{pad}{json.dumps(name, ensure_ascii=False)}: {_lines(each, depth + 1)}" for name, each in value.items()]
    return "{\n" + ",\n".join(fields) + "\n" + " " * _INDENT * depth + "}"
