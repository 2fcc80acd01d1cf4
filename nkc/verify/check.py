"""Verifies one subject: every regime, every value of a bounded dim that is looked at, one row a regime."""

from collections.abc import Iterable, Mapping
from functools import reduce

import msgspec
import numpy as np

from nkc.ir.contract import dim_min
from nkc.verify.bounds import Failure, first_difference
from nkc.verify.engine import Answer, Engine, EngineName, Run
from nkc.verify.folded import Folded
from nkc.verify.oracles.matrix_unit import MatrixUnit
from nkc.verify.regimes import Recipe, Regime
from nkc.verify.subject import Judge, Judgement, Subject, dim_values, judge_of

DEFAULT_SEED = 1


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one regime showed.

    worst: largest error over its bound. bit_equal, repeated, replay, outside: checks and their answers. dims: the
    values of bounded dims that were run. model_bits: every bit is that of the model of the matrix unit which the notes
    name; on a chip a finding, not a promise. first: the first element that failed, with the output it is in.
    """

    regime: str
    seed: int
    recipe_version: int
    dims: tuple[dict[str, int], ...]
    passed: bool
    worst: float
    err_ratio: float
    failures: int
    bit_equal: Answer
    repeats: int
    repeated: Answer
    replay: Answer
    outside: Answer
    hazards: tuple[str, ...]
    notes: dict[str, str]
    model_bits: Answer = Answer.NOT_PROMISED
    first: Failure | None = None
    first_in: str | None = None


def verify(subject: Subject, engine: Engine, regimes: Iterable[Regime], *, seed: int = DEFAULT_SEED) -> tuple[Row, ...]:
    """Run and judge every regime. Raises ToolError where the kernel cannot be launched at all."""
    return tuple(_row(subject, engine, Recipe(regime=regime, seed=seed)) for regime in regimes)


def _row(subject: Subject, engine: Engine, recipe: Recipe) -> Row:
    judge = judge_of(subject.contract.operation)
    if engine.samples(subject):
        judge = Folded(judge, subject.launch)
    values = dim_values(subject.contract)
    unit = engine.unit(subject)
    runs: list[tuple[Run, Judgement]] = []
    compared: list[tuple[Answer, dict[str, Failure]]] = []
    for dims in values:
        run = engine.run(subject, judge.tensors(subject.contract, recipe, dims), dims)
        runs.append((run, judge.judge(subject.contract, recipe, dims, run.outputs, run.covered)))
        compared.append(_as_modelled(judge, subject, unit, recipe, dims, run))
    verdicts = [(name, verdict) for _, judged in runs for name, verdict in judged.verdicts.items()]
    checks = {
        "bit_equal": together(_bits(run, judged) for run, judged in runs),
        "repeated": together(run.repeated for run, _ in runs),
        "replay": together(run.replay for run, _ in runs),
        "outside": together(run.outside for run, _ in runs),
    }
    model_bits = together(answer for answer, _ in compared)
    if engine.model_decides:
        checks["model_bits"] = model_bits
    hazards = tuple(dict.fromkeys(line for run, _ in runs for line in run.hazards))
    judged_well = all(judged.passed for _, judged in runs)
    wrong = [(name, verdict.first) for name, verdict in verdicts if verdict.first is not None]
    wrong += [item for _, judged in runs for item in judged.differs.items()]
    wrong += [item for _, differs in compared for item in differs.items() if engine.model_decides]
    failed = wrong[0] if wrong else (None, None)
    return Row(
        regime=recipe.regime.value,
        seed=recipe.seed,
        recipe_version=recipe.version,
        dims=values if values != ({},) else (),
        passed=judged_well and not hazards and Answer.FAILED not in checks.values(),
        worst=max(verdict.worst for _, verdict in verdicts),
        err_ratio=max(verdict.err_ratio for _, verdict in verdicts),
        failures=sum(verdict.failures for _, verdict in verdicts),
        bit_equal=checks["bit_equal"],
        repeats=max(run.repeats for run, _ in runs),
        repeated=checks["repeated"],
        replay=checks["replay"],
        outside=checks["outside"],
        hazards=hazards,
        notes=reduce(lambda left, right: {**left, **right}, (dict(run.notes) for run, _ in runs), _model(unit)),
        model_bits=model_bits,
        first=failed[1],
        first_in=failed[0],
    )


def _as_modelled(
    judge: Judge, subject: Subject, unit: MatrixUnit | None, recipe: Recipe, dims: Mapping[str, int], run: Run
) -> tuple[Answer, dict[str, Failure]]:
    """Return whether every bit that a run stored is the model's, with what differs first.

    Of a NaN only the place counts, and that is judged elsewhere.
    """
    if unit is None:
        return Answer.NOT_PROMISED, {}
    predicted = judge.predict(subject.contract, unit, recipe, dims)
    if predicted is None:
        return Answer.NOT_RUN, {}
    differs = {}
    for name, expected in predicted.items():
        got = judge.decoded(subject.contract, name, run.outputs[name], dims)
        held = ~np.isnan(expected)
        if name in run.covered:
            held &= run.covered[name].reshape(held.shape)
        first = first_difference(got, expected, held)
        if first is not None:
            differs[name] = first
    return (Answer.FAILED if differs else Answer.PASSED), differs


def _model(unit: MatrixUnit | None) -> dict[str, str]:
    return {} if unit is None else {"unit": unit.name}


def _bits(run: Run, judged: Judgement) -> Answer:
    """Return whether the bits agree where all are promised; bits that the engine rounded can only disagree."""
    match judged.bit_equal:
        case None:
            return Answer.NOT_PROMISED
        case False:
            return Answer.FAILED
        case True:
            return Answer.PASSED if run.bits_judged else Answer.NOT_RUN


def together(answers: Iterable[Answer]) -> Answer:
    """Return the answer of several runs: failed if one failed, passed if any passed, else what they all say."""
    found = tuple(answers)
    for answer in (Answer.FAILED, Answer.PASSED, Answer.NOT_RUN):
        if answer in found:
            return answer
    return Answer.NOT_PROMISED


def choose(subject: Subject, engines: Mapping[EngineName, Engine], wanted: EngineName | None) -> Engine:
    """Return the engine to use: the wanted one, else device, then emulator, then interpreter.

    Raises UsageError where the wanted one, or every one, cannot run the subject here.
    """
    from nkc.ir.errors import UsageError

    names = tuple(EngineName) if wanted is None else (wanted,)
    reasons = {}
    for name in names:
        why = engines[name].why_not(subject)
        if why is None:
            return engines[name]
        reasons[name] = why
    said = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    who = f"{subject.launch.symbol} for {subject.launch.target.arch}"
    mend = "take another --engine" if wanted else "build it with --build-only DIR and verify DIR beside its GPU"
    raise UsageError(f"{who}: cannot be run here: {said} ({mend}, or leave it out)")


def takes_nothing(subject: Subject) -> bool:
    """Return whether a bounded dim may be 0, where a launch does nothing and succeeds."""
    return any(dim_min(dim) == 0 for dim in subject.contract.shape.values())


__all__ = ["DEFAULT_SEED", "Row", "choose", "takes_nothing", "together", "verify"]
