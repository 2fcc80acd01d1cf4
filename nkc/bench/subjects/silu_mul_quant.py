"""silu_mul_quant: codes and scales inside the limits of an fp32 product; torch beside it."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nkc.bench.baseline import Baseline
from nkc.bench.cell import Cell
from nkc.bench.quantised import value
from nkc.bench.quantised.gate import ORACLE, Expected, Reference
from nkc.bench.quantised.operands import RECIPE, make
from nkc.bench.quantised.peers import peers
from nkc.bench.quantised.words import words
from nkc.bench.subjects import Benched
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


def baselines(cell: Cell) -> tuple[Baseline, ...]:
    """Return torch, and a copy of as many bytes."""
    contract = cell.contract
    return peers(cell, value.of_silu_mul_quant, compiled_same_rule=contract.numerics["staging"] is Staging.FP32)


BENCHED = Benched(
    oracle=ORACLE,
    recipe=RECIPE,
    bandwidth="copy",
    flops=lambda _: 0,
    products=None,
    make=make,
    baselines=baselines,
    reference=partial(Reference, oracle=expected, value=value.of_silu_mul_quant),
    words=words,
)
