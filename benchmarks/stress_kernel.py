"""One process of `stress.py`: kernels one after the other, each a line on stdout when it is done."""

import argparse
import fnmatch
import math
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from raw import RawKernel
from stress_record import FLAWED, MARK, TOOLS, Check, Row

from nkc import runtime
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
LOAD_BYTES = 1 << 30
LOAD_BLOCKS = 24  # multiprocessors are left for what is under test
LOAD_TIMES = 2.0  # as long as the same launches take without load


def subjects(said: argparse.Namespace) -> tuple[Subject, ...]:
    """Return the kernels of a check, small ones first."""
    found = [subject for folder in said.built for subject in gather.built(folder)]
    chains = said.check is Check.CHAIN
    kept: list[Subject] = []
    seen: dict[str, int] = {}
    for subject in sorted(found, key=lambda subject: (_products(subject), subject.tactic, subject.request)):
        if chains and not subject.launch.attributes.programmatic_dependent_launch:
            continue
        if not fnmatch.fnmatchcase(subject.tactic, said.tactics) or _products(subject) > said.most_products:
            continue
        seen[subject.tactic] = seen.get(subject.tactic, 0) + 1
        if seen[subject.tactic] <= said.each:
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
    check = {Check.REPLAYS: _replays, Check.CHAIN: _chain}.get(said.check, _once)(said)
    for subject in subjects(said)[said.part :: said.jobs]:
        if time.monotonic() - began > said.seconds:
            return
        launches, findings, passed = check(subject, runtime.load(subject.directory)[subject.launch.id])
        row = Row(
            check=said.check,
            tactic=subject.tactic,
            request=subject.request,
            code_digest=subject.code_digest,
            launches=launches,
            findings=findings,
            passed=passed and not findings,
        )
        print(f"{MARK}{msgspec.json.encode(row).decode()}", flush=True)


def _replays(said: argparse.Namespace) -> Any:
    beside = Beside(said.kernels)

    def check(subject: Subject, kernel: Kernel) -> tuple[int, int, bool]:
        case = Case(subject, kernel, zone=ZONE)
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


def _once(said: argparse.Namespace) -> Any:
    """Launch the kernel that has a fault for the tool, then each kernel once; the sanitizer counts the findings."""
    buffer = torch.zeros(64, dtype=torch.int32, device="cuda")
    RawKernel(said.kernels, FLAWED).launch(1, 64, buffer.data_ptr(), buffer.numel(), TOOLS.index(said.check))
    torch.cuda.synchronize()
    row = Row(check=said.check, tactic=FLAWED, request="", code_digest="", launches=1, findings=0, passed=True)
    print(f"{MARK}{msgspec.json.encode(row).decode()}", flush=True)
    return lambda subject, kernel: (1, 0, Case(subject, kernel, zone=0).first())


class Case:
    """One kernel with its operands in device memory, in zones of poison, and what its first launch left."""

    def __init__(self, subject: Subject, kernel: Kernel, *, zone: int) -> None:
        self._subject, self._kernel = subject, kernel
        self._judge, self._dims = judge_of(subject.contract.operation), dim_values(subject.contract)[0]
        tensors = self._judge.tensors(subject.contract, RECIPE, self._dims)
        self._placed = {tensor.name: Placed(tensor, zone) for tensor in tensors}
        self.written = [each for each in self._placed.values() if each.tensor.written]
        self.wanted: list[torch.Tensor] = []

    def launch(self) -> None:
        """Launch on the current stream."""
        self._kernel.launch(*(self._placed[name].view for name in self._kernel.arguments))

    def first(self) -> bool:
        """Launch, keep the result as what is wanted, and return whether the oracle agrees with it."""
        self.launch()
        torch.cuda.synchronize()
        self.wanted = [each.inner.clone() for each in self.written]
        outputs = {each.tensor.name: each.elements() for each in self.written}
        return self._judge.judge(self._subject.contract, RECIPE, self._dims, outputs, {}).passed

    def untouched(self) -> bool:
        """Return whether nothing changed but the results."""
        return all(each.untouched() for each in self._placed.values())


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
        values = [value for each in _two(case.written) for value in _span(each)]
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
        pairs = zip(_two(case.written), _two(case.wanted), strict=True)
        values = [value for one, wanted in pairs for value in (_span(one)[0], _span(wanted)[0], _span(one)[1])]
        self._differ.launch(DIFFER_BLOCKS, THREADS, *values, self._count.data_ptr())


def _two(tensors: list[Any]) -> list[Any]:
    assert 1 <= len(tensors) <= 2, "a kernel writes one tensor or two"
    return [*tensors, None][:2]


def _span(tensor: Any) -> tuple[int, int]:
    """Return where a result lies, and its bytes; nothing of none."""
    if tensor is None:
        return 0, 0
    inner = tensor.inner if isinstance(tensor, Placed) else tensor
    return inner.data_ptr(), inner.numel()
