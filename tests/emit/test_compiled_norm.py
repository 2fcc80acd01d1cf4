"""The norm of many rows through the compiler: whatever a contract leaves out or lays out otherwise, nothing spills."""

import re
from collections.abc import Iterator

import pytest

from nkc.emit.hold import hold
from nkc.emit.render import render
from nkc.emit.toolchains.by_language import Toolchains
from nkc.ir import targets
from nkc.ir.reader import parse_document
from nkc.tactics import tactics_of
from nkc.tactics.tactic import Lowered
from tests.fixtures.toolchain import nvrtc_is_installed

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(not nvrtc_is_installed(), reason="NVRTC is not installed (pip install 'nkc[nvrtc]')"),
]

TACTICS = tuple(tactic for tactic in tactics_of("rms_norm_quant") if ".rows_" in tactic.name)
ROW_MAJOR = {"block": [1, 128], "layout": "row_major"}
M_MAJOR = {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}}


@pytest.fixture(scope="module")
def toolchain() -> Iterator[Toolchains]:
    with Toolchains() as running:
        yield running


@pytest.mark.parametrize("scales", [ROW_MAJOR, M_MAJOR], ids=["row_major", "m_major"])
@pytest.mark.parametrize("tactic", TACTICS, ids=[tactic.name for tactic in TACTICS])
def test_the_longest_row_builds_without_a_spill_with_either_layout_of_scales(toolchain, tactic, scales) -> None:
    columns = int(re.search(r"rows_(\d+)_", tactic.name)[1])
    dtypes = {"x": "bf16", "weight": "bf16", "out": "fp8_e4m3"}
    contract = parse_document(
        {
            "schema": "nkc.contract/1",
            "target": {"arch": "sm_90"},
            "operation": "rms_norm_quant",
            "shape": {"m": 4096, "k": columns},
            "dtypes": dtypes,
            "scales": {"out": scales},
            "layouts": dict.fromkeys(dtypes, "row_major"),
            "numerics": {
                "reduce": "tree",
                "staging": "bf16",
                "weight": "plain",
                "epsilon": 1e-6,
                "quantize": "divide",
                "overflow": "saturate",
                "amax_floor": 1e-10,
            },
        },
        "norm",
    )
    lowered = tactic.lower(contract, tactic)
    source = render(Lowered(contract=lowered, tactic=tactic))
    built = toolchain.compile(source, targets.get("sm_90"))
    assert hold(built, source, lowered, tactic) == ()
