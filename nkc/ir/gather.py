"""Reads plain JSON values piece by piece and gathers every problem instead of stopping at the first."""

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias, TypeVar

from nkc.ir.errors import Problem, did_you_mean

Json: TypeAlias = object
E = TypeVar("E", bound=StrEnum)


def _short(text: str) -> str:
    """Return what a file holds cut short, so that a problem stays a line to read."""
    return text if len(text) <= 60 else text[:57] + "..."


class Gather:
    """Problems found so far, and the readers that add to them. A reader returns None where it added one."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, path: str, what: str, mend: str = "") -> None:
        """Note one problem."""
        self.problems.append(Problem(field=path, what=what, mend=mend))

    @staticmethod
    def show(value: Json) -> str:
        """Return a value as a user wrote it, cut short, in backquotes."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = text if text.isprintable() else json.dumps(text)
        return f"`{_short(text)}`"

    def mapping(self, raw: Json, path: str) -> dict[str, Json] | None:
        """Read an object with any keys, none of them empty."""
        if not isinstance(raw, dict):
            self.add(path, f"{self.show(raw)} is not an object", "write it in braces")
            return None
        if "" in raw:
            self.add(path, "an empty name", "name it, or leave it out")
        return raw

    def object(
        self, raw: Json, path: str, *, required: Iterable[str] = (), optional: Iterable[str] = ()
    ) -> dict[str, Json] | None:
        """Read an object and return its known keys that are not null; a missing section was reported before."""
        if raw is None:
            return None
        section = self.mapping(raw, path)
        if section is None:
            return None
        required = tuple(required)
        known = (*required, *optional)
        for key in section:
            if key and key not in known:
                self.add(f"{path}.{_short(key)}", "unknown key", did_you_mean(key, known))
        for key in required:
            if section.get(key) is None:
                self.add(f"{path}.{key}", "missing, and it has no default", "write it")
        return {key: value for key, value in section.items() if value is not None and key in known}

    def integer(self, raw: Json, path: str, minimum: int, maximum: int) -> int | None:
        """Read an integer within limits, both included."""
        if isinstance(raw, bool) or not isinstance(raw, int):
            written = f"`{json.dumps(raw)}`" if isinstance(raw, str) and len(raw) < 40 else self.show(raw)
            self.add(path, f"{written} is not an integer", f"an integer from {minimum} to {maximum}")
            return None
        if not minimum <= raw <= maximum:
            self.add(path, f"{raw} is out of range", f"an integer from {minimum} to {maximum}")
            return None
        return raw

    def text(self, raw: Json, path: str) -> str | None:
        """Read a string that is not empty."""
        if not isinstance(raw, str) or not raw.strip():
            self.add(path, f"{self.show(raw)} is not a name", "a string that is not empty")
            return None
        return raw

    def array(self, raw: Json, path: str) -> list[Json]:
        """Read an array; an empty one where it is none."""
        if not isinstance(raw, list):
            self.add(path, f"{self.show(raw)} is not an array", "write it in brackets")
            return []
        return raw

    def choice(self, raw: Json, path: str, kind: type[E], allowed: tuple[E, ...], *, noun: str) -> E | None:
        """Read one of the allowed members of an enum; a known one that is not allowed here is said to be so."""
        words = {member.value: member for member in kind}
        if not isinstance(raw, str) or raw not in words:
            self.add(path, f"unknown {noun} {self.show(raw)}", did_you_mean(str(raw), words))
            return None
        if words[raw] not in allowed:
            self.add(path, f"{noun} `{raw}` cannot be used here", f"one of {', '.join(allowed)}")
            return None
        return words[raw]
