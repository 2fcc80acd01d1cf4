"""One process of `stress.py`: kernels one after the other, each a line on stdout when it is done."""

import argparse
import contextlib
import fnmatch
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import stress_record
import torch
from raw import RawKernel
from stress_record import BEGUN, FLAWED, MARK, PROBE, TOOLS, Check, Row

from nkc import runtime
from nkc.bench import subjects as subjects_of_bench
from nkc.bench.cell import Cell
from nkc.ir.contract import Bounded
from nkc.runtime import Kernel
from nkc.runtime.tensor import torch_dtype
from nkc.verify import gather
from nkc.verify.memory import POISON, Tensor
from nkc.verify.regimes import Recipe, Regime
from nkc.verify.subject import Subject, dim_values, judge_of

RECIPE = Recipe(regime=Regime.EXACT, seed=1)
ZONE = 4096  # bytes of poison on both sides of every buffer
BATCH = 50  # launches of one graph
THREADS = 1024
SHARED_BYTES = 232_448  # all that one workgroup can have, so that each multiprocessor takes one
UNSETTLE_BLOCKS = 264
DIFFER_BLOCKS = 64
LARGE = 1 << 30
"""Products from which on a product is held against float64 on the GPU, and not against the oracle."""
LOAD_BYTES = 1 << 30
LOAD_BLOCKS = 24  # multiprocessors are left for what is under test
LOAD_TIMES = 2.0  # as long as the same launches take without load


def subjects(said: argparse.Namespace) -> tuple[Subject, ...]:
    """Return the kernels of a check, small ones first."""
    found = [subject for folder in said.built for subject in gather.built(folder)]
    chains = said.check is Check.CHAIN
    done = stress_record.passed(stress_record.read(said.record), said.check) if said.missing else set()
    kept: list[Subject] = []
    seen: dict[str, int] = {}
    for subject in sorted(found, key=lambda subject: (_products(subject), subject.tactic, subject.request)):
        if chains and not subject.launch.attributes.programmatic_dependent_launch:
            continue
        if not fnmatch.fnmatchcase(subject.tactic, said.tactics) or _products(subject) > said.most_products:
            continue
        seen[subject.tactic] = seen.get(subject.tactic, 0) + 1
        if seen[subject.tactic] <= said.each and (subject.tactic, subject.request, subject.code_digest) not in done:
            kept.append(subject)
    return tuple(kept)


def _products(subject: Subject) -> int:
    """Return the product of all dims: of a GEMM its products, of others their elements."""
    dims = subject.contract.shape.values()
    return math.prod(dim.max if isinstance(dim, Bounded) else dim for dim in dims)


def run(said: argparse.Namespace) -> None:
    """Check the kernels of one part of so many."""
    torch.zeros((), device="cuda")  # the primary context is current from here on
    began = time.monotonic()
    if said.part == PROBE:
        _flawed(said)
        return
    without = set(said.without)
    check = {Check.REPLAYS: _replays, Check.CHAIN: _chain}.get(said.check, _once)(said)
    for subject in subjects(said)[said.part :: said.jobs]:
        if f"{subject.tactic}:{subject.request}" in without:
            continue
        if time.monotonic() - began > said.seconds:
            return
        row = Row(
            check=said.check,
            tactic=subject.tactic,
            request=subject.request,
            code_digest=subject.code_digest,
            launches=1,
            findings=0,
            passed=False,
        )
        _say(BEGUN, row)
        launches, findings, passed = check(subject, runtime.load(subject.directory)[subject.launch.id])
        torch.cuda.empty_cache()
        passed = passed and not findings
        _say(MARK, msgspec.structs.replace(row, launches=launches, findings=findings, passed=passed))


def _replays(said: argparse.Namespace) -> Any:
    beside = Beside(said.kernels)

    def check(subject: Subject, kernel: Kernel) -> tuple[int, int, bool]:
        large = subject.contract.operation == "dense" and _products(subject) >= LARGE
        case = LargeCase(subject, kernel) if large else SmallCase(subject, kernel, zone=ZONE)
        beside.unsettle(case)
        passed = case.first()
        return said.replays, beside.replay(case, said.replays), passed and case.untouched()

    return check


def _chain(said: argparse.Namespace) -> Any:
    import dependent

    neighbours = dependent.neighbours(said.kernels)

    def check(_: Subject, kernel: Kernel) -> tuple[int, int, bool]:
        launches = said.replays * dependent.LINKS * len(dependent.DAWDLES)
        return launches, dependent.different_bytes(kernel, neighbours, said.replays), True

    return check


def _once(_: argparse.Namespace) -> Any:
    return lambda subject, kernel: (1, 0, SmallCase(subject, kernel, zone=0).first())


def _flawed(said: argparse.Namespace) -> None:
    """Launch the kernel that has a fault for the tool, which may end the context."""
    buffer = torch.zeros(64, dtype=torch.int32, device="cuda")
    with contextlib.suppress(torch.AcceleratorError):
        RawKernel(said.kernels, FLAWED).launch(1, 64, buffer.data_ptr(), buffer.numel(), TOOLS.index(said.check))
        torch.cuda.synchronize()


def _say(mark: str, row: Row) -> None:
    print(f"{mark}{msgspec.json.encode(row).decode()}", flush=True)


class Case:
    """One kernel and its operands. results: bytes that it writes; wanted: those that its first launch left."""

    def __init__(self, kernel: Kernel, arguments: Mapping[str, torch.Tensor], results: list[torch.Tensor]) -> None:
        self._kernel, self._arguments = kernel, [arguments[name] for name in kernel.arguments]
        self.results = results
        self.wanted: list[torch.Tensor] = []

    def launch(self) -> None:
        """Launch on the current stream."""
        self._kernel.launch(*self._arguments)

    def first(self) -> bool:
        """Launch, keep the result as what is wanted, and return whether it is right."""
        self.launch()
        torch.cuda.synchronize()
        self.wanted = [each.clone() for each in self.results]
        return self.is_right()

    def is_right(self) -> bool:
        """Return whether the result is within the bounds of the contract."""
        raise NotImplementedError

    def untouched(self) -> bool:
        """Return whether nothing changed but the results."""
        raise NotImplementedError


class SmallCase(Case):
    """Operands of the regime `exact` between zones of poison, held against the oracle."""

    def __init__(self, subject: Subject, kernel: Kernel, *, zone: int) -> None:
        self._subject = subject
        self._judge, self._dims = judge_of(subject.contract.operation), dim_values(subject.contract)[0]
        tensors = self._judge.tensors(subject.contract, RECIPE, self._dims)
        self._placed = {tensor.name: Placed(tensor, zone) for tensor in tensors}
        self._written = [each for each in self._placed.values() if each.tensor.written]
        views = {name: each.view for name, each in self._placed.items()}
        super().__init__(kernel, views, [each.inner for each in self._written])

    def is_right(self) -> bool:
        """Ask the oracle, which gives every bit."""
        outputs = {each.tensor.name: each.elements() for each in self._written}
        return self._judge.judge(self._subject.contract, RECIPE, self._dims, outputs, {}).passed

    def untouched(self) -> bool:
        """Compare zones and operands."""
        return all(each.untouched() for each in self._placed.values())


class LargeCase(Case):
    """Random operands, held against float64 on the GPU."""

    def __init__(self, subject: Subject, kernel: Kernel) -> None:
        benched = subjects_of_bench.find(subject.contract.operation)
        cell = Cell(contract=subject.contract, request=subject.request, dims=dim_values(subject.contract)[0])
        self._copy = benched.make(cell, RECIPE.seed)
        self._reference, self._contract = benched.reference(cell, self._copy, RECIPE.seed), subject.contract
        results = [self._copy.tensors[name] for name in self._copy.written]
        super().__init__(kernel, self._copy.tensors, [_bytes_of(each) for each in results])
        self._before = {name: _bytes_of(each).clone() for name, each in self._inputs().items()}

    def is_right(self) -> bool:
        """Ask the gate of `nkc bench`, which launches again."""
        return self._reference.judge(self.launch, self._copy, self._contract).passed

    def untouched(self) -> bool:
        """Compare operands."""
        return all(torch.equal(_bytes_of(each), self._before[name]) for name, each in self._inputs().items())

    def _inputs(self) -> dict[str, torch.Tensor]:
        return {name: each for name, each in self._copy.tensors.items() if name not in self._copy.written}


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes from a tensor's first element to its last."""
    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((elements,), (1,)).view(torch.uint8)


class Placed:
    """One tensor on the device between two zones of poison; with none, in memory of its own."""

    def __init__(self, tensor: Tensor, zone: int) -> None:
        self.tensor = tensor
        data = np.ascontiguousarray(tensor.storage).view(np.uint8).reshape(-1)
        before = np.full(data.size + 2 * zone, POISON, np.uint8)
        before[zone : zone + data.size] = data
        self._whole = torch.from_numpy(before).cuda()
        self._before, self._inside = before, slice(zone, zone + data.size)
        self.inner = self._whole[self._inside]
        self.view = self.inner.view(torch_dtype(tensor.dtype)).as_strided(tensor.shape, tensor.strides)

    def elements(self) -> Any:
        """Return the elements as the oracle's side stores them."""
        return self.inner.cpu().numpy().view(self.tensor.storage.dtype)

    def untouched(self) -> bool:
        """Return whether nothing changed that no kernel may write."""
        now = self._whole.cpu().numpy()
        if self.tensor.written:
            now[self._inside] = self._before[self._inside]
        return bool(np.array_equal(now, self._before))


class Beside:
    """What runs beside the kernel under test: poison before every launch, a judge behind it, a load on memory."""

    def __init__(self, folder: Path) -> None:
        self._unsettle = RawKernel(folder, "unsettle", shared_bytes=SHARED_BYTES)
        self._differ, self._load = RawKernel(folder, "differ"), RawKernel(folder, "load")
        self._count = torch.zeros((), dtype=torch.int64, device="cuda")
        self._buffer = torch.zeros(LOAD_BYTES, dtype=torch.uint8, device="cuda")
        self._side = torch.cuda.Stream()

    def unsettle(self, case: Case) -> None:
        """Fill results and all shared memory with NaN."""
        values = [value for each in _three(case.results) for value in _span(each)]
        self._unsettle.launch(UNSETTLE_BLOCKS, THREADS, *values, SHARED_BYTES)

    def replay(self, case: Case, replays: int) -> int:
        """Return how many bytes of all replays are others than those of the first launch."""
        self._count.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(BATCH):
                self.unsettle(case)
                case.launch()
                self._judge(case)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for turn in range(-(-replays // BATCH)):
            if turn == 1:  # the first batch, alone, has told how long the others take
                end.synchronize()
                nanoseconds = start.elapsed_time(end) * 1e6 * LOAD_TIMES * (replays / BATCH)
                with torch.cuda.stream(self._side):
                    self._load.launch(LOAD_BLOCKS, 512, self._buffer.data_ptr(), LOAD_BYTES, round(nanoseconds))
            start.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        return int(self._count)

    def _judge(self, case: Case) -> None:
        pairs = zip(_three(case.results), _three(case.wanted), strict=True)
        values = [value for one, wanted in pairs for value in (_span(one)[0], *_span(wanted))]
        self._differ.launch(DIFFER_BLOCKS, THREADS, *values, self._count.data_ptr())


def _three(tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    assert 1 <= len(tensors) <= 3, "a kernel writes one tensor to three"
    return [*tensors, None, None][:3]


def _span(tensor: torch.Tensor | None) -> tuple[int, int]:
    """Return where bytes lie, and how many; nothing of none."""
    return (0, 0) if tensor is None else (tensor.data_ptr(), tensor.numel())
