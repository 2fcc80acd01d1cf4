"""Recipes make the same arrays everywhere, prove their own exactness, and contain what they promise (F01)."""

import dataclasses

import msgspec
import numpy as np
import pytest

from nkc.verify.bounds import dense_error
from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.oracles import dense
from nkc.verify.oracles.dense import Operands
from nkc.verify.oracles.group_quant import group_quant
from nkc.verify.oracles.matrix_unit import FP32_FMA, HOPPER_BF16, HOPPER_F16, HOPPER_FP8
from nkc.verify.regimes import Recipe, Regime, activations, dense_bf16_inputs, dense_inputs, digest, prove_exact
from nkc.verify.regimes.stream import Stream

REGIMES = list(Regime)
SHAPES = [(1, 448, 256), (5, 576, 512), (33, 64, 128)]


def recipe(regime, seed=1):
    return Recipe(regime=regime, seed=seed)


def test_arrays_are_pinned():
    """A change of any recipe is a change of every record made with it: raise `Recipe.version` with it."""
    made = {r.value: dense_inputs(recipe(r), 5, 448, 256).digest()[:16] for r in REGIMES}
    made |= {f"bf16 {r.value}": dense_bf16_inputs(recipe(r), 5, 48, 96).digest()[:16] for r in REGIMES}
    made |= {f"x {r.value}": digest(activations(recipe(r), 5, 256))[:16] for r in REGIMES}
    assert made == PINNED


@pytest.mark.parametrize("regime", REGIMES)
def test_seeds_differ_and_recipes_survive_json(regime):
    one, two = (dense_inputs(recipe(regime, seed), 4, 64, 128) for seed in (1, 2))
    assert one.digest() != two.digest()
    assert msgspec.json.decode(msgspec.json.encode(recipe(regime)), type=Recipe) == recipe(regime)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"regime":"exact","seed":1,"sed":2}', type=Recipe)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("unit", [FP32_FMA, HOPPER_FP8, HOPPER_F16], ids=lambda u: u.name)
def test_exact_gives_the_same_bits_in_any_order(shape, unit):
    operands = dense_inputs(recipe(Regime.EXACT), *shape).operands()
    wanted = dense.value(operands)
    assert np.array_equal(wanted, wanted.astype(np.float32))
    for chains in (dense.ascending(operands), dense.split_k(operands, 2), dense.dealt(operands, 2)):
        got = dense.accumulator(operands, unit, chains=chains)
        assert np.array_equal(fp32.bits(got + 0.0), fp32.bits(wanted.astype(np.float32) + 0.0))


@pytest.mark.parametrize(("rows", "k"), [(56, 18432), (288, 7168), (1, 128)])
def test_exact_holds_at_production_depth(rows, k):
    """As many scale rows as N = 7168 and 36864 have. dense_inputs runs the proof; what comes out is not trivial."""
    inputs = dense_inputs(recipe(Regime.EXACT), 2, rows, k, block_n=1)
    assert np.unique(inputs.a).size >= 3
    assert np.abs(dense.value(inputs.operands(block_n=1))).max() > 0


def test_exact_bf16_in_any_order():
    operands = dense_bf16_inputs(recipe(Regime.EXACT), 5, 48, 512).operands()
    wanted = dense.value(operands).astype(np.float32)
    for unit in (FP32_FMA, HOPPER_BF16):
        assert np.array_equal(dense.accumulator(operands, unit, chains=dense.split_k(operands, 3)), wanted)


def test_the_proof_refuses_what_is_not_exact():
    ones = np.ones((1, 256), np.float32)
    scale = np.ones((1, 2), np.float32)
    prove_exact(Operands(a=ones, b=ones, scale_a=scale, scale_b=scale))
    with pytest.raises(ValueError, match=r"magnitudes pass 2\^24 steps"):
        prove_exact(Operands(a=ones, b=ones, scale_a=np.float32([[1, 2**-20]]), scale_b=scale))
    with pytest.raises(ValueError, match=r"a block's magnitudes pass 2\^13 steps at k = 0"):
        prove_exact(Operands(a=ones * np.float32([1, 448] * 128), b=ones, scale_a=scale, scale_b=scale))
    third = np.float32([[1 / 3, 1 / 3]])
    with pytest.raises(ValueError, match=r"a product of scales is not exact at k = 0"):
        prove_exact(Operands(a=ones, b=ones, scale_a=third, scale_b=third))
    with pytest.raises(ValueError, match=r"holds a NaN"):
        prove_exact(Operands(a=ones * np.nan, b=ones, scale_a=scale, scale_b=scale))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(("n", "rows"), [(448, 4), (576, 5), (2112, 17)])
def test_F01_neighbouring_scale_rows_differ(regime, n, rows):
    inputs = dense_inputs(recipe(regime), 3, n, 256)
    assert inputs.scale_b.shape == (rows, 2)
    assert (inputs.scale_b[1:] != inputs.scale_b[:-1]).any(axis=1).all()
    if regime is Regime.EXACT:
        assert len({tuple(row) for row in inputs.scale_b}) == rows


@pytest.mark.parametrize("regime", [Regime.EXACT, Regime.WIDE, Regime.MODEL_LIKE])
def test_F01_the_wrong_scale_row_shows(regime):
    """N / rows = 112 for N = 448: columns 112 to 127 would take row 1."""
    operands = dense_inputs(recipe(regime), 3, 448, 256).operands()
    wrong = Operands(
        a=operands.a,
        b=operands.b,
        scale_a=operands.scale_a,
        scale_b=operands.scale_b[np.arange(448) // 112],
        block_n=1,
    )
    differs = (dense.value(operands) != dense.value(wrong)).any(axis=0)
    assert differs[112:128].any()
    assert not differs[:112].any()


@pytest.mark.parametrize("side", ["scale_a", "scale_b"])
@pytest.mark.parametrize("regime", [Regime.WIDE, Regime.MODEL_LIKE])
@pytest.mark.parametrize("unit", [FP32_FMA, HOPPER_FP8], ids=lambda u: u.name)
def test_F16_a_scale_that_lost_its_mantissa_shows(unit, regime, side):
    """As a kernel for power-of-two scales would take it: 0.3 as 0.25, a quarter off, and no message."""
    operands = dense_inputs(recipe(regime), 3, 448, 256).operands()
    fractions, exponents = np.frexp(getattr(operands, side))
    assert (fractions != 0.5).all()
    dropped = dataclasses.replace(operands, **{side: np.ldexp(np.float32(0.5), exponents)})
    off = np.abs(dense.value(dropped) - dense.value(operands))
    assert (off > dense_error(operands, unit, dense.ascending(operands))).mean() > 0.5


def test_model_like_is_quantised_by_the_rule():
    inputs = dense_inputs(recipe(Regime.MODEL_LIKE), 16, 256, 256)
    codes = fp8.decode(inputs.a).reshape(16, 2, 128)
    assert (np.abs(codes).max(axis=-1) == 448).all()
    spread = np.log2(inputs.scale_a.max() / inputs.scale_a.min())
    assert spread > 2


def test_wide_spans_many_binades_and_stays_finite():
    inputs = dense_inputs(recipe(Regime.WIDE), 16, 256, 512)
    assert not fp8.is_nan(inputs.a).any()
    assert np.unique(inputs.a).size == 254
    assert np.log2(inputs.scale_a.max() / inputs.scale_a.min()) > 30
    assert np.isfinite(dense.fp32_sequential(inputs.operands())).all()


@pytest.mark.parametrize("m", [1, 2, 5, 64])
def test_edges_put_nan_in_one_row(m):
    inputs = dense_inputs(recipe(Regime.EDGES), m, 128, 256)
    nan_rows = fp8.is_nan(inputs.a).any(axis=1).nonzero()[0].tolist()
    assert nan_rows == ([] if m == 1 else [m - 2])
    assert not fp8.is_nan(inputs.b).any()
    for code in (0x00, 0x80, 0x01, 0x07, 0x08, 0x7E, 0xFE):
        assert (inputs.b == code).any()
    value = dense.value(inputs.operands())
    assert np.isnan(value).any(axis=1).nonzero()[0].tolist() == nan_rows


def test_exact_activations_quantise_without_rounding():
    x = activations(recipe(Regime.EXACT), 7, 512)
    got = group_quant(x)
    assert np.array_equal(got.decoded(), x)
    assert (np.log2(got.scales) % 1 == 0).all()


def test_edge_activations_hold_zero_tiny_and_tied_groups():
    x = activations(recipe(Regime.EDGES), 64, 1024)
    groups = x.reshape(64, 8, 128)
    amax = np.nan_to_num(np.abs(groups), nan=1.0).max(axis=-1)
    assert (amax == 0).any()
    assert ((amax > 0) & (amax < 1e-10)).any()
    assert np.signbit(groups[(amax == 0)]).any()
    assert np.isnan(x).any(axis=1).sum() == 1
    assert not np.isnan(activations(recipe(Regime.EDGES), 64, 1024, nan=False)).any()
    assert np.array_equal(bf16.rounded(x), x, equal_nan=True)


def test_the_stream_is_what_it_says():
    stream = Stream(3, "test")
    normal = stream.normal((1 << 16,))
    assert normal.mean() == pytest.approx(0, abs=0.02)
    assert normal.std() == pytest.approx(1, abs=0.02)
    assert np.log2(stream.log_normal((1 << 14,), 2.0)).std() == pytest.approx(2, rel=0.05)
    drawn = stream.integers((1 << 14,), -3, 4)
    assert set(drawn.tolist()) == set(range(-3, 4))
    assert np.array_equal(Stream(3, "a").integers((9,), 0, 99), Stream(3, "a").integers((9,), 0, 99))
    assert not np.array_equal(Stream(3, "a").integers((9,), 0, 99), Stream(3, "b").integers((9,), 0, 99))


PINNED = {
    "exact": "37e878ea6f53f006",
    "model_like": "a870eb157af9371a",
    "wide": "a6796ebf7d589d63",
    "edges": "6b33376d53d83ed6",
    "bf16 exact": "79b2518dcfafb8e0",
    "bf16 model_like": "efcb604d4661e1d9",
    "bf16 wide": "f70de3ca5e26df35",
    "bf16 edges": "588d7c3dbdefee86",
    "x exact": "7f43eacde6836a45",
    "x model_like": "ec7e80453c89ad84",
    "x wide": "c101e48dd1a1f8bd",
    "x edges": "f739593d6b8dbaa8",
}
