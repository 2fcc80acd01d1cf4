"""What a server would otherwise run, each given its operands in the layout it likes best, before anything is timed.

A baseline that is not there says why; it is never left out in silence.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nkc.bench.cell import Cell
from nkc.bench.operands import Copy
from nkc.tactics.performance import Gate

Launch = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One library call, or a ceiling that no kernel passes.

    same_rule: it follows the contract's rule for scales and sums. prepare: returns the launch for one copy, with
    everything rearranged; raises where the library refuses the call or is not there. judge: runs such a launch once and
    judges it where it writes something else than the contract's outputs; without it the operation's gate does.
    finish: brings the result of such a launch into the contract's outputs for the gate; no part of what is timed.
    """

    name: str
    same_rule: bool
    prepare: Callable[[Cell, Copy], Launch]
    judge: Callable[[Launch], Gate] | None = None
    finish: Callable[[Launch], None] | None = None

    def finished(self, launch: Launch) -> Launch:
        """Return a launch that leaves its result where the gate looks for it."""
        if (finish := self.finish) is None:
            return launch

        def both() -> None:
            launch()
            finish(launch)

        return both
