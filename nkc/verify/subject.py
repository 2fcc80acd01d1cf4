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
from nkc.ir.errors import ToolError
from nkc.ir.launch import Launch
from nkc.tactics import catalogue
from nkc.tactics.tactic import Tactic
from nkc.verify.bounds import Failure, Verdict
from nkc.verify.memory import Bits, Tensor
from nkc.verify.oracles.matrix_unit import MatrixUnit
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
    differs: the first element that then does not, by output argument.
    """

    verdicts: dict[str, Verdict]
    bit_equal: bool | None = None
    differs: dict[str, Failure] = {}

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

    def decoded(self, contract: Contract, name: str, bits: Bits, dims: Mapping[str, int]) -> NDArray[np.float32]:
        """Return an output's storage as shaped fp32 values."""

    def predict(
        self, contract: Contract, unit: MatrixUnit, recipe: Recipe, dims: Mapping[str, int]
    ) -> Mapping[str, NDArray[np.float32]] | None:
        """Return every output (decoded, shaped) under a model of the matrix unit, None where that costs too much."""


def tactic_of(subject: Subject) -> Tactic:
    """Return the tactic that built a subject. Raises ToolError for one that this nkc does not know."""
    try:
        return catalogue.find(subject.contract.operation, subject.tactic)
    except KeyError:
        raise ToolError(f"{subject.launch.symbol}: no tactic is named `{subject.tactic}` (build it again)") from None


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
