"""Mutation check of `nkc verify`: seeds faults into kernels, oracles and recipes, and every one has to be caught.

A kernel's fault is a change of its rendered text, built for gfx950 and run in the emulator (or run by Triton's
interpreter for sm_90). An oracle's fault meets a sound kernel. Caught means: the build refuses it, or a row fails.
Exits 5 where a fault survives that is not listed in `mutants_table.SURVIVORS`, or one that is listed there is caught.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import msgspec

sys.path.insert(0, str(Path(__file__).parent))
from mutants_table import SAMPLE, SURVIVORS, TABLE, Kind, Mutant, Shape

from nkc.emit.render import render
from nkc.emit.source import CodeObject, Source
from nkc.emit.toolchains.triton import TritonToolchain
from nkc.ir.contract import Bounded, Contract, DType, Epilogue
from nkc.ir.errors import ToolError
from nkc.ir.frozen import FrozenMap
from nkc.ir.target import Target
from nkc.tactics.catalogue import find
from nkc.tactics.select import Policy
from nkc.tactics.tactic import Lowered
from nkc.verify.check import Row, verify
from nkc.verify.engines.emulator import EmulatorEngine
from nkc.verify.engines.interpreter import InterpreterEngine, kernel_text
from nkc.verify.gather import build_contracts
from nkc.verify.regimes import Regime
from nkc.verify.subject import Subject
from nkc.verify.subjects import dense as judged

if TYPE_CHECKING:
    from nkc.verify.engine import Engine

REGIMES = (Regime.EXACT, Regime.WIDE, Regime.EDGES, Regime.MODEL_LIKE)  # those that tell most go first


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fault. how: what caught it, None where nothing did."""

    mutant: Mutant
    how: str | None
    seconds: float


@dataclass(slots=True, kw_only=True)
class MutatingToolchain:
    """Compiles a changed text in place of each source."""

    inner: TritonToolchain
    edits: tuple[tuple[str, str], ...] = field(default=())

    def compile(self, source: Source, target: Target) -> CodeObject:
        """Compile the changed source. Raises ToolError as the compiler does."""
        return self.inner.compile(replace(source, text=mutated(source.text, self.edits)), target)


class MutatingInterpreter(InterpreterEngine):
    """Runs a changed text."""

    def __init__(self, edits: tuple[tuple[str, str], ...]) -> None:
        self._edits = edits

    def text(self, subject: Subject) -> str:
        """Return the changed kernel."""
        return mutated(super().text(subject), self._edits)


def mutated(text: str, edits: tuple[tuple[str, str], ...]) -> str:
    """Return a text with every edit made. Raises LookupError for one whose place is not there."""
    for old, new in edits:
        if old not in text:
            raise LookupError(f"the kernel has no `{old}` any more (write the mutant anew)")
        text = text.replace(old, new)
    return text


def contract_of(shape: Shape) -> Contract:
    """Return the small contract that a mutant is shown on: a proof of its tactic with other sizes."""
    tactic = find("dense", shape.tactic)
    proofs = tactic.proofs(tactic)
    base = next(p for p in proofs if isinstance(p.shape["m"], Bounded)) if shape.bounded else proofs[0]
    m = Bounded(min=0, max=shape.m) if shape.bounded else shape.m
    return msgspec.structs.replace(
        base,
        shape=FrozenMap({"m": m, "n": shape.n, "k": shape.k}),
        dtypes=FrozenMap({**base.dtypes, "out": DType.FP32 if shape.fp32 else DType.BF16}),
        epilogue=Epilogue(kind="bias", dtype=DType.BF16) if shape.bias else base.epilogue,
        alignment=FrozenMap({**base.alignment, **({"bias": 16} if shape.bias else {})}),
    )


def text_of(mutant: Mutant) -> str:
    """Return the faulty kernel's text, nothing compiled. Raises LookupError for an edit whose place is not there."""
    tactic = find("dense", mutant.shape.tactic)
    lowered = tactic.lower(contract_of(mutant.shape), tactic)
    if mutant.kind is Kind.INTERPRETED:
        return mutated(kernel_text(lowered, tactic), mutant.edits)
    return mutated(render(Lowered(contract=lowered, tactic=tactic)).text, mutant.edits)


@contextmanager
def patched(mutant: Mutant) -> Iterator[None]:
    """Put a fault into an oracle or a recipe for a while; what was computed with the sound one is forgotten."""
    judged._expected.cache_clear()
    if mutant.patch is None:
        yield
        return
    place, name, make = mutant.patch
    with mock.patch.object(place, name, make(getattr(place, name))):
        yield
    judged._expected.cache_clear()


def try_one(mutant: Mutant, toolchain: TritonToolchain) -> str | None:
    """Return what caught a mutant, or None."""
    shape = mutant.shape
    interpreted = mutant.kind is Kind.INTERPRETED
    edits = mutant.edits
    policy = Policy(allow_experimental=True, only_tactic=shape.tactic)
    with tempfile.TemporaryDirectory(prefix="nkc-mutant-") as place:
        compiler = MutatingToolchain(inner=toolchain, edits=() if interpreted else edits)
        try:
            (subject,) = build_contracts([("mutant.json", contract_of(shape))], Path(place), compiler, policy)
        except ToolError as error:
            return f"build: {error}"
        engine: Engine = MutatingInterpreter(edits) if interpreted else EmulatorEngine()
        with patched(mutant):
            for regime in REGIMES:
                try:
                    (row,) = verify(subject, engine, [regime])
                except (ToolError, ValueError) as error:
                    return f"{regime.value}: {error}"
                if not row.passed:
                    return f"{regime.value}: {said(row)}"
    return None


def said(row: Row) -> str:
    """Return in a few words why a row failed."""
    from nkc.cli.verify import _why

    return _why(row)


def run(mutants: Sequence[Mutant]) -> Iterator[Outcome]:
    """Try every mutant; the sound kernels are tried first, because a check that fails anyway catches nothing."""
    with TritonToolchain() as toolchain:
        for shape in dict.fromkeys((mutant.kind is Kind.INTERPRETED, mutant.shape) for mutant in mutants):
            kind = Kind.INTERPRETED if shape[0] else Kind.KERNEL
            sound = Mutant(name="sound", what="nothing", kind=kind, shape=shape[1])
            how = try_one(sound, toolchain)
            if how is not None:
                raise RuntimeError(f"{shape[1]}: the sound kernel fails: {how}")
        for mutant in mutants:
            began = time.perf_counter()
            how = try_one(mutant, toolchain)
            yield Outcome(mutant=mutant, how=how, seconds=time.perf_counter() - began)


def main() -> int:
    """Print one line a mutant, then what survived and why."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", action="store_true", help="the fixed sample that a change is tested with")
    parser.add_argument("--only", help="mutants whose name contains this")
    options = parser.parse_args()
    chosen = [mutant for mutant in TABLE if not options.sample or mutant.name in SAMPLE]
    chosen = [mutant for mutant in chosen if options.only is None or options.only in mutant.name]
    wrong = 0
    caught = 0
    for outcome in run(chosen):
        name = outcome.mutant.name
        expected = name in SURVIVORS
        caught += outcome.how is not None
        wrong += (outcome.how is None) != expected
        mark = "caught  " if outcome.how is not None else "SURVIVED"
        print(f"{mark} {outcome.mutant.kind.value:11} {name:28} {outcome.how or SURVIVORS.get(name, '?')}", flush=True)
    print(f"{caught} of {len(chosen)} caught, {len(chosen) - caught} survived")
    for name, why in SURVIVORS.items():
        print(f"  known to survive: {name}: {why}")
    return 5 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
