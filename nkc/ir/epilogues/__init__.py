"""The epilogues, one file each: the operands they need and the text that emit prints. Loaded on demand."""

import sys
from dataclasses import dataclass
from functools import lru_cache

from nkc.ir import folder
from nkc.ir.contract import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class EpilogueKind:
    """One kind of epilogue.

    triton: the expression of the fp32 result, in terms of `acc` (and `bias_row`, `gate`, `up` where it has them). cuda:
    the same in C++; None where no kernel in C++ has it.
    bias_dtypes: what a bias vector over n may be; empty where there is none. gated: columns are gate and up.
    error: what it loses of its result y on its own, as a formula; None where it loses nothing. bound: as a number, `-`
    where that hangs on the argument.
    """

    kind: str
    meaning: str
    triton: str
    cuda: str | None = None
    bias_dtypes: tuple[DType, ...] = ()
    gated: bool = False
    error: str | None = None
    bound: str = "-"


def names() -> tuple[str, ...]:
    """Return the kinds of epilogue, sorted."""
    return folder.members(sys.modules[__name__])


@lru_cache(maxsize=64)
def get(kind: str) -> EpilogueKind:
    """Return one kind of epilogue. Raises ModuleNotFoundError for an unknown one; the reader has refused it before."""
    epilogue: EpilogueKind = folder.load(sys.modules[__name__], kind).EPILOGUE
    return epilogue
