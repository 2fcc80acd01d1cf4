"""Host time of one launch, all ways in one run: `python benchmarks/host_cost.py BUNDLE --kernel ID [--record FILE]`.

Rows: nkc's launch function on each of its paths (all guards, torch tensors, torch's current stream), the one in C also
with the stream given and with nothing in the driver's place, the foreign call alone, cuda-bindings used plainly
(parameter tuple built per call), the Triton JIT launcher on a kernel with as many arguments, and C: the bare driver
call and the emitted function. Launches are queued in batches below the depth of the launch queue and waited for between
batches; only the queueing is timed. Median over batches.
"""

import argparse
import dataclasses
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from running import exit_with, require_gpu, required
from tensors import machine, operands, record

from nkc import runtime
from nkc.runtime import Kernel, native
from nkc.runtime.stream import stream_handle

torch = required("torch")

BATCH = 200  # the driver's queue holds 1024 launches; a full one would make the host wait for the device
ROUNDS = 101
HERE = Path(__file__).parent


def median_us(call: Callable[[], object]) -> float:
    """Return the median host time of a call in microseconds."""
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        times.append((time.perf_counter() - start) / BATCH * 1e6)
    torch.cuda.synchronize()
    return sorted(times)[ROUNDS // 2]


def plain_bindings(kernel: Kernel, tensors: list[torch.Tensor]) -> Callable[[], object]:
    """Return a launch as a first user of cuda-bindings writes it, without any guard."""
    import ctypes

    from cuda.bindings import driver

    function = kernel._driver._functions[kernel._function]
    types = tuple(ctypes.c_void_p if each.size == 8 else ctypes.c_int for each in kernel.record.arguments)
    shape = (*kernel.record.grid, *kernel.record.block, kernel.record.lds.dynamic_bytes)

    def call() -> None:
        pointers = [tensor.data_ptr() for tensor in tensors]
        values = (*pointers, *([0] * (len(types) - len(pointers))))
        stream = torch.cuda.current_stream().cuda_stream
        (status,) = driver.cuLaunchKernel(function, *shape, stream, (values, types), 0)
        assert not status

    return call


def triton_launch(tensors: list[torch.Tensor]) -> Callable[[], object] | None:
    """Return a launch of an all but empty Triton kernel with these arguments, or None without Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    source = """
import triton
import triton.language as tl

@triton.jit
def touch(a, b, c, d, e, BLOCK: tl.constexpr):
    tl.store(e + tl.arange(0, BLOCK), tl.zeros((BLOCK,), e.dtype.element_ty))
"""
    folder = tempfile.mkdtemp()
    file = Path(folder, "touching.py")
    file.write_text(source)
    sys.path.insert(0, folder)
    import touching

    return lambda: touching.touch[(1,)](*tensors, BLOCK=16)


def from_c(bundle: Path, kernel: Kernel, tensors: list[torch.Tensor]) -> tuple[float, float] | None:
    """Return the host time in microseconds of the bare driver call and of the emitted function; None if it cannot."""
    library = runtime.read(bundle)
    entry = next(entry for entry, launch in library.entries() if launch.id == kernel.id)
    record_ = kernel.record
    if len(tensors) != 5 or any(each.dim is not None for each in record_.arguments) or record_.workspace.bytes:
        return None
    with tempfile.TemporaryDirectory() as folder:
        emitted = Path(folder)
        command = [sys.executable, "-c", "from nkc.cli import main; main()", "emit-c", str(bundle), "-o", folder]
        subprocess.run(command, check=True)
        header = (emitted / "nkc_kernels.h").read_text()
        name = f"nkc_kernels_{record_.symbol}"
        assert f"{name}(" in header, "two kernels of the bundle share this symbol"
        subprocess.run(
            [
                "cc",
                "-std=c11",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                f"-I{folder}",
                f"-DLAUNCH={name}",
                str(HERE / "host_cost.c"),
                str(emitted / "nkc_kernels.c"),
                "-o",
                str(emitted / "cost"),
                "-ldl",
            ],
            check=True,
        )
        object_file = emitted / "object"
        object_file.write_bytes(library.image(entry))
        shape = (*record_.grid, *record_.block, record_.lds.dynamic_bytes, len(record_.arguments))
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        done = subprocess.run(
            [str(emitted / "cost"), str(object_file), record_.symbol, *map(str, (*shape, *sizes))],
            capture_output=True,
            text=True,
            check=True,
        )
    bare, ours = map(float, done.stdout.split())
    return bare / 1e3, ours / 1e3


def check_allocations(kernel: Kernel, tensors: list[torch.Tensor]) -> None:
    """Hold 1,000 launches to allocating nothing on the device."""
    before = torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.mem_get_info()[0]
    for _ in range(1000):
        kernel.launch(*tensors)
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.mem_get_info()[0]
    assert before == after, f"1,000 launches allocated: {before} became {after}"


def without_driver(kernel: Kernel) -> Callable[..., None] | None:
    """Return the launch in C with a function in the driver's place that returns at once; None without the extension."""
    import ctypes

    if kernel._native is None or not kernel.is_native:
        return None
    nothing = ctypes.cast(ctypes.CDLL(None).ffs, ctypes.c_void_p).value  # ffs(0) is 0, which a driver calls success
    asked = dataclasses.replace(kernel._native, address=nothing, function=0)
    callables = native.Callables(
        fallback=kernel._launch_exact,
        handle=stream_handle,
        workspace=None,
        makers=(None,) * len(kernel.arguments),
        failed=print,
    )
    return native.build(kernel.record, kernel.guards, kernel._plan, asked, kernel._driver.device, callables)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--kernel", help="id or request id; by default the first dense kernel without workspace")
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    require_gpu()
    rows: dict[str, float | None] = {}
    for path in ("native", "ex", "plain", "bindings"):
        library = runtime.load(said.bundle, launch_path=path)
        kernel = library[said.kernel] if said.kernel else _first(library)
        tensors = list(operands(kernel).values())
        stream = torch.cuda.current_stream().cuda_stream
        if path == "native" and not kernel.is_native:
            print("the extension was not built, or this torch has no exchange table: Python alone")
            continue
        rows[f"nkc, {path}"] = median_us(partial(kernel.launch, *tensors))
        if path == "native":
            rows["nkc, native, stream given"] = median_us(partial(kernel.launch, *tensors, stream=stream))
            empty = without_driver(kernel)
            assert empty is not None
            rows["nkc, native, without the driver"] = median_us(partial(empty, *tensors))
            check_allocations(kernel, tensors)
            continue
        kernel.launch(*tensors, stream=stream)
        call = kernel._frames[-1][1]  # the frame that this launch has filled; the others hold null pointers
        rows[f"foreign call alone, {path}"] = median_us(call if path == "ex" else partial(call, stream))
        if path == "ex":
            check_allocations(kernel, tensors)
            rows["cuda-bindings, plainly"] = median_us(plain_bindings(kernel, tensors))
            jit = triton_launch(tensors)
            if jit is not None:
                jit()
                rows["Triton JIT launcher"] = median_us(jit)
            c = from_c(said.bundle, kernel, tensors)
            if c is not None:
                rows["C, bare driver call"], rows["C, nkc"] = c
            chosen = kernel
    width = max(map(len, rows))
    print(f"{chosen.record.symbol} ({chosen.id}), {len(chosen.arguments)} tensors, no allocation in 1,000 launches")
    for name, value in rows.items():
        print(f"{name:{width}}  {value:6.2f} us")
    print("nkc, native: at most 6 us (aim 3); C, nkc: at most 1 us over the bare driver call")
    record(
        said.record,
        {
            "benchmark": "host_cost",
            "kernel": chosen.id,
            "symbol": chosen.record.symbol,
            "batch": BATCH,
            "rounds": ROUNDS,
            "median_us": rows,
            **machine(),
        },
    )


def _first(library: runtime.Library) -> Kernel:
    return next(
        kernel for kernel in library.of("dense") if not kernel.record.workspace.bytes and not kernel.guards.ranges
    )


if __name__ == "__main__":
    exit_with(main)
