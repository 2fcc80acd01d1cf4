"""Every gfx950 tactic of the catalogue: its object is fully modelled, passes the static checks, and runs clean."""

import pytest

from nkc.emit.build import build
from nkc.emit.toolchains.triton import TritonToolchain
from nkc.tactics import Policy, select
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.evidence import Answer
from nkc.verify.check import verify
from nkc.verify.engines.emulator import EmulatorEngine, launch_spec
from nkc.verify.gather import build_contracts
from nkc.verify.gfx950.emulate import emulate_both_policies, missing_features
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.sampling import choose_workgroups
from nkc.verify.gfx950.stand_in import stand_in_buffers
from nkc.verify.gfx950.static_checks import Expectation, check_object
from nkc.verify.regimes import Regime

pytestmark = pytest.mark.toolchain

OPERATIONS = ("dense", "group_quant", "silu_mul_quant", "rms_norm_quant")
TACTICS = [tactic for name in OPERATIONS for tactic in tactics_of(name) if tactic.target == "gfx950"]


@pytest.fixture(scope="module")
def toolchain():
    with TritonToolchain() as worker:
        yield worker


@pytest.mark.parametrize("tactic", TACTICS, ids=lambda tactic: tactic.name)
def test_its_object_runs_clean(tactic, toolchain):
    selection = select(tactic.proofs(tactic)[0], Policy(allow_experimental=True, only_tactic=tactic.name))
    artifact = build(selection.lower(selection.selected), toolchain)
    data, launch = artifact.built.data, artifact.launch
    assert missing_features(data) == ()
    assert check_object(data, expect=Expectation(dynamic_lds_bytes=launch.lds.dynamic_bytes)) == ()
    dims = {argument.dim: 40 for argument in launch.arguments if argument.dim is not None}
    chosen = None if launch.workspace.bytes else choose_workgroups(launch.grid, 4)
    report = emulate_both_policies(data, launch_spec(launch, dims), stand_in_buffers(launch, dims), workgroups=chosen)
    assert report.clean, [str(hazard) for hazard in report.hazards]


def _families():
    """Return one tactic of each kind of kernel, the first of its family; `nkc verify --tactic` runs all of them."""
    return list({tactic.family: tactic for tactic in reversed(TACTICS)}.values())


@pytest.mark.parametrize("tactic", _families(), ids=lambda tactic: tactic.family)
def test_every_kind_of_kernel_is_within_its_bounds_in_every_regime(tactic, toolchain, tmp_path):
    policy = Policy(allow_experimental=True, only_tactic=tactic.name)
    proofs = [(f"{place}.json", proof) for place, proof in enumerate(tactic.proofs(tactic)[:2])]
    for subject in build_contracts(proofs, tmp_path, toolchain, policy):
        for row in verify(subject, EmulatorEngine(), Regime):
            assert row.passed, row
            assert row.hazards == ()
            assert row.notes["sampled"] == "1"
            if row.regime == "exact" and row.bit_equal is not Answer.NOT_PROMISED:
                assert row.bit_equal is Answer.PASSED


def test_data_that_is_exact_gives_the_same_bits_under_every_model(toolchain, tmp_path):
    """What does not depend on how a matrix instruction rounds, shown: all three models, one product."""
    tactic = next(item for item in TACTICS if item.family == "gfx950.dense.fp8_mfma")
    policy = Policy(allow_experimental=True, only_tactic=tactic.name)
    (subject,) = build_contracts([("0.json", tactic.proofs(tactic)[0])], tmp_path, toolchain, policy)
    rows = {model.value: verify(subject, EmulatorEngine(model), (Regime.EXACT, Regime.WIDE)) for model in MfmaModel}
    for model, (exact, wide) in rows.items():
        assert exact.bit_equal is Answer.PASSED, model
        assert wide.passed, model
    bits = {model: wide.model_bits for model, (_, wide) in rows.items()}
    assert bits == {"once": Answer.PASSED, "sequential": Answer.PASSED, "tree": Answer.NOT_PROMISED}
