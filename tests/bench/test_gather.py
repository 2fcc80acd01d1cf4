"""Which kernels are built for a bench: all, the selected and the plain one, or the first by tuning rows and rule."""

import pytest

from nkc.bench.gather import choices, plain_of
from nkc.tactics.catalogue import find
from nkc.tactics.select import Policy, select

from ..fixtures.contracts import contract

LOOSE = {"$.numerics.accumulate": "tensor_core_fp8", "$.numerics.combine": "fixed_order"}


def selection(m: int):
    shape = {"$.target.arch": "sm_90", "$.shape.m": m, "$.shape.n": 2240, "$.shape.k": 7296}
    return select(contract({**shape, **LOOSE}), Policy(allow_experimental=True))


@pytest.mark.parametrize("first", [1, 3])
def test_the_first_are_those_that_selection_would_try_first(first) -> None:
    found = selection(64)
    names = [each.tactic.name for each in found.eligible]
    *tried, plain = choices(found, every=False, first=first)
    assert tried == names[:first]
    assert plain == plain_of(found.contract, names), "a baseline, wherever it is ranked"
    assert choices(found, every=False, first=len(names)) == tuple(names)


def test_every_one_or_the_selected_and_the_plain_one() -> None:
    found = selection(64)
    names = [each.tactic.name for each in found.eligible]
    assert choices(found, every=True) == tuple(names)
    few = choices(found, every=False)
    assert few[0] == names[0]
    assert set(few) == {names[0], plain_of(found.contract, names)}


@pytest.mark.parametrize("m", [1, 16, 64, 4096])
def test_what_stands_for_an_untuned_kernel_is_a_triton_tile_without_a_split(m) -> None:
    found = selection(m)
    name = plain_of(found.contract, (each.tactic.name for each in found.eligible))
    assert name is not None
    tactic = find("dense", name)
    assert tactic.kernel.language == "triton"
    assert tactic.schedule.split_k in (None, 1)


def test_there_may_be_no_plain_one() -> None:
    assert plain_of(selection(1).contract, ["sm_90.dense.fp8_gemv_r4_w8"]) is None
