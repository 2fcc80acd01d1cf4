"""HIP on the stand-in library: call order, argument bytes with implicit arguments, error paths."""

import msgspec
import pytest

from nkc.ir.contract import WorkspaceInit
from nkc.runtime import BundleError, ContractViolation, DriverError, load, read
from nkc.runtime import hip as hip_driver

from .support import Array, Standin, dense_arrays, dense_launch, pointer, write_bundle


def _load(standin: Standin, out, *launches, device: int = 0, **options):
    bundle = read(write_bundle(out, list(launches)))
    return load(bundle, driver=hip_driver.open_device(device, str(standin.path)), **options)


def test_calls_come_in_order(hip: Standin, out) -> None:
    launch, image = dense_launch(arch="gfx950", workspace=1000, init=WorkspaceInit.ZERO)
    library = _load(hip, out, (launch, image), device=1, streams=1)
    (kernel,) = library
    kernel.launch(*dense_arrays(launch, 4).values())
    library.close()
    calls = [line for line in hip.log() if not line.startswith(("launch ", "hipSetDevice"))]
    assert calls == [
        "hipInit 0",
        "hipModuleLoadData",
        f"hipModuleGetFunction {launch.symbol}",
        "hipMalloc 1280",
        "hipMemset 0 1280",
        "hipDeviceSynchronize",
        "hipFree",
        "hipModuleUnload",
    ]
    devices = [line for line in hip.log() if line.startswith("hipSetDevice")]
    assert devices == ["hipSetDevice 1", "hipSetDevice 0"] * 4  # the caller's device is put back each time
    assert len(hip.launches()) == 1


def test_arguments_and_implicit_ones_arrive_byte_by_byte(hip: Standin, out) -> None:
    """N21: the object has 1024 bytes of LDS by itself, and the launch asks for none."""
    launch, image = dense_launch(arch="gfx950", m=(1, 64))
    assert (launch.lds.fixed_bytes, launch.lds.dynamic_bytes) == (1024, 0)
    arrays = dense_arrays(launch, 9)
    (kernel,) = _load(hip, out, (launch, image))
    kernel.launch(*arrays.values(), stream=0xFEDCBA987654)
    pointers = " ".join(map(pointer, arrays.values()))
    assert hip.launches() == [
        f"launch {launch.symbol} grid 7 2 1 block 256 1 1 lds 0 stream 0xfedcba987654 args {pointers} 09000000 "
        f"{'00' * 8} {'00' * 8} 07000000 02000000 01000000 0001 0100 0100"
    ]


def test_guards_are_the_same(hip: Standin, out) -> None:
    launch, image = dense_launch(arch="gfx950")
    (kernel,) = _load(hip, out, (launch, image))
    with pytest.raises(ContractViolation, match="`a` dtype"):
        kernel.launch(*dense_arrays(launch, 4, a=Array("bf16", (4, 512))).values())
    assert not hip.launches()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("hipInit", "hipInit failed with 209"),
        ("hipModuleLoadData", "hipModuleLoadData failed: hipErrorNoBinaryForGpu, as the stand-in was told"),
        ("hipModuleGetFunction", "no kernel `dense_m4_n256_k512` in the object"),
        ("hipFuncGetAttribute", "hipFuncGetAttribute failed"),
        ("hipMalloc", "hipMalloc failed"),
    ],
)
def test_each_failing_call_is_named_and_leaves_nothing(hip: Standin, out, call, message) -> None:
    before = hip.live()
    hip.fail(call, 209)
    with pytest.raises(DriverError, match=message):
        _load(hip, out, dense_launch(arch="gfx950", workspace=64))
    hip.reset()
    assert hip.live() == before


def test_a_failing_launch_is_named(hip: Standin, out) -> None:
    launch, image = dense_launch(arch="gfx950")
    (kernel,) = _load(hip, out, (launch, image))
    hip.fail("hipModuleLaunchKernel", 719)
    with pytest.raises(DriverError, match=f"launch of {launch.symbol}") as caught:
        kernel.launch(*dense_arrays(launch, 4).values())
    assert caught.value.code == 719


def test_the_architecture_is_the_devices_not_its_marketing_name(hip: Standin, out) -> None:
    hip.device("gfx942:sramecc+:xnack-")
    with pytest.raises(BundleError, match="nothing for gfx942, which device 0 is; it has gfx950"):
        _load(hip, out, dense_launch(arch="gfx950"))


def test_an_unknown_implicit_argument_is_refused(hip: Standin, out) -> None:
    launch, image = dense_launch(arch="gfx950")
    arguments = (*launch.arguments[:-1], msgspec.structs.replace(launch.arguments[-1], implicit="hidden_surprise"))
    with pytest.raises(BundleError, match="no value is known for the implicit argument `hidden_surprise`"):
        _load(hip, out, (msgspec.structs.replace(launch, arguments=arguments), image))


def test_a_missing_library_and_device_are_named(hip: Standin) -> None:
    with pytest.raises(DriverError, match=r"none of libmissing\.so can be loaded"):
        hip_driver.open_device(0, "libmissing.so")
    with pytest.raises(DriverError, match="no HIP device 2; this machine has 2"):
        hip_driver.open_device(2, str(hip.path))
