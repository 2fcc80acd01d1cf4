"""The operations, one file each: dims, operands, epilogues, numerical fields, budgets. Loaded on demand."""

import sys
from functools import lru_cache

from nkc.ir import folder
from nkc.ir.errors import did_you_mean
from nkc.ir.operation import Operation


def names() -> tuple[str, ...]:
    """Return the names of all operations, sorted."""
    return folder.members(sys.modules[__name__])


@lru_cache(maxsize=64)
def get(name: str) -> Operation:
    """Return one operation. Raises KeyError with a hint for an unknown name."""
    if name not in names():
        raise KeyError(did_you_mean(name, names()))
    operation: Operation = folder.load(sys.modules[__name__], name).OPERATION
    return operation
