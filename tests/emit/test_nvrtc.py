"""The CUDA toolchain: what ptxas says decides, a missing NVRTC names its extra, bytes depend on the source alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nkc.emit.source import OptionValue, Parameter, Source
from nkc.emit.toolchains.by_language import Toolchains
from nkc.emit.toolchains.nvrtc import NvrtcToolchain
from nkc.emit.toolchains.ptxas import report
from nkc.ir import targets
from nkc.ir.errors import ToolError
from tests.fixtures.toolchain import nvrtc_is_installed

SM_90 = targets.get("sm_90")

SCALE = """extern "C" __global__ void __launch_bounds__(128) scale(const float* a, float* out) {
  const int at = blockIdx.x * 128 + threadIdx.x;
  out[at] = a[at] * 0.5f + 1.0f;
}
"""

HEALTHY = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'scale' for 'sm_90a'
ptxas info    : Function properties for scale
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compile time = 6.000 ms
"""
SERIALISED = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
    "insufficient register resources for the wgmma pipeline in function 'scale'\n"
)
SPILLING = HEALTHY.replace("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", "{}")

needs_nvrtc = pytest.mark.skipif(not nvrtc_is_installed(), reason="NVRTC is not installed (pip install 'nkc[nvrtc]')")


def source(text: str = SCALE, **options: OptionValue) -> Source:
    chosen = {"std": "c++17", "fmad": False, "dynamic_lds_bytes": 0, **options}
    return Source(
        language="cuda",
        text=text,
        symbol="scale",
        digest="",
        closure=(),
        closure_digest="",
        parameters=(Parameter(name="a", type="float*"), Parameter(name="out", type="float*")),
        options=tuple(sorted(chosen.items())),
    )


# the log


def test_a_healthy_log_has_no_fault() -> None:
    said = report(HEALTHY)
    assert (said.registers, said.stack_bytes, said.spill_bytes, said.remarks) == (168, 0, 0, ())
    assert said.faults == ()


@pytest.mark.parametrize(
    ("log", "faults"),
    [
        (SPILLING.format("16 bytes stack frame, 24 bytes spill stores, 8 bytes spill loads"), ["32 bytes of spills"]),
        (SPILLING.format("64 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), ["frame of 64 bytes"]),
        (SERIALISED + HEALTHY, ["C7510 Potential Performance Loss: wgmma.mma_async instructions are serialized"]),
        (SERIALISED.replace("C7510", "C7514") * 2 + HEALTHY, ["C7514 "]),
        ("ptxas warning : (C7508) setmaxnreg ignored\n" + HEALTHY, ["C7508 setmaxnreg ignored"]),
    ],
)
def test_spills_stacks_and_remarks_are_faults(log: str, faults: list[str]) -> None:
    found = report(log).faults
    assert len(found) == len(faults)
    assert all(part in fault for part, fault in zip(faults, found, strict=True))


@pytest.mark.parametrize("log", ["", "ptxas info    : 0 bytes gmem\n", HEALTHY * 2])
def test_a_log_that_is_not_of_one_kernel_is_refused(log: str) -> None:
    with pytest.raises(ValueError, match="not one"):
        report(log)


# the child


def answering(tmp_path: Path, reply: dict[str, object]) -> Path:
    """Return a child that greets and then gives this reply to whatever it is asked."""
    import msgspec

    frames = [msgspec.msgpack.encode({"version": "13.5", "error": ""}), msgspec.msgpack.encode(reply)]
    path = tmp_path / "worker.py"
    path.write_text(
        f"import struct, sys\nframes = {frames!r}\nout = sys.stdout.buffer\n"
        "out.write(struct.pack('<I', len(frames[0])) + frames[0]); out.flush()\n"
        "(size,) = struct.unpack('<I', sys.stdin.buffer.read(4)); sys.stdin.buffer.read(size)\n"
        "out.write(struct.pack('<I', len(frames[1])) + frames[1]); out.flush()\n"
        "sys.stdin.buffer.read()\n"
    )
    return path


def test_a_serialised_kernel_is_an_error_that_says_so(tmp_path: Path) -> None:
    child = answering(tmp_path, {"data": b"x", "kind": "cubin", "symbol": "scale", "log": SERIALISED + HEALTHY})
    with NvrtcToolchain(worker=child) as toolchain, pytest.raises(ToolError) as caught:
        toolchain.compile(source(), SM_90)
    assert str(caught.value).startswith("scale for sm_90: ptxas: C7510 Potential Performance Loss: wgmma")
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)


def test_nvrtc_that_is_not_installed_is_an_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    monkeypatch.setattr(sys, "path", [str(Path(msgspec.__file__).parents[1])])
    monkeypatch.setattr("nkc.emit.toolchains.child.module_path", lambda: (str(links(tmp_path)),))
    with NvrtcToolchain() as toolchain, pytest.raises(ToolError) as caught:
        toolchain.compile(source(), SM_90)
    assert "NVRTC cannot be loaded: FileNotFoundError: nvidia/cu13/lib/libnvrtc.so.13" in str(caught.value)
    assert str(caught.value).endswith("(install the extra that brings it: pip install 'nkc[nvrtc]')")
    assert caught.value.exit_code == 4


def links(tmp_path: Path) -> Path:
    """Return a folder that has msgspec, which the worker needs, and nothing else of what is installed."""
    import msgspec

    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    return tmp_path


def test_no_child_of_nvrtc_runs_before_a_cuda_source_comes() -> None:
    with Toolchains() as toolchains:
        assert toolchains.triton._child is not None
        assert toolchains.nvrtc._child is None


# the compiler


@needs_nvrtc
@pytest.mark.toolchain
def test_one_child_compiles_refuses_and_compiles_the_same_again() -> None:
    with NvrtcToolchain() as toolchain:
        first = toolchain.compile(source(), SM_90)
        with pytest.raises(ToolError) as caught:
            toolchain.compile(source(SCALE.replace("a[at]", "b[at]")), SM_90)
        again = toolchain.compile(source(), SM_90)
        fused = toolchain.compile(source(fmad=True), SM_90)
    assert "scale for sm_90: NVRTC 13." in str(caught.value)
    assert 'identifier "b" is undefined' in str(caught.value)
    assert "\n" not in str(caught.value)
    assert again == first
    assert (first.kind, first.waves, first.resources.isa, first.resources.symbol) == ("cubin", 4, "sm_90a", "scale")
    assert [(item.offset, item.size) for item in first.resources.arguments] == [(0, 8), (8, 8)]
    assert (first.resources.fp32_fma, fused.resources.fp32_fma) == (0, 1), "fusion is the source's to ask for"
    assert first.toolchain.name == "nvrtc"
    assert len(first.toolchain.digest) == 64


@needs_nvrtc
@pytest.mark.toolchain
def test_a_kernel_that_spills_does_not_build() -> None:
    text = """extern "C" __global__ void __launch_bounds__(1024, 2) scale(const float* a, float* out) {
  float held[64];
#pragma unroll
  for (int i = 0; i < 64; i++) held[i] = a[threadIdx.x + i * 1024];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; i++) out[threadIdx.x + i * 1024] = held[i] * held[63 - i];
}
"""
    with NvrtcToolchain() as toolchain, pytest.raises(ToolError, match=r"ptxas: \d+ bytes of spills"):
        toolchain.compile(source(text), SM_90)


COMPILE = """import hashlib, sys
sys.path.insert(0, {tests!r})
from tests.emit.test_nvrtc import SM_90, NvrtcToolchain, source
with NvrtcToolchain() as toolchain:
    print(hashlib.sha256(toolchain.compile(source(), SM_90).data).hexdigest())
"""


@needs_nvrtc
@pytest.mark.toolchain
def test_the_same_bytes_from_any_directory_under_any_environment(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    digests = set()
    for place, extra in ((tmp_path, {"NVCC_APPEND_FLAGS": "-G", "PYTHONHASHSEED": "1"}), (Path("/"), {"CPATH": "/"})):
        done = subprocess.run(
            [sys.executable, "-c", COMPILE.format(tests=root)],
            cwd=place,
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1
