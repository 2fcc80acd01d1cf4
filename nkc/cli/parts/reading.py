"""Reads all the contracts a command was given, and reports every problem of all of them at once."""

from collections.abc import Sequence

from nkc import ir
from nkc.ir.contract import Contract
from nkc.ir.errors import ContractError, NkcError


class UnreadableError(NkcError):
    """One or more contracts could not be read; their lines have been gathered."""

    exit_code = 2

    def __init__(self, errors: Sequence[ContractError]) -> None:
        self.errors = tuple(errors)
        super().__init__()

    def lines(self) -> tuple[str, ...]:
        """Return the lines of every file in turn."""
        return tuple(line for error in self.errors for line in error.lines())


def read_all(paths: Sequence[str]) -> tuple[tuple[str, Contract], ...]:
    """Return (file, contract) for every path. Raises UnreadableError with the problems of all files."""
    read, errors = [], []
    for path in paths:
        try:
            read.append((path, ir.read(path)))
        except ContractError as error:
            errors.append(error)
    if errors:
        raise UnreadableError(errors)
    return tuple(read)


__all__ = ["UnreadableError", "read_all"]
