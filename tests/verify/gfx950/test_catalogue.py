"""Every gfx950 tactic of the catalogue: its object is fully modelled, passes the static checks, and runs clean."""

import numpy as np
import pytest

from nkc.emit.build import build
from nkc.emit.toolchains.triton import TritonToolchain
from nkc.ir.contract import DType
from nkc.ir.launch import Launch, TensorGuard
from nkc.tactics import Policy, select
from nkc.tactics.catalogue import tactics_of
from nkc.verify.engines.emulator import launch_spec
from nkc.verify.gfx950.emulate import emulate_both_policies, missing_features
from nkc.verify.gfx950.sampling import choose_workgroups
from nkc.verify.gfx950.static_checks import Expectation, check_object

pytestmark = pytest.mark.toolchain

OPERATIONS = ("dense", "group_quant", "silu_mul_quant", "rms_norm_quant")
TACTICS = [tactic for name in OPERATIONS for tactic in tactics_of(name) if tactic.target == "gfx950"]
BYTES = {DType.FP8_E4M3: 1, DType.BF16: 2, DType.FP16: 2, DType.FP32: 4, DType.INT32: 4}


@pytest.fixture(scope="module")
def toolchain():
    with TritonToolchain() as worker:
        yield worker


def buffers(launch: Launch, dims: dict[str, int]) -> dict[str, np.ndarray]:
    """Return finite data of the sizes that the guards ask for; what comes out is judged elsewhere."""
    out = {}
    for guard in launch.guards:
        if isinstance(guard, TensorGuard):
            extents = zip(guard.shape, guard.strides, strict=True)
            count = 1 + sum((extent.of(dims) - 1) * stride.of(dims) for extent, stride in extents)
            size = BYTES[guard.dtype]
            codes = np.random.default_rng(0).integers(0, 60, count * size).astype(np.uint8)
            out[guard.argument] = np.ones(count, np.float32) if size == 4 else codes
    if launch.workspace.bytes:
        out["workspace"] = np.zeros(launch.workspace.bytes, np.uint8)
    return out


@pytest.mark.parametrize("tactic", TACTICS, ids=lambda tactic: tactic.name)
def test_its_object_runs_clean(tactic, toolchain):
    selection = select(tactic.proofs(tactic)[0], Policy(allow_experimental=True, only_tactic=tactic.name))
    artifact = build(selection.lower(selection.selected), toolchain)
    data, launch = artifact.built.data, artifact.launch
    assert missing_features(data) == ()
    assert check_object(data, expect=Expectation(dynamic_lds_bytes=launch.lds.dynamic_bytes)) == ()
    dims = {argument.dim: 40 for argument in launch.arguments if argument.dim is not None}
    chosen = None if launch.workspace.bytes else choose_workgroups(launch.grid, 4)
    report = emulate_both_policies(data, launch_spec(launch, dims), buffers(launch, dims), workgroups=chosen)
    assert report.clean, [str(hazard) for hazard in report.hazards]
