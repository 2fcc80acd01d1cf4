"""Inputs of the quantising and normalising operations: rows of values exact in bf16, in each regime."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nkc.verify.numbers import bf16, fp8
from nkc.verify.regimes.dense import nan_row
from nkc.verify.regimes.recipe import Recipe, Regime
from nkc.verify.regimes.stream import Stream, finite_codes

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def activations(recipe: Recipe, m: int, d: int, *, group: int = 128, purpose: str = "x", nan: bool = True) -> F32:
    """Return values [M, D], exact in bf16, for the quantising and normalising operations.

    `exact`: each group's amax is 448 times a power of two and every element is a code times it, so codes and scales
    come out without rounding. `edges`: per group one of K10's ties, zeros, -0.0, a tiny group below the floor,
    subnormals, one huge value; `nan` puts a NaN into one row (never into the only one).
    """
    stream = Stream(recipe.seed, purpose)
    groups = -(-d // group)
    match recipe.regime:
        case Regime.EXACT:
            codes = fp8.decode(finite_codes(stream, (m, groups, group))).astype(np.float64)
            codes[:, :, 0] = 448.0
            x = codes * np.ldexp(1.0, stream.integers((m, groups, 1), -12, 8))
        case Regime.MODEL_LIKE:
            x = stream.normal((m, groups, group)) * stream.log_normal((m, 1, 1), 1.0)
        case Regime.WIDE:
            exponent = stream.integers((m, groups, 1), -40, 40) + stream.integers((m, groups, group), -12, 1)
            fraction = stream.integers((m, groups, group), 0, 128) / 128
            x = stream.signs((m, groups, group)) * np.ldexp(1 + fraction, exponent)
        case Regime.EDGES:
            x = _edge_groups(group)[stream.integers((m, groups), 0, _edge_groups(group).shape[0])]
            if nan and m > 1:
                x[nan_row(m), groups // 2, group // 3] = np.nan
    return bf16.rounded(x).reshape(m, groups * group)[:, :d]


def _edge_groups(group: int) -> F64:
    """The groups that quantisers get wrong, one a row."""
    ties = [448, 1.0625, 1.1875, 2**-10, 3 * 2**-10, 17, 19, 432, -17, -0.0, 447, 5 * 2**-10]
    rows = [
        ties,
        [0.0],
        [-0.0, 0.0],
        [1e-12, -3e-13, 2e-11],  # below the floor of 1e-10: tiny, not zero
        [2.0**-130, -(2.0**-133), 2.0**-126],  # bf16 subnormals
        [3e38, -1e30, 1.0],
        [-448.0, 464.0, 465.0, 1000.0],
        [168.0, 448.0, -168.0, 176.0],
    ]
    table = np.zeros((len(rows), group))
    for place, row in enumerate(rows):
        table[place, : min(group, len(row))] = row[:group]
    table[2] = -0.0
    return table
