"""group_quant: every bit of codes and scales against the oracle; torch beside it."""

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


def baselines(cell: Cell) -> tuple[Baseline, ...]:
    """Return torch, and a copy of as many bytes. A compiled division has not every bit."""
    return peers(cell, value.of_group_quant, compiled_same_rule=False)


BENCHED = Benched(
    oracle=ORACLE,
    recipe=RECIPE,
    bandwidth="copy",
    flops=lambda _: 0,
    products=None,
    make=make,
    baselines=baselines,
    reference=partial(Reference, oracle=expected, value=value.of_group_quant),
    words=words,
)
