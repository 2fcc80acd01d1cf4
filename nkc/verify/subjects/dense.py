"""dense: inputs by regime, and results held against the float64 value within the contract's derived bound.

Codes and their scales are held against those of values within the bound: see `nkc.verify.legal_codes`.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nkc.ir import operations, targets
from nkc.ir.contract import Accumulate, Contract, DType, Layout
from nkc.ir.operations.dense import block_scaled
from nkc.ir.quantising import QUANTISED
from nkc.ir.scales import leading_extent
from nkc.verify import bounds, legal_codes, quantised
from nkc.verify.memory import Bits, Tensor, dense_tensor, m_major_tensor, output_tensor
from nkc.verify.numbers import bf16, fp8
from nkc.verify.oracles import dense, epilogues
from nkc.verify.oracles.dense import Chain, Operands
from nkc.verify.oracles.group_quant import Quantised
from nkc.verify.oracles.matrix_unit import FP32_FMA, HOPPER_FP8, MatrixUnit, from_facts
from nkc.verify.regimes import DenseInputs, Recipe, Regime, dense_bf16_inputs, dense_inputs
from nkc.verify.subject import Judgement, sizes

F64 = NDArray[np.float64]
FP32_OVERFLOW = 2.0**128
PREDICTED_PRODUCTS = 1 << 27
"""Products up to which every bit is predicted: some seconds."""


def tensors(contract: Contract, recipe: Recipe, dims: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Return a, b, their scales, the bias and the poisoned outputs."""
    m, n = (sizes(contract, dims)[name] for name in "mn")
    inputs = _inputs(contract, recipe, m)
    made = [dense_tensor("a", contract.dtypes["a"], inputs.a), dense_tensor("b", contract.dtypes["b"], inputs.b)]
    if inputs.scale_a is not None and inputs.scale_b is not None:
        made.append(_activation_scales(contract, inputs.scale_a, dims))
        made.append(dense_tensor("b_scales", DType.FP32, inputs.scale_b))
    if contract.epilogue.dtype is not None:
        bias = bf16.encode(inputs.bias) if contract.epilogue.dtype is DType.BF16 else inputs.bias
        made.append(dense_tensor("bias", contract.epilogue.dtype, bias))
    if QUANTISED in contract.scales:
        return (*made, *quantised.outputs(contract, dims))
    return (*made, output_tensor("out", contract.dtypes["out"], (m, n)))


def judge(
    contract: Contract,
    recipe: Recipe,
    dims: Mapping[str, int],
    outputs: Mapping[str, Bits],
    covered: Mapping[str, NDArray[np.bool_]],
) -> Judgement:
    """Judge the output: within the bound everywhere; bit-equal where the data is exact."""
    m = sizes(contract, dims)["m"]
    if QUANTISED in contract.scales:
        return _judge_codes(contract, recipe, dims, outputs, covered)
    got = decoded(contract, "out", outputs["out"], dims)
    value, bound = _expected(contract, recipe, m)
    stored_bf16 = contract.dtypes["out"] is DType.BF16
    kept = covered["out"].reshape(got.shape) if "out" in covered else np.ones(got.shape, np.bool_)
    verdict = bounds.judge(
        np.where(kept, got, value),
        value,
        bound,
        overflow=bounds.BF16_OVERFLOW if stored_bf16 else FP32_OVERFLOW,
        err_ratio_limit=bounds.bf16_store_ratio(value) if stored_bf16 else None,
    )
    if recipe.regime is not Regime.EXACT:
        return Judgement(verdicts={"out": verdict})
    differs = bounds.first_difference(got, _exact(contract, recipe, m), kept)
    return Judgement(
        verdicts={"out": verdict}, bit_equal=differs is None, differs={} if differs is None else {"out": differs}
    )


def _judge_codes(
    contract: Contract,
    recipe: Recipe,
    dims: Mapping[str, int],
    outputs: Mapping[str, Bits],
    covered: Mapping[str, NDArray[np.bool_]],
) -> Judgement:
    m = sizes(contract, dims)["m"]
    value, error = _expected(contract, recipe, m)
    verdicts = legal_codes.judge(contract, dims, outputs, covered, value, error)
    if recipe.regime is not Regime.EXACT:
        return Judgement(verdicts=verdicts)
    expected = _codes(contract, _exact(contract, recipe, m))
    return Judgement(verdicts=verdicts, bit_equal=quantised.equal(contract, dims, outputs, covered, expected))


def decoded(contract: Contract, name: str, bits: Bits, dims: Mapping[str, int]) -> NDArray[np.float32]:
    """Return an output's storage as fp32 values [m, n]; the scales of codes as they lie in memory."""
    size = sizes(contract, dims)
    if name == quantised.SCALES:
        return bits.astype(np.float32)
    values = _DECODED[contract.dtypes[name]](bits)
    return values.reshape(size["m"], size["n"])


_DECODED: Mapping[DType, Callable[[Bits], NDArray[np.float32]]] = {
    DType.BF16: lambda bits: bf16.decode(bits.astype(np.uint16)),
    DType.FP32: lambda bits: bits.astype(np.float32),
    DType.FP8_E4M3: lambda bits: fp8.decode(bits.astype(np.uint8)),
}


def predict(
    contract: Contract, unit: MatrixUnit, recipe: Recipe, dims: Mapping[str, int]
) -> Mapping[str, NDArray[np.float32]] | None:
    """Return the output as this unit would make it, to the bit; None where that takes too long.

    The unit's sums of each scale block, promoted in the chains of the sealed schedule, which are added left to right.
    """
    size = sizes(contract, dims)
    if size["m"] * size["n"] * size["k"] > PREDICTED_PRODUCTS:
        return None
    operands, bias = _operands(contract, recipe, size["m"])
    accumulator = dense.accumulator(operands, unit, chains=chains_of(contract, operands))
    finished = _finished(contract, accumulator, bias)
    if QUANTISED not in contract.scales:
        return {"out": finished}
    made, (_, scales) = _codes(contract, finished), quantised.outputs(contract, dims)
    stored = np.full(scales.storage.size, np.nan, np.float32)  # a NaN predicts nothing: padding is judged elsewhere
    scales.view(stored)[...] = made.scales
    return {QUANTISED: fp8.decode(made.codes), scales.name: stored}


def unit_of(contract: Contract) -> MatrixUnit:
    """Return the matrix unit that the contract's rule allows on its target, by the target's facts."""
    facts = targets.get(contract.target.arch).facts
    accumulate = contract.numerics["accumulate"]
    if accumulate is Accumulate.FP32_SEQUENTIAL:
        return FP32_FMA
    if accumulate is Accumulate.TENSOR_CORE_FP8:
        stated = tuple(facts[f"matrix_fp8_{name}"].value for name in ("group", "kept_bits", "register_bits"))
        unit = HOPPER_FP8
        assert stated == (unit.group, unit.addend_fraction_bits, unit.fraction_bits), "one measured unit"
        return unit
    # On a chip whose fp8 unit keeps fewer bits, this rule is served through f16.
    native = facts["matrix_fp8_kept_bits"].value
    kind = "bf16" if not block_scaled(contract) else "fp8" if isinstance(native, int) and native >= 23 else "f16"
    kept, truncates = (facts[f"matrix_{kind}_{name}"].value for name in ("kept_bits", "truncates"))
    assert isinstance(kept, int)
    return from_facts(kept_bits=kept, truncates=bool(truncates))


def chains_of(contract: Contract, operands: Operands) -> tuple[Chain, ...]:
    """Return the chains of the sealed schedule: piece p of s takes the steps from floor(p steps / s) on."""
    assert contract.schedule is not None
    assert contract.schedule.tile is not None
    split, width = contract.schedule.split_k or 1, contract.schedule.tile[2]
    steps = operands.k // width
    edges = [piece * steps // split * width for piece in range(split + 1)]
    if not operands.scaled:
        return tuple(((low, high),) for low, high in itertools.pairwise(edges) if high > low)
    blocks = tuple(operands.blocks())
    cut = (tuple(b for b in blocks if low <= b[0] < high) for low, high in itertools.pairwise(edges))
    return tuple(chain for chain in cut if chain)


@lru_cache(maxsize=1)
def _inputs(contract: Contract, recipe: Recipe, m: int) -> DenseInputs:
    """Return what the recipe makes, kept from making it to judging with it: nobody writes into it."""
    n, k = contract.exact("n"), contract.exact("k")
    if not block_scaled(contract):
        return dense_bf16_inputs(recipe, m, n, k)
    block_n, block_k = contract.scales["b"].block
    return dense_inputs(recipe, m, n, k, block_n=block_n, block_k=block_k)


def _operands(contract: Contract, recipe: Recipe, m: int) -> tuple[Operands, NDArray[np.float32]]:
    inputs = _inputs(contract, recipe, m)
    if not block_scaled(contract):
        return inputs.operands(), inputs.bias
    block_n, block_k = contract.scales["b"].block
    return inputs.operands(block_n, block_k), inputs.bias


def _activation_scales(contract: Contract, scales: NDArray[np.float32], dims: Mapping[str, int]) -> Tensor:
    if contract.scales["a"].layout is Layout.ROW_MAJOR:
        return dense_tensor("a_scales", DType.FP32, scales)
    operand = operations.get("dense").operand("a")
    return m_major_tensor("a_scales", DType.FP32, scales, leading_extent(contract, operand, "m").of(dict(dims)))


@lru_cache(maxsize=8)
def _expected(contract: Contract, recipe: Recipe, m: int) -> tuple[F64, F64]:
    operands, bias = _operands(contract, recipe, m)
    return expected(contract, operands, bias, chains_of(contract, operands))


def expected(
    contract: Contract, operands: Operands, bias: NDArray[np.float32], chains: tuple[Chain, ...]
) -> tuple[F64, F64]:
    """Return the float64 value and the bound of every element as it is stored, or waits to be quantised."""
    value, bound = dense.value(operands), bounds.dense_error(operands, unit_of(contract), chains)
    match contract.epilogue.kind:
        case "identity":
            pass
        case "bias":
            value = epilogues.bias(value, bias)
            bound = bounds.bias_error(value, bound)
        case kind:
            raise NotImplementedError(f"no judgement for epilogue {kind}")
    if contract.dtypes["out"] is DType.BF16:
        bound = bounds.bf16_store_error(value, bound)
    return value, bound


@lru_cache(maxsize=1)
def _exact(contract: Contract, recipe: Recipe, m: int) -> NDArray[np.float32]:
    """Return the output of exact data: every partial sum is representable, so the value is the accumulator."""
    operands, bias = _operands(contract, recipe, m)
    return _finished(contract, dense.value(operands).astype(np.float32), bias)


def _finished(contract: Contract, accumulator: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what is stored, or waits to be quantised, of an accumulator: the epilogue in fp32, then one rounding."""
    if contract.epilogue.kind == "bias":
        with np.errstate(invalid="ignore", over="ignore"):
            accumulator = accumulator + bias.astype(np.float32)  # one fp32 addition
    if QUANTISED in contract.scales:
        return legal_codes.staged(accumulator, quantised.staging_of(contract))
    return bf16.rounded(accumulator) if contract.dtypes["out"] is DType.BF16 else accumulator


def _codes(contract: Contract, finished: NDArray[np.float32]) -> Quantised:
    """Return what `group_quant` makes of results that wait for it."""
    return legal_codes.quantise(finished, quantised.Rules.of(contract))
