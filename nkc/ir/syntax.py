"""JSON as a contract may be written: strict, with line and column for everything that is wrong.

The standard parser does the grammar; a scan over the tokens of a well-formed document finds what it lets pass:
duplicate keys, NaN and infinities, numbers too large to mean anything, lone surrogates, excessive depth.
"""

import json
import math
import re

from nkc.ir.errors import ContractError, Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_DIGITS = 18  # every integer of so many digits fits 63 bits

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def parse_json(data: bytes, file: str) -> object:
    """Return the plain values of a document. Raises ContractError with `line:column` for each syntax problem."""
    if data.startswith(b"PK\x03\x04"):
        raise ContractError(file, [Problem(field="1:1", what="a packed file, not JSON", mend="nkc unpack it first")])
    if len(data) > MAX_BYTES:
        raise ContractError(
            file, [Problem(field="1:1", what=f"{len(data)} bytes is no contract, the limit is {MAX_BYTES}")]
        )
    if data.startswith(b"\xef\xbb\xbf"):
        raise ContractError(
            file, [Problem(field="1:1", what="starts with a byte order mark", mend="save it as plain UTF-8")]
        )
    if not data.strip():
        raise ContractError(
            file, [Problem(field="1:1", what="an empty file", mend="nkc schema says what belongs in it")]
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = _place(before, len(before))
        raise ContractError(
            file, [Problem(field=place, what=f"byte 0x{data[error.start]:02x} is not UTF-8", mend="save it as UTF-8")]
        ) from None
    try:
        document: object = json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        what = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        raise ContractError(file, [Problem(field=f"{error.lineno}:{error.colno}", what=f"not JSON: {what}")]) from None
    except RecursionError:
        raise ContractError(
            file, [Problem(field="1:1", what=f"nested more than {MAX_DEPTH} deep", mend="a contract is shallow")]
        ) from None
    problems = _scan(text)
    if problems:
        raise ContractError(file, problems)
    return document


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= MAX_DIGITS + 1 else 0  # longer ones are reported by the scan


def _place(text: str, offset: int) -> str:
    line_start = text.rfind("\n", 0, offset) + 1
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - line_start + 1}"


def _scan(text: str) -> list[Problem]:
    """Return what a well-formed document holds that a contract must not."""
    problems = []
    keys: list[set[str] | None] = []  # one entry per open bracket; a set of keys for an object
    expects_key = False
    for match in _TOKEN.finditer(text):
        token = match.group()
        what = mend = ""
        match token[0]:
            case "{" | "[":
                keys.append(set() if token == "{" else None)
                expects_key = token == "{"
                if len(keys) == MAX_DEPTH + 1:
                    what, mend = f"nested more than {MAX_DEPTH} deep", "a contract is shallow"
            case "}" | "]":
                keys.pop()
                expects_key = False
            case ",":
                expects_key = keys[-1] is not None
            case ":":
                expects_key = False
            case '"':
                word: str = json.loads(token)
                if any("\ud800" <= letter <= "\udfff" for letter in word):
                    what, mend = f"{token} holds half of a surrogate pair", "write the character itself"
                elif expects_key:
                    seen = keys[-1]
                    assert seen is not None
                    if word in seen:
                        what, mend = f"duplicate key {token}", "keep one of the two"
                    seen.add(word)
            case _:
                what, mend = _number_problem(token)
        if what:
            problems.append(Problem(field=_place(text, match.start()), what=what, mend=mend))
    return problems


def _number_problem(token: str) -> tuple[str, str]:
    if token in ("true", "false", "null"):
        return "", ""
    if token.lstrip("-").isdigit():
        if len(token.lstrip("-")) > MAX_DIGITS:
            return f"an integer of {len(token.lstrip('-'))} digits", f"at most {MAX_DIGITS}"
        return "", ""
    if not math.isfinite(float(token)):
        return f"{token} is not a finite number", "write a finite one"
    if not float(token) and re.search("[1-9]", re.split("[eE]", token)[0]):
        return f"{token} is nearer to 0 than any number that is read", "write 0, or a larger one"
    return "", ""
