"""Device time by graph replay: launches in one graph walk through all copies, routes take turns, medians are kept.

A graph's nodes follow each other without the host; the gap between two of them (about a microsecond) is inside every
figure, for every route alike.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from nkc.tactics.performance import LEAST_REPLAYS, Latency

REPLAY_US = 4000.0  # device time of one replay
QUICK_US = 800.0
MOST_LAUNCHES = 2000
HOST_LAUNCHES = 300
METHOD = 1
"""Raised whenever figures of before and after must not be compared."""

Launch = Callable[[], object]


class Graph:
    """One route's launches, captured; `launches` nodes, each copy in turn."""

    def __init__(self, launches: Sequence[Launch], count: int) -> None:
        import torch

        self.launches = max(1, -(-count // len(launches))) * len(launches)
        self._graph = torch.cuda.CUDAGraph()
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for launch in launches:
            launch()  # workspaces, heuristics and modules are ready before the capture
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph):
            for place in range(self.launches):
                launches[place % len(launches)]()

    def replay_us(self) -> float:
        """Replay once and return microseconds per launch."""
        self._start.record()
        self._graph.replay()
        self._end.record()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1e3 / self.launches


def count_for(one_us: float, budget_us: float) -> int:
    """Return how many launches of so many microseconds fill a replay."""
    return max(1, min(MOST_LAUNCHES, round(budget_us / max(one_us, 0.5))))


def quick(launches: Sequence[Launch]) -> float:
    """Return a first estimate in microseconds per launch: the least of three short replays, each over all copies."""
    import torch

    for launch in launches[:2]:
        launch()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for launch in launches:
        launch()
    end.record()
    end.synchronize()
    eager = float(start.elapsed_time(end)) * 1e3 / len(launches)
    graph = Graph(launches, count_for(eager, QUICK_US))
    graph.replay_us()
    return min(graph.replay_us() for _ in range(3))


def round_robin(
    routes: Mapping[str, tuple[Sequence[Launch], float]], replays: int = LEAST_REPLAYS
) -> dict[str, Latency]:
    """Time routes in turns: name to its launches (one a copy) and its quick estimate in microseconds."""
    graphs = {
        name: Graph(launches, count_for(estimate, REPLAY_US)) for name, (launches, estimate) in sorted(routes.items())
    }
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    for graph in graphs.values():
        graph.replay_us()
    for turn in range(replays):
        names = list(graphs)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:  # nobody always follows the same one
            taken[name].append(graphs[name].replay_us())
    return {name: summary(values, graphs[name].launches) for name, values in taken.items()}


def summary(values: Sequence[float], launches: int) -> Latency:
    """Return the statistics of several replays."""
    ordered = sorted(values)
    tenth = round((len(ordered) - 1) / 10)

    def shown(value: float) -> float:
        return float(f"{value:.5g}")

    return Latency(
        median_us=shown(statistics.median(ordered)),
        mean_us=shown(statistics.fmean(ordered)),
        std_us=shown(statistics.pstdev(ordered)),
        min_us=shown(ordered[0]),
        p10_us=shown(ordered[tenth]),
        p90_us=shown(ordered[-1 - tenth]),
        replays=len(ordered),
        launches=launches,
    )


def host_us(launch: Launch) -> float:
    """Return the host's microseconds for one launch that nobody waits for: the median of small batches."""
    import torch

    batches: list[float] = []
    for _ in range(HOST_LAUNCHES // 20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            launch()
        batches.append((time.perf_counter() - start) / 20 * 1e6)
    torch.cuda.synchronize()
    return float(f"{statistics.median(batches):.3g}")


__all__ = ["METHOD", "Graph", "host_us", "quick", "round_robin", "summary"]
