"""What is verified: a sealed contract with its object, and how an operation's inputs are made and results judged."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.ir.contract import Bounded, Contract
from nkc.ir.launch import Launch
from nkc.verify.bounds import Verdict
from nkc.verify.memory import Bits, Tensor
from nkc.verify.regimes import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One built kernel. request: the id of the contract as written, under which evidence is kept.

    directory: the build output that holds it, which the device engine loads as a bundle.
    """

    contract: Contract
    request: str
    launch: Launch
    object: bytes
    directory: Path
    toolchain: str

    @property
    def tactic(self) -> str:
        """The name of the tactic that built it."""
        return self.launch.tactic

    @property
    def code_digest(self) -> str:
        """The digest of the kernel's meaning."""
        assert self.contract.code is not None
        return self.contract.code.digest


class Judgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the results of one run were worth.

    verdicts: by output argument. bit_equal: where the regime or the rule promises every bit, whether they agree.
    """

    verdicts: dict[str, Verdict]
    bit_equal: bool | None = None

    @property
    def passed(self) -> bool:
        """Whether every output is within its bound, and bit-equal where that is promised."""
        return all(verdict.passed for verdict in self.verdicts.values()) and self.bit_equal is not False


class Judge(Protocol):
    """One operation's inputs and judgement: a module of `nkc.verify.subjects`."""

    def tensors(self, contract: Contract, recipe: Recipe, dims: Mapping[str, int]) -> tuple[Tensor, ...]:
        """Return every tensor argument by name for these values of the bounded dims, outputs poisoned."""

    def judge(
        self,
        contract: Contract,
        recipe: Recipe,
        dims: Mapping[str, int],
        outputs: Mapping[str, Bits],
        covered: Mapping[str, NDArray[np.bool_]],
    ) -> Judgement:
        """Judge what a run left in the storage of each output; where `covered` names one, only those elements."""


@lru_cache(maxsize=16)
def judge_of(operation: str) -> Judge:
    """Return the judge of an operation, `nkc.verify.subjects.<operation>`."""
    module: Judge = importlib.import_module(f"nkc.verify.subjects.{operation}")
    return module


def dim_values(contract: Contract) -> tuple[dict[str, int], ...]:
    """Return the values of the bounded dims to verify at: the largest, one in the middle, and the least above 0."""
    bounded = {name: dim for name, dim in contract.shape.items() if isinstance(dim, Bounded)}
    if not bounded:
        return ({},)
    assert len(bounded) == 1, "one bounded dim"
    ((name, dim),) = bounded.items()
    low = max(dim.min, 1)
    return tuple({name: value} for value in sorted({dim.max, (low + dim.max) // 2, low}, reverse=True))


def sizes(contract: Contract, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the value of every dim."""
    return {name: dims[name] if isinstance(dim, Bounded) else dim for name, dim in contract.shape.items()}
