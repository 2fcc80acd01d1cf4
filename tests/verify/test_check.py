"""What a row says of a run: every answer, every way to fail, and the first element that did."""

import math

import numpy as np
import pytest

from nkc.ir.errors import UsageError
from nkc.tactics.evidence import Answer
from nkc.verify.check import choose, verify
from nkc.verify.engine import EngineName
from nkc.verify.oracles.matrix_unit import HOPPER_F16
from nkc.verify.regimes import Regime
from tests.verify.subjects import SCALED, FakeEngine, subjects

FULL, TAIL, BOUNDED, BIAS = range(4)
"""The proofs of a dense tactic in their order."""


@pytest.fixture(scope="module")
def bf16(tmp_path_factory):
    return subjects(tmp_path_factory.mktemp("bf16"))


@pytest.fixture(scope="module")
def fp8(tmp_path_factory):
    return subjects(tmp_path_factory.mktemp("fp8"), SCALED)


def row(subject, engine, regime=Regime.EXACT):
    (found,) = verify(subject, engine, [regime])
    return found


@pytest.mark.parametrize("place", [FULL, TAIL, BOUNDED, BIAS])
@pytest.mark.parametrize("regime", Regime)
def test_what_the_rule_gives_passes_in_every_regime(bf16, fp8, place, regime) -> None:
    for subject in (bf16[place], fp8[place]):
        found = row(subject, FakeEngine(), regime)
        assert found.passed
        assert found.first is None
        assert found.failures == 0
        assert found.worst <= 1
        assert found.bit_equal is (Answer.PASSED if regime is Regime.EXACT else Answer.NOT_PROMISED)
        assert (found.repeated, found.replay, found.outside) == (Answer.PASSED, Answer.NOT_RUN, Answer.PASSED)


def test_a_bounded_dim_is_run_at_its_largest_its_middle_and_its_least(bf16) -> None:
    engine = FakeEngine()
    found = row(bf16[BOUNDED], engine)
    assert found.dims == ({"m": 16}, {"m": 8}, {"m": 1})
    assert tuple(engine.ran) == found.dims
    assert row(bf16[FULL], FakeEngine()).dims == ()


@pytest.mark.parametrize("name", ["repeated", "replay", "outside"])
@pytest.mark.parametrize("answer", Answer)
def test_only_a_failed_answer_fails(bf16, name, answer) -> None:
    found = row(bf16[FULL], FakeEngine(**{name: answer}))
    assert getattr(found, name) is answer
    assert found.passed is (answer is not Answer.FAILED)


def test_a_hazard_fails(bf16) -> None:
    found = row(bf16[FULL], FakeEngine(hazards=("a race in LDS",)))
    assert not found.passed
    assert found.hazards == ("a race in LDS",)


def test_one_ulp_in_exact_data_is_found_where_it_is(fp8) -> None:
    def spoil(bits, contract):
        bits[5 * contract.exact("n") + 7] ^= 1

    found = row(fp8[FULL], FakeEngine(spoil=spoil))
    assert not found.passed
    assert found.bit_equal is Answer.FAILED
    assert found.first_in == "out"
    assert found.first is not None
    assert found.first.index == (5, 7)
    assert found.first.got != found.first.expected


def test_a_value_out_of_its_bound_is_named_with_expected_and_got(bf16) -> None:
    def spoil(bits, contract):
        bits[3 * contract.exact("n") + 2] = np.float32(1e9)
        bits[9 * contract.exact("n")] = np.nan

    found = row(bf16[TAIL], FakeEngine(spoil=spoil, model=None), Regime.MODEL_LIKE)
    assert not found.passed
    assert (found.first_in, found.failures) == ("out", 2)
    assert found.first is not None
    assert (found.first.index, found.first.got) == ((3, 2), 1e9)
    assert abs(found.first.expected) < 1e6
    assert 0 < found.first.bound < 1
    assert math.isinf(found.worst)


def test_what_nothing_stored_is_still_poison_and_fails(bf16) -> None:
    def spoil(bits, contract):
        bits[-1] = 0xFFFF

    found = row(bf16[FULL], FakeEngine(spoil=spoil, model=None), Regime.MODEL_LIKE)
    assert not found.passed
    assert found.first is not None
    assert math.isnan(found.first.got)


def test_a_dropped_nan_fails(bf16) -> None:
    def spoil(bits, contract):
        bits[(bits & 0x7FFF) > 0x7F80] = 0

    found = row(bf16[FULL], FakeEngine(spoil=spoil, model=None), Regime.EDGES)
    assert not found.passed
    assert found.failures == bf16[FULL].contract.exact("n")
    assert found.first is not None
    assert math.isnan(found.first.expected)


def test_sampled_elements_alone_are_judged(bf16) -> None:
    def spoil(bits, contract):
        bits[1:] = 0xFFFF

    subject = bf16[FULL]
    kept = np.zeros(subject.contract.exact("m") * subject.contract.exact("n"), np.bool_)
    kept[0] = True
    assert row(subject, FakeEngine(spoil=spoil, covered={"out": kept})).passed
    kept[1] = True
    assert not row(subject, FakeEngine(spoil=spoil, covered={"out": kept})).passed


def test_bits_that_the_engine_rounded_are_never_passed_but_may_fail(bf16) -> None:
    def spoil(bits, contract):
        bits[0] ^= 1

    assert row(bf16[FULL], FakeEngine(bits_judged=False)).bit_equal is Answer.NOT_RUN
    found = row(bf16[FULL], FakeEngine(bits_judged=False, spoil=spoil))
    assert found.bit_equal is Answer.FAILED
    assert not found.passed


def test_another_unit_s_bits_fail_where_the_model_decides_and_are_a_finding_elsewhere(fp8) -> None:
    subject = fp8[TAIL]  # fp32 output: the accumulator itself is seen
    told = row(subject, FakeEngine(model=HOPPER_F16, model_decides=False), Regime.WIDE)
    assert (told.passed, told.model_bits, told.first) == (True, Answer.FAILED, None)
    assert told.notes["unit"] == "hopper_f16"
    failed = row(subject, FakeEngine(model=HOPPER_F16), Regime.WIDE)
    assert (failed.passed, failed.model_bits) == (False, Answer.FAILED)
    assert failed.first is not None
    assert failed.first.bound == 0
    assert failed.failures == 0  # within the bound: a bound alone would not have told
    assert row(subject, FakeEngine(model=None), Regime.WIDE).model_bits is Answer.NOT_PROMISED


def test_the_engine_is_the_strongest_that_can(bf16) -> None:
    class Cannot(FakeEngine):
        def why_not(self, subject):
            return "no GPU is present"

    engines = {EngineName.DEVICE: Cannot(), EngineName.EMULATOR: FakeEngine(), EngineName.INTERPRETER: FakeEngine()}
    assert choose(bf16[FULL], engines, None) is engines[EngineName.EMULATOR]
    assert choose(bf16[FULL], engines, EngineName.INTERPRETER) is engines[EngineName.INTERPRETER]
    said = (
        r"^dense_\w+ for gfx950: cannot be run here: device: no GPU is present \(take another --engine, or leave it out"
    )
    with pytest.raises(UsageError, match=said):
        choose(bf16[FULL], engines, EngineName.DEVICE)
    with pytest.raises(UsageError, match=r"no GPU is present; .* and verify DIR beside its GPU, or leave it out"):
        choose(bf16[FULL], dict.fromkeys(EngineName, Cannot()), None)
