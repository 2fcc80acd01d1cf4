"""A comparison inside a layer: matched or refused, judged by its turns alone, and as it was written or not read."""

import hashlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.ir.errors import ToolError
from nkc.tactics.layer import (
    ERR_RATIO_LIMIT,
    LEAST_REPLAYS,
    METHOD,
    LayerRecords,
    Verdict,
    median_interval,
    read_layer,
)
from tests.fixtures.layers import SESSION, TACTIC, comparison, records, side


@pytest.fixture(autouse=True)
def fresh():
    read_layer.cache_clear()
    yield
    read_layer.cache_clear()


def test_a_faster_kernel_and_one_as_fast_held_their_place() -> None:
    assert comparison(100.0, 110.0).verdict is Verdict.HELD
    assert comparison(100.0, 100.0).verdict is Verdict.HELD
    assert comparison(100.0, 110.0).ratio == pytest.approx(1.1)


def test_a_slower_kernel_lost_where_it_is_slower_than_the_noise() -> None:
    lost = comparison(100.0, 98.0)
    assert lost.verdict is Verdict.LOST
    assert lost.saved_us[1] == pytest.approx(-2.0)
    # Two captures of one side 3 us apart: a difference of 2 us is none.
    assert comparison(100.0, 98.0, theirs=side("a library", 98.0, apart=3.0)).verdict is not Verdict.LOST


def test_noise_is_no_acceptance() -> None:
    """Where two captures of one step are further apart than 1 % of it, nothing that is told here is small enough."""
    noisy = comparison(100.0, 100.0, theirs=side("a library", 100.0, apart=2.0))
    assert (noisy.verdict, noisy.noise_us > 1.0) == (Verdict.UNDECIDED, True)
    faster = comparison(100.0, 110.0, theirs=side("a library", 110.0, apart=2.0))
    assert (faster.verdict, faster.noise_us > 1.0) == (Verdict.HELD, True)  # what it saves is more than any noise
    assert comparison(100.0, 101.0, theirs=side("a library", 101.0, apart=2.0)).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    "spoiled",
    [
        {"theirs": side("a library", 110.0, err_ratio=2e-2)},
        {"ours": side(TACTIC, 100.0, code_digest="1" * 64, err_ratio=2e-2)},
        {"apart": 6e-2},
        {"differing": 1},
        {"selected": "another.tactic"},
        {"selected": None},
    ],
    ids=["their-error", "our-error", "outputs", "replays", "not-selected", "forced"],
)
def test_what_is_wrong_or_was_not_selected_is_judged_by_nobody(spoiled) -> None:
    for theirs_us in (90.0, 110.0):
        fields = {"theirs": side("a library", theirs_us), **spoiled}
        assert comparison(100.0, theirs_us, **fields).verdict is Verdict.VOID


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (side(TACTIC, 110.0), "beside itself"),
        (side("another name", 110.0, code_digest="1" * 64), "beside itself"),
        (side("a library", 110.0, captures=((1.0,) * 31, (1.0,) * 30)), "turns"),
        (side("a library", 110.0, captures=((1.0,) * 3, (1.0,) * 3)), "turns"),
        (side("a library", 110.0, captures=((0.0,) * 31, (1.0,) * 31)), "a time that is none"),
        (side("a library", 110.0, captures=((math.inf,) * 31, (1.0,) * 31)), "a time that is none"),
    ],
    ids=["same-name", "same-code", "uneven", "few", "zero", "infinite"],
)
def test_sides_that_do_not_match_make_no_comparison(theirs, said) -> None:
    with pytest.raises(ValueError, match=said):
        comparison(theirs=theirs)


@pytest.mark.parametrize("unjudged", [{"replays": 0}, {"replays": LEAST_REPLAYS - 1}, {"rows": 0}])
def test_what_was_not_judged_first_makes_no_comparison(unjudged) -> None:
    with pytest.raises(ValueError, match=f"not {LEAST_REPLAYS} or more, or no row"):
        comparison(**unjudged)


FORGED = (
    ({"err_ratio_limit": 1e9, "ours": side(TACTIC, 100.0, code_digest="1" * 64, err_ratio=0.5)}, "judged by limits"),
    ({"err_ratio_limit": ERR_RATIO_LIMIT * 1.01}, "judged by limits 0.0101 and 0.05, not by 0.01 and 0.05"),
    ({"apart_limit": 1.0, "apart": 0.9}, "judged by limits 0.01 and 1, not by 0.01 and 0.05"),
    ({"err_ratio_limit": 0.0}, "judged by limits"),
    ({"method": METHOD + 1}, "by method 2, and comparisons are made by 1 now"),
    ({"apart": -1.0}, "below 0"),
    ({"differing": -1}, "below 0"),
    ({"theirs": side("a library", 110.0, err_ratio=-1.0)}, "below 0"),
)


@pytest.mark.parametrize(("fields", "said"), FORGED)
def test_a_record_is_held_against_our_limits_and_not_its_own(fields, said, tmp_path) -> None:
    """Whoever writes a file can write its digest too: what it must not do is bring its own yardstick."""
    with pytest.raises(ValueError, match=said):
        comparison(**fields)
    plain = msgspec.to_builtins(comparison())
    plain |= msgspec.to_builtins(fields)
    digest = hashlib.sha256(msgspec.json.encode(dict(sorted(plain.items())), order="sorted")).hexdigest()
    forged = msgspec.to_builtins(records()) | {"comparisons": {digest: plain}, "sessions": {SESSION.digest: SESSION}}
    (tmp_path / f"{TACTIC}.json").write_bytes(msgspec.json.encode(forged))
    with pytest.raises(ToolError, match=rf"layer/{TACTIC}\.json: .*{said}"):
        read_layer(TACTIC, tmp_path)


def test_a_kernel_without_a_digest_is_not_ours() -> None:
    with pytest.raises(ValueError, match="no code digest"):
        comparison(ours=side(TACTIC, 100.0), theirs=side("a library", 100.0, code_digest="2" * 64))


def test_a_file_is_read_back(tmp_path) -> None:
    written = records(comparison(), comparison(rows=16, request="nk_b"))
    (tmp_path / f"{TACTIC}.json").write_bytes(msgspec.json.encode(written))
    assert read_layer(TACTIC, tmp_path) == written
    assert read_layer("none", tmp_path).comparisons == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rows":1', '"rows":16'),
        ('"err_ratio":0.002', '"err_ratio":0.001'),
        ('"differing":0', '"differing":1'),
        ('"name":"a library"', '"name":"another library"'),
        ('"driver":"1.0"', '"driver":"2.0"'),
        (f'"code_digest":"{"1" * 64}"', f'"code_digest":"{"2" * 64}"'),
        ('"captures":[[10', '"captures":[[11'),
        ('"schema":"nkc.layer-comparison/1"', '"schema":"nkc.layer-comparison/2"'),
        ('"rows":1', '"rows":1,"verdict":"held"'),
    ],
)
def test_an_edited_file_is_refused_by_name(tmp_path, old, new) -> None:
    text = msgspec.json.encode(records(comparison())).decode()
    assert old in text
    (tmp_path / f"{TACTIC}.json").write_text(text.replace(old, new, 1))
    with pytest.raises(ToolError, match=rf"layer/{TACTIC}\.json: .*restore it"):
        read_layer(TACTIC, tmp_path)


def test_another_tactic_s_comparisons_are_refused(tmp_path) -> None:
    (tmp_path / "other.json").write_bytes(msgspec.json.encode(records(comparison())))
    with pytest.raises(ToolError, match=f"holds comparisons of {TACTIC}"):
        read_layer("other", tmp_path)


def test_a_comparison_needs_its_session() -> None:
    with pytest.raises(ValueError, match="its session is not there"):
        LayerRecords.of([], [comparison()])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_the_interval_holds_the_median_and_lies_within_the_values(values) -> None:
    low, median, high = median_interval(values)
    assert min(values) <= low <= median <= high <= max(values)


def test_the_interval_is_the_one_of_the_tables() -> None:
    """Ranks of the 99 % interval of a median: 5th and 17th of 21 (0.9928), 12th and 30th of 41 (0.9913)."""
    assert median_interval(range(1, 22)) == (5, 11, 17)
    assert median_interval(range(1, 42)) == (12, 21, 30)
