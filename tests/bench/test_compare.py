"""What a record lets anybody say: no speed-up on a red gate, none where both sides are one route."""

import pytest

from nkc.bench.compare import compare, red

from ..fixtures.contracts import contract
from ..fixtures.measured import record, route

CONTRACT = contract()
OURS, PLAIN = "gfx950.dense.fp8_mfma_16x64x128_s3", "gfx950.dense.fp8_mfma_16x128x128_s2"


def test_the_candidate_is_what_selection_takes_and_the_rival_the_best_that_keeps_the_rule() -> None:
    said = compare(
        record(
            CONTRACT,
            (
                route(OURS, 10.0, digest="a"),
                route(PLAIN, 8.0, digest="b"),
                route("cuBLASLt", 12.0),
                route("bf16", 1.0, same_rule=False),
            ),
            selected=OURS,
        )
    )
    assert (said.candidate.name, said.fastest.name, said.baseline.name) == (OURS, PLAIN, "cuBLASLt")
    assert said.speed_up == pytest.approx(1.2)
    assert said.of_floor == pytest.approx(0.33)
    assert said.refused is None


def test_the_plain_tile_is_a_rival_and_other_tactics_are_none() -> None:
    routes = (route(OURS, 10.0, digest="a"), route(PLAIN, 15.0, digest="b"), route("other", 3.0, digest="c"))
    said = compare(record(CONTRACT, routes, selected=OURS, plain=PLAIN))
    assert (said.baseline.name, said.speed_up) == (PLAIN, pytest.approx(1.5))


@pytest.mark.parametrize(
    ("routes", "selected", "plain", "why"),
    [
        ((route(OURS, 10.0, digest="a", passed=False), route("lib", 20.0)), OURS, None, "the candidate's gate is red"),
        ((route(OURS, None, digest="a"), route("lib", 20.0)), OURS, None, "the candidate was not timed"),
        ((route(OURS, 10.0, digest="a"),), OURS, OURS, "both sides are the same route"),
        (
            (route(OURS, 10.0, digest="a"), route(PLAIN, 20.0, digest="a")),
            OURS,
            PLAIN,
            "both sides are the same route",
        ),
        ((route(OURS, 10.0, digest="a"),), OURS, None, "no baseline was there"),
        ((route("lib", 10.0),), None, None, "no tactic was there"),
        (
            (route(PLAIN, 10.0, digest="a"), route("lib", 20.0)),
            OURS,
            PLAIN,
            "what is selected was not timed",
        ),
        ((route(OURS, 10.0, digest="a"), route("lib", 5.0, passed=False)), OURS, None, "no baseline was there"),
        ((route(OURS, 10.0, digest="a"), route("lib", 5.0, same_rule=False)), OURS, None, "no baseline was there"),
    ],
    ids=[
        "red",
        "untimed",
        "same name",
        "same code",
        "alone",
        "nothing",
        "another than was selected",
        "red baseline",
        "another rule",
    ],
)
def test_no_speed_up_is_said(routes, selected, plain, why) -> None:
    said = compare(record(CONTRACT, routes, selected=selected, plain=plain))
    assert said.speed_up is None
    assert said.refused == why


def test_where_the_candidate_is_the_plain_tile_a_library_is_the_rival() -> None:
    said = compare(record(CONTRACT, (route(OURS, 10.0, digest="a"), route("lib", 20.0)), selected=OURS, plain=OURS))
    assert (said.baseline.name, said.speed_up) == ("lib", 2.0)


def test_red_routes_are_ours_alone() -> None:
    one = record(CONTRACT, (route(OURS, 1.0, digest="a", passed=False), route("lib", 5.0, passed=False)))
    assert [each.name for each in red(one)] == [OURS]
