"""Dispatch: order, switches, verifiers, explanations. No torch, no kernel: routes are plain objects.

Numbers in names are the rows of the table of dispatch pitfalls that nkc's rules answer.
"""

import logging
import subprocess
import sys
import types

import pytest

from nkc.ir.errors import UsageError
from nkc.runtime.dispatch import FALLBACK, State, VerifierError, dispatch, explain_call
from nkc.runtime.policy import Policy, switch
from nkc.runtime.ranks import RankError, compare_plans
from nkc.runtime.route import Call, Registry

ON = Policy(routes={})


class Fixture:
    """A route that accepts even numbers, or does what it is told."""

    default_enable = True
    rank_invariant = False

    def __init__(self, name: str, priority: int = 10, **behaviour) -> None:
        self.name = name
        self.priority = priority
        self.asked: list[Call] = []
        self.__dict__.update(behaviour)

    def is_available(self):
        return True, None

    def verify(self, call: Call):
        self.asked.append(call)
        return (True, None) if call.options["x"] % 2 == 0 else (False, f"{call.options['x']} is odd")

    def run(self, call: Call):
        return self.name, call.options["x"], call.options["scale"]


def make(registry: Registry, policy: Policy = ON):
    """Return a public function with one operand and one defaulted argument."""

    def resolve(x: int, *, scale: float | None = None) -> Call:
        if x < 0:
            raise UsageError(f"x {x} is negative")
        options = {"x": x, "scale": 1.0 if scale is None else scale}
        return Call(
            operation="op",
            tensors={},
            wanted={},
            allocate=dict,
            result=lambda outputs: outputs,
            key=tuple(options.values()),
            options=options,
        )

    @dispatch("op", resolve=resolve, registry=registry, policy=policy)
    def function(x: int, *, scale: float | None = None):
        call = resolve(x, scale=scale)
        return FALLBACK, call.options["x"], call.options["scale"]

    return function


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_routes_go_by_priority_then_name_whatever_the_order_of_registration(registry) -> None:
    for name, priority in (("b", 10), ("z", 5), ("a", 10)):
        registry.add("op", Fixture(name, priority))
    function = make(registry)
    assert function(2) == ("z", 2, 1.0)
    assert [each.route for each in explain_call(function, 2).routes] == ["z", "a", "b"]
    registry.remove("op", "z")
    assert function(2) == ("a", 2, 1.0)


def test_the_fallback_is_the_function_itself(registry) -> None:
    registry.add("op", Fixture("a"))
    assert make(registry)(3) == (FALLBACK, 3, 1.0)
    assert explain_call(make(registry), 3).selected == FALLBACK


@pytest.mark.parametrize("answer", [lambda *_: 1 / 0, lambda *_: (None, None), lambda *_: (False, None)])
@pytest.mark.parametrize("question", ["verify", "is_available"])
def test_row_1_a_verifier_that_raises_is_an_error_and_never_a_rejection(registry, question, answer) -> None:
    registry.add("op", Fixture("a", **{question: answer}))
    function = make(registry)
    with pytest.raises(VerifierError, match=f"`{question}` of route `a`"):
        function(2)
    with pytest.raises(VerifierError):
        explain_call(function, 2)


@pytest.mark.parametrize("missing", ["verify", "run", "is_available"])
def test_row_2_half_a_route_is_no_route(registry, missing) -> None:
    with pytest.raises(TypeError, match=f"route `a` of op has no `{missing}`"):
        registry.add("op", Fixture("a", **{missing: None}))


def test_row_3_a_route_that_cannot_be_imported_is_listed_with_the_reason(registry, caplog) -> None:
    registry.add_lazily("op", "no_such_module_of_ours:ROUTE", name="vendor", priority=1)
    registry.add("op", Fixture("a"))
    function = make(registry)
    assert function(2)[0] == "a"
    for _ in range(2):
        vendor = explain_call(function, 2).routes[0]
        assert (vendor.route, vendor.state) == ("vendor", State.UNAVAILABLE)
        assert "`no_such_module_of_ours` cannot be imported" in vendor.reason
    assert "vendor" in caplog.text


def test_a_lazy_route_is_imported_when_first_considered(registry, monkeypatch) -> None:
    module = types.ModuleType("lazy_vendor_module")
    module.ROUTE = Fixture("vendor", 1)
    registry.add_lazily("op", "lazy_vendor_module:ROUTE", name="vendor", priority=1)
    monkeypatch.setitem(sys.modules, "lazy_vendor_module", module)
    assert make(registry)(2)[0] == "vendor"


def test_a_lazy_route_that_fails_otherwise_is_an_error(registry, monkeypatch) -> None:
    module = types.ModuleType("lazy_vendor_module")
    module.ROUTE = Fixture("someone else", 1)
    monkeypatch.setitem(sys.modules, "lazy_vendor_module", module)
    registry.add_lazily("op", "lazy_vendor_module:ROUTE", name="vendor", priority=1)
    with pytest.raises(TypeError, match="registered as `vendor`"):
        make(registry)(2)


@pytest.mark.parametrize("value", ["false", "true", "", "no", "00", " 1"])
@pytest.mark.parametrize("name", ["NKC_DISABLE_DISPATCH", "NKC_ROUTE_A"])
def test_row_4_a_switch_is_0_or_1_and_nothing_else(name, value) -> None:
    with pytest.raises(UsageError, match=f"{name}={value!r}: a switch is 0 or 1"):
        Policy.read({name: value, "PATH": "/bin"})


@pytest.mark.parametrize("name", ["NKC_DISABLE", "nkc_disable_dispatch", "NKC_ROUTE", "NKC_ROUTE_", "NKC_route_a"])
def test_row_4_a_name_that_was_meant_for_a_switch_and_is_none_is_an_error(name) -> None:
    with pytest.raises(UsageError, match=f"{name}: no switch of nkc"):
        Policy.read({name: "1", "NKC_ROUTE_A": "1"})
    assert Policy.read({"NKC_HOME": "/opt", "NKC": "nkc", "NKC_ROUTE_A2_B": "1"}).routes == {"NKC_ROUTE_A2_B": True}


def test_row_4_switches_are_read_once(registry, monkeypatch) -> None:
    registry.add("op", Fixture("a"))
    function = make(registry, Policy.read({"NKC_ROUTE_A": "0"}))
    monkeypatch.setenv("NKC_ROUTE_A", "1")
    decision = explain_call(function, 2).routes[0]
    assert (decision.state, decision.reason) == (State.DISABLED, "NKC_ROUTE_A=0")
    assert function(2)[0] == FALLBACK


def test_a_route_that_is_off_by_default_names_its_switch(registry) -> None:
    registry.add("op", Fixture("my.route-2", default_enable=False))
    assert switch("my.route-2") == "NKC_ROUTE_MY_ROUTE_2"
    reason = explain_call(make(registry), 2).routes[0].reason
    assert reason == "off by default (NKC_ROUTE_MY_ROUTE_2=1 turns it on)"
    assert make(registry, Policy.read({"NKC_ROUTE_MY_ROUTE_2": "1"}))(2)[0] == "my.route-2"


def test_a_switch_that_names_no_route_is_said_once(registry, caplog) -> None:
    registry.add("op", Fixture("a"))
    function = make(registry, Policy.read({"NKC_ROUTE_A": "1", "NKC_ROUTE_B": "0"}))
    for x in (2, 4):
        function(x)
    said = [record.getMessage() for record in caplog.records if "NKC_ROUTE_B" in record.getMessage()]
    assert said == ["NKC_ROUTE_B: no route has this switch (known: NKC_ROUTE_A)"]


def test_disabled_dispatch_gives_the_bare_function(registry) -> None:
    registry.add("op", Fixture("a"))
    function = make(registry, Policy.read({"NKC_DISABLE_DISPATCH": "1"}))
    assert isinstance(function, types.FunctionType)
    assert function(2) == (FALLBACK, 2, 1.0)
    with pytest.raises(UsageError, match="function has no routes"):
        explain_call(function, 2)


def test_disabled_dispatch_in_a_process() -> None:
    pytest.importorskip("torch")
    program = "import nkc.runtime as r; print(type(r.dense_fp8).__name__)"
    environment = {"NKC_DISABLE_DISPATCH": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "function"


def test_row_5_a_second_route_of_one_name_is_an_error(registry) -> None:
    registry.add("op", Fixture("a"))
    for again in (
        lambda: registry.add("op", Fixture("a", 99)),
        lambda: registry.add_lazily("op", "m:R", name="a", priority=3),
    ):
        with pytest.raises(UsageError, match="op already has a route `a`"):
            again()
    registry.add("other", Fixture("a"))


def test_row_6_every_reason_is_kept_and_logged_once_per_route_and_signature(registry, caplog) -> None:
    caplog.set_level(logging.WARNING, logger="nkc.runtime.dispatch")
    registry.add("op", Fixture("a"))
    registry.add("op", Fixture("b", is_available=lambda: (False, "no device")))
    registry.add("op", Fixture("c", verify=lambda _: (False, "never")))
    function = make(registry)
    for x in (3, 3, 5, 3):
        function(x)
    assert [record.getMessage() for record in caplog.records] == [
        "function: route `a` not taken: 3 is odd",
        "function: route `b` not taken: no device",
        "function: route `c` not taken: never",
        "function: route `a` not taken: 5 is odd",
        "function: route `b` not taken: no device",
        "function: route `c` not taken: never",
    ]
    reasons = [(each.route, str(each.state), each.reason) for each in explain_call(function, 3).routes]
    assert reasons == [
        ("a", "rejected", "3 is odd"),
        ("b", "unavailable", "no device"),
        ("c", "rejected", "never"),
    ]


def test_row_7_nothing_is_swallowed(registry) -> None:
    function = make(registry)
    with pytest.raises(TypeError, match="unexpected keyword argument 'allow_neg'"):
        function(2, allow_neg=True)

    def resolve(x, **rest):
        raise AssertionError

    with pytest.raises(TypeError, match=r"takes \*\*kwargs"):

        @dispatch("op", resolve=resolve, registry=registry, policy=ON)
        def swallowing(x, **rest):
            return x


def test_row_8_checks_run_before_any_route_is_asked(registry) -> None:
    route = Fixture("a")
    registry.add("op", route)
    function = make(registry)
    for attempt in (lambda: function(-2), lambda: function.fallback(-2), lambda: explain_call(function, -2)):
        with pytest.raises(UsageError, match="x -2 is negative"):
            attempt()
    assert not route.asked


def test_row_9_an_omitted_argument_and_its_default_are_one_call(registry) -> None:
    """K15 where a kernel is called."""
    route = Fixture("a")
    registry.add("op", route)
    function = make(registry)
    assert function(2) == function(2, scale=None) == function(2, scale=1.0) == ("a", 2, 1.0)
    assert len(route.asked) == 1  # one signature, decided once
    assert explain_call(function, 2) == explain_call(function, 2, scale=1.0)


def test_row_9_there_is_one_resolver(registry) -> None:
    def resolve(x, *, scale=2.0):
        raise AssertionError

    with pytest.raises(TypeError, match="do not take the same arguments and defaults"):

        @dispatch("op", resolve=resolve, registry=registry, policy=ON)
        def function(x, *, scale=1.0):
            return x


def test_a_decision_is_made_once_per_signature_and_anew_when_routes_change(registry) -> None:
    first, second = Fixture("b"), Fixture("a")
    registry.add("op", first)
    function = make(registry)
    for _ in range(3):
        assert function(2)[0] == "b"
    assert len(first.asked) == 1
    registry.add("op", second)
    assert function(2)[0] == "a"


class Lockstep:
    """Other ranks, as they vote."""

    def __init__(self, *others: tuple[bool, ...], plans: tuple[str, ...] = ()) -> None:
        self.others = others
        self.plans = plans
        self.collectives = 0

    def all_accept(self, accepted):
        self.collectives += 1
        return tuple(all(votes) for votes in zip(accepted, *self.others, strict=True))

    def gather(self, text):
        return (text, *self.plans)


def test_row_17_a_route_is_taken_only_when_every_rank_accepts_it(registry, caplog) -> None:
    registry.add("op", Fixture("a"))
    registry.add("op", Fixture("b", 20))
    registry.ranks = Lockstep((False, True))
    function = make(registry)
    assert function(2)[0] == "b"
    assert "route `a` not taken: another rank rejects it" in caplog.text
    registry.ranks = Lockstep((False, False))
    assert function(2)[0] == FALLBACK


def test_row_17_every_call_is_one_collective_so_that_no_rank_waits_alone(registry) -> None:
    """A cached decision on one rank and a new one on another would leave the second waiting for ever."""
    registry.add("op", Fixture("a"))
    registry.ranks = Lockstep((True,))
    function = make(registry)
    for x in (2, 2, 3, 4):
        function(x)
    assert registry.ranks.collectives == 4


def test_row_17_what_is_alike_on_every_rank_needs_no_collective(registry) -> None:
    registry.add("op", Fixture("a", rank_invariant=True))
    registry.ranks = Lockstep((False,))
    assert make(registry)(2)[0] == "a"
    assert registry.ranks.collectives == 0


def test_row_17_plans_are_compared_before_the_first_launch() -> None:
    """K20: ranks that would decide by different bundles are one error, before any of them launches."""
    compare_plans(Lockstep(plans=("abc", "abc")), "abc")
    with pytest.raises(RankError, match="rank 0 abc, rank 1 abc, rank 2 abd"):
        compare_plans(Lockstep(plans=("abc", "abd")), "abc")
