"""Dependent launches under the worst neighbours: `python benchmarks/dependent.py BUNDLE`, on a GPU of the bundle.

A chain of links: a kernel that lets the one behind begin at once, dawdles, and only then writes activations (from the
result of the link before) and poison over the next result; the kernel under test; a kernel that compares the result.
Two result buffers take turns, and one buffer of activations serves all links, so that reading or writing too early
shows as other bits. Replays of the captured chain, 1,000 by default, are compared bit for bit with the same links run
one by one, with nothing ahead of them. Exit 1 on any difference, or where no kernel is launched dependent.

The neighbours are `dependent.cu`, compiled with `--build` on a machine that has NVRTC; no GPU is needed for that.
"""

import argparse
import ctypes
import sys
from pathlib import Path

import torch
from tensors import machine, operands, record

from nkc import runtime
from nkc.runtime import Kernel

LINKS = 8
REPLAYS = 1000
DAWDLES = (0, 3000, 20000)
"""Cycles: nothing, about as long as a launch takes, and longer than most kernels."""
NEIGHBOURS = ("produce", "judge")


def build(folder: Path) -> None:
    """Compile the neighbours into a folder."""
    from nkc.emit.source import Source
    from nkc.emit.toolchains.nvrtc import NvrtcToolchain
    from nkc.ir import targets

    head, *parts = Path(__file__).with_suffix(".cu").read_text().split('extern "C"')
    with NvrtcToolchain() as toolchain:
        for symbol, part in zip(NEIGHBOURS, parts, strict=True):  # one kernel an object
            source = Source(
                language="cuda",
                text=f'{head}extern "C"{part}',
                symbol=symbol,
                digest="",
                closure=(),
                closure_digest="",
                parameters=(),
                options=(("dynamic_lds_bytes", 0), ("fmad", False), ("std", "c++17")),
            )
            (folder / f"{symbol}.cubin").write_bytes(toolchain.compile(source, targets.get("sm_90")).data)


class Neighbour:
    """One of the two kernels of `dependent.cu`, launched dependent through ctypes, apart from what is under test."""

    def __init__(self, folder: Path, symbol: str) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        image = (folder / f"{symbol}.cubin").read_bytes()
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, symbol.encode())
        self._attribute = (ctypes.c_uint64 * 9)(6, 1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

    def launch(self, blocks: int, *values: int) -> None:
        """Launch on torch's current stream; every parameter is 8 bytes."""
        held = (ctypes.c_int64 * len(values))(*values)
        table = (ctypes.c_void_p * len(values))(*(ctypes.addressof(held) + 8 * i for i in range(len(values))))
        config = (ctypes.c_uint64 * 7)()
        shape = (ctypes.c_uint32 * 7).from_buffer(config)
        shape[:] = [blocks, 1, 1, 256, 1, 1, 0]
        config[4] = torch.cuda.current_stream().cuda_stream
        config[5], config[6] = ctypes.addressof(self._attribute), 1
        self._call("cuLaunchKernelEx", config, self._function, table, None)

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed with {status}")


class Chain:
    """Links through one kernel, and what each of them has to give."""

    def __init__(self, kernel: Kernel, neighbours: tuple[Neighbour, Neighbour]) -> None:
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
                4,
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
            self._judge.launch(4, out.data_ptr(), self._wanted[link].data_ptr(), _bytes(out), self._wrong.data_ptr())
        settle()


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last; padding of scales lies within."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def compare(kernel: Kernel, neighbours: tuple[Neighbour, Neighbour], replays: int = REPLAYS) -> dict[str, object]:
    """Return, by how long the kernel ahead dawdles, how many bytes of all replays are others than one by one."""
    chain = Chain(kernel, neighbours)
    assert not chain.wrong(), "the links do not agree with themselves"
    different = {}
    for cycles in DAWDLES:
        graph = chain.capture(cycles)
        for _ in range(replays):
            graph.replay()
        different[str(cycles)] = chain.wrong()
    said = {"id": kernel.id, "symbol": kernel.record.symbol, "links": LINKS, "replays": replays}
    return {**said, "different_bytes": different}


def main() -> int:
    """Compare every kernel of the bundle that is launched dependent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, help="of kernels; with --build the folder to write to")
    parser.add_argument("--build", action="store_true", help="compile the neighbours, and nothing else")
    parser.add_argument("--neighbours", type=Path, default=Path("."), help="the folder that they were built in")
    parser.add_argument("--replays", type=int, default=REPLAYS)
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    if said.build:
        build(said.bundle)
        return 0
    torch.zeros((), device="cuda")  # the primary context is current from here on
    ahead, behind = (Neighbour(said.neighbours, symbol) for symbol in NEIGHBOURS)
    library = runtime.load(said.bundle)
    rows = [
        compare(k, (ahead, behind), said.replays) for k in library if k.record.attributes.programmatic_dependent_launch
    ]
    for row in rows:
        print(f"{row['symbol']}: {row['replays']} replays of {row['links']} links, different: {row['different_bytes']}")
    record(said.record, {"benchmark": "dependent", "kernels": rows, **machine()})
    return int(not rows or any(any(row["different_bytes"].values()) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
