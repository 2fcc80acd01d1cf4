"""rms_norm_quant: inputs by regime, the sum bit-exact, codes and scales (or y) inside the limits of an fp32 norm."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nkc.ir.contract import Contract, DType, Weight
from nkc.ir.quantising import QUANTISED
from nkc.verify import quantised
from nkc.verify.memory import Bits, Tensor, dense_tensor, output_tensor
from nkc.verify.numbers import bf16
from nkc.verify.oracles.rms_norm_quant import RmsNorm, rms_norm, rms_norm_quant
from nkc.verify.quant_bounds import RMS_NORM
from nkc.verify.regimes import Recipe, Regime, activations
from nkc.verify.regimes.stream import Stream
from nkc.verify.subject import Judgement, sizes

F32 = NDArray[np.float32]

LARGEST = np.float32(2.0**50)
"""Largest input magnitude: the squares of a row must add up within fp32, which holds to 1.7e17 at 1e4 columns."""


class Inputs(NamedTuple):
    """x and residual [M, K], exact in bf16; weight [K], exact in its dtype.

    `exact` data stays so: the weight is 1 and the residual x itself, so that every ratio is a code of x, and no tie.
    """

    x: F32
    residual: F32 | None
    weight: F32


def tensors(contract: Contract, recipe: Recipe, dims: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Return x, residual and weight, and the poisoned outputs."""
    inputs = _inputs(contract, recipe, sizes(contract, dims)["m"])
    weight = bf16.encode(inputs.weight) if contract.dtypes["weight"] is DType.BF16 else inputs.weight
    made = [dense_tensor("x", DType.BF16, bf16.encode(inputs.x))]
    if inputs.residual is not None:
        made.append(dense_tensor("residual", DType.BF16, bf16.encode(inputs.residual)))
        made.append(_rows("residual_out", contract, dims))
    made.append(dense_tensor("weight", contract.dtypes["weight"], weight))
    if QUANTISED in contract.scales:
        return (*made, *quantised.outputs(contract, dims))
    return (*made, _rows(QUANTISED, contract, dims))


def judge(
    contract: Contract,
    recipe: Recipe,
    dims: Mapping[str, int],
    outputs: Mapping[str, Bits],
    covered: Mapping[str, NDArray[np.bool_]],
) -> Judgement:
    """Judge the sum, which must have its bits, and codes and scales, or y."""
    expected = _expected(contract, recipe, sizes(contract, dims)["m"])
    if expected.quantised is not None:
        verdicts = quantised.judge(contract, dims, outputs, covered, expected.quantised, RMS_NORM)
    else:
        error = RMS_NORM.value_error * np.abs(expected.y) + 2.0**-149
        rows = _rows(QUANTISED, contract, dims)
        verdicts = {QUANTISED: quantised.judge_bf16(rows, outputs, covered, expected.y, error, recipe.regime)}
    if expected.residual_out is None:
        return Judgement(verdicts=verdicts)
    rows = _rows("residual_out", contract, dims)
    verdicts["residual_out"] = quantised.judge_bits(rows, outputs, covered, expected.residual_out)
    return Judgement(verdicts=verdicts, bit_equal=verdicts["residual_out"].passed)


def _inputs(contract: Contract, recipe: Recipe, m: int) -> Inputs:
    k = contract.exact("k")
    x = _within(activations(recipe, m, k))
    residual = _within(activations(recipe, m, k, purpose="residual", nan=False))
    spread = Stream(recipe.seed, "weight").normal((k,)) * 0.25
    if recipe.regime is Regime.EXACT:
        residual, spread = x, np.zeros(k)
    centre = 1.0 if contract.numerics["weight"] is Weight.PLAIN else 0.0
    weight = bf16.rounded(centre + spread)
    if contract.dtypes["weight"] is DType.FP32:
        weight = (centre + spread).astype(np.float32)
    return Inputs(
        x=x,
        residual=residual if "residual" in contract.dtypes else None,
        weight=weight,
    )


def _within(x: F32) -> F32:
    """Return x with what lies beyond the operation's range brought inside; NaN stays."""
    return np.where(np.abs(x) > LARGEST, np.copysign(LARGEST, x), x)


def _rows(name: str, contract: Contract, dims: Mapping[str, int]) -> Tensor:
    size = sizes(contract, dims)
    return output_tensor(name, DType.BF16, (size["m"], size["k"]))


@lru_cache(maxsize=8)
def _expected(contract: Contract, recipe: Recipe, m: int) -> RmsNorm:
    inputs = _inputs(contract, recipe, m)
    epsilon = contract.numerics["epsilon"]
    assert isinstance(epsilon, float)
    staging, one_plus = quantised.staging_of(contract), contract.numerics["weight"] is Weight.ONE_PLUS
    if QUANTISED not in contract.scales:
        return rms_norm(
            inputs.x, inputs.weight, eps=epsilon, residual=inputs.residual, h=staging, one_plus_weight=one_plus
        )
    rules = quantised.Rules.of(contract)
    return rms_norm_quant(
        inputs.x,
        inputs.weight,
        eps=epsilon,
        residual=inputs.residual,
        h=staging,
        one_plus_weight=one_plus,
        flavour=rules.flavour,
        overflow=rules.overflow,
        amax_floor=rules.amax_floor,
        group=rules.group,
    )
