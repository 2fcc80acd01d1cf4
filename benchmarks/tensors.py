"""Tensors that meet a kernel's guards, and what machine they live on: shared by the benchmarks of the runtime."""

import json
import platform
from pathlib import Path

from running import required

from nkc.ir.contract import DType
from nkc.runtime import Kernel
from nkc.runtime.tensor import torch_dtype

torch = required("torch")


def rows_of(kernel: Kernel) -> dict[str, int]:
    """Return a value for every bounded dim of a kernel: the largest."""
    return {bounded.dim: bounded.max for bounded in kernel.guards.ranges}


def operands(kernel: Kernel, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random tensors on the GPU in the caller's order: codes and values of a sane size, scales near one."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    dims = rows_of(kernel)
    made = {}
    for guard in kernel.guards.tensors:
        shape = [extent.of(dims) for extent in guard.shape]
        strides = [extent.of(dims) for extent in guard.strides]
        elements = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if guard.dtype is DType.FP32:
            values = torch.rand(elements, generator=generator, device="cuda") + 0.5
        elif guard.dtype is DType.INT32:
            values = torch.zeros(elements, device="cuda")
        else:
            values = torch.randn(elements, generator=generator, device="cuda")
        made[guard.argument] = values.to(torch_dtype(guard.dtype)).as_strided(shape, strides)
    return made


def written(kernel: Kernel) -> tuple[str, ...]:
    """Return the arguments that a kernel writes."""
    return tuple(
        argument.name
        for argument in kernel.record.arguments
        if argument.name in kernel.arguments and argument.access is not None and argument.access != "read"
    )


def machine() -> dict[str, str]:
    """Return what a figure is worth nothing without: device, driver, versions."""
    from cuda.bindings import driver

    import nkc

    return {
        "device": torch.cuda.get_device_name(),
        "driver": str(driver.cuDriverGetVersion()[1]),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": next(
            (
                line.partition(":")[2].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if "model name" in line
            ),
            platform.machine(),
        ),
        "nkc": nkc.__version__,
    }


def record(path: Path | None, document: dict[str, object]) -> None:
    """Write a record where one was asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n")
