"""A large problem made of a small one: every element has the small one's data, and every piece is judged."""

import msgspec
import numpy as np
import pytest

from nkc.ir.frozen import FrozenMap
from nkc.ir.launch import Extent, Launch, TensorGuard
from nkc.verify.folded import PERIODS, Folded, axes_of
from nkc.verify.memory import STORAGE
from nkc.verify.numbers import bf16
from nkc.verify.oracles.matrix_unit import FP32_FMA
from nkc.verify.regimes import Recipe, Regime
from nkc.verify.subject import judge_of
from tests.verify.subjects import SCALED, subjects

M, N, K = 300, 1000, 256
REGIMES = list(Regime)


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return subjects(tmp_path_factory.mktemp("fold"), SCALED)[0]


@pytest.fixture(scope="module")
def large(subject):
    """Return the contract with a large M and N, and a launch whose guards are those of its tensors."""
    contract = msgspec.structs.replace(subject.contract, shape=FrozenMap({"m": M, "n": N, "k": K}))
    tensors = judge_of("dense").tensors(contract, Recipe(regime=Regime.WIDE, seed=1), {})
    guards = tuple(
        TensorGuard(
            argument=tensor.name,
            dtype=tensor.dtype,
            shape=tuple(Extent(value=extent) for extent in tensor.shape),
            strides=tuple(Extent(value=stride) for stride in tensor.strides),
            alignment=16,
        )
        for tensor in tensors
    )
    launch: Launch = msgspec.structs.replace(subject.launch, guards=guards)
    return contract, Folded(judge_of("dense"), launch)


def oracle(contract, tensors, regime):
    """Return the output of the large problem by the oracle on its own tensors, as stored."""
    from nkc.verify.numbers import fp8
    from nkc.verify.oracles import dense

    by_name = {tensor.name: tensor.view() for tensor in tensors}
    operands = dense.Operands(
        a=fp8.decode(by_name["a"].astype(np.uint8)),
        b=fp8.decode(by_name["b"].astype(np.uint8)),
        scale_a=np.ascontiguousarray(by_name["a_scales"]),
        scale_b=np.ascontiguousarray(by_name["b_scales"]),
    )
    return bf16.encode(dense.accumulator(operands, FP32_FMA)).reshape(-1)


def bits(large, regime):
    contract, folded = large
    tensors = folded.tensors(contract, Recipe(regime=regime, seed=1), {})
    return oracle(contract, tensors, regime)


def judged(large, regime, out, kept=None):
    contract, folded = large
    covered = {"out": np.ones(M * N, np.bool_) if kept is None else kept}
    return folded.judge(contract, Recipe(regime=regime, seed=1), {}, {"out": out}, covered)


@pytest.mark.parametrize("regime", REGIMES)
def test_the_oracle_of_the_large_problem_agrees_with_the_judge_of_the_small(large, regime) -> None:
    found = judged(large, regime, bits(large, regime))
    assert found.passed, found
    assert found.bit_equal is (True if regime is Regime.EXACT else None)


def test_tensors_have_the_sizes_of_the_large_problem(large) -> None:
    contract, folded = large
    made = {tensor.name: tensor for tensor in folded.tensors(contract, Recipe(regime=Regime.EDGES, seed=1), {})}
    plain = {t.name: t for t in judge_of("dense").tensors(contract, Recipe(regime=Regime.WIDE, seed=1), {})}
    for name, tensor in made.items():
        assert (tensor.shape, tensor.strides, tensor.dtype) == (
            plain[name].shape,
            plain[name].strides,
            plain[name].dtype,
        )
        assert tensor.storage.size == plain[name].storage.size
        assert tensor.storage.dtype == STORAGE[tensor.dtype]
    nan = (made["a"].view() & 0x7F) == 0x7F
    assert set(np.flatnonzero(nan.any(axis=1))) == {row for row in range(M) if (M - 2 - row) % PERIODS["m"] == 0}


@pytest.mark.parametrize("place", [(0, 0), (M - 1, N - 1), (140, 500), (20, 384), (M - 131, 383)])
def test_one_wrong_bit_is_found_where_it_is(large, place) -> None:
    out = bits(large, Regime.EXACT)
    out[place[0] * N + place[1]] ^= 1
    found = judged(large, Regime.EXACT, out)
    assert found.bit_equal is False
    assert found.differs["out"].index == place


def test_a_value_far_off_is_named_with_its_place(large) -> None:
    out = bits(large, Regime.MODEL_LIKE)
    out[200 * N + 900] = bf16.encode(np.array([1e30], np.float32))[0]
    found = judged(large, Regime.MODEL_LIKE, out)
    assert not found.passed
    assert found.verdicts["out"].failures == 1
    assert found.verdicts["out"].first is not None
    assert found.verdicts["out"].first.index == (200, 900)


def test_what_was_not_computed_is_not_judged(large) -> None:
    out = bits(large, Regime.EXACT)
    kept = np.zeros(M * N, np.bool_)
    kept[5 * N + 700] = True
    out[~kept] = 0xFFFF
    assert judged(large, Regime.EXACT, out, kept).bit_equal is True
    kept[5 * N + 701] = True
    assert judged(large, Regime.EXACT, out, kept).bit_equal is False


@pytest.mark.parametrize(("rows", "columns"), [(16, 0), (128, 0), (0, 64), (0, 128), (-16, 256)])
def test_a_tile_of_somebody_else_shows(large, rows, columns) -> None:
    """What a workgroup would leave that took the rows or columns of a neighbour."""
    out = bits(large, Regime.WIDE).reshape(M, N)
    moved = np.roll(out, (rows, columns), (0, 1)).reshape(-1)
    assert not judged(large, Regime.WIDE, moved).passed


def test_axes_are_named(subject) -> None:
    assert axes_of(subject.contract, "b") == (("n", 1), ("k", 1))
    assert axes_of(subject.contract, "b_scales") == (("n", 128), ("k", 128))
    assert axes_of(subject.contract, "a_scales") == (("m", 1), ("k", 128))
    assert axes_of(subject.contract, "bias") == (("n", 1),)


def test_a_short_problem_is_left_as_it_is(subject) -> None:
    folded = Folded(judge_of("dense"), subject.launch)
    recipe = Recipe(regime=Regime.EXACT, seed=1)
    assert folded.periods(subject.contract, {}) == {}
    for a, b in zip(
        folded.tensors(subject.contract, recipe, {}),
        judge_of("dense").tensors(subject.contract, recipe, {}),
        strict=True,
    ):
        assert a.storage.tobytes() == b.storage.tobytes()
