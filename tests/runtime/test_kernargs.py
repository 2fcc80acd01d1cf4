"""The argument buffer of a record: sizes, offsets and names are held against each other before anything is loaded."""

import msgspec
import pytest

from nkc.ir.contract import Access, DType
from nkc.ir.launch import ArgumentKind, Launch, LaunchArgument
from nkc.runtime import BundleError, kernargs, load

from .support import dense_launch, write_bundle

POINTER = LaunchArgument(
    name="a", kind=ArgumentKind.POINTER, offset=0, size=8, dtype=DType.FP8_E4M3, access=Access.READ
)
ROWS = LaunchArgument(name="m", kind=ArgumentKind.INT32, offset=8, size=4, dim="m")


def record(kernarg_bytes: int, *arguments: LaunchArgument) -> Launch:
    """Return a launch record with these arguments in a buffer of so many bytes."""
    launch, _ = dense_launch(m=(1, 64))
    return msgspec.structs.replace(launch, arguments=arguments, kernarg_bytes=kernarg_bytes)


@pytest.mark.parametrize("size", [12, 16])
def test_N19_a_pointer_and_a_number_fit_12_bytes_and_more(size: int) -> None:
    plan = kernargs.plan(record(size, POINTER, ROWS))
    assert (plan.static, plan.begin, plan.format, plan.values) == (bytes(size), 0, "Qi", ("a", "m"))
    assert kernargs.packer(plan).size == 12


@pytest.mark.parametrize("size", [0, 8, 11])
def test_N19_a_buffer_that_ends_within_its_arguments_is_refused(size: int) -> None:
    launch = record(size, POINTER, ROWS)
    with pytest.raises(BundleError) as caught:
        kernargs.plan(launch)
    assert str(caught.value) == f"{launch.id}: arguments end at byte 12, the buffer at {size}"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"size": 4, "kind": ArgumentKind.POINTER, "dim": None}, "`m` is 4 bytes, not a pointer"),
        ({"size": 8}, "`m` is 8 bytes, not a int32"),
        ({"offset": 4}, "`m` at byte 4 overlaps or is misaligned"),
        ({"offset": 10}, "`m` at byte 10 overlaps or is misaligned"),
        ({"dim": None}, "`m` carries no dim, so nobody knows its value"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_argument_of_another_size_or_place_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(BundleError) as caught:
        kernargs.plan(record(64, POINTER, msgspec.structs.replace(ROWS, **changed)))
    assert str(caught.value).endswith(f": {said}")


def test_N19_two_arguments_of_one_name_are_refused(cuda, out) -> None:
    launch, image = dense_launch()
    first, second, *others = launch.arguments
    twice = (first, msgspec.structs.replace(second, name=first.name), *others)
    with pytest.raises(BundleError, match="its arguments are not distinctly named tensors"):
        load(write_bundle(out, [(msgspec.structs.replace(launch, arguments=twice), image)]))
