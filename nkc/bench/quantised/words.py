"""What tells contracts of one size apart, as a table says it."""

from nkc.ir.contract import Contract, DType, Gate, Layout, Quantize
from nkc.ir.quantising import QUANTISED


def words(contract: Contract) -> tuple[str, ...]:
    """Return a word for everything that is not what deployments have most."""
    scale = contract.scales.get(QUANTISED)
    said = {
        "residual": "residual" in contract.dtypes,
        "product stored": "product" in contract.dtypes,
        "interleaved": contract.epilogue.gate is Gate.INTERLEAVED,
        "bf16 out": contract.dtypes[QUANTISED] is DType.BF16,
        "M-major": scale is not None and scale.layout is Layout.M_MAJOR,
        str(contract.numerics.get("quantize")): contract.numerics.get("quantize", Quantize.DIVIDE)
        is not Quantize.DIVIDE,
    }
    return tuple(word for word, there in said.items() if there)
