"""Start-up is part of the product: what a command loads, how long it takes, how much memory it has."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import GFX950
from tests.fixtures.speed import slowness

HEAVY = {"torch", "triton", "networkx", "jinja2", "numpy", "elftools"}
DRAWING = {"rich"}
ATTEMPTS = 4  # of 5 runs each, one where all is well: another process on the same cores is no fault of ours

_LOADED = """
import sys
from nkc.cli import run
code = run(sys.argv[1:])
sys.stderr.write(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
sys.exit(code)
"""


def benchmark():
    """Return the benchmark's module; it states the budgets and how they are measured."""
    path = Path(__file__).parents[2] / "benchmarks" / "startup.py"
    spec = importlib.util.spec_from_file_location("startup", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STARTUP = benchmark()


def loaded(*arguments: str) -> set[str]:
    """Return the packages that a command leaves loaded."""
    done = subprocess.run([sys.executable, "-c", _LOADED, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("compile", "--help"),
        ("id", str(GFX950)),
        ("check", str(GFX950)),
        ("explain", str(GFX950), "--format", "json"),
        ("tactics", "--format", "json"),
        ("targets", "--format", "json"),
    ],
    ids=" ".join,
)
def test_what_prints_plainly_loads_no_heavy_package(arguments) -> None:
    assert not loaded(*arguments) & (HEAVY | DRAWING)


def test_what_draws_loads_the_drawing_alone() -> None:
    found = loaded("explain", str(GFX950))
    assert not found & HEAVY
    assert found >= DRAWING  # so that the test above looks at the right thing


def test_help_and_check_load_no_operation_and_write_no_json() -> None:
    assert "orjson" not in loaded("--help")
    assert "orjson" not in loaded("check", str(GFX950))


def test_importing_nkc_loads_nothing_of_it() -> None:
    code = "import sys, nkc; print(sorted(name for name in sys.modules if name.startswith('nkc')))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "['nkc']\n"
    )


@pytest.mark.parametrize("budget", STARTUP.BUDGETS, ids=lambda budget: " ".join(budget.arguments[::2]))
def test_a_command_stays_within_its_budget(budget) -> None:
    for _ in range(ATTEMPTS):
        cost = STARTUP.measure(budget.arguments, runs=5)
        assert cost.memory_mib < STARTUP.MEMORY_MIB
        allowed = budget.seconds * slowness()
        if cost.own_seconds < allowed:
            return
    pytest.fail(f"{cost}: at best, {allowed:.3f} s allowed")
