"""Codes and scales as a kernel leaves them: the poisoned outputs it is given, and how what it wrote is judged."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkc.ir import contract as rules
from nkc.ir import operations
from nkc.ir.contract import Contract, DType, Layout
from nkc.ir.quantising import QUANTISED
from nkc.ir.scales import argument_name, leading_extent
from nkc.verify import bounds
from nkc.verify.bounds import Failure, Verdict
from nkc.verify.memory import POISON, STORAGE, Bits, Tensor, m_major_output, output_tensor
from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.oracles.group_quant import Flavour, Quantised
from nkc.verify.oracles.silu_mul_quant import Intermediate
from nkc.verify.quant_bounds import QuantLimits, judge_quantised
from nkc.verify.regimes import Regime
from nkc.verify.subject import sizes

SCALES = argument_name(QUANTISED)
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A contract's rules about codes, in the oracle's terms."""

    flavour: Flavour
    overflow: Overflow
    amax_floor: float
    group: int

    @classmethod
    def of(cls, contract: Contract) -> "Rules":
        """Read them off a contract."""
        floor = contract.numerics["amax_floor"]
        assert isinstance(floor, float)
        ieee = contract.numerics["overflow"] is rules.Overflow.IEEE
        return cls(
            flavour=Flavour(str(contract.numerics["quantize"])),
            overflow=Overflow.IEEE if ieee else Overflow.SATURATE,
            amax_floor=floor,
            group=contract.scales[QUANTISED].block[1],
        )


def staging_of(contract: Contract) -> Intermediate:
    """Return the contract's staging in the oracle's terms."""
    return Intermediate(str(contract.numerics["staging"]))


def outputs(contract: Contract, dims: Mapping[str, int]) -> tuple[Tensor, Tensor]:
    """Return the codes and their scales, poisoned; lanes between m and a padded leading dimension are poisoned too."""
    size, operand = sizes(contract, dims), operations.get(contract.operation).operand(QUANTISED)
    rows, columns = (size[axis] for axis in operand.axes)
    groups = columns // contract.scales[QUANTISED].block[1]
    codes = output_tensor(QUANTISED, contract.dtypes[QUANTISED], (rows, columns))
    if contract.scales[QUANTISED].layout is Layout.ROW_MAJOR:
        return codes, output_tensor(SCALES, DType.FP32, (rows, groups))
    leading = leading_extent(contract, operand, "m").of(dict(dims))
    return codes, m_major_output(SCALES, DType.FP32, (rows, groups), leading)


def judge(
    contract: Contract,
    dims: Mapping[str, int],
    left: Mapping[str, Bits],
    covered: Mapping[str, Mask],
    expected: Quantised,
    limits: QuantLimits,
    *,
    value: F64 | None = None,
    intermediate: Intermediate = Intermediate.FP32,
) -> dict[str, Verdict]:
    """Judge codes and scales; what a sampled run did not compute counts as the oracle's."""
    tensors = {tensor.name: tensor for tensor in outputs(contract, dims)}
    codes = logical(tensors[QUANTISED], left, covered, expected.codes)
    scales = logical(tensors[SCALES], left, covered, expected.scales)
    said = Rules.of(contract)
    found = judge_quantised(
        codes.astype(np.uint8),
        scales.astype(np.float32),
        expected,
        limits,
        overflow=said.overflow,
        flavour=said.flavour,
        value=value,
        intermediate=intermediate,
    )
    allowed = math.ceil(limits.moved * codes.size)
    moved = found.moved * codes.size / allowed if allowed else 0.0
    step = found.scale_ulp / limits.scale_ulp if limits.scale_ulp else (np.inf if found.scale_ulp else 0.0)
    spilled = pad_written(tensors[SCALES], left[SCALES])
    far = fp32.ulp_distance(scales.astype(np.float32), expected.scales) > limits.scale_ulp
    scales_pass = found.scale_ulp <= limits.scale_ulp and not spilled
    return {
        QUANTISED: Verdict(
            passed=found.outside == 0 and (found.passed or found.scale_ulp > limits.scale_ulp),
            worst=float(np.inf) if found.outside else float(moved),
            err_ratio=0.0,
            err_ratio_limit=None,
            failures=found.outside,
            first=found.first,
        ),
        SCALES: Verdict(
            passed=scales_pass,
            worst=float(np.inf) if spilled else float(step),
            err_ratio=0.0,
            err_ratio_limit=None,
            failures=0 if scales_pass else max(1, int(far.sum())),
            first=None if scales_pass else _first(scales, expected.scales, far),
        ),
    }


def equal(
    contract: Contract,
    dims: Mapping[str, int],
    left: Mapping[str, Bits],
    covered: Mapping[str, Mask],
    expected: Quantised,
) -> bool:
    """Return whether every code and scale has the oracle's bits; a NaN need only be a NaN, in either format."""
    tensors = {tensor.name: tensor for tensor in outputs(contract, dims)}
    codes = logical(tensors[QUANTISED], left, covered, expected.codes).astype(np.uint8)
    scales = logical(tensors[SCALES], left, covered, expected.scales).astype(np.float32)
    same_code = (codes == expected.codes) | (fp8.is_nan(codes) & fp8.is_nan(expected.codes))
    same_scale = (fp32.bits(scales) == fp32.bits(expected.scales)) | (np.isnan(scales) & np.isnan(expected.scales))
    return bool(same_code.all() and same_scale.all())


def judge_bf16(
    tensor: Tensor, left: Mapping[str, Bits], covered: Mapping[str, Mask], value: F64, error: F64, regime: Regime
) -> Verdict:
    """Judge a bf16 output against a float64 value with this error before its one rounding store.

    The ratio of RMS is held to its limit on model-like data alone: elsewhere few elements carry all of it, and one
    rounding may lose u_b of them.
    """
    bits = logical(tensor, left, covered, bf16.encode(value)).astype(np.uint16)
    return bounds.judge(
        bf16.decode(bits),
        value,
        bounds.bf16_store_error(value, error),
        overflow=bounds.BF16_OVERFLOW,
        err_ratio_limit=bounds.BF16_STORE_RATIO if regime is Regime.MODEL_LIKE else None,
    )


def judge_bits(
    tensor: Tensor, left: Mapping[str, Bits], covered: Mapping[str, Mask], wanted: NDArray[np.uint16]
) -> Verdict:
    """Judge a bf16 output that must have these bits; a NaN need only be a NaN."""
    bits = logical(tensor, left, covered, wanted).astype(np.uint16)
    got, expected = bf16.decode(bits), bf16.decode(wanted)
    off = (bits != wanted) & ~(np.isnan(got) & np.isnan(expected))
    return Verdict(
        passed=not off.any(),
        worst=float(np.inf) if off.any() else 0.0,
        err_ratio=0.0,
        err_ratio_limit=None,
        failures=int(off.sum()),
        first=_first(got, expected, off) if off.any() else None,
    )


def logical(tensor: Tensor, left: Mapping[str, Bits], covered: Mapping[str, Mask], wanted: Bits) -> Bits:
    """Return the logical view of what a run left, with the oracle's value wherever it computed nothing."""
    got = tensor.view(np.ascontiguousarray(left[tensor.name]).view(STORAGE[tensor.dtype]))
    if tensor.name not in covered:
        return got
    flat = np.ascontiguousarray(covered[tensor.name])
    kept = np.lib.stride_tricks.as_strided(flat, tensor.shape, tensor.strides)
    return np.where(kept, got, wanted.astype(got.dtype))


def pad_written(tensor: Tensor, storage: Bits) -> bool:
    """Return whether anything but poison lies in storage that the logical tensor does not reach."""
    reached = np.zeros(tensor.storage.size, np.bool_)
    np.lib.stride_tricks.as_strided(reached, tensor.shape, tensor.strides)[...] = True
    raw = np.ascontiguousarray(storage).view(np.uint8).reshape(tensor.storage.size, -1)
    return bool((raw[~reached] != POISON).any())


def _first(got: Bits, expected: Bits, off: Mask) -> Failure | None:
    if not off.any():
        return None
    place = tuple(int(i) for i in np.argwhere(off)[0])
    return Failure(index=place, expected=float(expected[place]), got=float(got[place]), bound=0.0)
