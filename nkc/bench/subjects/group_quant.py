"""group_quant: every bit of codes and scales against the oracle; torch beside it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nkc.bench.quantised import value
from nkc.bench.quantised.benched import benched
from nkc.bench.quantised.gate import Expected
from nkc.ir.contract import Contract
from nkc.verify import quantised
from nkc.verify.oracles.group_quant import group_quant
from nkc.verify.quant_bounds import EXACT


def expected(contract: Contract, rows: Mapping[str, NDArray[np.float32]]) -> Expected:
    """Return what these rows must be."""
    rules = quantised.Rules.of(contract)
    found = group_quant(
        rows["x"], flavour=rules.flavour, overflow=rules.overflow, amax_floor=rules.amax_floor, group=rules.group
    )
    return Expected(quantised=found, limits=EXACT, near={}, bits={})


BENCHED = benched(
    expected,
    value.of_group_quant,
    compiled_same_rule=lambda _: False,  # a compiled division has not every bit
)
