"""silu_mul_quant: codes and scales inside the limits of an fp32 product; torch beside it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nkc.bench.quantised import value
from nkc.bench.quantised.benched import benched
from nkc.bench.quantised.gate import Expected
from nkc.ir.contract import Contract, Gate, Staging
from nkc.verify import bounds, quantised
from nkc.verify.oracles.epilogues import Halves
from nkc.verify.oracles.silu_mul_quant import silu_mul_quant
from nkc.verify.quant_bounds import SILU_MUL


def expected(contract: Contract, rows: Mapping[str, NDArray[np.float32]]) -> Expected:
    """Return what these rows must be."""
    rules, staging = quantised.Rules.of(contract), quantised.staging_of(contract)
    order = Halves.HALVES if contract.epilogue.gate is Gate.HALVES else Halves.INTERLEAVED
    found = silu_mul_quant(
        rows["x"],
        order=order,
        intermediate=staging,
        flavour=rules.flavour,
        overflow=rules.overflow,
        amax_floor=rules.amax_floor,
        group=rules.group,
    )
    near = {}
    if "product" in contract.dtypes:
        wide = rows["x"].astype(np.float64)
        near["product"] = found.value, bounds.gated_silu_error(wide, np.zeros_like(wide), order)
    return Expected(quantised=found.quantised, limits=SILU_MUL, value=found.value, staging=staging, near=near, bits={})


BENCHED = benched(
    expected,
    value.of_silu_mul_quant,
    compiled_same_rule=lambda contract: contract.numerics["staging"] is Staging.FP32,
)
