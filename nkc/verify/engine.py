"""What an engine is: something that runs a built kernel on given memory and says what it left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nkc.tactics.evidence import Answer
from nkc.verify.memory import Bits, Tensor
from nkc.verify.oracles.matrix_unit import MatrixUnit
from nkc.verify.subject import Subject


class EngineName(StrEnum):
    """The engines, strongest first. `interpreter` runs the algorithm, not the object, and proves nothing of it."""

    DEVICE = "device"
    EMULATOR = "emulator"
    INTERPRETER = "interpreter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run left.

    outputs: flat storage by argument. covered: which of its elements the run computed, by argument; absent where all
    (large grids are sampled). repeated: runs compared bit for bit, and how that went. replay: graph capture
    with replays equal to the eager run. outside: nothing changed outside the outputs (red zones, inputs). hazards:
    a line for each fault the engine saw while running. bits_judged: the kernel's own store made the bits; where the
    engine rounded them, equal bits say nothing of the store.
    """

    outputs: Mapping[str, Bits]
    repeats: int
    repeated: Answer
    replay: Answer
    outside: Answer
    covered: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    hazards: tuple[str, ...] = ()
    bits_judged: bool = True
    notes: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """One way to run a kernel.

    runs_object: the object that was built, not the text it was built from. model_decides: bits that are not those of
    `unit` are a failure. An emulator runs its model, so they are; a chip is only believed to.
    """

    name: EngineName
    runs_object: bool
    model_decides: bool

    def why_not(self, subject: Subject) -> str | None:
        """Return why this engine cannot run the subject here, or None where it can."""

    def device(self) -> str:
        """Return what the kernel runs on, as records name it."""

    def unit(self, subject: Subject) -> MatrixUnit | None:
        """Return the model whose every bit this engine is expected to show for the subject, None where none is."""

    def samples(self, subject: Subject) -> bool:
        """Return whether a run computes a part of the results only (`Run.covered`)."""

    def run(self, subject: Subject, tensors: Sequence[Tensor], dims: Mapping[str, int]) -> Run:
        """Run the kernel. Raises ToolError where it cannot be launched at all."""


__all__ = ["Answer", "Engine", "EngineName", "Run"]
