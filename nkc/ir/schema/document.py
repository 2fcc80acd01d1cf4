"""What a type says of itself: the sentence about the whole, and one description a field, from its docstring."""

import inspect
import re

_FIELDS = re.compile(r"(\w+(?:, \w+)*): (.+)")


def summary(kind: type) -> str:
    """Return a docstring without its field descriptions, in one line."""
    kept = []
    for line in _lines(kind):
        if _FIELDS.fullmatch(line):
            break
        kept.append(line)
    return " ".join(" ".join(kept).split())


def descriptions(kind: type) -> dict[str, str]:
    """Return what a docstring says of each field: lines of the form `name: text`, continued by indented ones."""
    found: dict[str, str] = {}
    names: tuple[str, ...] = ()
    for line in _lines(kind):
        match = _FIELDS.fullmatch(line)
        if match:
            names = tuple(match[1].split(", "))
            found.update(dict.fromkeys(names, match[2].strip()))
        elif line.startswith(" ") and names:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
        else:
            names = ()
    return {name: text[0].upper() + text[1:] for name, text in found.items()}


def _lines(kind: type) -> list[str]:
    return (inspect.getdoc(kind) or "").splitlines()
