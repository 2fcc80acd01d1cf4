"""The emulator engine: which workgroups stand for a grid, what runs again, and a sampled grid from end to end."""

import math
from dataclasses import replace

import msgspec
import pytest

from nkc.emit.toolchains.triton import TritonToolchain
from nkc.ir.contract import Workspace, WorkspaceInit
from nkc.ir.frozen import FrozenMap
from nkc.tactics.evidence import Answer
from nkc.tactics.select import Policy
from nkc.verify.check import verify
from nkc.verify.engines import all_engines
from nkc.verify.engines.emulator import (
    LEAST_SAMPLE,
    MFMA_ONCE,
    MFMA_SEQUENTIAL,
    SAMPLE,
    WHOLE_GRID,
    EmulatorEngine,
    _backwards,
)
from nkc.verify.gather import build_contracts
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.regimes import Regime
from tests.verify.subjects import SCALED, SMALL, subjects, tactic


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return subjects(tmp_path_factory.mktemp("emulated"), SCALED)[0]


def with_grid(subject, workgroups, workspace_bytes=0, k=128):
    launch = msgspec.structs.replace(
        subject.launch,
        grid=(workgroups, 1, 1),
        workspace=Workspace(bytes=workspace_bytes, alignment=256, init=WorkspaceInit.ZERO),
    )
    shape = FrozenMap({"m": 16, "n": 64 * workgroups, "k": k})
    contract = msgspec.structs.replace(subject.contract, shape=shape)
    return replace(subject, launch=launch, contract=contract)


def test_a_grid_runs_whole_up_to_a_size_and_one_with_a_workspace_always(subject) -> None:
    engine = EmulatorEngine()
    assert not engine.samples(with_grid(subject, WHOLE_GRID))
    assert engine.samples(with_grid(subject, WHOLE_GRID + 1))
    assert not engine.samples(with_grid(subject, 4 * WHOLE_GRID, workspace_bytes=1024))


@pytest.mark.parametrize(("k", "count"), [(128, SAMPLE), (1 << 16, 32), (1 << 22, LEAST_SAMPLE)])
def test_a_sample_is_as_large_as_its_work_allows_and_holds_the_ends(subject, k, count) -> None:
    large = with_grid(subject, 1000, k=k)
    chosen = EmulatorEngine()._chosen(large)
    assert chosen == EmulatorEngine(MfmaModel.TREE)._chosen(large), "no model has another sample"
    assert len(chosen) == count
    assert {0, 999} <= set(chosen)


def test_what_runs_again_begins_at_the_end(subject) -> None:
    assert _backwards(with_grid(subject, 5, workspace_bytes=1024).launch, None) == (4, 3, 2, 1, 0)
    assert _backwards(with_grid(subject, 3).launch, None) == (2, 1, 0)
    assert len(_backwards(with_grid(subject, 500).launch, None)) == 16
    assert _backwards(with_grid(subject, 1000).launch, (0, 7, 999)) == (999, 0)


def test_the_oracle_follows_the_models_that_have_an_order(subject, tmp_path) -> None:
    units = {model: EmulatorEngine(model).unit(subject) for model in MfmaModel}
    assert units == {MfmaModel.ONCE: MFMA_ONCE, MfmaModel.SEQUENTIAL: MFMA_SEQUENTIAL, MfmaModel.TREE: None}
    assert EmulatorEngine().unit(subjects(tmp_path, SMALL)[0]) is None, "bf16 MFMAs chain"
    assert {engine.device() for engine in all_engines(model="tree").values() if engine.model_decides} == {
        "emulator of gfx950, MFMA model tree"
    }


@pytest.mark.toolchain
def test_a_large_grid_is_sampled_and_judged_where_it_ran(tmp_path) -> None:
    proof = tactic(SCALED).proofs(tactic(SCALED))[0]
    large = msgspec.structs.replace(proof, shape=FrozenMap({"m": 16, "n": 64 * 600, "k": 256}))
    policy = Policy(allow_experimental=True, only_tactic=SCALED)
    with TritonToolchain() as toolchain:
        (subject,) = build_contracts([("large.json", large)], tmp_path, toolchain, policy)
    assert math.prod(subject.launch.grid) == 600
    for row in verify(subject, EmulatorEngine(), Regime):
        assert row.passed, row
        assert row.notes["sampled"] == "0.08"
        assert row.model_bits is Answer.NOT_RUN
        assert row.bit_equal is (Answer.PASSED if row.regime == "exact" else Answer.NOT_PROMISED)
