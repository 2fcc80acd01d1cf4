"""Tensor maps: made from guard and address, kept, and passed by value at their place."""

import msgspec
import pytest

from nkc.ir.contract import DType
from nkc.runtime import BundleError, DriverError, load, read
from nkc.runtime import cuda as cuda_driver

from .support import Array, Standin, dense_arrays, dense_launch, mapped, read_map, write_bundle


def arguments(line: str) -> list[str]:
    return line.split(" args ")[1].split()


@pytest.mark.parametrize("path", ["ex", "plain", "bindings"])
def test_a_map_says_what_the_guard_says(cuda: Standin, out, path) -> None:
    launch, image = mapped(dense_launch(m=(1, 64))[0], "a", "b")
    arrays = dense_arrays(launch, 9)
    (kernel,) = load(write_bundle(out, [(launch, image)]), launch_path=path)
    kernel.launch(*arrays.values(), stream=0x51)
    first, second, scales, *_ = arguments(cuda.launches()[0])
    address = arrays["a"].__cuda_array_interface__["data"][0]
    wanted = {"address": address, "type": 0, "extents": (512, 9), "strides": (512,), "box": (128, 64)}
    assert read_map(first) == {**wanted, "swizzle": 3, "promotion": 3}
    assert read_map(second)["extents"] == (512, 256)
    assert scales == arrays["a_scales"].__cuda_array_interface__["data"][0].to_bytes(8, "little").hex()


def test_a_map_is_made_once_per_address_and_dims(cuda: Standin, out) -> None:
    launch, image = mapped(dense_launch(m=(1, 64))[0], "a")
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    elsewhere = Array(DType.FP8_E4M3, (5, 512), at=0x7E0000000000)
    for arrays in (dense_arrays(launch, 5), dense_arrays(launch, 5), dense_arrays(launch, 6),
                   dense_arrays(launch, 5, a=elsewhere), dense_arrays(launch, 5)):  # fmt: skip
        kernel.launch(*arrays.values())
    assert cuda.log().count("cuTensorMapEncodeTiled") == 3
    maps = [read_map(arguments(line)[0]) for line in cuda.launches()]
    assert [each["extents"] for each in maps] == [(512, 5), (512, 5), (512, 6), (512, 5), (512, 5)]
    assert maps[3]["address"] == 0x7E0000000000
    assert maps[4] == maps[0]


def test_the_contiguous_axis_comes_first_whichever_it_is(cuda: Standin, out) -> None:
    launch, image = mapped(dense_launch(m=(1, 64), scales="m_major")[0], "a_scales", box=(64, 1))
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    kernel.launch(*dense_arrays(launch, 6).values())
    made = read_map(arguments(cuda.launches()[0])[2])
    assert (made["type"], made["extents"], made["strides"], made["box"]) == (7, (6, 4), (8 * 4,), (64, 1))


def test_the_short_path_passes_maps_too(cuda: Standin, out) -> None:
    torch = pytest.importorskip("torch")
    launch, image = mapped(dense_launch(m=(1, 64))[0], "a", "b")
    driver = cuda_driver.open_device(0)
    driver.device = -1
    (kernel,) = load(read(write_bundle(out, [(launch, image)])), driver=driver)
    given = [
        torch.zeros(7, 512).to(torch.float8_e4m3fn),
        torch.zeros(256, 512).to(torch.float8_e4m3fn),
        torch.ones(7, 4),
        torch.ones(2, 4),
        torch.empty(7, 256, dtype=torch.bfloat16),
    ]
    assert kernel.launch.__name__ == "launch"
    for _ in range(2):
        kernel.launch(*given)
    for line in cuda.launches():
        maps = [read_map(each) for each in arguments(line)[:2]]
        assert [each["address"] for each in maps] == [given[0].data_ptr(), given[1].data_ptr()]
        assert maps[0]["extents"] == (512, 7)
    assert cuda.log().count("cuTensorMapEncodeTiled") == 2


def test_a_map_that_the_driver_refuses_is_named(cuda: Standin, out) -> None:
    launch, image = mapped(dense_launch()[0], "a")
    (kernel,) = load(write_bundle(out, [(launch, image)]))
    cuda.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(DriverError, match="cuTensorMapEncodeTiled failed"):
        kernel.launch(*dense_arrays(launch, 4).values())
    assert not cuda.launches()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: msgspec.structs.replace(a, tensor_map=None), "half a tensor map"),
        (lambda a: msgspec.structs.replace(a, size=64), "64 bytes, not a tensor_map"),
        (
            lambda a: msgspec.structs.replace(a, tensor_map=msgspec.structs.replace(a.tensor_map, box=(64,))),
            "other axes than its tensor",
        ),
        (
            lambda a: msgspec.structs.replace(a, tensor_map=msgspec.structs.replace(a.tensor_map, box=(64, 512))),
            "boxes of 1 to 256",
        ),
    ],
)
def test_a_map_that_cannot_be_is_refused_at_load(cuda: Standin, out, change, message) -> None:
    launch, image = mapped(dense_launch()[0], "a")
    changed = msgspec.structs.replace(launch, arguments=(change(launch.arguments[0]), *launch.arguments[1:]))
    with pytest.raises(BundleError, match=message):
        load(write_bundle(out, [(changed, image)]))
    assert not [line for line in cuda.log() if "ModuleLoad" in line]
