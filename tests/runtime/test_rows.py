"""A bundle of the parts of a split contract: exactly one kernel takes each number of rows, the narrowest first."""

from collections.abc import Mapping

import pytest

from nkc.runtime import load
from nkc.runtime.bundle_route import BundleRoute
from nkc.runtime.route import Call

from .support import dense_arrays, dense_launch, write_bundle


def call(launch, m: int, *, without: str | None = None) -> Call:
    arrays = dense_arrays(launch, m)
    if without is not None:
        del arrays[without]
    outputs = {"out": arrays.pop("out")}
    return Call(
        operation="dense",
        tensors=arrays,
        wanted={},
        allocate=lambda: outputs,
        result=lambda found: found["out"],
        key=("dense", m),
    )


@pytest.mark.parametrize("m", [0, 1, 2, 16, 17, 64])
def test_each_number_of_rows_has_one_kernel(cuda, out, m) -> None:
    parts = [dense_launch(m=(0, 1)), dense_launch(m=(2, 16)), dense_launch(m=(17, 64))]
    route = BundleRoute(load(write_bundle(out, parts)), "dense")
    asked = call(parts[0][0], m)
    reasons = route.reasons(asked)
    (taken,) = [identity for identity, why in reasons.items() if not why]
    wanted = next(launch for launch, _ in parts if launch.symbol == f"dense_m{_range(m)}_n256_k512")
    assert taken == wanted.id
    assert route.verify(asked) == (True, None)


def _range(m: int) -> str:
    return "0_1" if m <= 1 else "2_16" if m <= 16 else "17_64"


def test_beyond_the_parts_the_closest_says_why_not(cuda, out) -> None:
    parts = [dense_launch(m=(0, 1)), dense_launch(m=(2, 16))]
    accepted, why = BundleRoute(load(write_bundle(out, parts)), "dense").verify(call(parts[0][0], 17))
    assert not accepted
    assert "17" in why


@pytest.mark.parametrize("m", [16, 7])
def test_the_narrowest_kernel_that_fits_is_taken(cuda, out, m) -> None:
    """Whatever order ids give: a kernel for one value goes before one for a range, a short range before a long one."""
    kernels = [dense_launch(m=(0, 512)), dense_launch(m=16), dense_launch(m=(0, 64)), dense_launch(m=(5, 9))]
    by_symbol = {launch.symbol: launch for launch, _ in kernels}
    route = BundleRoute(load(write_bundle(out, kernels)), "dense")
    asked = call(kernels[0][0], m)
    assert route.verify(asked) == (True, None)
    route.run(asked)
    wanted = by_symbol["dense_m16_n256_k512" if m == 16 else "dense_m5_9_n256_k512"]
    (launched,) = cuda.launches()
    assert wanted.symbol in launched.split()


@pytest.mark.parametrize(
    ("given", "without", "said"),
    [
        ({}, None, None),
        ({"m": 8}, None, ["`a` shape: wanted [12, 512], got [8, 512]", "`out` shape: wanted [12, 768], got [8, 768]"]),
        (
            {"k": 640},
            None,
            ["`a` shape: wanted [12, 512], got [12, 640]", "`b` shape: wanted [768, 512], got [768, 640]"],
        ),
        (
            {"n": 767},
            None,
            ["`b` shape: wanted [768, 512], got [767, 512]", "`out` shape: wanted [12, 768], got [12, 767]"],
        ),
        ({}, "a_scales", ["the kernel needs `a_scales`"]),
    ],
    ids=["all as built", "rows", "k", "n", "an operand that is missing"],
)
def test_N35_what_the_kernel_was_not_built_for_is_a_reason_and_no_exception(
    cuda, out, given: Mapping[str, int], without: str | None, said: list[str] | None
) -> None:
    built = {"m": 12, "n": 768, "k": 512}
    kernel = dense_launch(**built)
    route = BundleRoute(load(write_bundle(out, [kernel])), "dense")
    asked = {**built, **given}
    accepted, why = route.verify(call(dense_launch(**asked)[0], asked["m"], without=without))
    assert accepted is (said is None)
    assert (why is None) is accepted
    for part in said or ():
        assert part in why
    assert (why or kernel[0].id).startswith(kernel[0].id), "which kernel is spoken of"
    assert not cuda.launches()
