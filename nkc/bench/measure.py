"""Times one cell: gate every route, look at each shortly, and give the ones that can win whole turns."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nkc.bench import operands, subjects, timing
from nkc.bench.cell import Cell
from nkc.bench.machine import Sampler
from nkc.ir import canonical
from nkc.ir.contract import Contract
from nkc.tactics.performance import Record, Route, Session
from nkc.verify.subject import Subject

if TYPE_CHECKING:
    from nkc.runtime import Kernel

CUT = 1.25
"""A tactic slower than the fastest by this factor in the short look is not given whole turns."""
LEAST_WHOLE = 3
DEFAULT_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """One tactic's kernel for a cell, loaded."""

    subject: Subject
    kernel: "Kernel"


def measure(
    cell: Cell,
    entrants: Iterable[Entrant],
    session: Session,
    sampler: Sampler,
    *,
    contract: Contract,
    selected: str | None,
    plain: str | None,
    seed: int = DEFAULT_SEED,
) -> Record:
    """Return the record of one cell.

    contract: as written. selected, plain: tactics by name; those two are timed whole however slow they are.
    """
    found = sorted(entrants, key=lambda entrant: entrant.subject.tactic)
    benched = subjects.find(contract.operation)
    first = benched.make(cell, seed)
    reference = benched.reference(cell, first, seed)
    copies = [first]
    copies += [operands.clone(first) for _ in range(operands.copies_wanted(cell, session.l2_bytes) - 1)]
    routes: dict[str, Route] = {}
    launches: dict[str, list[timing.Launch]] = {}
    for entrant in found:
        name = entrant.subject.tactic
        launches[name] = [_launch(entrant.kernel, copy) for copy in copies]
        gate = reference.judge(launches[name][0], first, entrant.subject.contract)
        routes[name] = Route(
            name=name,
            tactic=True,
            code_digest=entrant.subject.code_digest,
            toolchain=entrant.subject.toolchain,
            gate=gate,
            why_not=None if gate.passed else "the gate is red",
        )
    for baseline in benched.baselines(cell):
        try:
            launches[baseline.name] = [baseline.prepare(cell, copy) for copy in copies]
        except (ImportError, RuntimeError, ValueError, TypeError, AttributeError, AssertionError) as error:
            why = " ".join(str(error).split())[:160] or type(error).__name__
            routes[baseline.name] = Route(name=baseline.name, tactic=False, same_rule=baseline.same_rule, why_not=why)
            continue
        sealed = found[0].subject.contract if baseline.same_rule and found else None
        one = launches[baseline.name][0]
        if baseline.judge is not None:
            gate = baseline.judge(one)
        else:
            gate = reference.judge(baseline.finished(one), first, sealed)
        routes[baseline.name] = Route(
            name=baseline.name,
            tactic=False,
            same_rule=baseline.same_rule,
            gate=gate,
            why_not=None if gate.passed else "the gate is red",
        )
    del reference
    start = time.monotonic()
    quick = {name: timing.quick(launches[name]) for name, route in routes.items() if route.why_not is None}
    whole = _whole(routes, quick, [name for name in (selected, plain) if name is not None])
    latencies = timing.round_robin({name: (launches[name], quick[name]) for name in whole})
    clocks = sampler.since(start)
    for name, route in list(routes.items()):
        routes[name] = _timed(route, quick.get(name), latencies.get(name), launches.get(name), name in whole)
    by_bytes, by_flops = cell.floor_us(session.ceilings)
    return Record(
        request=cell.request,
        cell=cell.name,
        contract=canonical.contract_document(contract),
        dims=dict(cell.dims),
        oracle=benched.oracle,
        recipe=benched.recipe,
        seed=seed,
        bytes=cell.bytes,
        flops=cell.flops,
        floor_us=float(f"{max(by_bytes, by_flops):.4g}"),
        bound="memory" if by_bytes >= by_flops else "compute",
        copies=len(copies),
        routes=tuple(routes[name] for name in sorted(routes, key=lambda name: (not routes[name].tactic, name))),
        selected=selected,
        plain=plain,
        clocks=clocks,
        session=session.digest,
    )


def _launch(kernel: "Kernel", copy: operands.Copy) -> timing.Launch:
    arguments: list[Any] = [copy.tensors[name] for name in kernel.arguments]
    launch = kernel.launch
    return lambda: launch(*arguments)


def _whole(routes: dict[str, Route], quick: dict[str, float], always: Sequence[str]) -> set[str]:
    """Return the routes that are timed in whole turns: baselines, tactics near the fastest, and those named."""
    tactics = sorted((name for name in quick if routes[name].tactic), key=lambda name: (quick[name], name))
    near = {name for name in tactics if quick[name] <= CUT * quick[tactics[0]]}
    return {*(name for name in quick if not routes[name].tactic), *near, *tactics[:LEAST_WHOLE]} | (
        set(always) & set(quick)
    )


def _timed(
    route: Route, quick: float | None, latency: Any, launches: Sequence[timing.Launch] | None, whole: bool
) -> Route:
    import msgspec

    return msgspec.structs.replace(
        route,
        quick_us=None if quick is None else float(f"{quick:.4g}"),
        latency=latency,
        host_us=timing.host_us(launches[0]) if whole and launches else None,
    )


def load(subjects: Iterable[Subject]) -> dict[tuple[str, str], Entrant]:
    """Load kernels, each bundle once: (request, tactic) to its entrant. Raises NkcError where a bundle is damaged."""
    from nkc import runtime

    libraries: dict[Any, Any] = {}
    found = {}
    for subject in subjects:
        if subject.directory not in libraries:
            libraries[subject.directory] = runtime.load(subject.directory)
        kernel = libraries[subject.directory][subject.launch.id]
        found[subject.request, subject.tactic] = Entrant(subject=subject, kernel=kernel)
    return found


__all__ = ["DEFAULT_SEED", "Entrant", "load", "measure"]
