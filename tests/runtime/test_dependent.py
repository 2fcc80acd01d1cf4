"""Dependent launch: the attribute reaches the driver on every path, and whoever cannot launch so refuses by name."""

import msgspec
import pytest

from nkc.ir.launch import LaunchAttributes
from nkc.runtime import BundleError, load, native, read
from nkc.runtime import cuda as cuda_driver
from nkc.runtime import hip as hip_driver

from .support import Standin, dense_arrays, dense_launch, dependent, mapped, pointer, write_bundle

ATTRIBUTE = "attribute 6 1"  # PROGRAMMATIC_STREAM_SERIALIZATION, allowed


def _attributed(cuda: Standin) -> list[bool]:
    """Return of each launch whether the call that made it carried the attribute."""
    calls = cuda.log()
    return [calls[place - 1] == ATTRIBUTE for place, call in enumerate(calls) if call.startswith("launch ")]


@pytest.mark.parametrize("path", ["ex", "bindings"])
@pytest.mark.parametrize("maps", [(), ("a", "b")])
def test_every_launch_carries_the_attribute_and_the_same_arguments(cuda: Standin, out, path, maps) -> None:
    plain, image = mapped(dense_launch(m=(1, 64))[0], *maps) if maps else dense_launch(m=(1, 64))
    launches = []
    for place, launch in (("plain", plain), ("dependent", dependent(plain, "b", "b_scales"))):
        (kernel,) = load(write_bundle(out / place, [(launch, image)]), launch_path=path)
        cuda.reset()
        for stream in (0x1234567890AB, 0x51):
            kernel.launch(*dense_arrays(launch, 9).values(), stream=stream)
        assert _attributed(cuda) == [place == "dependent"] * 2
        launches.append(cuda.launches())
    assert launches[0] == launches[1]
    assert " stream 0x1234567890ab " in launches[1][0]
    assert " stream 0x51 " in launches[1][1]


def test_a_thread_without_a_context_launches_dependent_all_the_same(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    (kernel,) = load(write_bundle(out, [(dependent(launch, "b"), image)]), launch_path="ex")
    cuda.reset()
    cuda.lose_context()
    kernel.launch(*dense_arrays(launch, 4).values())
    assert _attributed(cuda) == [True]


@pytest.mark.parametrize("path", ["native", "ex"])
def test_torch_tensors_are_launched_alike(cuda: Standin, out, path) -> None:
    torch = pytest.importorskip("torch")
    if path == "native" and (native.extension() is None or native.exchange() is None):
        pytest.skip("the extension was not built")
    launch, image = dense_launch()
    driver = cuda_driver.open_device(0, path)
    driver.device = -1
    (kernel,) = load(read(write_bundle(out, [(dependent(launch, "b"), image)])), driver=driver)
    assert kernel.is_native == (path == "native")
    given = [
        torch.zeros(4, 512).to(torch.float8_e4m3fn),
        torch.zeros(256, 512).to(torch.float8_e4m3fn),
        torch.ones(4, 4),
        torch.ones(2, 4),
        torch.empty(4, 256, dtype=torch.bfloat16),
    ]
    cuda.use_context()
    cuda.reset()
    for stream in (0x77, 0x78):
        kernel.launch(*given, stream=stream)
    cuda.lose_context()
    assert _attributed(cuda) == [True] * 2
    wanted = " ".join(tensor.data_ptr().to_bytes(8, "little").hex() for tensor in given)
    assert [line.split(" args ")[1] for line in cuda.launches()] == [f"{wanted} {'00' * 8} {'00' * 8}"] * 2
    assert " stream 0x78 " in cuda.launches()[1]


def test_a_path_that_cannot_carry_it_is_refused(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    with pytest.raises(
        BundleError, match=r"it is launched dependent, which cuLaunchKernel cannot \(use another path\)"
    ):
        load(write_bundle(out, [(dependent(launch, "b"), image)]), launch_path="plain")
    assert not cuda.launches()


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        (LaunchAttributes(programmatic_dependent_launch=True), "programmatic_dependent_launch"),
        (LaunchAttributes(cluster=(7, 1, 1)), "cluster"),
    ],
)
def test_hip_refuses_attributes_by_name(hip: Standin, out, attributes, name) -> None:
    launch, image = dense_launch(arch="gfx950")
    bundle = read(write_bundle(out, [(msgspec.structs.replace(launch, attributes=attributes), image)]))
    with pytest.raises(BundleError, match=f"the record wants `attributes.{name}`, which HIP does not have"):
        load(bundle, driver=hip_driver.open_device(0, str(hip.path)))


def test_a_grid_is_whole_clusters(cuda: Standin, out) -> None:
    launch, image = dense_launch()
    assert launch.grid == (7, 2, 1)
    whole = msgspec.structs.replace(launch, attributes=LaunchAttributes(cluster=(1, 2, 1)))
    (kernel,) = load(write_bundle(out / "whole", [(whole, image)]))
    kernel.launch(*dense_arrays(launch, 4).values())
    assert pointer(dense_arrays(launch, 4)["a"]) in cuda.launches()[0]
    torn = msgspec.structs.replace(launch, attributes=LaunchAttributes(cluster=(2, 1, 1)))
    with pytest.raises(BundleError, match=r"a grid of \[7, 2, 1\], not whole clusters of \[2, 1, 1\]"):
        load(write_bundle(out / "torn", [(torn, image)]))


def test_a_record_from_before_has_no_attributes(out) -> None:
    from nkc.ir.launch import Launch

    launch, _ = dense_launch()
    document = msgspec.to_builtins(launch)
    del document["attributes"]
    assert msgspec.convert(document, Launch) == launch
