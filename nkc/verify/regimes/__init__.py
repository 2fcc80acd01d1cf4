"""Input regimes: recipes that give the same arrays on every machine, from a seed.

Only integers are drawn (Philox's raw stream), and only exact operations follow (sums of integers, powers of two, IEEE
division in the encoder), so that no library's logarithm or cosine decides a bit. The recipe is what a record holds;
`digest` names the arrays it made.

exact       small integers and powers of two: every partial sum is representable, so any order gives the same bits
model_like  normals with log-normal row scales, quantised per group: what a model's layer sees
wide        every finite code and many binades of scales: large cancellations, large and tiny results side by side
edges       zeros, -0, subnormals, ties, 448 and beyond, a NaN code in one row, zero groups, tiny groups
"""

from nkc.verify.regimes.activations import activations
from nkc.verify.regimes.dense import DenseInputs, dense_bf16_inputs, dense_inputs
from nkc.verify.regimes.exactness import prove_exact
from nkc.verify.regimes.recipe import Recipe, Regime, digest

__all__ = [
    "Recipe",
    "Regime",
    "digest",
    "DenseInputs",
    "dense_inputs",
    "dense_bf16_inputs",
    "activations",
    "prove_exact",
]
