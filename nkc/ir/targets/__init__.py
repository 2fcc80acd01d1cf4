"""The targets, one file of facts each. Loaded on demand."""

import sys
from functools import lru_cache

from nkc.ir import folder
from nkc.ir.errors import did_you_mean
from nkc.ir.target import Target


def names() -> tuple[str, ...]:
    """Return the names of all targets, sorted."""
    return folder.members(sys.modules[__name__])


@lru_cache(maxsize=64)
def get(arch: str) -> Target:
    """Return one target's facts. Raises KeyError with a hint for an unknown one."""
    if arch not in names():
        raise KeyError(did_you_mean(arch, names()))
    target: Target = folder.load(sys.modules[__name__], arch).TARGET
    return target
