"""What is recorded of an input: the regime, the seed, and the digest of the arrays they made."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Regime(Enum):
    """The four kinds of data that a kernel is shown."""

    EXACT = "exact"
    MODEL_LIKE = "model_like"
    WIDE = "wide"
    EDGES = "edges"


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a record keeps of an input: together with shapes, all that is needed to make it again."""

    regime: Regime
    seed: int
    version: int = 1
    """Raised whenever a recipe changes its arrays; old records then name data that no longer exists."""


def digest(*arrays: NDArray[np.generic] | None) -> str:
    """Return SHA-256 over shapes, types and bytes of the arrays, as hex."""
    total = hashlib.sha256()
    for array in arrays:
        if array is None:
            total.update(b"none")
            continue
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
