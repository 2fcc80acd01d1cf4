"""Kernels to verify without a compiler, and an engine that leaves what the oracle predicts, unless a test spoils it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nkc.emit.build import no_checks
from nkc.ir.contract import Contract, DType
from nkc.tactics.catalogue import find
from nkc.tactics.evidence import Answer, Check
from nkc.tactics.select import Policy
from nkc.tactics.tactic import Tactic
from nkc.verify.engine import EngineName, Run
from nkc.verify.gather import build_contracts
from nkc.verify.memory import Bits, Tensor
from nkc.verify.numbers import bf16
from nkc.verify.oracles.matrix_unit import FP32_FMA, MatrixUnit
from nkc.verify.regimes import Recipe, Regime
from nkc.verify.subject import Subject, judge_of
from tests.fixtures.toolchain import FakeToolchain

SMALL = "gfx950.dense.bf16_mfma_16x32x128_s3"
SCALED = "gfx950.dense.fp8_mfma_16x64x128_s3"


def tactic(name: str = SMALL) -> Tactic:
    """Return a tactic of the catalogue."""
    return find("dense", name)


def subjects(out: Path, name: str = SMALL) -> tuple[Subject, ...]:
    """Return the proof set of a tactic as built by a toolchain that compiles nothing, in the proofs' order."""
    proofs = [(f"{place}.json", proof) for place, proof in enumerate(tactic(name).proofs(tactic(name)))]
    policy = Policy(allow_experimental=True, only_tactic=name)
    made = {
        subject.request: subject for subject in build_contracts(proofs, out, FakeToolchain(), policy, checks=no_checks)
    }
    from nkc.ir.canonical import contract_id

    return tuple(made[contract_id(proof)] for _, proof in proofs)


Spoil = Callable[[Bits, Contract], None]


class FakeEngine:
    """Leaves what a matrix unit would, bit for bit, then lets `spoil` change an output's storage in place."""

    name = EngineName.EMULATOR
    runs_object = True

    def __init__(
        self,
        *,
        spoil: Spoil | None = None,
        model_decides: bool = True,
        model: MatrixUnit | None = FP32_FMA,
        **answers: object,
    ) -> None:
        self.model_decides = model_decides
        self._model = model
        self._spoil = spoil
        self._answers = {
            "repeats": 3,
            "repeated": Answer.PASSED,
            "replay": Answer.NOT_RUN,
            "outside": Answer.PASSED,
            **answers,
        }
        self.ran: list[Mapping[str, int]] = []

    def why_not(self, subject: Subject) -> str | None:
        del subject
        return None

    def device(self) -> str:
        return "nothing"

    def unit(self, subject: Subject) -> MatrixUnit | None:
        del subject
        return self._model

    def samples(self, subject: Subject) -> bool:
        del subject
        return False

    def run(self, subject: Subject, tensors: Sequence[Tensor], dims: Mapping[str, int]) -> Run:
        self.ran.append(dims)
        recipe = next(recipe for recipe in _recipes() if _same(subject, recipe, dims, tensors))
        predicted = judge_of("dense").predict(subject.contract, FP32_FMA, recipe, dims)
        assert predicted is not None
        flat = predicted["out"].reshape(-1)
        stored: Bits = bf16.encode(flat) if subject.contract.dtypes["out"] is DType.BF16 else flat.copy()
        if self._spoil is not None:
            self._spoil(stored, subject.contract)
        return Run(outputs={"out": stored}, **self._answers)  # type: ignore[arg-type]


def _recipes() -> tuple[Recipe, ...]:
    return tuple(Recipe(regime=regime, seed=seed) for regime in Regime for seed in (1, 2))


def _same(subject: Subject, recipe: Recipe, dims: Mapping[str, int], tensors: Sequence[Tensor]) -> bool:
    """Return whether a recipe made these inputs: an engine is not told, it has to look."""
    others = judge_of("dense").tensors(subject.contract, recipe, dims)
    return all(
        a.storage.tobytes() == b.storage.tobytes() for a, b in zip(tensors, others, strict=True) if not a.written
    )


def check_of(request: str, digest: str, regime: str = "exact", **fields: object) -> Check:
    """Return a record of a passed check."""
    default: dict[str, object] = {
        "request": request,
        "code_digest": digest,
        "engine": "device",
        "device": "a GPU",
        "toolchain": "triton 3.9.0",
        "regime": regime,
        "seed": 1,
        "recipe_version": 1,
        "dims": (),
        "passed": True,
        "worst": 0.5,
        "err_ratio": 1e-3,
        "bit_equal": Answer.PASSED if regime == "exact" else Answer.NOT_PROMISED,
        "repeats": 21,
        "repeated": Answer.PASSED,
        "replay": Answer.PASSED,
        "outside": Answer.PASSED,
        "hazards": (),
        "notes": {"replays": "20"},
    }
    return Check(**{**default, **fields})  # type: ignore[arg-type]


__all__ = ["SCALED", "SMALL", "FakeEngine", "check_of", "subjects", "tactic"]
