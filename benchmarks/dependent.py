"""Dependent launches under the worst neighbours, for `stress.py chain`.

A chain of links: a kernel that lets the one behind begin at once, dawdles, and only then writes activations (from the
result of the link before) and poison over the next result; the kernel under test; a kernel that compares the result.
Two result buffers take turns, and one buffer of activations serves all links, so that reading or writing too early
shows as other bits. Replays of the captured chain are compared bit for bit with the same links run one by one, with
nothing ahead of them.
"""

from pathlib import Path

import torch
from raw import RawKernel
from tensors import operands

from nkc.runtime import Kernel

LINKS = 8
DAWDLES = (0, 3000, 20000)
"""Cycles: nothing, about as long as a launch takes, and longer than most kernels."""
NEIGHBOURS = ("produce", "judge")
THREADS = 256


class Chain:
    """Links through one kernel, and what each of them has to give."""

    def __init__(self, kernel: Kernel, neighbours: tuple[RawKernel, RawKernel]) -> None:
        self._kernel = kernel
        self._produce, self._judge = neighbours
        sets = [operands(kernel, seed) for seed in range(2)]
        self._sets = sets
        self._results = [made["out"] for made in sets]
        sources = [operands(kernel, seed) for seed in range(2, 4)]  # laid out as the kernel takes them, padding too
        self._first = sources[0]["a"]
        self._scales = [made["a_scales"] for made in sources]
        self._wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        self._wanted: list[torch.Tensor] = []
        self._run(0, one_by_one=True)

    def capture(self, cycles: int) -> torch.cuda.CUDAGraph:
        """Return a graph of all links, each held against what it has to give."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run(cycles, one_by_one=False)
        return graph

    def wrong(self) -> int:
        """Return how many bytes were others than wanted, and forget them."""
        torch.cuda.synchronize()
        found = int(self._wrong)
        self._wrong.zero_()
        return found

    def _run(self, cycles: int, *, one_by_one: bool) -> None:
        def settle() -> None:
            if one_by_one:
                torch.cuda.synchronize()

        codes, scales = self._sets[0]["a"], self._sets[0]["a_scales"]
        for link in range(LINKS):
            out, before = self._results[link % 2], self._results[(link + 1) % 2]
            weights = self._sets[link // 2 % 2]
            scales_from = self._scales[link % 2]
            settle()
            self._produce.launch(
                _blocks(_bytes(codes)),
                THREADS,
                codes.data_ptr(),
                before.data_ptr() if link else 0,
                self._first.data_ptr(),
                scales.data_ptr(),
                scales_from.data_ptr(),
                out.data_ptr(),
                _bytes(codes),
                _bytes(out),
                _bytes(scales),
                cycles,
            )
            settle()
            given = {**weights, "a": codes, "a_scales": scales, "out": out}
            self._kernel.launch(*(given[name] for name in self._kernel.arguments))
            settle()
            if one_by_one:
                self._wanted.append(out.clone())
            self._judge.launch(
                _blocks(_bytes(out)),
                THREADS,
                out.data_ptr(),
                self._wanted[link].data_ptr(),
                _bytes(out),
                self._wrong.data_ptr(),
            )
        settle()


def _blocks(size: int) -> int:
    """Return workgroups for so many bytes: few, so that what is behind has room to begin early."""
    return min(max(size // (THREADS * 64), 4), 48)


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last; padding of scales lies within."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def neighbours(folder: Path) -> tuple[RawKernel, RawKernel]:
    """Return both, as `stress.py build` left them in a folder."""
    ahead, behind = (RawKernel(folder, symbol, dependent=True) for symbol in NEIGHBOURS)
    return ahead, behind


def different_bytes(kernel: Kernel, neighbours: tuple[RawKernel, RawKernel], replays: int) -> int:
    """Return how many bytes of all replays are others than one by one, over all delays of the kernel ahead."""
    chain = Chain(kernel, neighbours)
    assert not chain.wrong(), "the links do not agree with themselves"
    different = 0
    for cycles in DAWDLES:
        graph = chain.capture(cycles)
        for _ in range(replays):
            graph.replay()
        different += chain.wrong()
    return different
