"""Holds one kernel against another route inside a layer: two steps, equal but for one operation, in turns.

Each side is captured twice. What two captures of one side differ by is the comparison's own noise, and no less than
that is called a difference. Both sides are held against one reference on the operands that the layer gives them, and
replays of both are compared with their eager steps bit for bit, before anything is timed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from nkc.emit.explain import Explain
from nkc.tactics.layer import Comparison, Side
from nkc.verify.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

METHOD = 1
TURNS = 41
REPLAY_US = 1500.0  # device time of one replay, or one step where that is longer
REPLAYS = 50
ERR_RATIO_LIMIT = 1e-2
"""Of an operation's result: bf16 rounds to 1.7e-3 RMS, and a code in 200 may be the next one where sums are ordered
otherwise. A wrong result is off by far more."""
APART_LIMIT = 5e-2
"""Of the layer's outputs: one code that differs in an activation is a step of FP8, carried through two projections."""

Serve = Callable[..., Any]
Step = Callable[[], "tuple[Tensor, ...]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the comparison is made.

    layer, dims, rows, context, operation: as in a record. step: returns the layer's step with this operation served by
    a callable. arguments: what the layer calls it with. reference: what its result is held against, and its name.
    """

    layer: str
    dims: Mapping[str, int]
    rows: int
    context: int
    operation: str
    step: Callable[[Serve], Step]
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]]
    reference: tuple[str, Serve]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One side. software: what compiled it or whose it is. code_digest: of a kernel of ours."""

    name: str
    software: str
    serve: Serve
    code_digest: str | None = None


def kernel(subject: Subject, serve: Serve) -> Contender:
    """Return a built kernel as a contender."""
    return Contender(name=subject.tactic, software=subject.toolchain, serve=serve, code_digest=subject.code_digest)


def compare(place: Place, subject: Subject, ours: Serve, theirs: Contender, *, session: str) -> Comparison:
    """Return the comparison of a built kernel, served by `ours`, with another route.

    Errors: ValueError where both sides are one route; whatever the other route raises.
    """
    explained = msgspec.json.decode((subject.directory / subject.request / "explain.json").read_bytes(), type=Explain)
    sides = (kernel(subject, ours), theirs)
    errors = [_error(place, side.serve) for side in sides]
    outputs, differing = [], 0
    for side in sides:
        output, different = _replayed(place.step(side.serve))
        outputs.append(output)
        differing += different
    mine, its = (
        Side(name=side.name, software=side.software, code_digest=side.code_digest, err_ratio=error, captures=captures)
        for side, error, captures in zip(sides, errors, times := _times(place, sides), strict=True)
    )
    return Comparison(
        layer=place.layer,
        dims=dict(place.dims),
        rows=place.rows,
        context=place.context,
        operation=place.operation,
        request=subject.request,
        contract=explained.contract,
        selected=explained.selected if explained.policy.only_tactic is None else None,
        ours=mine,
        theirs=its,
        reference=place.reference[0],
        err_ratio_limit=ERR_RATIO_LIMIT,
        replays=REPLAYS,
        differing=differing,
        apart=distance(outputs[0], outputs[1]),
        apart_limit=APART_LIMIT,
        steps=times.steps,
        method=METHOD,
        session=session,
    )
