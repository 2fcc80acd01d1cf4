"""group_quant: inputs by regime, and results that must have the oracle's bits: every flavour states all of them."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nkc.ir.contract import Contract, DType
from nkc.verify import quantised
from nkc.verify.memory import Bits, Tensor, dense_tensor
from nkc.verify.numbers import bf16
from nkc.verify.oracles.group_quant import Quantised, group_quant
from nkc.verify.quant_bounds import EXACT
from nkc.verify.regimes import Recipe, activations
from nkc.verify.subject import Judgement, sizes


def tensors(contract: Contract, recipe: Recipe, dims: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Return x and the poisoned outputs."""
    x = _input(contract, recipe, sizes(contract, dims)["m"])
    stored = bf16.encode(x) if contract.dtypes["x"] is DType.BF16 else x
    return dense_tensor("x", contract.dtypes["x"], stored), *quantised.outputs(contract, dims)


def judge(
    contract: Contract,
    recipe: Recipe,
    dims: Mapping[str, int],
    outputs: Mapping[str, Bits],
    covered: Mapping[str, NDArray[np.bool_]],
) -> Judgement:
    """Judge codes and scales: bit-equal in every regime."""
    expected = _expected(contract, recipe, sizes(contract, dims)["m"])
    return Judgement(
        verdicts=quantised.judge(contract, dims, outputs, covered, expected, EXACT),
        bit_equal=quantised.equal(contract, dims, outputs, covered, expected),
    )


def _input(contract: Contract, recipe: Recipe, m: int) -> NDArray[np.float32]:
    """Return x: exact in bf16, or for fp32 with a fraction below bf16's."""
    k = contract.exact("k")
    x = activations(recipe, m, k)
    return x if contract.dtypes["x"] is DType.BF16 else with_fp32_fractions(x, recipe)


def with_fp32_fractions(x: NDArray[np.float32], recipe: Recipe) -> NDArray[np.float32]:
    """Return x with the lower half of each fp32 drawn anew, where that moves neither zeros nor what must be exact."""
    from nkc.verify.regimes import Regime
    from nkc.verify.regimes.stream import Stream

    if recipe.regime in (Regime.EXACT, Regime.EDGES):
        return x
    low = Stream(recipe.seed, "fp32 fractions").integers(x.shape, 0, 1 << 16).astype(np.uint32)
    return np.where(x == 0, x, (x.view(np.uint32) | low).view(np.float32))


@lru_cache(maxsize=8)
def _expected(contract: Contract, recipe: Recipe, m: int) -> Quantised:
    rules = quantised.Rules.of(contract)
    return group_quant(
        _input(contract, recipe, m),
        flavour=rules.flavour,
        overflow=rules.overflow,
        amax_floor=rules.amax_floor,
        group=rules.group,
    )
