"""What a record allows to be said: the candidate beside the best baseline, and when no speed-up may be printed."""

from dataclasses import dataclass

from nkc.tactics.performance import Record, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """candidate: what selection takes, None where the record has no such route; the fastest where it takes none.

    fastest: of all tactics. baseline: the fastest route that follows the contract's rule and is not the candidate.
    speed_up: baseline over candidate, at the median; None where `refused` says why none may be printed. of_floor: the
    floor over the candidate.
    """

    candidate: Route | None
    fastest: Route | None
    baseline: Route | None
    speed_up: float | None
    refused: str | None
    of_floor: float | None


def compare(record: Record) -> Comparison:
    """Return what may be said of one record."""
    tactics = [route for route in record.routes if route.tactic and _timed(route)]
    fastest = min(tactics, key=_median, default=None)
    chosen = record.route(record.selected) if record.selected is not None else fastest
    rivals = [route for route in record.routes if is_rival(record, route)]
    best = min(rivals, key=_median, default=None)
    refused = _refusal(record, chosen, best)
    if best is not None and chosen is not None and _same(best, chosen):
        others = [route for route in rivals if not _same(route, chosen)]
        best = min(others, key=_median, default=best)
        refused = _refusal(record, chosen, best)
    speed_up = None
    if refused is None and best is not None and chosen is not None:
        speed_up = _median(best) / _median(chosen)
    of_floor = record.floor_us / _median(chosen) if chosen is not None and _timed(chosen) else None
    return Comparison(
        candidate=chosen, fastest=fastest, baseline=best, speed_up=speed_up, refused=refused, of_floor=of_floor
    )


def is_rival(record: Record, route: Route) -> bool:
    """Return whether ours is held against a route: timed, green, by the same rule, and no kernel that somebody tuned.

    The plain tile is Triton's. In records of before that was said it may be any tile.
    """
    plain = route.name == record.plain and (route.toolchain or "").startswith("triton")
    return _timed(route) and route.same_rule and (not route.tactic or plain)


def red(record: Record) -> tuple[Route, ...]:
    """Return our routes whose gate is red."""
    return tuple(route for route in record.routes if route.tactic and route.gate is not None and not route.gate.passed)


def _refusal(record: Record, candidate: Route | None, baseline: Route | None) -> str | None:
    if candidate is None:
        return "no tactic was there" if record.selected is None else "what is selected was not timed"
    if candidate.gate is None or not candidate.gate.passed:
        return "the candidate's gate is red"
    if candidate.latency is None:
        return "the candidate was not timed"
    if baseline is None:
        return "no baseline was there"
    if _same(candidate, baseline):
        return "both sides are the same route"
    return None


def _same(left: Route, right: Route) -> bool:
    return left.name == right.name or (left.code_digest is not None and left.code_digest == right.code_digest)


def _timed(route: Route) -> bool:
    return route.latency is not None and route.gate is not None and route.gate.passed


def _median(route: Route) -> float:
    assert route.latency is not None
    return route.latency.median_us
