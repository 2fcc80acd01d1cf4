"""The bench on a GPU: a green gate, whole turns for what can win, a floor below every time, and figures that repeat."""

import shutil

import pytest

from nkc.bench import records
from nkc.bench.compare import compare
from tests.cli.running import EXAMPLES, nkc

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU is present"),
]

EXAMPLE = EXAMPLES / "qwen3.6-27b.mlp.down_proj.m16.sm_90.json"


def benched(folder, name: str):
    """Return the one record of the example, measured here."""
    file = folder / name
    done = nkc("bench", EXAMPLE, "--export", file)
    assert done.code == 0, done.err
    (record,) = records.read_exported(file).records
    return record


def test_two_runs_agree_and_keep_what_a_record_promises(tmp_path) -> None:
    first, second = benched(tmp_path, "a.json"), benched(tmp_path, "b.json")
    for record in (first, second):
        timed = [route for route in record.routes if route.latency is not None]
        assert any(route.tactic for route in timed)
        assert all(route.gate.passed and route.latency.replays >= 11 for route in timed)
        assert all(record.floor_us < 1.1 * route.latency.median_us for route in timed)
        assert compare(record).candidate.name == record.selected
    mine, again = (compare(record).candidate.latency.median_us for record in (first, second))
    assert mine == pytest.approx(again, rel=0.03)
