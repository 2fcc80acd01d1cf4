"""What may be claimed: under every model, under one, and how that is worded."""

import pytest

from nkc.tactics.evidence import Answer
from nkc.verify.check import Row
from nkc.verify.claims import EVERY, claims_of


def row(regime="exact", **fields):
    default = {
        "regime": regime,
        "seed": 1,
        "recipe_version": 1,
        "dims": (),
        "passed": True,
        "worst": 0.5,
        "err_ratio": 0.0,
        "failures": 0,
        "bit_equal": Answer.PASSED if regime == "exact" else Answer.NOT_PROMISED,
        "repeats": 3,
        "repeated": Answer.PASSED,
        "replay": Answer.NOT_RUN,
        "outside": Answer.PASSED,
        "hazards": (),
        "notes": {"model": "once", "sampled": "1"},
        "model_bits": Answer.PASSED,
    }
    return Row(**{**default, **fields})


def held(rows):
    return {(claim.model, claim.what): claim.holds for claim in claims_of(rows)}


def test_claims_under_every_model_come_first_and_need_all_of_them() -> None:
    claims = claims_of({"once": (row(), row("wide")), "tree": (row(), row("wide", model_bits=Answer.NOT_PROMISED))})
    assert [claim.model for claim in claims] == [EVERY] * 4 + ["once"] * 2 + ["tree"] * 2
    assert {claim.holds for claim in claims[:4]} == {Answer.PASSED}


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"bit_equal": Answer.FAILED}, "bit-equal to the oracle on exact data"),
        ({"outside": Answer.FAILED}, "no access outside its buffers"),
        ({"hazards": ("a race",)}, "no race, no missing wait or barrier, nothing undefined is read"),
        ({"repeated": Answer.FAILED}, "the same bits in every schedule that was run"),
    ],
)
def test_one_model_in_which_it_fails_is_enough(fields, what) -> None:
    found = held({"once": (row(),), "sequential": (row(**fields),)})
    assert found[EVERY, what] is Answer.FAILED
    assert [key for key, answer in found.items() if answer is Answer.FAILED] == [(EVERY, what)]


def test_bits_of_one_model_are_claimed_under_it_alone_and_never_of_a_card() -> None:
    found = held({"once": (row(),), "sequential": (row(failures=2, model_bits=Answer.FAILED),)})
    assert found["once", "bit-exact under model once"] is Answer.PASSED
    assert found["sequential", "bit-exact under model sequential"] is Answer.FAILED
    assert found["sequential", "within the derived bounds under model sequential"] is Answer.FAILED
    assert not [what for _, what in found if "MI350X" in what]


def test_a_claim_says_of_how_much_of_the_grid_it_speaks() -> None:
    claims = claims_of({"once": (row(), row("wide", notes={"sampled": "0.0045"}))})
    assert {claim.sampled for claim in claims} == {0.0045}


def test_without_exact_data_nothing_is_claimed_of_it() -> None:
    assert held({"once": (row("wide"),)})[EVERY, "bit-equal to the oracle on exact data"] is Answer.NOT_RUN
