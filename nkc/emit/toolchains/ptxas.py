"""What ptxas says in a compiler's log: registers, spills, and remarks that a kernel was not assembled as it is written.

Source: logs of ptxas 13.5 (`-v`). Numbers of remarks are its own: C7508 and its like say that setmaxnreg is ignored,
C7510, C7514 and C7517 that wgmma instructions run one after another.
"""

import re
from dataclasses import dataclass

_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REMARK = re.compile(r"\((C75\d\d)\)\s*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxasReport:
    """One kernel's report. registers: a thread's, at launch. spill_bytes: stored and loaded. remarks: with number."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    remarks: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Return what makes the object another kernel than the one that was written."""
        spills = (f"{self.spill_bytes} bytes of spills",) if self.spill_bytes else ()
        stack = (f"a stack frame of {self.stack_bytes} bytes",) if self.stack_bytes and not spills else ()
        return (*spills, *stack, *self.remarks)


def report(log: str) -> PtxasReport:
    """Return what a log says of its one kernel. Raises ValueError for a log that says nothing of it."""
    registers, stack = _REGISTERS.findall(log), _STACK.findall(log)
    if len(registers) != 1 or len(stack) != 1:
        raise ValueError(f"ptxas reports {len(registers)} kernels, not one")
    frame, stores, loads = map(int, stack[0])
    remarks = dict.fromkeys(f"{number} {text.strip()}" for number, text in _REMARK.findall(log))
    return PtxasReport(
        registers=int(registers[0]), stack_bytes=frame, spill_bytes=stores + loads, remarks=tuple(remarks)
    )
