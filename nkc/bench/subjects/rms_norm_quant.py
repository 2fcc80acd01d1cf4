"""rms_norm_quant: codes and scales, or bf16, inside the limits of an fp32 norm, the sum to the bit; torch beside it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nkc.bench.quantised import value
from nkc.bench.quantised.benched import benched
from nkc.bench.quantised.gate import Expected
from nkc.ir.contract import Contract, Weight
from nkc.ir.quantising import QUANTISED
from nkc.verify import quantised
from nkc.verify.oracles.rms_norm_quant import rms_norm, rms_norm_quant
from nkc.verify.quant_bounds import RMS_NORM


def expected(contract: Contract, rows: Mapping[str, NDArray[np.float32]]) -> Expected:
    """Return what these rows must be."""
    epsilon, one_plus = contract.numerics["epsilon"], contract.numerics["weight"] is Weight.ONE_PLUS
    assert isinstance(epsilon, float)
    residual, staging = rows.get("residual"), quantised.staging_of(contract)
    x, weight = rows["x"], rows["weight"]
    if QUANTISED not in contract.scales:
        found = rms_norm(x, weight, eps=epsilon, residual=residual, h=staging, one_plus_weight=one_plus)
        near = {QUANTISED: (found.y, RMS_NORM.value_error * np.abs(found.y) + 2.0**-149)}
    else:
        rules = quantised.Rules.of(contract)
        found = rms_norm_quant(
            x,
            weight,
            eps=epsilon,
            residual=residual,
            h=staging,
            one_plus_weight=one_plus,
            flavour=rules.flavour,
            overflow=rules.overflow,
            amax_floor=rules.amax_floor,
            group=rules.group,
        )
        near = {}
    bits = {} if found.residual_out is None else {"residual_out": found.residual_out}
    return Expected(quantised=found.quantised, limits=RMS_NORM, near=near, bits=bits)


BENCHED = benched(
    expected, value.of_rms_norm_quant, compiled_same_rule=lambda contract: "residual" not in contract.dtypes
)
