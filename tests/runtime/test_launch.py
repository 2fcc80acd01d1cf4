"""Loading and launching on the stand-in CUDA driver: call order, argument bytes, guards, workspaces, contexts."""

import threading

import pytest

from nkc.ir.contract import DType, WorkspaceInit
from nkc.ir.errors import UsageError
from nkc.ir.launch import Extent, LaunchLds
from nkc.runtime import BundleError, ContractViolation, DriverError, load
from nkc.runtime import cuda as cuda_driver
from nkc.runtime.tensor import view

from .support import Array, Standin, dense_arrays, dense_launch, pointer, write_bundle

PATHS = ("ex", "plain", "bindings")


def test_loading_does_everything_and_a_launch_only_launches(cuda: Standin, out) -> None:
    launch, image = dense_launch(workspace=1000, init=WorkspaceInit.ZERO)
    library = load(write_bundle(out, [(launch, image)]), streams=2)
    assert cuda.log() == [
        "cuInit 0",
        "cuDevicePrimaryCtxRetain 0",
        "cuModuleLoadData",
        f"cuModuleGetFunction {launch.symbol}",
        "cuFuncLoad",
        "cuFuncSetAttribute 8 65536",
        "cuMemAlloc 2304",
        "cuMemsetD8 0 2304",
        "cuCtxSynchronize",
    ]
    cuda.reset()
    (kernel,) = library
    for _ in range(3):
        kernel.launch(*dense_arrays(launch, 4).values(), stream=0x51)
    assert len(cuda.log()) == len(cuda.launches()) == 3


@pytest.mark.parametrize("path", PATHS)
def test_arguments_arrive_byte_by_byte(cuda: Standin, out, path) -> None:
    launch, image = dense_launch(m=(1, 64))
    arrays = dense_arrays(launch, 9)
    (kernel,) = load(write_bundle(out, [(launch, image)]), launch_path=path)
    kernel.launch(*arrays.values(), stream=0x1234567890AB)
    pointers = " ".join(map(pointer, arrays.values()))
    assert cuda.launches() == [
        f"launch {launch.symbol} grid 7 2 1 block 256 1 1 lds 65536 stream 0x1234567890ab "
        f"args {pointers} 09000000 {'00' * 8} {'00' * 8}"
    ]


def test_zero_rows_succeed_without_a_launch(cuda: Standin, out) -> None:
    """F05: a rank without tokens calls with no rows, and torch gives such a tensor a null address."""
    launch, image = dense_launch(m=(0, 64))
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    empty = {"a": Array(DType.FP8_E4M3, (0, 512), at=0), "out": Array(DType.BF16, (0, 256), at=0)}
    kernel.launch(*dense_arrays(launch, 0, **empty).values())
    assert not cuda.launches()
    with pytest.raises(ContractViolation, match="`out` shape"):
        kernel.launch(*dense_arrays(launch, 0, out=Array(DType.BF16, (0, 255))).values())


@pytest.mark.parametrize(
    ("argument", "array", "guard", "wanted", "actual"),
    [
        ("a", Array(DType.BF16, (4, 512)), "dtype", "fp8_e4m3", "bf16"),
        ("a", Array("|i1", (4, 512)), "dtype", "fp8_e4m3", "|i1"),
        ("a", Array(DType.FP8_E4M3, (5, 512)), "shape", "[4, 512]", "[5, 512]"),
        ("a", Array(DType.FP8_E4M3, (2048,)), "shape", "2 axes", "[2048]"),
        ("b", Array(DType.FP8_E4M3, (256, 512), (1, 256)), "strides", "[512, 1]", "[1, 256]"),
        ("out", Array(DType.BF16, (4, 256), (257, 1)), "strides", "[256, 1]", "[257, 1]"),
        ("a", Array(DType.FP8_E4M3, (4, 512), at=0x7F0000000008), "alignment", "multiple of 16", "8 over"),
        ("a", Array(DType.FP8_E4M3, (4, 512), at=0), "address", "memory", "null"),
        ("out", Array(DType.BF16, (4, 256), at=0x7F0000000000 + 1024), "aliasing", "no overlap with `a`", "over"),
    ],
)
def test_a_guard_names_argument_wanted_and_actual(cuda: Standin, out, argument, array, guard, wanted, actual) -> None:
    """F29 among them: a promise of 16 bytes is checked, never assumed."""
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    with pytest.raises(ContractViolation) as caught:
        kernel.launch(*dense_arrays(launch, 4, **{argument: array}).values())
    assert (caught.value.argument, caught.value.violations[0].guard) == (argument, guard)
    assert wanted in caught.value.wanted
    assert actual in caught.value.actual
    assert not cuda.launches()


def test_every_failed_guard_is_reported_at_once(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    changes = {"a": Array(DType.FP16, (4, 512)), "out": Array(DType.FP32, (4, 255))}
    violations = kernel.check(*dense_arrays(launch, 4, **changes).values())
    assert [(each.argument, each.guard) for each in violations] == [("a", "dtype"), ("out", "dtype"), ("out", "shape")]


def test_outputs_may_touch_but_not_overlap(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    behind_a = Array(DType.BF16, (4, 256), at=0x7F0000000000 + 4 * 512)
    kernel.launch(*dense_arrays(launch, 4, out=behind_a).values())
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize("rows", [0, 65])
def test_bounded_dims_are_bounded(cuda: Standin, out, rows) -> None:
    launch, image = dense_launch(m=(1, 64))
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    with pytest.raises(ContractViolation, match=f"`m` range: wanted 1 to 64, got {rows}"):
        kernel.launch(*dense_arrays(launch, rows).values())


def test_m_major_scales_with_a_padded_leading_dimension(cuda: Standin, out) -> None:
    """F10: a row-major buffer is another layout and is refused, not reinterpreted."""
    launch, image = dense_launch(m=(1, 64), scales="m_major")
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    kernel.launch(*dense_arrays(launch, 5).values())
    row_major = Array(DType.FP32, (5, 4))
    with pytest.raises(ContractViolation, match=r"`a_scales` strides: wanted \[1, 8\], got \[4, 1\]"):
        kernel.launch(*dense_arrays(launch, 5, a_scales=row_major).values())
    assert len(cuda.launches()) == 1


def test_strides_of_a_single_row_do_not_matter(cuda: Standin, out) -> None:
    launch, image = dense_launch(m=1)
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    kernel.launch(*dense_arrays(launch, 1, a=Array(DType.FP8_E4M3, (1, 512), (9999, 1))).values())
    assert len(cuda.launches()) == 1


def test_each_stream_has_its_own_workspace_until_there_is_none(cuda: Standin, out) -> None:
    launch, image = dense_launch(workspace=1000)
    (kernel,) = load(write_bundle(out, [(launch, image)]), streams=2)
    arrays = dense_arrays(launch, 4).values()
    for stream in (1, 2, 1):
        kernel.launch(*arrays, stream=stream)
    first, second, again = (line.split(" args ")[1].split()[5] for line in cuda.launches())
    assert first == again != second
    with pytest.raises(ContractViolation, match="at most 2 streams"):
        kernel.launch(*arrays, stream=3)


def test_a_workspace_of_ones_own_is_checked(cuda: Standin, out) -> None:
    launch, image = dense_launch(workspace=1000)
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    own = Array(DType.INT32, (250,), at=0x7F1000000000)
    kernel.launch(*dense_arrays(launch, 4).values(), workspace=own)
    assert pointer(own) in cuda.launches()[0]
    for bad in (Array(DType.INT32, (249,), at=0x7F1000000000), Array(DType.INT32, (250,), at=0x7F1000000010)):
        with pytest.raises(ContractViolation, match="1000 bytes at a multiple of 256"):
            kernel.launch(*dense_arrays(launch, 4).values(), workspace=bad)


def test_a_kernel_without_workspace_takes_none(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    with pytest.raises(ContractViolation, match="this kernel needs none"):
        kernel.launch(*dense_arrays(launch, 4).values(), workspace=Array(DType.INT32, (250,)))


@pytest.mark.parametrize("path", PATHS)
def test_a_thread_without_a_context_launches_all_the_same(cuda: Standin, out, path) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]), launch_path=path)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            cuda.lose_context()
            kernel.launch(*dense_arrays(launch, 4).values())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures
    assert len(cuda.launches()) == 1


def test_threads_never_mix_their_arguments(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))

    def run(index: int) -> None:
        at = 0x7F0000000000 + (index << 32)
        arrays = dense_arrays(launch, 4, a=Array(DType.FP8_E4M3, (4, 512), at=at))
        for _ in range(50):
            kernel.launch(*arrays.values(), stream=index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cuda.launches()) == 200
    for line in cuda.launches():
        stream = int(line.split(" stream ")[1].split()[0], 16)
        first = int.from_bytes(bytes.fromhex(line.split(" args ")[1].split()[0]), "little")
        assert first == 0x7F0000000000 + (stream << 32)


def test_a_driver_error_names_call_kernel_and_code(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    cuda.fail("cuLaunchKernel", 719)
    with pytest.raises(DriverError, match=f"launch of {launch.symbol} .* failed") as caught:
        kernel.launch(*dense_arrays(launch, 4).values())
    assert caught.value.code == 719


def test_a_failing_load_leaves_nothing_behind(cuda: Standin, out) -> None:
    before = cuda.live()
    pair = [dense_launch(workspace=64, n=256), dense_launch(workspace=64, n=512)]
    cuda.fail("cuFuncSetAttribute", 1)
    with pytest.raises(DriverError, match="cuFuncSetAttribute failed"):
        load(write_bundle(out, pair))
    assert cuda.live() == before


def test_closing_gives_everything_back(cuda: Standin, out) -> None:
    before = cuda.live()
    with load(write_bundle(out, [dense_launch(workspace=64)])) as library:
        assert cuda.live() > before
        assert len(library) == 1
    assert cuda.live() == before
    assert cuda.log()[-3:] == ["cuMemFree", "cuModuleUnload", "cuDevicePrimaryCtxRelease 0"]
    library.close()
    assert cuda.log()[-1] == "cuDevicePrimaryCtxRelease 0"
    assert cuda.log().count("cuDevicePrimaryCtxRelease 0") == 1


def test_a_driver_of_ones_own_stays_open(cuda: Standin, out) -> None:
    driver = cuda_driver.open_device(0)
    load(write_bundle(out, [dense_launch()]), driver=driver).close()
    assert "cuDevicePrimaryCtxRelease 0" not in cuda.log()


def test_a_closed_kernel_refuses_to_launch(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    library = load(write_bundle(out, [(launch, image)]))
    (kernel,) = library
    library.close()
    with pytest.raises(DriverError, match="its library was closed, and the code is gone"):
        kernel.launch(*dense_arrays(launch, 4).values())
    assert not cuda.launches()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lds": LaunchLds(fixed_bytes=8, dynamic_bytes=65536)}, "0 bytes of fixed LDS, its record 8"),
        ({"block": (1024, 1, 1)}, "wants 1024 threads, the kernel runs with at most 512"),
        ({"symbol": "other"}, "no kernel `other`"),
    ],
)
def test_an_object_that_is_not_its_record_is_refused(cuda: Standin, out, change, message) -> None:
    import msgspec

    launch, image = dense_launch()
    changed = msgspec.structs.replace(launch, **change)
    with pytest.raises((BundleError, DriverError), match=message):
        load(write_bundle(out, [(changed, image)]))


def test_a_parameter_that_lies_elsewhere_is_refused(cuda: Standin, out) -> None:
    import hashlib

    import msgspec

    launch, image = dense_launch()
    moved = image.replace(b"param 32 8", b"param 36 4")
    changed = msgspec.structs.replace(launch, sha256=hashlib.sha256(moved).hexdigest())
    with pytest.raises(BundleError, match=r"parameter 4 is at \(offset, size\) \(36, 4\) in the object, \(32, 8\)"):
        load(write_bundle(out, [(changed, moved)]))


def test_another_target_is_refused_with_what_there_is(cuda: Standin, out) -> None:
    with pytest.raises(BundleError, match="nothing for sm_90, which device 0 is; it has sm_100, sm_89"):
        load(write_bundle(out, [dense_launch(arch="sm_100"), dense_launch(arch="sm_89")]))


def test_several_targets_in_one_bundle_load_what_fits(cuda: Standin, out) -> None:
    ours, theirs = dense_launch(), dense_launch(arch="gfx950")
    library = load(write_bundle(out, [ours, theirs], fallback="framework"))
    assert [kernel.id for kernel in library] == [ours[0].id]
    request = next(entry.request for entry in library.bundle.manifest.entries if entry.id == ours[0].id)
    assert library[request] is library[ours[0].id]
    assert library.of("dense") == library.kernels
    with pytest.raises(KeyError, match="has no kernel `nk_0`"):
        library["nk_0"]


def test_a_missing_device_is_named(cuda: Standin, out) -> None:
    with pytest.raises(DriverError, match="no CUDA device 7; this machine has 2"):
        load(write_bundle(out, [dense_launch()]), device=7)


def test_what_is_no_tensor_is_refused(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    arrays = list(dense_arrays(launch, 4).values())
    with pytest.raises(ContractViolation, match="`a` interface: wanted a tensor of torch, DLPack"):
        kernel.launch([1.0], *arrays[1:])
    with pytest.raises(TypeError, match=r"takes 5 tensors \(a, b, a_scales, b_scales, out\), got 4"):
        kernel.check(*arrays[1:])


def test_streams_come_in_three_shapes(cuda: Standin, out) -> None:
    class Torch:
        cuda_stream = 0x11

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0x22

    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    arrays = dense_arrays(launch, 4).values()
    for stream in (Torch(), Protocol(), 0x33, None):
        kernel.launch(*arrays, stream=stream)
    assert [line.split(" stream ")[1].split()[0] for line in cuda.launches()] == ["0x11", "0x22", "0x33", "0"]
    with pytest.raises(TypeError, match="a stream is a handle or has"):
        kernel.launch(*arrays, stream="main")


def test_dlpack_is_read_without_a_copy() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)[:, ::2]
    seen = view("k", "x", array)
    assert (seen.pointer, seen.dtype, seen.shape, seen.strides) == (array.ctypes.data, DType.FP32, (4, 3), (6, 2))
    assert seen.device == -1  # host memory meets no device guard


@pytest.mark.parametrize(
    ("extent", "rows", "size"),
    [(Extent(dim="m"), 5, 5), (Extent(dim="m", divisor=4), 5, 2), (Extent(dim="m", multiple_of=4), 5, 8)],
)
def test_extents_round_as_documented(extent, rows, size) -> None:
    assert extent.of({"m": rows}) == size


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device": "cuda:0"}, r"load\(device=…\): wanted an integer from 0 on, got 'cuda:0'"),
        ({"device": -1}, r"load\(device=…\): wanted an integer from 0 on, got -1"),
        ({"device": True}, r"load\(device=…\)"),
        ({"streams": 0}, r"load\(streams=…\): wanted an integer from 1 on, got 0"),
        ({"launch_path": "nativ"}, r"load\(launch_path=…\): unknown way 'nativ' \(did you mean `native`\?"),
    ],
)
def test_an_argument_of_load_that_means_nothing_is_refused_before_a_driver_is_asked(cuda: Standin, out, given, said):
    write_bundle(out, [dense_launch()])
    cuda.reset()
    with pytest.raises(UsageError, match=said):
        load(out, **given)
    assert cuda.log() == []
