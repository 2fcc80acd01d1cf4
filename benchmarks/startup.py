"""What a command costs that compiles nothing: the least time of several warm runs in fresh processes, and the memory.

Time is wall time from fork to exit; beside it the part that was nkc's own: the processor's, and what it slept or waited
for, but not for a core that others had. Memory is the process's own high-water mark (`VmHWM`), read as it exits: what
wait4 reports would be the larger of it and of this process. Exits 1 where a budget is exceeded.
"""

import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

CONTRACT = str(Path(__file__).parents[1] / "examples" / "qwen3.6-35b.o_proj.m1.gfx950.json")
RUNS = 10
MEMORY_MIB = 60

_ENTRY = """
import atexit, os, sys, time
def figures():
    line = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
    begun = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19]) / os.sysconf('SC_CLK_TCK')
    try:
        queued = int(open('/proc/self/schedstat').read().split()[1]) / 1e9
    except OSError:  # a kernel that does not count it: waiting for a core is taken for nkc's own
        queued = 0.0
    idle = time.clock_gettime(time.CLOCK_BOOTTIME) - begun - time.process_time() - queued
    sys.stderr.write(f"{line.split()[1]} {max(0, round(idle * 1e6))}")
atexit.register(figures)
from nkc.cli import main
main()
"""


class Budget(NamedTuple):
    """What one command may cost."""

    arguments: tuple[str, ...]
    seconds: float


BUDGETS = (
    Budget(("--help",), 0.15),
    Budget(("id", CONTRACT), 0.15),
    Budget(("check", CONTRACT), 0.15),
    Budget(("explain", CONTRACT, "--format", "json"), 0.20),  # every reason of some 260 dense tactics
    Budget(("explain", CONTRACT), 0.25),
)


class Cost(NamedTuple):
    """The least wall time, the least of nkc's own, the least of the processor's, in seconds; the most memory in MiB."""

    seconds: float
    own_seconds: float
    cpu_seconds: float
    memory_mib: float


def once(arguments: Sequence[str]) -> Cost:
    """Run nkc in a fresh process. Raises RuntimeError where it fails."""
    begun, before = time.perf_counter(), _children()
    done = subprocess.run([sys.executable, "-c", _ENTRY, *arguments], capture_output=True, text=True, check=False)
    seconds, cpu_seconds = time.perf_counter() - begun, _children() - before
    figures = done.stderr.split()
    if done.returncode or len(figures) != 2 or not all(map(str.isdigit, figures)):
        raise RuntimeError(f"nkc {' '.join(arguments)}: exit {done.returncode}: {done.stderr}")
    own_seconds = min(seconds, cpu_seconds + int(figures[1]) / 1e6)
    return Cost(seconds, own_seconds, cpu_seconds, int(figures[0]) / 1024)


def _children() -> float:
    """Return the processor time in seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(arguments: Sequence[str], *, runs: int = RUNS) -> Cost:
    """Return the cost over warm runs; one more goes before them to warm up."""
    once(arguments)
    costs = [once(arguments) for _ in range(runs)]
    return Cost(
        min(cost.seconds for cost in costs),
        min(cost.own_seconds for cost in costs),
        min(cost.cpu_seconds for cost in costs),
        max(cost.memory_mib for cost in costs),
    )


def main() -> int:
    """Print every command against its budget."""
    print(f"Python {platform.python_version()} on {platform.machine()}, least of {RUNS} warm runs")
    over = False
    for budget in BUDGETS:
        cost = measure(budget.arguments)
        over |= cost.seconds > budget.seconds or cost.memory_mib > MEMORY_MIB
        words = " ".join(Path(word).name if word == CONTRACT else word for word in budget.arguments)
        print(
            f"{cost.seconds * 1000:6.1f} ms of {budget.seconds * 1000:.0f} (own {cost.own_seconds * 1000:.1f})   "
            f"{cost.memory_mib:5.1f} MiB of {MEMORY_MIB}   nkc {words}"
        )
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
