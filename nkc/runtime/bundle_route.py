"""The route that a loaded bundle is: of its kernels for an operation, the first whose guards and meaning fit."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from nkc.ir.errors import UsageError, did_you_mean
from nkc.runtime import guards as guard_rules
from nkc.runtime import semantics
from nkc.runtime.dispatch import REGISTRY
from nkc.runtime.launch import Kernel
from nkc.runtime.load import Library
from nkc.runtime.prepared import Places, Prepared
from nkc.runtime.ranks import Ranks, compare_plans
from nkc.runtime.route import YES, Answer, Call, Registry
from nkc.runtime.tensor import View, view

ROUTE = "nkc"
PRIORITY = 100
_REMEMBERED = 8192  # call signatures; more are decided anew


class BundleRoute:
    """The kernels of one operation in one library; one that was built for fewer rows is asked before one for more.

    constant: arguments of calls that no kernel ahead in the stream may still be writing, as weights are. Only the
    caller knows, and what is launched dependent serves no call without.
    """

    default_enable = True
    rank_invariant = False  # guards look at addresses and at M, which are each rank's own

    def __init__(
        self,
        library: Library,
        operation: str,
        *,
        name: str = ROUTE,
        priority: int = PRIORITY,
        constant: Collection[str] = (),
    ) -> None:
        self.name = name
        self._constant = frozenset(constant)
        self.priority = priority
        self.library = library
        self.operation = operation
        self._kernels = tuple(sorted(library.of(operation), key=_asked_first))
        self._meaning = {
            entry.id: semantics.read(entry.contract, library.bundle.files[entry.contract])
            for entry, _ in library.bundle.entries()
            if entry.contract is not None
        }
        self._fits: dict[tuple[Any, ...], Kernel] = {}

    def is_available(self) -> Answer:
        """Return whether the library is loaded."""
        return YES if len(self.library) else (False, f"{self.library.bundle.name} was closed")

    def verify(self, call: Call) -> Answer:
        """Return whether a kernel fits, or what keeps the closest one from it."""
        reasons = self.reasons(call)
        fitting = next((kernel for kernel in self._kernels if not reasons[kernel.id]), None)
        if fitting is not None:
            if len(self._fits) >= _REMEMBERED:
                self._fits.clear()
            self._fits[call.key] = fitting
            return YES
        closest = min(self._kernels, key=lambda kernel: len(reasons[kernel.id]))
        others = f" (closest of {len(reasons)} kernels)" if len(reasons) > 1 else ""
        return False, f"{closest.id}: {'; '.join(reasons[closest.id])}{others}"

    def reasons(self, call: Call) -> Mapping[str, tuple[str, ...]]:
        """Return, per kernel id, everything that keeps it from this call; nothing where it fits."""
        views = {name: view(self.name, name, tensor) for name, tensor in {**call.tensors, **call.outputs}.items()}
        return {kernel.id: tuple(self._reasons(kernel, call, views)) for kernel in self._kernels}

    def run(self, call: Call) -> Any:
        """Launch the kernel that fits on torch's current stream. Errors: ContractViolation."""
        kernel = self._fits.get(call.key)
        if kernel is None:
            accepted, reason = self.verify(call)
            assert accepted, reason
            kernel = self._fits[call.key]
        given = {**call.tensors, **call.outputs}
        kernel.launch(*[given[name] for name in kernel.arguments])
        return call.result(call.outputs)

    def kernel_of(self, call: Call) -> str | None:
        """Return the id of the kernel that fits a call which was accepted."""
        kernel = self._fits.get(call.key)
        return None if kernel is None else kernel.id

    def prepare(self, call: Call, places: Places) -> Prepared:
        """Return the launch of the kernel that fits, on outputs of its own."""
        kernel = self._fits[call.key]
        launch, allocate, result = kernel.launch, call.allocate, call.result
        order = tuple(kernel.arguments)
        given = tuple(places[name] for name in order if name in places)
        if order[: len(given)] == tuple(name for name in order if name in places) and all(
            isinstance(place, int) for place in given
        ):
            # The usual case, all inputs by position and the outputs behind them.
            positions = tuple(place for place in given if isinstance(place, int))
            behind = order[len(given) :]

            def serve_by_position(args: tuple[Any, ...], _: Mapping[str, Any]) -> Any:
                outputs = allocate()
                launch(*[args[place] for place in positions], *[outputs[name] for name in behind])
                return result(outputs)

            return serve_by_position

        def serve(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            outputs = allocate()
            inputs = {name: args[place] if isinstance(place, int) else kwargs[place] for name, place in places.items()}
            launch(*[inputs[name] if name in inputs else outputs[name] for name in order])
            return result(outputs)

        return serve

    def _reasons(self, kernel: Kernel, call: Call, views: Mapping[str, View]) -> list[str]:
        found = semantics.mismatches(self._meaning[kernel.id], call.wanted)
        early = [each.name for each in kernel.record.arguments if each.constant and each.name not in self._constant]
        found += [
            f"the kernel may read `{name}` while it is written, unless use() is told that it is constant"
            for name in early
        ]
        found += [f"the kernel needs `{name}`" for name in kernel.arguments if name not in views]
        found += [f"the kernel does not take `{name}`" for name in views if name not in kernel.arguments]
        if not kernel.record.graph_capture and _capturing():
            found.append("a graph is being captured, and the kernel does not promise that it may be")
        if any(name not in views for name in kernel.arguments):
            return found
        _, violations = guard_rules.check(kernel.guards, views, self.library.driver.device)
        return found + [str(violation) for violation in violations]


def _asked_first(kernel: Kernel) -> tuple[int, bool]:
    """Return how many values of its bounded dims a kernel serves, 1 where all are exact; then dependent ones first."""
    served = math.prod(guard.max - guard.min + 1 for guard in kernel.guards.ranges)
    return served, not kernel.record.attributes.programmatic_dependent_launch


def use(
    library: Library,
    *,
    name: str = ROUTE,
    priority: int = PRIORITY,
    ranks: Ranks | None = None,
    registry: Registry = REGISTRY,
    constant: Collection[str] = (),
) -> tuple[BundleRoute, ...]:
    """Make a library's kernels a route of every operation that it has, and return the routes.

    constant: arguments that no kernel ahead in the stream may still be writing in any call (`b`, `b_scales`, `bias`),
    without which kernels that are launched dependent serve none.
    ranks: compare the bundle's plan over these first, before anything can be launched, and decide with them.
    Errors: UsageError where the operation has a route of this name, or no kernel has an argument that is said to be
    constant; RankError where ranks differ.
    """
    if not isinstance(library, Library):
        raise UsageError(f"use: wanted a loaded library, got {type(library).__name__} (say use(load(…)))")
    _hold_constant(library, constant)
    if ranks is not None:
        compare_plans(ranks, library.bundle.plan_digest())
        registry.ranks = ranks
    operations = sorted({kernel.record.operation for kernel in library})
    routes = tuple(
        BundleRoute(library, operation, name=name, priority=priority, constant=constant) for operation in operations
    )
    for route in routes:
        registry.add(route.operation, route)
    return routes


def _hold_constant(library: Library, constant: Collection[str]) -> None:
    """Raise UsageError for names that are nobody's arguments: such a promise would be made and never used."""
    known = {argument.name for kernel in library for argument in kernel.record.arguments}
    known.add("bias")  # of an epilogue that only some of a server's bundles have
    names = (constant,) if isinstance(constant, str) else constant
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"use(constant=…): no kernel of {library.bundle.name} has an argument `{unknown[0]}`"
            f" ({did_you_mean(unknown[0], sorted(known))})"
        )
    if isinstance(constant, str):
        raise UsageError(f'use(constant=…): wanted several names, got one text (say constant=("{constant}",))')


def _capturing() -> bool:
    import sys

    torch: Any = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and bool(torch.cuda.is_current_stream_capturing())
