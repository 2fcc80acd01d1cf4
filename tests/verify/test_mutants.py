"""The mutation check itself: every fault still has its place, and the sample that each change is tested with."""

import subprocess
import sys
from types import ModuleType

import pytest

from tests.fixtures.scripts import BENCHMARKS, benchmark


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    return benchmark("mutants")


def test_every_fault_has_its_place_in_a_kernel_of_today(mutants) -> None:
    """Rendering alone: a template that changes takes its mutants along."""
    for mutant in mutants.TABLE:
        text = mutants.text_of(mutant)
        compile(text, mutant.name, "exec")
        assert bool(mutant.edits) is (mutant.patch is None)


def test_the_table_is_sound(mutants) -> None:
    names = [mutant.name for mutant in mutants.TABLE]
    assert len(set(names)) == len(names) >= 20
    assert set(mutants.SURVIVORS) <= set(names)
    assert set(mutants.SAMPLE) <= set(names) - set(mutants.SURVIVORS)


def test_an_edit_without_its_place_is_an_error(mutants) -> None:
    with pytest.raises(LookupError, match="write the mutant anew"):
        mutants.mutated("a kernel", (("another", "text"),))


@pytest.mark.toolchain
def test_the_sample_is_caught() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "mutants.py", "--sample"], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    caught = [line for line in lines if line.startswith("caught")]
    assert len(caught) >= 10
    assert f"{len(caught)} of {len(caught)} caught, 0 survived" in lines
