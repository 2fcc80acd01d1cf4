"""Holds one kernel against another route inside a layer: two steps, equal but for one operation, in turns.

Each side is captured twice. What two captures of one side differ by is the comparison's own noise, and no less than
that is called a difference. Both sides are held against one reference on the operands that the layer gives them, and
replays of both are compared with their eager steps bit for bit, before anything is timed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec

from nkc.bench import timing
from nkc.emit.explain import Explain
from nkc.ir.quantising import GROUP
from nkc.tactics.layer import APART_LIMIT, ERR_RATIO_LIMIT, LEAST_REPLAYS, METHOD, Comparison, Side
from nkc.verify.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

TURNS = 61
REPLAY_US = 1500.0  # device time of one replay, or one step where that is longer
NOT_FINITE = 1e9  # JSON has no infinity
POISON = 0xA7

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


def compare(place: Place, subject: Subject, ours: Serve, theirs: Contender, *, session: str) -> Comparison:
    """Return the comparison of a built kernel, served by `ours`, with another route.

    Errors: ValueError where both sides are one route; whatever the other route raises.
    """
    path = subject.directory / subject.request / "explain.json"
    explained = msgspec.json.decode(path.read_bytes(), type=Explain)
    mine = Contender(name=subject.tactic, software=subject.toolchain, serve=ours, code_digest=subject.code_digest)
    errors = [_error(place, side.serve) for side in (mine, theirs)]
    steps = [place.step(side.serve) for side in (mine, theirs)]
    (my_output, my_different), (its_output, its_different) = map(_replayed, steps)
    count, captures = _turns(steps)
    my_side, its_side = (
        Side(name=side.name, software=side.software, code_digest=side.code_digest, err_ratio=error, captures=taken)
        for side, error, taken in zip((mine, theirs), errors, captures, strict=True)
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
        ours=my_side,
        theirs=its_side,
        reference=place.reference[0],
        err_ratio_limit=ERR_RATIO_LIMIT,
        replays=LEAST_REPLAYS,
        differing=my_different + its_different,
        apart=distance(my_output, its_output),
        apart_limit=APART_LIMIT,
        steps=count,
        method=METHOD,
        session=session,
    )


def distance(mine: "Tensor", its: "Tensor") -> float:
    """Return the RMS of the difference over the RMS of `its`; `NOT_FINITE` where anything is not."""
    mine, its = mine.double(), its.double()
    ratio = float((mine - its).square().mean().sqrt() / its.square().mean().sqrt())
    return float(f"{ratio:.4g}") if math.isfinite(ratio) else NOT_FINITE


def values(results: Any) -> "Tensor":
    """Return what an operation's result stands for: a product as it is, codes times their scales."""
    first = results[0] if isinstance(results, tuple) else results
    if not isinstance(results, tuple):
        return cast("Tensor", first.float())
    m, k = first.shape
    scaled = first.float().view(m, k // GROUP, GROUP) * results[1][:, :, None]
    return cast("Tensor", scaled.view(m, k))


def _error(place: Place, serve: Serve) -> float:
    args, kwargs = place.arguments
    return distance(values(serve(*args, **kwargs)), values(place.reference[1](*args, **kwargs)))


def _replayed(step: Step) -> "tuple[Tensor, int]":
    """Return the layer's output of an eager step, and how many replays of a captured one differ in any bit."""
    import torch

    eager = [each.clone() for each in step()]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        written = step()
    different = torch.zeros((), dtype=torch.int64, device=eager[0].device)
    for _ in range(LEAST_REPLAYS):
        for each in written:
            each.view(torch.uint8).fill_(POISON)  # a replay that writes nothing must not pass
        graph.replay()
        wrong = [(a.view(torch.uint8) != b.view(torch.uint8)).any() for a, b in zip(eager, written, strict=True)]
        different += torch.stack(wrong).any()
    return eager[0], int(different)


Captures = tuple[tuple[float, ...], tuple[float, ...]]


def _turns(steps: Sequence[Step]) -> tuple[int, list[Captures]]:
    """Return the steps in a replay, and per side the microseconds of a step by capture and turn.

    Everything is captured anew for each of two captures, in the order of the sides and then the other way round.
    """
    first = timing.Graph(steps[:1], 1)
    first.replay_us()
    count = max(1, round(REPLAY_US / min(first.replay_us() for _ in range(3))))
    order = [0, 1, 1, 0]
    graphs = [timing.Graph((steps[side],), count) for side in order]
    taken: list[list[float]] = [[] for _ in order]
    for graph in graphs:
        graph.replay_us()
    for turn in range(TURNS):
        places = [(turn + place) % len(order) for place in range(len(order))]
        for at in places if turn % 2 else reversed(places):  # nobody always follows the same one
            taken[at].append(float(f"{graphs[at].replay_us():.5g}"))
    by_side = [[tuple(taken[at]) for at in range(len(order)) if order[at] == side] for side in (0, 1)]
    return count, [(a, b) for a, b in by_side]


__all__ = ["METHOD", "Contender", "Place", "compare", "distance", "values"]
