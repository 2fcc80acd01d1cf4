"""The machine under the measurements: what it is, what it does at best, and its clocks while it works.

Clocks and power are only read, never set.
"""

import importlib
import shutil
import statistics
import subprocess
import threading
import time
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from nkc.bench.timing import METHOD, Graph
from nkc.ir.errors import UsageError
from nkc.tactics.performance import Ceilings, Clocks, Session

CEILING_BYTES = 2 << 30
CEILING_SIDE = 8192
_SMI = ("--format=csv,noheader,nounits",)


class Sampler:
    """Samples clocks, power and temperature through nvidia-smi, every 50 ms or so; none where it is missing."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float, float, float]] = []
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        program = shutil.which("nvidia-smi")
        if program is not None:
            query = "--query-gpu=clocks.sm,power.draw.instant,temperature.gpu"
            self._process = subprocess.Popen(
                [program, query, *_SMI, "-lms", "50"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                clock, power, heat = map(float, line.split(","))
                self._samples.append((time.monotonic(), clock, power, heat))

    def since(self, start: float) -> Clocks | None:
        """Return the medians of the samples from `start` (time.monotonic) on, None where there are none."""
        taken = [sample[1:] for sample in list(self._samples) if sample[0] >= start]
        if not taken:
            return None
        clock, power, heat = (statistics.median(values) for values in zip(*taken, strict=True))
        return Clocks(sm_mhz=clock, power_w=round(power, 1), temperature_c=heat, samples=len(taken))


def session(command: str, sampler: Sampler) -> Session:
    """Return the session's description; measures the ceilings, which takes about two seconds.

    Raises UsageError where no GPU is present.
    """
    import torch

    from nkc import __version__
    from nkc.verify.engines.driver import driver_version

    if not torch.cuda.is_available():
        raise UsageError(
            "nkc: no GPU is present (build for another machine with --build-only DIR, and bench DIR there)"
        )
    time.sleep(0.3)
    idle = sampler.since(0.0)
    properties = torch.cuda.get_device_properties(0)
    return Session(
        device=torch.cuda.get_device_name(),
        driver=driver_version(),
        compute_units=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        power_limit_w=_power_limit(),
        idle=idle,
        software=_software(__version__),
        ceilings=ceilings(),
        method=METHOD,
        command=command,
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def _software(own: str) -> dict[str, str]:
    """Return what could move a figure, by name."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    found = {"nkc": own, "python": platform.python_version(), "torch": str(torch.__version__)}
    found["runtime"] = f"cuda {torch.version.cuda}" if torch.version.hip is None else f"hip {torch.version.hip}"
    with suppress(PackageNotFoundError):
        found["nvidia-cublas"] = version("nvidia-cublas")
    with suppress(ImportError, AttributeError):
        found["deep_gemm"] = str(importlib.import_module("deep_gemm").__version__)
    return found


def _power_limit() -> float | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = subprocess.run(
        [program, "--query-gpu=power.limit", *_SMI], capture_output=True, text=True, check=False, timeout=60
    )
    with suppress(ValueError, IndexError):
        return float(asked.stdout.splitlines()[0])
    return None


def ceilings() -> Ceilings:
    """Measure what the device does at best: reading, copying, and square products of random operands."""
    import torch

    words = torch.randn(CEILING_BYTES // 4, device="cuda")
    folded = words.view(-1, 1 << 15)
    reads = (partial(torch.sum, words), partial(torch.amax, words), partial(torch.sum, folded, 1))
    read_us = min(_best_us(read, 4) for read in reads)
    copy_us = _best_us(partial(torch.mul, words, 1.0, out=torch.empty_like(words)), 4)  # a copy node is half as fast
    return Ceilings(
        read_gbs=_shown(CEILING_BYTES / read_us / 1e3),
        copy_gbs=_shown(2 * CEILING_BYTES / copy_us / 1e3),
        tflops=_products(),
    )


def _products() -> dict[str, float]:
    """Return TFLOP/s of 8192^3 by operand type; a type that the library refuses is left out."""
    import torch

    side = CEILING_SIDE
    left, right = (torch.randn((side, side), device="cuda") for _ in range(2))
    out = torch.empty((side, side), device="cuda", dtype=torch.bfloat16)
    found: dict[str, float] = {}

    def bf16() -> Any:
        a, b = left.to(torch.bfloat16), right.to(torch.bfloat16).T
        return lambda: torch.matmul(a, b, out=out)

    def fp8() -> Any:
        a, b = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).T
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True, out=out
        )

    for name, make in (("bf16", bf16), ("fp8", fp8)):
        with suppress(RuntimeError):
            found[name] = _shown(2 * side**3 / _best_us(make(), 6) / 1e6)
    return found


def _best_us(launch: Any, count: int) -> float:
    """Return the median of five replays of a graph of so many launches, in microseconds per launch."""
    graph = Graph((launch,), count)
    graph.replay_us()
    return statistics.median(graph.replay_us() for _ in range(5))


def _shown(value: float) -> float:
    return float(f"{value:.5g}")
