"""How the proof contracts of quantising kernels are written: through the one door, from what varies between them."""

from collections.abc import Mapping

from nkc.ir.contract import CONTRACT_SCHEMA, Contract
from nkc.ir.quantising import AMAX_FLOOR
from nkc.ir.reader import parse_document
from nkc.tactics.tactic import Tactic

M_MAJOR: Mapping[str, object] = {"block": [1, 128], "layout": "m_major"}
M_MAJOR_PADDED: Mapping[str, object] = {**M_MAJOR, "leading_dim": {"multiple_of": 4}}
ROW_MAJOR: Mapping[str, object] = {"block": [1, 128], "layout": "row_major"}


def rules(quantize: str, overflow: str, amax_floor: float = AMAX_FLOOR) -> dict[str, object]:
    """Return the numerical rules about codes."""
    return {"quantize": quantize, "overflow": overflow, "amax_floor": amax_floor}


def up_to(m: int) -> dict[str, int]:
    """Return a bounded dim from no rows to m."""
    return {"min": 0, "max": m}


def proof(
    tactic: Tactic,
    *,
    m: int | dict[str, int],
    k: int,
    dtypes: Mapping[str, str],
    numerics: Mapping[str, object],
    scales: Mapping[str, object] | None = ROW_MAJOR,
    epilogue: Mapping[str, str] | None = None,
) -> Contract:
    """Return a proof contract; its document says no more than a user's would. scales: of `out`, None without codes."""
    return parse_document(
        {
            "schema": CONTRACT_SCHEMA,
            "target": {"arch": tactic.target},
            "operation": tactic.operation,
            "shape": {"m": m, "k": k},
            "dtypes": dict(dtypes),
            "scales": {} if scales is None else {"out": dict(scales)},
            "layouts": dict.fromkeys(dtypes, "row_major"),
            "epilogue": None if epilogue is None else dict(epilogue),
            "numerics": dict(numerics),
        },
        f"proof of {tactic.name}",
    )
