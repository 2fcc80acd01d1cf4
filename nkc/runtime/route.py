"""Routes: the ways to serve a public function, each with a verifier, in one order that nothing else decides."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from nkc.ir.errors import UsageError

if TYPE_CHECKING:
    from nkc.runtime.ranks import Ranks

# (True, None), or (False, why not).
Answer: TypeAlias = tuple[bool, str | None]
YES: Answer = (True, None)


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of a public function with every default resolved and every argument checked.

    operation: whose kernels may serve it. tensors: kernel argument to input. wanted: what the call means, field by
    field. allocate: makes the outputs, kernel argument to tensor. result: what the function returns for them.
    key: the call's signature; two calls with one key are decided alike. options: the function's own, resolved.
    """

    operation: str
    tensors: Mapping[str, Any]
    wanted: Mapping[str, tuple[Any, ...]]
    allocate: Callable[[], dict[str, Any]]
    result: Callable[[Mapping[str, Any]], Any]
    key: tuple[Any, ...]
    options: Any = None
    _outputs: dict[str, Any] | None = field(default=None)

    @property
    def outputs(self) -> dict[str, Any]:
        """Return the output tensors, made when first asked for."""
        if self._outputs is None:
            self._outputs = self.allocate()
        return self._outputs


class Route(Protocol):
    """One way to serve an operation. rank_invariant: every rank's verifier sees equal inputs, by construction."""

    name: str
    priority: int
    default_enable: bool
    rank_invariant: bool

    def is_available(self) -> Answer:
        """Return whether software and device are there. Cheap; no side effects."""

    def verify(self, call: Call) -> Answer:
        """Return whether this call may take the route. Cheap; no side effects; to raise is a bug, not a refusal."""

    def run(self, call: Call) -> Any:
        """Serve a call that `verify` accepted."""


@runtime_checkable
class OfKernels(Protocol):
    """A route that can name the kernel which would serve a call."""

    def kernel_of(self, call: Call) -> str | None:
        """Return the kernel's id for a call that `verify` accepted."""


class Missing:
    """A route whose module cannot be imported: it stays in every list, with the reason."""

    default_enable = True
    rank_invariant = True

    def __init__(self, name: str, priority: int, reason: str) -> None:
        self.name = name
        self.priority = priority
        self._reason = reason

    def is_available(self) -> Answer:
        """Return no, and why."""
        return False, self._reason

    def verify(self, call: Call) -> Answer:
        """Return no, and why."""
        del call
        return False, self._reason

    def run(self, call: Call) -> Any:
        """Never called, for it is never available."""
        raise AssertionError(f"{self.name} is not available")


class Registry:
    """The routes of every operation. ranks: the ranks that must decide alike, None where there is one."""

    def __init__(self) -> None:
        self.ranks: Ranks | None = None
        self._routes: dict[str, dict[str, Route]] = {}
        self._pending: dict[str, list[tuple[str, int, str]]] = {}
        self.version = 0

    def add(self, operation: str, route: Route) -> None:
        """Register a route. Errors: UsageError for a second one of its name, TypeError for half a route."""
        missing = [name for name in ("is_available", "verify", "run") if not callable(getattr(route, name, None))]
        if missing:
            raise TypeError(f"route `{getattr(route, 'name', route)}` of {operation} has no `{missing[0]}`")
        self._claim(operation, route.name)
        self._routes.setdefault(operation, {})[route.name] = route
        self.version += 1

    def add_lazily(self, operation: str, reference: str, *, name: str, priority: int) -> None:
        """Register a route by `module:attribute`; it is imported when a call first considers it."""
        self._claim(operation, name)
        self._pending.setdefault(operation, []).append((name, priority, reference))
        self.version += 1

    def remove(self, operation: str, name: str) -> None:
        """Take a route out again."""
        self._routes.get(operation, {}).pop(name)
        self.version += 1

    def of(self, operation: str) -> tuple[Route, ...]:
        """Return an operation's routes by priority, then name."""
        while pending := self._pending.get(operation):
            name, priority, reference = pending[0]
            route = _import(name, priority, reference)
            self._routes.setdefault(operation, {})[name] = route
            pending.pop(0)
        return ordered(self._routes.get(operation, {}).values())

    def names(self) -> frozenset[str]:
        """Return the names of all routes."""
        pending = {name for listed in self._pending.values() for name, _, _ in listed}
        return frozenset(pending.union(*self._routes.values()) if self._routes else pending)

    def _claim(self, operation: str, name: str) -> None:
        taken = {*self._routes.get(operation, {}), *(each[0] for each in self._pending.get(operation, []))}
        if name in taken:
            raise UsageError(f"{operation} already has a route `{name}` (remove it first, or choose another name)")


def ordered(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Return routes in the order in which they are tried; names are unique, so the order is total."""
    return tuple(sorted(routes, key=lambda route: (route.priority, route.name)))


def _import(name: str, priority: int, reference: str) -> Route:
    """Return the route that a reference names. A module that is not there is a reason, any other failure an error."""
    module, _, attribute = reference.partition(":")
    try:
        route: Route = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        return Missing(name, priority, f"`{module}` cannot be imported: {error}")
    if (route.name, route.priority) != (name, priority):
        raise TypeError(f"{reference} is `{route.name}` at {route.priority}, registered as `{name}` at {priority}")
    return route
