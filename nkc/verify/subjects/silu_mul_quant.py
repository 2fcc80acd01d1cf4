"""silu_mul_quant: inputs by regime, codes and scales inside the limits of an fp32 product, the product by its bound."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nkc.ir.contract import Contract, DType, Gate
from nkc.verify import bounds, quantised
from nkc.verify.memory import Bits, Tensor, dense_tensor, output_tensor
from nkc.verify.numbers import bf16
from nkc.verify.oracles.epilogues import Halves
from nkc.verify.oracles.silu_mul_quant import SiluMulQuant, silu_mul_quant
from nkc.verify.quant_bounds import SILU_MUL
from nkc.verify.regimes import Recipe, activations
from nkc.verify.subject import Judgement, sizes


def tensors(contract: Contract, recipe: Recipe, dims: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Return x and the poisoned outputs."""
    x = _input(contract, recipe, sizes(contract, dims)["m"])
    stored = (_product(contract, dims),) if "product" in contract.dtypes else ()
    return dense_tensor("x", DType.BF16, bf16.encode(x)), *stored, *quantised.outputs(contract, dims)


def judge(
    contract: Contract,
    recipe: Recipe,
    dims: Mapping[str, int],
    outputs: Mapping[str, Bits],
    covered: Mapping[str, NDArray[np.bool_]],
) -> Judgement:
    """Judge codes and scales, and the product where it is stored."""
    m = sizes(contract, dims)["m"]
    expected = _expected(contract, recipe, m)
    verdicts = quantised.judge(
        contract,
        dims,
        outputs,
        covered,
        expected.quantised,
        SILU_MUL,
        value=expected.value,
        intermediate=quantised.staging_of(contract),
    )
    if "product" in contract.dtypes:
        x = _input(contract, recipe, m).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            error = bounds.gated_silu_error(x, np.zeros_like(x), _order(contract))
        verdicts["product"] = quantised.judge_bf16(
            _product(contract, dims), outputs, covered, expected.value, error, recipe.regime
        )
    return Judgement(verdicts=verdicts)


def _input(contract: Contract, recipe: Recipe, m: int) -> NDArray[np.float32]:
    return activations(recipe, m, 2 * contract.exact("k"))


def _order(contract: Contract) -> Halves:
    return Halves.HALVES if contract.epilogue.gate is Gate.HALVES else Halves.INTERLEAVED


def _product(contract: Contract, dims: Mapping[str, int]) -> Tensor:
    size = sizes(contract, dims)
    return output_tensor("product", DType.BF16, (size["m"], size["k"]))


@lru_cache(maxsize=8)
def _expected(contract: Contract, recipe: Recipe, m: int) -> SiluMulQuant:
    rules = quantised.Rules.of(contract)
    return silu_mul_quant(
        _input(contract, recipe, m),
        order=_order(contract),
        intermediate=quantised.staging_of(contract),
        flavour=rules.flavour,
        overflow=rules.overflow,
        amax_floor=rules.amax_floor,
        group=rules.group,
    )
