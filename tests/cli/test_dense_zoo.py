"""Every dense tactic of both targets compiles for N = 576, K = 7168 without a spill, all of them within a minute."""

import os

import pytest

from nkc.emit.build import build
from nkc.emit.toolchains.by_language import Toolchains
from nkc.tactics import Policy, Selection, select
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.tactic import DEPENDENT
from tests.fixtures.contracts import bf16, contract
from tests.fixtures.speed import slowness
from tests.fixtures.toolchain import nvrtc_is_installed

pytestmark = pytest.mark.toolchain

SECONDS = 60.0
BUILT: set[str] = set()
TACTICS = tuple(tactic for tactic in tactics_of("dense") if tactic.target in ("gfx950", "sm_90"))


@pytest.fixture(scope="module")
def toolchain():
    """One worker a language for all of them, as in a build of many contracts."""
    with Toolchains() as worker:
        yield worker


@pytest.fixture(scope="module")
def begun(toolchain) -> float:
    """Return the processor time before the first of them."""
    return spent()


def spent() -> float:
    """Return the processor time in seconds of this process and of the children that it has ended."""
    return sum(os.times()[:4])


def quantised(edits):
    """Return the edits of a contract whose result becomes codes: whole groups of columns, as group_quant makes them."""
    rules = {"staging": "bf16", "quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}
    scale = {"block": [1, 128], "layout": "row_major"}
    return {
        **edits,
        "$.shape": {**edits["$.shape"], "n": 640},
        "$.dtypes.out": "fp8_e4m3",
        **({"$.scales": {"out": scale}} if "$.scales" in edits else {"$.scales.out": scale}),
        "$.numerics": {**edits["$.numerics"], **rules},
    }


def selected(tactic, chosen) -> Selection:
    """Return what selection says of a contract and this tactic; the other candidates are not asked."""
    return select(chosen, Policy(allow_experimental=True, only_tactic=tactic.name), tactics=(tactic,))


def admitted(tactic) -> Selection:
    """Return a contract of the shape that the tactic admits: the first of a few rows, dtypes and rules.

    A tactic for single k has the least of its proofs instead of 7168.
    """
    k = 7168 if "_whole" not in tactic.name else min(proof.exact("k") for proof in tactic.proofs(tactic))
    dependent = tactic.name.endswith(DEPENDENT)
    for m in (1, 16, 64, 2048):
        for accumulate in ("matrix_unit_fp32", "tensor_core_fp8"):
            for combine in ("ascending", "fixed_order"):
                edits = {
                    "$.target.arch": tactic.target,
                    "$.shape": {"m": m, "n": 576, "k": k},
                    "$.numerics": {"accumulate": accumulate, "combine": combine},
                }
                scales = {"$.scales.a.layout": "m_major", "$.scales.a.leading_dim": {"multiple_of": 4}}
                fp8 = {**edits, "$.properties.constant": ["b", "b_scales"]} if dependent else edits
                values = (fp8, {**fp8, **scales}, bf16(edits))
                for chosen in map(contract, (*values, *map(quantised, values))):
                    selection = selected(tactic, chosen)
                    if selection.selected is not None:
                        return selection
    pytest.fail(f"{tactic.name} admits none of the contracts here")


@pytest.mark.parametrize("tactic", TACTICS, ids=lambda tactic: tactic.name)
def test_it_compiles_without_a_spill(tactic, toolchain, begun) -> None:
    if tactic.kernel.language == "cuda" and not nvrtc_is_installed():
        pytest.skip("NVRTC is not installed (pip install 'nkc[nvrtc]')")
    selection = admitted(tactic)
    artifact = build(selection.lower(selection.selected), toolchain)
    BUILT.add(tactic.name)
    resources = artifact.built.resources
    assert resources.scratch_bytes == 0
    assert not resources.spilled_registers
    assert resources.matrix or resources.fp32_fma
    assert artifact.contract.lds is not None


def test_all_of_them_take_less_than_a_minute(toolchain, begun) -> None:
    if len(BUILT) < len(TACTICS):
        pytest.skip("not all of them were compiled in this process")
    toolchain.triton.close()
    toolchain.nvrtc.close()
    assert spent() - begun < SECONDS * slowness()
