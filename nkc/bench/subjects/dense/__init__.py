"""dense: products of random operands, held against float64, beside the libraries that make them."""

from collections.abc import Mapping

from nkc.bench.quantised.words import words as said
from nkc.bench.subjects import Benched
from nkc.bench.subjects.dense.gate import ORACLE, Reference
from nkc.bench.subjects.dense.libraries import baselines
from nkc.bench.subjects.dense.operands import RECIPE, make
from nkc.ir.contract import Contract, DType
from nkc.ir.quantising import QUANTISED


def flops(size: Mapping[str, int]) -> int:
    """Return a multiplication and an addition for each product."""
    return 2 * size["m"] * size["n"] * size["k"]


def products(contract: Contract) -> str:
    """Return which ceiling bounds the products."""
    return "fp8" if contract.dtypes["a"] is DType.FP8_E4M3 else "bf16"


def words(contract: Contract) -> tuple[str, ...]:
    """Return what a result of codes has beside what deployments have most; nothing for values."""
    return ("codes", *said(contract)) if QUANTISED in contract.scales else ()


BENCHED = Benched(
    oracle=ORACLE,
    recipe=RECIPE,
    bandwidth="read",
    flops=flops,
    products=products,
    make=make,
    baselines=baselines,
    reference=Reference,
    words=words,
)
