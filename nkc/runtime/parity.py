"""Route parity: a public function's routes against its fallback, on the same arguments.

A comparison of a route with itself proves nothing, and has passed for years elsewhere. So a record holds the names of
both sides and what ran on each, and there is none where they are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nkc.ir.errors import VerificationError
from nkc.runtime.dispatch import FALLBACK, Dispatched, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """One comparison. left, right: routes. differences: per result, what `measure` returned."""

    function: str
    left: str
    right: str
    differences: tuple[float, ...]
    within: bool

    def __post_init__(self) -> None:
        if self.left == self.right:
            raise VerificationError(f"{self.function}: parity of `{self.left}` with itself proves nothing")


def parity(
    function: Callable[..., Any],
    *args: Any,
    measure: Callable[[Any, Any], float],
    bound: float,
    **kwargs: Any,
) -> tuple[Parity, ...]:
    """Return a record per route that accepts the call, each against the fallback.

    measure: the distance of two results (tensors), 0 for equal. Errors: VerificationError where no route accepts the
    call, since then only the fallback would be compared with itself.
    """
    assert isinstance(function, Dispatched), "dispatch is off"
    call = function.resolve(*args, **kwargs)
    decisions = {each.route: each for each in function.decide(call)}
    accepted = [name for name, each in decisions.items() if each.state in (State.SELECTED, State.ELIGIBLE)]
    if not accepted:
        reasons = "; ".join(f"{each.route}: {each.reason}" for each in decisions.values()) or "it has none"
        raise VerificationError(f"{function.fallback.__name__}: no route accepts the call ({reasons})")
    expected = _results(function.fallback(*args, **kwargs))
    records = []
    for route in function.registry.of(function.operation):
        if route.name in accepted:
            found = _results(route.run(function.resolve(*args, **kwargs)))
            differences = tuple(measure(mine, its) for mine, its in zip(found, expected, strict=True))
            records.append(
                Parity(
                    function=function.fallback.__name__,
                    left=route.name,
                    right=FALLBACK,
                    differences=differences,
                    within=all(each <= bound for each in differences),
                )
            )
    return tuple(records)


def _results(returned: Any) -> tuple[Any, ...]:
    """Return a function's results without the ones that it left out."""
    listed = returned if isinstance(returned, tuple) else (returned,)
    return tuple(each for each in listed if each is not None)
