"""Break a real object on purpose and see who notices: the self-test of the detectors.

A mutant runs like the original. It is caught when an output differs, a detector fires that did not fire before, or the
wait-state linter does. A survivor is either equivalent, for a reason that is checked and named, or a hole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.emulate import DmaPolicy, emulate
from nkc.verify.gfx950.equivalence import Baseline, equivalence
from nkc.verify.gfx950.launch import LaunchError, LaunchSpec
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.mutations import Mutation, MutationKind
from nkc.verify.gfx950.program import Program
from nkc.verify.gfx950.wait_states import lint

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Who caught a mutant (`values`, the linter as `wait_states`, or hazard kinds), or why nobody should have."""

    mutation: Mutation
    caught_by: frozenset[str]
    equivalent: str = ""  # the reason, where the mutant does the same as the original

    @property
    def survived(self) -> bool:
        """Whether it is a hole: neither caught nor equivalent."""
        return not self.caught_by and not self.equivalent


def baseline(data: bytes, launch: LaunchSpec, buffers: Mapping[str, Array]) -> Baseline:
    """Run the original. Its own findings do not count against mutants."""
    program = _program(data, launch)
    report = emulate(data, launch, buffers, program=program)
    late = emulate(data, launch, buffers, program=program, dma=DmaPolicy.RETIRE)
    found = (*report.hazards, *late.hazards)
    return Baseline(
        report=report,
        program=program,
        hazards=frozenset((item.kind.name, item.pc) for item in found),
        stalls=frozenset((item.pc, item.detail) for item in lint(program.instructions())),
    )


def _program(data: bytes, launch: LaunchSpec) -> Program:
    return Program(read_code_object(data, launch.symbol), MfmaModel.ONCE)


def judge(mutation: Mutation, base: Baseline, buffers: Mapping[str, Array]) -> Outcome:
    """Run one mutant, with loads into LDS landing early and, when that shows nothing, late; say who caught it.

    Only a shortened s_nop can make a wait state too few, so only there is the linter asked.
    """
    caught: set[str] = set()
    budget = 4 * max(1000, sum(base.report.executed.values()))
    code = read_code_object(mutation.data, mutation.launch.symbol)
    program = base.program.patched(code, mutation.pc, mutation.pc + 8 if mutation.pc else 0)
    if mutation.kind is MutationKind.STALL:
        found = frozenset((item.pc, item.detail) for item in lint(program.instructions()))
        caught |= {"wait_states"} if found - base.stalls else set()
    for dma in DmaPolicy:
        if caught:
            break
        try:
            report = emulate(mutation.data, mutation.launch, buffers, budget=budget, dma=dma, program=program)
        except LaunchError:
            caught.add("launch")
            break
        caught |= {"missing"} if report.missing else set()
        caught |= {item.kind.name for item in report.hazards if (item.kind.name, item.pc) not in base.hazards}
        if any(_differs(report.outputs[name], value) for name, value in base.report.outputs.items()):
            caught.add("values")
    reason = "" if caught else equivalence(mutation, base, buffers)
    return Outcome(mutation=mutation, caught_by=frozenset(caught), equivalent=reason)


def _differs(a: Array, b: Array) -> bool:
    x, y = (np.ascontiguousarray(item).reshape(-1).view(np.uint8) for item in (a, b))
    return not np.array_equal(x, y)
