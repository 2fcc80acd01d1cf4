"""`nkc inspect` of a gfx950 object: static checks shown and held, its listing, and its profile."""

import json

import pytest

from tests.cli.running import GFX950, nkc
from tests.verify.gfx950.cases import FOLDER
from tests.verify.test_static import with_clock


def test_static_checks_are_shown_and_hold() -> None:
    done = nkc("inspect", FOLDER / "fp8_64x64.hsaco")
    assert done.code == 0
    assert done.errors == ["fp8_64x64.hsaco holds all 18 static checks"]
    assert "wait_states    yes    no instruction follows another too soon, on any path" in done.out


def test_a_defect_is_shown_and_is_exit_4(tmp_path) -> None:
    spoilt = tmp_path / "kernel.hsaco"
    spoilt.write_bytes(with_clock())
    done = nkc("inspect", spoilt)
    assert done.code == 4
    assert "forbidden      NO     s_memtime (1 times): clocks" in done.out
    (line,) = done.errors
    assert line.startswith(f"{spoilt}: forbidden: s_memtime (1 times): clocks and hardware ids are not deterministic")
    document = json.loads(nkc("inspect", spoilt, "--format", "json").out)
    assert [check["check"] for check in document["checks"] if check["defects"]] == ["forbidden"]


def test_a_spill_that_nobody_declared_is_a_defect() -> None:
    done = nkc("inspect", FOLDER / "fp8_256x128.hsaco")
    assert done.code == 4
    assert [line.partition(": ")[2].partition(":")[0] for line in done.errors] == ["spill", "forbidden"]


def test_a_profile_needs_its_launch_record() -> None:
    done = nkc("inspect", "--profile", FOLDER / "quant.hsaco")
    assert (done.code, done.out, len(done.errors)) == (2, "", 1)
    assert "launch.json: not a launch record" in done.err


@pytest.mark.toolchain
def test_a_profile_counts_memory_and_conflicts_and_labels_its_model(tmp_path) -> None:
    assert nkc("compile", "--allow-experimental", GFX950, "-o", tmp_path).code == 0
    (place,) = tmp_path.glob("*/kernel.hsaco")
    shown = nkc("inspect", "--profile", place)
    assert shown.code == 0, shown.err
    assert "main loop, model (explains and shortlists; no time is claimed, nobody has run the chip)" in shown.out
    assert "s_waitcnt" in shown.out
    found = json.loads(nkc("inspect", "--profile", "--format", "json", place).out)["profile"]
    assert [reading["latency_clocks"] for reading in found["loop"]] == [500, 800, 1500]
    assert {reading["label"] for reading in found["loop"]} == {"model"}
    shares = [reading["mfma_share"] for reading in found["loop"]]
    assert shares == sorted(shares, reverse=True), "the longer memory takes, the less the matrix pipe works"
    assert len(found["workgroups"]) == 2
    assert found["conflict_ways"] >= 1
    loads = [item for item in found["memory"] if item["instruction"].startswith("buffer_load_dwordx4")]
    assert loads
    assert all(item["coalescing"] == 1 for item in loads), "whole lines of A and B"
    waits = [item for item in found["waits"] if item["model_stalled_clocks"]]
    assert waits, "some wait of the main loop stalls"
    assert all(len(item["model_stalled_clocks"]) == 3 for item in waits)
