"""Emitted C at its edges: workspaces, padded scales, overlap from either side, failing drivers, nothing left over."""

import os
import subprocess

import msgspec
import pytest

from nkc.cli import run
from nkc.ir.contract import WorkspaceInit
from nkc.ir.launch import Extent, TensorGuard

from .support import SOURCE, dense_launch, dependent, mapped, read_map, write_bundle
from .test_emit_c import HERE, LOGGER, compile_c

WORKSPACE = 512


@pytest.fixture
def program(tmp_path):
    """Return a function that builds and runs the edges program: what it says, and what the driver was asked."""

    def make(
        *launches, fails=(), without: str | None = None, opens: bool = False, options=()
    ) -> tuple[list[str], list[str]]:
        bundle = write_bundle(tmp_path / "b", list(launches))
        assert run(["emit-c", str(bundle), "-o", str(tmp_path / "c"), "--prefix", "k"]) == 0
        library = tmp_path / "libcuda.so.1"
        hidden = [f"-D{without}=hidden_{without}"] if without else []
        flags = ["-std=gnu11", "-shared", "-fPIC", "-DSTANDIN_CUDA", "-Wl,-soname,libcuda.so.1", *hidden]
        subprocess.run(["cc", *flags, str(SOURCE), "-o", str(library)], check=True)
        logger = tmp_path / "logger.c"
        logger.write_text(LOGGER.replace("@", str(library)))
        names = [launch.symbol for launch, _ in launches]
        called = [f"-DLAUNCH=k_{names[0]}", f"-DTENSORS=k_{names[0]}_tensors", f"-DOTHER=k_{names[-1]}"]
        binary = compile_c(
            HERE / "standin" / "edges.c",
            tmp_path / "c" / "k.c",
            logger,
            out=tmp_path / "edges",
            options=(f"-I{tmp_path / 'c'}", *(["-DOPEN"] if opens else called), *options),
        )
        done = subprocess.run(
            [str(binary), str(bundle), *map(str, fails)],
            env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return [line.rstrip() for line in done.stdout.splitlines()], done.stderr.splitlines()

    return make


def with_workspace(**fields):
    return dense_launch(m=(0, 64), scales="m_major", workspace=WORKSPACE, init=WorkspaceInit.ZERO, **fields)


KERNEL = "dense_m0_64_n256_k512"
OVERLAP = f"19 {KERNEL}: an output that overlaps another argument: `out`"
SAID = f"""\
open: 0
own workspace: 0
caller's workspace: 0
misaligned workspace: 16 {KERNEL}: an address that is not aligned as promised: `workspace`: wanted 256, got 128
ends within: {OVERLAP} at 0xffffff0 over one at 0x10000000
ends in the second half: {OVERLAP} at 0x1ffffaf0 over one at 0x20000000
ends before: 0
over padded scales: {OVERLAP} at 0x30000060 over one at 0x30000000
another chip's: 10 dense_m3_n256_k512: the kernel is for another target: `sm_80`: wanted 1, got 0
failing: 3 {KERNEL}: the driver refused a call: launching returned 719
context: 0x1
padded: 0
not padded: 15 {KERNEL}: a tensor of other strides: `a_scales`, axis 1: wanted 8, got 5
one row, whatever its stride: 0
no rows, whatever their strides: 0
left behind: 0
"""


def test_workspaces_overlap_and_strides(program) -> None:
    said, calls = program(with_workspace(), dense_launch(arch="sm_80", m=3))
    assert said == SAID.splitlines()
    made = [call for call in calls if call.startswith(("cuMem", "cuCtxSynchronize", "cuFuncLoad"))]
    assert made == ["cuFuncLoad", "cuMemAlloc 768", "cuMemsetD8 0 768", "cuCtxSynchronize", "cuMemFree"]
    launches = [call.split(" args ")[1].split() for call in calls if call.startswith("launch ")]
    own, given = (bytes.fromhex(launch[5]) for launch in launches[:2])
    assert int.from_bytes(own, "little") % 256 == 0 != int.from_bytes(own, "little")
    assert int.from_bytes(given, "little") == 0x60000000
    assert [int.from_bytes(bytes.fromhex(launch[6]), "little") for launch in launches] == [5, 5, 5, 5, 1]
    assert calls[-2:] == ["cuModuleUnload", "cuDevicePrimaryCtxRelease 0"]


def test_an_extent_that_is_a_share_of_a_bounded_dim_is_rounded_up(program) -> None:
    """A scale for every four rows: five rows have two."""
    launch, image = dense_launch(m=(0, 64), scales="m_major")
    shared = Extent(dim="m", divisor=4)
    guards = tuple(
        msgspec.structs.replace(guard, shape=(shared, guard.shape[1]))
        if isinstance(guard, TensorGuard) and guard.argument == "a_scales"
        else guard
        for guard in launch.guards
    )
    changed = msgspec.structs.replace(launch, guards=guards), image
    said, _ = program(changed, dense_launch(arch="sm_80", m=3), options=("-DSCALE_ROWS=2",))
    assert "padded: 0" in said
    said, _ = program(changed, dense_launch(arch="sm_80", m=3), options=("-DSCALE_ROWS=1",))
    (refused,) = [line for line in said if line.startswith("padded: ")]
    assert refused.endswith("another shape: `a_scales`, axis 0: wanted 2, got 1")


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("cuModuleLoadData", "loading the object"),
        ("cuModuleGetFunction", "finding the kernel"),
        ("cuFuncGetAttribute", "asking for the fixed LDS"),
        ("cuFuncSetAttribute", "allowing the dynamic LDS"),
        ("cuMemAlloc", "allocating the workspace"),
        ("cuCtxSynchronize", "clearing the workspace"),
    ],
)
def test_a_failing_call_at_load_is_named_and_leaves_nothing(program, call, what) -> None:
    said, calls = program(with_workspace(), fails=(call, 2), opens=True)
    assert said == [f"open: 3 {KERNEL}: the driver refused a call: {what} returned 2", "left behind: 0"]
    assert calls[-1] == "cuDevicePrimaryCtxRelease 0"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fixed 0", "fixed 4", "`fixed LDS`: wanted 0, got 4"),
        ("threads 512", "threads 255", "`threads`: wanted 256, got 255"),
    ],
)
def test_an_object_that_disagrees_with_its_record_is_refused(program, old, new, said) -> None:
    import hashlib

    launch, image = dense_launch(m=(0, 64))
    image = image.replace(old.encode(), new.encode())
    changed = msgspec.structs.replace(launch, sha256=hashlib.sha256(image).hexdigest())
    lines, _ = program((changed, image), opens=True)
    assert lines[0] == f"open: 8 {KERNEL}: an object disagrees with its launch record: {said}"


def test_a_bundle_for_another_chip_is_refused(program) -> None:
    said, _ = program(dense_launch(arch="sm_80", m=3), opens=True)
    assert said == ["open: 5 nothing in this bundle is for the device: `sm_80`: wanted 1, got 0", "left behind: 0"]


def test_maps_of_wide_elements_have_strides_in_bytes_and_a_refusal_is_named(program) -> None:
    launch, _ = dense_launch(m=(0, 64), scales="m_major", workspace=0)
    pair = (mapped(launch, "out"), dense_launch(arch="sm_80", m=3))
    _, calls = program(*pair)
    first = next(call for call in calls if call.startswith("launch ")).split(" args ")[1].split()
    made = read_map(first[4])
    assert (made["extents"], made["strides"], made["type"]) == ((256, 5), (512,), 9)
    said, _ = program(*pair, fails=("cuTensorMapEncodeTiled", 1))
    assert said[1] == f"own workspace: 3 {KERNEL}: the driver refused a call: making a tensor map returned 1"


def test_an_old_driver_without_a_call_is_refused_by_name(program) -> None:
    launch, _ = dense_launch(m=(0, 64))
    said, _ = program(mapped(launch, "a"), dense_launch(arch="sm_80", m=3), without="cuTensorMapEncodeTiled")
    assert said[1] == f"own workspace: 3 {KERNEL}: the driver refused a call: making a tensor map returned 801"
    early = dependent(launch, "b"), dense_launch(m=(0, 64))[1]
    said, _ = program(early, without="cuLaunchKernelEx", opens=True)
    assert said[0] == f"open: 3 {KERNEL}: the driver refused a call: cuLaunchKernelEx returned 801"
    said, _ = program(dense_launch(m=(0, 64)), without="cuFuncLoad", opens=True)
    assert said[0] == "open: 0"
