"""The comparison itself, without a GPU: both sides are judged, matched, taken in turns, and neither is the other."""

from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from nkc.bench import layer  # noqa: E402
from nkc.emit.build import no_checks  # noqa: E402
from nkc.tactics.layer import Verdict  # noqa: E402
from nkc.tactics.select import Policy  # noqa: E402
from nkc.verify.gather import build_contracts  # noqa: E402
from tests.fixtures.contracts import contract  # noqa: E402
from tests.fixtures.layers import SESSION  # noqa: E402
from tests.fixtures.toolchain import FakeToolchain  # noqa: E402

STEP_US = {"ours": 100.0, "theirs": 130.0}


class Graph:
    """A graph whose replay takes as long as what serves the operation says, and a little more each time."""

    order: ClassVar[list[str]] = []

    def __init__(self, steps, count) -> None:
        self.step, self.count, self.taken = steps[0], count, 0

    def replay_us(self) -> float:
        self.step()
        Graph.order.append(self.step.side)
        self.taken += 1
        return STEP_US[self.step.side] + (self.taken * 7 % 11) * 0.01


def serve(side, error=0.0):
    def call(x):
        return x.float() * (2.0 + error)

    call.side = side
    return call


def step(x, function):
    def run():
        return function(x) + 1.0, x

    run.side = function.side
    return run


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """Compare with these errors of both sides, of a kernel that was selected or forced."""
    monkeypatch.setattr(layer.timing, "Graph", Graph)
    monkeypatch.setattr(layer, "_replayed", lambda run: (run()[0], 0))
    Graph.order = []
    x = torch.arange(1.0, 9.0)

    def compared(ours=0.0, theirs=0.0, only=None, name="a library", digest=None):
        policy = Policy(allow_experimental=True, only_tactic=only)
        (subject,) = build_contracts(
            [("one.json", contract())], tmp_path / str(only), FakeToolchain(), policy, checks=no_checks
        )
        place = layer.Place(
            layer="a layer",
            dims={"hidden": 8},
            rows=1,
            context=16,
            operation="o_proj",
            step=lambda function: step(x, function),
            arguments=((x,), {}),
            reference=("twice", lambda x: x * 2.0),
        )
        contender = layer.Contender(
            name=subject.tactic if name is None else name,
            software="1.0",
            serve=serve("theirs", theirs),
            code_digest=subject.code_digest if digest is None else digest or None,
        )
        return subject, layer.compare(place, subject, serve("ours", ours), contender, session=SESSION.digest)

    return compared


def test_a_comparison_says_what_was_selected_and_what_each_side_took(compare) -> None:
    subject, found = compare(digest="")
    assert (found.ours.name, found.selected) == (subject.tactic, subject.tactic)
    assert (found.ours.code_digest, found.ours.software) == (subject.code_digest, subject.toolchain)
    assert (found.request, found.theirs.code_digest, found.reference) == (subject.request, None, "twice")
    assert found.verdict is Verdict.HELD
    assert found.saved_us[1] == pytest.approx(30.0, abs=0.1)
    assert found.steps == round(layer.REPLAY_US / 100.0)


def test_turns_alternate_and_nobody_always_follows_the_same(compare) -> None:
    compare(digest="")
    order = Graph.order[-4 * layer.TURNS :]
    assert order.count("ours") == order.count("theirs") == 2 * layer.TURNS
    assert {tuple(order[place : place + 4]) for place in range(0, len(order), 4)} == {
        ("ours", "theirs", "theirs", "ours"),
        ("theirs", "theirs", "ours", "ours"),
        ("theirs", "ours", "ours", "theirs"),
        ("ours", "ours", "theirs", "theirs"),
    }


@pytest.mark.parametrize("sides", [{"ours": 0.1}, {"theirs": 0.1}])
def test_a_wrong_result_on_either_side_makes_it_void(compare, sides) -> None:
    _, found = compare(**sides, digest="")
    assert found.verdict is Verdict.VOID
    assert max(found.ours.err_ratio, found.theirs.err_ratio) == pytest.approx(0.05)


def test_a_kernel_that_was_forced_is_no_selection(compare) -> None:
    subject, _ = compare(digest="")
    _, forced = compare(only=subject.tactic, digest="")
    assert (forced.selected, forced.verdict) == (None, Verdict.VOID)


@pytest.mark.parametrize("same", [{"name": None, "digest": ""}, {"digest": None}], ids=["name", "code"])
def test_one_route_on_both_sides_is_refused(compare, same) -> None:
    with pytest.raises(ValueError, match="beside itself"):
        compare(**same)


def test_codes_are_judged_with_their_scales() -> None:
    codes = torch.ones((2, 256)).to(torch.float8_e4m3fn)
    scales = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert layer.values((codes, scales, None)).tolist() == [[1.0] * 128 + [2.0] * 128, [3.0] * 128 + [4.0] * 128]
    assert layer.distance(torch.tensor([float("nan")]), torch.ones(1)) == layer.NOT_FINITE
