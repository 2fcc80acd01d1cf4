"""What the bench must know of each operation: operands, the gate, baselines, the fewest bytes and operations.

One module or folder an operation, named like it, which holds `BENCHED`. What has none cannot be benched.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from nkc.ir.contract import Contract
from nkc.tactics.performance import Gate

if TYPE_CHECKING:
    from nkc.bench.baseline import Baseline
    from nkc.bench.cell import Cell
    from nkc.bench.operands import Copy


class Judge(Protocol):
    """What one cell's operands must lead to."""

    def judge(self, launch: Callable[[], object], copy: "Copy", sealed: Contract | None) -> Gate:
        """Run once on poisoned outputs and judge them. sealed: the built contract; None for another rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """One operation.

    oracle, recipe: what records say of the gate and of the data. bandwidth: the ceiling that its bytes are held
    against, reading or copying. flops: of a size; products: which ceiling of products they are held against.
    make: operands of a cell from a seed, on a device. reference: the gate of a cell, for operands and their seed.
    words: what else than dims and the type of the first operand tells a contract from others, in a cell's name.
    """

    oracle: str
    recipe: str
    bandwidth: Literal["read", "copy"]
    flops: Callable[[Mapping[str, int]], int]
    products: Callable[[Contract], str] | None
    make: "Callable[[Cell, int], Copy]"
    baselines: "Callable[[Cell], tuple[Baseline, ...]]"
    reference: "Callable[[Cell, Copy, int], Judge]"
    words: Callable[[Contract], tuple[str, ...]] = lambda _: ()


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Return the operations that can be benched, sorted."""
    here = Path(__file__).parent
    return tuple(sorted(path.stem for path in here.iterdir() if path.stem[:1] != "_"))


def find(operation: str) -> Benched:
    """Return what is known of one of `names()`."""
    found = importlib.import_module(f"{__name__}.{operation}").BENCHED
    assert isinstance(found, Benched)
    return found
