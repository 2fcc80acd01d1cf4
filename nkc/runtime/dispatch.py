"""Dispatch: a public function takes the first route that accepts the call, else its own body, and can say why.

The decorated body is the semantic fallback in plain PyTorch. The same `resolve` gives the routes and the body their
defaults and checks, so that an omitted argument and its explicit default are one call, and a bad call fails alike on
every route. Selection happens outside compiled graphs. A verifier that raises is an error and never a rejection.
"""

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar, cast

from nkc.ir.errors import NkcError, UsageError
from nkc.runtime import policy as policies
from nkc.runtime.errors import ContractViolation
from nkc.runtime.policy import Policy
from nkc.runtime.prepared import Prepared, Preparing, find, look
from nkc.runtime.route import Answer, Call, OfKernels, Registry, Route

P = ParamSpec("P")
R = TypeVar("R")

FALLBACK = "fallback"
_CACHED_CALLS = 8192
log = logging.getLogger("nkc.runtime.dispatch")


class VerifierError(NkcError):
    """A verifier raised: a bug in the route, shown as one and not hidden as a rejection."""

    exit_code = 1


class State(StrEnum):
    """What became of a route for one call."""

    SELECTED = "selected"
    ELIGIBLE = "eligible"
    REJECTED = "rejected"
    UNAVAILABLE = "unavailable"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One route and one call. reason: None where the route could serve it. kernel: id of the one that then would."""

    route: str
    priority: int
    state: State
    reason: str | None
    kernel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Every route of a call, in the order in which they are tried. selected: a route, or `fallback`."""

    function: str
    operation: str
    selected: str
    routes: tuple[Decision, ...]

    @property
    def kernel(self) -> str | None:
        """The id of the kernel that would be launched, None where the selected route names none."""
        return next((each.kernel for each in self.routes if each.route == self.selected), None)

    def __str__(self) -> str:
        lines = [f"{self.function} ({self.operation}): {self.selected}"]
        for each in self.routes:
            why = each.reason or each.kernel
            lines.append(f"  {each.route} ({each.priority}): {each.state}" + (f", {why}" if why else ""))
        return "\n".join(lines)


class Dispatched(Generic[P, R]):
    """A public function with routes. Calling it dispatches; `fallback` is the bare body."""

    def __init__(
        self,
        body: Callable[P, R],
        operation: str,
        resolve: Callable[P, Call],
        registry: Registry,
        policy: Policy,
    ) -> None:
        functools.update_wrapper(self, body)
        self.fallback = body
        self.operation = operation
        self.resolve = resolve
        self.registry = registry
        self.policy = policy
        self._chosen: dict[tuple[Any, ...], Route | None] = {}
        self._prepared: dict[Any, Prepared] = {}
        self._version = -1
        self._logged: set[tuple[str, tuple[Any, ...]]] = set()
        self._strangers: set[str] = set()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if _compiling():
            return _outside_graphs(self._dispatch)(*args, **kwargs)
        return self._dispatch(*args, **kwargs)

    def _dispatch(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._version != self.registry.version:
            self._chosen, self._prepared, self._version = {}, {}, self.registry.version
        alone = self.registry.ranks is None
        seen = look(args, kwargs) if alone else None
        try:
            prepared = self._prepared.get(seen)
        except TypeError:
            seen = prepared = None  # an argument without a hash: the long way tells what is wrong with it
        if prepared is not None:
            try:
                return cast("R", prepared(args, kwargs))
            except ContractViolation:
                self._prepared.pop(seen, None)  # what only addresses tell; the long way finds the words for it
        call = self.resolve(*args, **kwargs)
        route = self._chosen.get(call.key, _UNKNOWN) if alone else _UNKNOWN
        if route is _UNKNOWN:
            route = self._select(call)
        if route is None:
            return self.fallback(*args, **kwargs)
        try:
            result = cast("R", route.run(call))
        except ContractViolation as refused:
            if not alone:
                raise  # all ranks were told that this one accepts; to turn back alone would part them
            # The signature does not hold what only addresses tell (aliasing); nothing was launched.
            self._note(route.name, call, str(refused))
            return self.fallback(*args, **kwargs)
        if seen is not None and isinstance(route, Preparing):
            self._prepared[seen] = route.prepare(call, find(call, args, kwargs))
        return result

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Return what every route says to this call, taking none. With several ranks, this rank's own view."""
        decisions = self.decide(self.resolve(*args, **kwargs))
        selected = next((each.route for each in decisions if each.state is State.SELECTED), FALLBACK)
        return Explanation(
            function=self.fallback.__name__, operation=self.operation, selected=selected, routes=decisions
        )

    def decide(self, call: Call) -> tuple[Decision, ...]:
        """Return a decision on every route; the first that could serve the call is selected."""
        found: list[Decision] = []
        for route in self.registry.of(self.operation):
            state, reason = self._judge(route, call)
            if state is State.ELIGIBLE and not any(each.state is State.SELECTED for each in found):
                state = State.SELECTED
            kernel = route.kernel_of(call) if reason is None and isinstance(route, OfKernels) else None
            found.append(Decision(route=route.name, priority=route.priority, state=state, reason=reason, kernel=kernel))
        return tuple(found)

    def _judge(self, route: Route, call: Call) -> tuple[State, str | None]:
        enabled, why = self.policy.enabled(route.name, route.default_enable)
        if not enabled:
            return State.DISABLED, why
        available, why = _ask(route, "is_available")
        if not available:
            return State.UNAVAILABLE, why
        accepted, why = _ask(route, "verify", call)
        return (State.ELIGIBLE, None) if accepted else (State.REJECTED, why)

    def _select(self, call: Call) -> Route | None:
        routes = self.registry.of(self.operation)
        self._note_strangers()
        decisions = self.decide(call)
        accepted = tuple(each.state in (State.SELECTED, State.ELIGIBLE) for each in decisions)
        common = accepted
        ranks = self.registry.ranks
        if ranks is not None and not all(route.rank_invariant for route in routes):
            common = ranks.all_accept(accepted)
        for decision, mine, everyones in zip(decisions, accepted, common, strict=True):
            if decision.reason is not None:
                self._note(decision.route, call, decision.reason)
            elif mine and not everyones:
                self._note(decision.route, call, "another rank rejects it")
        chosen = next((route for route, yes in zip(routes, common, strict=True) if yes), None)
        if ranks is None:
            if len(self._chosen) >= _CACHED_CALLS:
                self._chosen.clear()
                self._prepared.clear()
            self._chosen[call.key] = chosen
        return chosen

    def _note_strangers(self) -> None:
        """Log switches that name no route: a misspelt one must not pass for a route that is off."""
        strangers = set(self.policy.routes) - {policies.switch(name) for name in self.registry.names()}
        for name in sorted(strangers - self._strangers):
            known = ", ".join(sorted(policies.switch(each) for each in self.registry.names())) or "none"
            log.warning("%s: no route has this switch (known: %s)", name, known)
        self._strangers |= strangers

    def _note(self, route: str, call: Call, reason: str) -> None:
        """Log a rejection once per route and call signature."""
        if (route, call.key) in self._logged:
            return
        if len(self._logged) >= _CACHED_CALLS:
            self._logged.clear()
        self._logged.add((route, call.key))
        log.warning("%s: route `%s` not taken: %s", self.fallback.__name__, route, reason)


class _Unknown:
    """A call that was not decided before; distinct from None, which is the fallback."""


_UNKNOWN: Any = _Unknown()
REGISTRY = Registry()


def dispatch(
    operation: str,
    *,
    resolve: Callable[P, Call],
    registry: Registry = REGISTRY,
    policy: Policy | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that gives a function the routes of an operation.

    resolve: the one place where the function's defaults and checks live; it takes the same arguments as the function.
    With dispatch off (`NKC_DISABLE_DISPATCH=1`) the function comes back as it is.
    Errors: TypeError where `resolve` and the function do not take the same arguments.
    """
    policy = policies.policy() if policy is None else policy

    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        if not policy.dispatch:
            return body
        mine, its = inspect.signature(body).parameters, inspect.signature(resolve).parameters
        if [(each.name, each.kind, each.default) for each in mine.values()] != [
            (each.name, each.kind, each.default) for each in its.values()
        ]:
            raise TypeError(f"{body.__name__} and its `resolve` do not take the same arguments and defaults")
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in mine.values()):
            raise TypeError(f"{body.__name__} takes **kwargs: an argument that nobody declares would be dropped")
        return Dispatched(body, operation, resolve, registry, policy)

    return decorate


def explain_call(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Explanation:
    """Return which route a call of a public function would take, and why every other would not."""
    if not isinstance(function, Dispatched):
        name = getattr(function, "__name__", repr(function))
        raise UsageError(f"{name} has no routes (is NKC_DISABLE_DISPATCH set, or is it no public function of nkc?)")
    return function.explain(*args, **kwargs)


def _ask(route: Route, question: str, *call: Call) -> Answer:
    """Ask a route, and hold its answer to the form."""
    try:
        answer = getattr(route, question)(*call)
    except Exception as error:
        raise VerifierError(f"`{question}` of route `{route.name}` raised {type(error).__name__}: {error}") from error
    yes, reason = answer
    if yes is True and reason is None:
        return True, None
    if yes is False and isinstance(reason, str) and reason:
        return False, reason
    raise VerifierError(f"`{question}` of route `{route.name}` answered {answer!r}, not (True, None) or (False, why)")


def _outside_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that `torch.compile` leaves alone. Made only while it traces: dynamo is slow to import."""
    import torch

    return cast("Callable[P, R]", torch.compiler.disable(function))


def _compiling() -> bool:
    """Return whether `torch.compile` is tracing the caller."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())
