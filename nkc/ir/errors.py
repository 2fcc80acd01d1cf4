"""Errors that reach a user: one line each, where, what, why, and how to mend it in parentheses."""

from collections.abc import Iterable
from dataclasses import dataclass


def one_line(text: str) -> str:
    """Return text with every character that does not print (line ends above all) written as its escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input.

    field: the JSON path (`$.shape.k`), or `line:column` for a syntax error.
    what: what is wrong and why. mend: what to do about it, or empty.
    """

    field: str
    what: str
    mend: str = ""

    def line(self, file: str) -> str:
        """Return the line a user reads, `file:field: what (mend)`; one line whatever an input's names hold."""
        tail = f" ({self.mend})" if self.mend else ""
        return one_line(f"{file}:{self.field}: {self.what}{tail}")


class NkcError(Exception):
    """The base of every error that is the user's or a tool's, never a bug of ours; carries its exit code."""

    exit_code = 1

    def lines(self) -> tuple[str, ...]:
        """Return the lines to print on stderr, one per problem."""
        return (str(self),)


class UsageError(NkcError):
    """A command or a call that cannot be carried out as asked."""

    exit_code = 2


class ContractError(NkcError):
    """A contract that cannot be read or breaks a rule; holds every independent problem found."""

    exit_code = 2

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> tuple[str, ...]:
        """Return one line per problem, in the order of the document."""
        return tuple(problem.line(self.file) for problem in self.problems)


class UnsupportedError(NkcError):
    """No kernel serves the contract, and it names no fallback."""

    exit_code = 3


class ToolError(NkcError):
    """A toolchain failed, or the object disagrees with its contract."""

    exit_code = 4


class VerificationError(NkcError):
    """A kernel's results are outside what its contract promises."""

    exit_code = 5


MOST_LISTED = 32
NEAREST = 4


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the mending hint for an unknown word: the closest known one, then all of them, or of many the nearest."""
    import difflib  # only on the way to an error

    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    hint = f"did you mean `{close[0]}`? " if close else ""
    if len(names) > MOST_LISTED:
        near = difflib.get_close_matches(word, names, n=NEAREST, cutoff=0.0)
        return f"{hint}{len(names)} are known, nearest {', '.join(near)}"
    return f"{hint}known: {', '.join(names)}"
