"""`nkc compile`: what a build leaves, what it leaves alone, and how it ends when something is wrong."""

import json
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nkc.ir.manifest import Manifest
from tests.cli.running import EXAMPLES, GFX950, SHUFFLED, SM_90, nkc, tree
from tests.fixtures.contracts import ABSENT, document

pytestmark = pytest.mark.toolchain

ALLOW = ("compile", "--allow-experimental")
EM_AMDGPU, EM_CUDA = 224, 190
ELF_MACHINE, ELF_FLAGS = 18, 48  # offsets in a 64-bit ELF header


def write(path: Path, edits: dict[str, object] | None = None) -> Path:
    """Write the base contract with edits."""
    path.write_text(json.dumps(document(edits)))
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """All examples, built in one run."""
    out = tmp_path_factory.mktemp("examples") / "k"
    done = nkc(*ALLOW, *sorted(EXAMPLES.glob("*.json")), "-o", out)
    assert done.code == 0, done.err
    assert len(done.errors) == 2  # the one contract that falls back, and the tally
    return out


def manifest(out: Path) -> Manifest:
    """Read a manifest through its type, so that a key too many or too few fails."""
    import msgspec

    return msgspec.json.decode((out / "manifest.json").read_bytes(), type=Manifest)


def test_every_example_is_an_entry_and_every_file_is_as_the_manifest_says(built) -> None:
    import hashlib

    entries = manifest(built).entries
    assert len(entries) == len(list(EXAMPLES.glob("*.json")))
    assert [entry.request for entry in entries] == sorted(entry.request for entry in entries)
    named = {"manifest.json"}
    for entry in entries:
        for name in (entry.explain, entry.contract, entry.launch, entry.object):
            if name is not None:
                named.add(name)
                digest = hashlib.sha256((built / name).read_bytes()).hexdigest()
                assert entry.sha256[name.split("/")[-1]] == digest
    assert named == set(tree(built))


def test_objects_say_their_chip_in_their_elf_header(built) -> None:
    """CASES: the header, not our own record, is what a loader reads."""
    objects = {entry.object: entry.target for entry in manifest(built).entries if entry.object}
    assert set(objects.values()) == {"gfx950", "sm_90"}
    for name, target in objects.items():
        data = (built / name).read_bytes()
        assert data[:5] == b"\x7fELF\x02"
        (machine,) = struct.unpack_from("<H", data, ELF_MACHINE)
        (flags,) = struct.unpack_from("<I", data, ELF_FLAGS)
        if target == "gfx950":
            assert (machine, flags) == (EM_AMDGPU, 0x54F)
        else:
            assert machine == EM_CUDA
            assert 90 in (flags & 0xFF, flags >> 8 & 0xFF)  # the place moved between versions of the format


def test_inspect_agrees_with_every_launch_record(built) -> None:
    from nkc.cli import run

    for name in sorted(path for path in tree(built) if path.endswith((".hsaco", ".cubin"))):
        assert run(["inspect", str(built / name), "--format", "json"]) == 0, name


def test_inspect_prints_the_object_and_says_when_its_record_is_another(built, tmp_path) -> None:
    entry = next(entry for entry in manifest(built).entries if entry.object and entry.target == "gfx950")
    place = shutil.copytree(built / entry.id, tmp_path / "kernel")
    done = nkc("inspect", place / "kernel.hsaco")
    assert done.code == 0
    assert "0x54f" in done.out
    assert done.errors == ["kernel.hsaco holds all 18 static checks", "kernel.hsaco agrees with launch.json"]
    launch = json.loads((place / "launch.json").read_text())
    launch["kernarg_bytes"] += 8
    launch["symbol"] = "another"
    (place / "launch.json").write_text(json.dumps(launch))
    done = nkc("inspect", place / "kernel.hsaco")
    assert done.code == 4
    assert len(done.errors) == 2
    assert all(": $." in line and "launch.json says" in line for line in done.errors)


def test_inspect_lists_the_machine_code_of_both(built) -> None:
    expected = {"gfx950": "v_mfma_f32_16x16x128_f8f6f4", "sm_90": "MMA"}
    for target, mnemonic in expected.items():
        entry = next(entry for entry in manifest(built).entries if entry.object and entry.target == target)
        done = nkc("inspect", "--disassemble", built / entry.object)
        assert (done.code, done.err) == (0, "")
        assert mnemonic in done.out
        assert done.out.count("\n") > 100


def test_a_partial_scale_block_has_a_row_of_its_own(built) -> None:
    """F01: N = 576 has five rows of weight scales, N = 2112 seventeen; never N / rows columns a row."""
    rows = {}
    for entry in manifest(built).entries:
        if entry.launch is not None:
            launch = json.loads((built / entry.launch).read_text())
            shapes = {
                guard["argument"]: [extent["value"] for extent in guard["shape"]]
                for guard in launch["guards"]
                if guard["kind"] == "tensor"
            }
            if "b_scales" in shapes:
                rows[shapes["b"][0]] = shapes["b_scales"][0]
    assert rows[576] == 5
    assert rows[2112] == 17
    assert rows[2048] == 16


def test_explain_reads_a_build_back(built, tmp_path) -> None:
    out = tmp_path / "k"
    assert nkc(*ALLOW, GFX950, "-o", out).code == 0
    (entry,) = manifest(out).entries
    record = json.loads((out / entry.explain).read_text())
    assert record["id"] == entry.id
    assert record["request"] == entry.request == nkc("id", GFX950).out.strip()
    assert set(record) >= {"resources", "occupancy", "launch", "source", "toolchain", "artifacts", "sealed"}
    for place in (out, out / entry.request, out / entry.id):
        assert json.loads(nkc("explain", place, "--format", "json").out) == record
    drawn = nkc("explain", out)
    assert (drawn.code, drawn.err) == (0, "")
    assert f"{entry.id}/kernel.hsaco" in drawn.out
    several = nkc("explain", built)
    assert (several.code, len(several.errors)) == (2, 1)
    assert re.search(r"name one below it: nk_[0-9a-f]{24} of [\w.-]+\.json, ", several.err)


def test_provenance_is_in_the_manifest_alone(built) -> None:
    for name, data in tree(built).items():
        assert (b"DeepSeek" in data) == (name == "manifest.json"), name


def test_a_fallback_is_one_line_and_no_failure(tmp_path) -> None:
    done = nkc("compile", "--allow-experimental", SHUFFLED, "-o", tmp_path / "k")
    assert (done.code, done.out, len(done.errors)) == (0, "", 1)
    request = nkc("id", SHUFFLED).out.strip()
    assert done.err.startswith(f"{SHUFFLED.name}: falls back to `framework.aiter`; closest is gfx950.dense.")
    assert "$.layouts.b wanted row_major_nk, found shuffled_16x16" in done.err
    assert set(tree(tmp_path / "k")) == {"manifest.json", f"{request}/explain.json"}
    (entry,) = manifest(tmp_path / "k").entries
    assert (entry.id, entry.tactic, entry.object, entry.launch) == (None, None, None, None)


def test_a_large_build_ends_with_a_tally(tmp_path) -> None:
    falling, unserved = [], []
    for m in range(1, 8):
        edited = json.loads(SHUFFLED.read_text())
        edited["shape"]["m"] = m
        falling.append(tmp_path / f"falls{m}.json")
        falling[-1].write_text(json.dumps(edited))
    for m in (8, 9):
        del edited["fallback"]
        edited["shape"]["m"] = m
        unserved.append(tmp_path / f"unserved{m}.json")
        unserved[-1].write_text(json.dumps(edited))
        edited["fallback"] = "x"
    done = nkc("compile", *falling, *unserved, "-o", tmp_path / "out")
    assert done.code == 3
    assert done.errors[-1] == "9 contracts: 0 optimized, 7 fallback, 2 unsupported, 0 errors"
    assert len(done.errors) == 10
    done = nkc("compile", *falling, "-o", tmp_path / "out")
    assert (done.code, len(done.errors)) == (0, 7), "a small build has nothing to sum up"


def test_require_optimized_makes_a_fallback_a_failure(tmp_path) -> None:
    done = nkc(*ALLOW, "--require", "optimized", SHUFFLED, GFX950, "-o", tmp_path / "k")
    assert (done.code, len(done.errors)) == (3, 1)
    assert len(manifest(tmp_path / "k").entries) == 2  # the other was built all the same


def test_unsupported_is_exit_3_with_its_explanation_written(tmp_path) -> None:
    lonely = write(tmp_path / "lonely.json", {"$.layouts.b": "shuffled_16x16"})
    done = nkc(*ALLOW, lonely, GFX950, "-o", tmp_path / "k")
    assert (done.code, len(done.errors)) == (3, 1)
    assert done.err.startswith("lonely.json: unsupported, and no fallback is named; closest is gfx950.dense.")
    assert {entry.disposition.value for entry in manifest(tmp_path / "k").entries} == {"optimized", "unsupported"}


def test_fnuz_hardware_is_refused_by_capability_and_not_by_the_contract(tmp_path) -> None:
    """e4m3fn on gfx942: every candidate rejects it on `$.dtypes.a`; the contract itself is sound."""
    contract = write(tmp_path / "c.json", {"$.target.arch": "gfx942"})
    assert nkc("check", contract).code == 0
    assert nkc(*ALLOW, contract, "-o", tmp_path / "k").code == 3
    record = json.loads(nkc("explain", tmp_path / "k", "--format", "json").out)
    fp8 = [c for c in record["candidates"] if ".fp8_" in c["name"]]
    assert fp8
    assert all("$.dtypes.a" in {reason["field"] for reason in c["reasons"]} for c in fp8)


def test_only_tactic_forces_a_route_but_lifts_nothing(tmp_path) -> None:
    record = json.loads(nkc("explain", GFX950, "--allow-experimental", "--format", "json").out)
    other = next(c["name"] for c in record["candidates"] if c["state"] == "eligible")
    assert nkc(*ALLOW, "--only-tactic", other, GFX950, "-o", tmp_path / "k").code == 0
    assert manifest(tmp_path / "k").entries[0].tactic == other
    foreign = "sm_90.dense.bf16_64x64x64_w4_s5"  # another chip's, and for other operands
    assert nkc(*ALLOW, "--only-tactic", foreign, GFX950, "-o", tmp_path / "n").code == 0  # its fallback
    assert manifest(tmp_path / "n").entries[0].tactic is None
    wrong = nkc(*ALLOW, "--only-tactic", other + "x", GFX950, "-o", tmp_path / "w")  # no fallback by a slip
    assert (wrong.code, len(wrong.errors)) == (2, 1)
    assert f"did you mean `{other}`?" in wrong.err
    assert not (tmp_path / "w").exists()


def test_offsets_beyond_32_bits_are_rejected_by_arithmetic(tmp_path) -> None:
    """F07: 65536 x 36864 outputs end in fallback with the exact offset; no buffer is needed to know."""
    edits = {"$.shape.m": 65536, "$.shape.n": 36864, "$.fallback": "framework"}
    contract = write(tmp_path / "c.json", edits)
    done = nkc("explain", contract, "--allow-experimental", "--format", "json")
    record = json.loads(done.out)
    assert record["disposition"] == "fallback"
    for candidate in record["candidates"]:
        if candidate["target"] == "gfx950" and ".fp8_" in candidate["name"] and "_codes" not in candidate["name"]:
            (reason,) = [one for one in candidate["reasons"] if one["predicate"] == "offsets_fit_int32"]
            assert reason["wanted"] == "offsets into `out` of at most 2147483647 bytes"
            assert reason["actual"] == f"{65536 * 36864 * 2} with 65536 rows of 36864"


def test_an_author_s_figure_that_the_object_denies_is_exit_4_and_stops_nobody_else(tmp_path) -> None:
    bad = write(tmp_path / "bad.json", {"$.lds": {"dynamic_bytes": 16}, "$.fallback": "framework"})
    done = nkc(*ALLOW, bad, SM_90, "-o", tmp_path / "k")
    assert (done.code, len(done.errors)) == (4, 1)
    assert done.err.startswith("bad.json: gfx950.dense.")
    assert "wanted 16, the object has" in done.err
    (entry,) = manifest(tmp_path / "k").entries  # what failed has no entry and no directory
    assert entry.target == "sm_90"
    assert {name.split("/")[0] for name in tree(tmp_path / "k")} == {"manifest.json", entry.id, entry.request}


def test_the_next_candidate_is_tried_when_asked_for(tmp_path) -> None:
    """F26: with --on-object-mismatch=next a denied object is a recorded rejection of stage `object`."""
    record = json.loads(nkc("explain", GFX950, "--allow-experimental", "--format", "json").out)
    name = record["selected"]
    edits = {"$.lds": {"dynamic_bytes": 16}, "$.fallback": "framework"}
    bad = write(tmp_path / "bad.json", edits)
    done = nkc(*ALLOW, "--on-object-mismatch", "next", "--only-tactic", name, bad, "-o", tmp_path / "k")
    assert (done.code, len(done.errors)) == (0, 1)
    assert "falls back" in done.err
    record = json.loads(nkc("explain", tmp_path / "k", "--format", "json").out)
    (candidate,) = (c for c in record["candidates"] if c["name"] == name)
    assert candidate["state"] == "rejected"
    assert {reason["stage"] for reason in candidate["reasons"]} == {"object"}


def test_one_contract_of_many_layers_is_one_object_with_many_bindings(tmp_path) -> None:
    """N10."""
    for layer in range(10):
        write(tmp_path / f"layer{layer}.json", {"$.provenance": {"layer": layer}})
    done = nkc(*ALLOW, *sorted(tmp_path.glob("layer*.json")), "-o", tmp_path / "k")
    assert (done.code, done.err) == (0, "")
    (entry,) = manifest(tmp_path / "k").entries
    assert [binding.source for binding in entry.bindings] == [f"layer{layer}.json" for layer in range(10)]


def test_one_contract_with_two_fallbacks_is_refused(tmp_path) -> None:
    one = write(tmp_path / "one.json", {"$.fallback": "framework"})
    two = write(tmp_path / "two.json", {"$.fallback": "framework.aiter"})
    done = nkc(*ALLOW, one, two, "-o", tmp_path / "k")
    assert (done.code, len(done.errors)) == (2, 1)
    assert "$.fallback" in done.err
    assert not (tmp_path / "k").exists()


def test_bad_input_leaves_nothing(tmp_path) -> None:
    bad = write(tmp_path / "bad.json", {"$.dtypes.out": ABSENT})
    assert nkc(*ALLOW, GFX950, bad, "-o", tmp_path / "new" / "k").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_a_file_where_the_output_should_be_is_kept(tmp_path) -> None:
    (tmp_path / "k").write_text("mine")
    done = nkc(*ALLOW, SHUFFLED, "-o", tmp_path / "k")
    assert (done.code, len(done.errors)) == (2, 1)
    assert (tmp_path / "k").read_text() == "mine"


def test_an_empty_output_is_not_the_working_directory(tmp_path) -> None:
    done = nkc(*ALLOW, SHUFFLED, "-o", "", cwd=tmp_path)
    assert (done.code, len(done.errors)) == (2, 1)
    assert list(tmp_path.iterdir()) == []


def test_equal_directories_are_kept_and_others_replaced(tmp_path) -> None:
    out = tmp_path / "k"
    assert nkc(*ALLOW, GFX950, "-o", out).code == 0
    (entry,) = manifest(out).entries
    before = {path: path.stat().st_ino for path in out.rglob("*")}
    whole = tree(out)
    assert nkc(*ALLOW, GFX950, "-o", out).code == 0
    assert {path: path.stat().st_ino for path in out.rglob("*")} == before  # not a file was touched
    (out / entry.object).write_bytes(b"damaged")
    (out / entry.request / "stray").write_text("left by somebody")
    assert nkc(*ALLOW, GFX950, "-o", out).code == 0
    assert tree(out) == whole
    assert nkc(*ALLOW, SM_90, "-o", out).code == 0  # the manifest lists this run alone; older directories stay
    assert [entry.target for entry in manifest(out).entries] == ["sm_90"]
    assert (out / entry.object).is_file()


def test_keep_adds_the_source_and_the_compiler_s_texts(tmp_path) -> None:
    assert nkc(*ALLOW, "--keep", GFX950, "-o", tmp_path / "k").code == 0
    (entry,) = manifest(tmp_path / "k").entries
    kept = tree(tmp_path / "k" / entry.id / "keep")
    assert "source.py" in kept
    assert b"@triton.jit" in kept["source.py"]
    assert any(b"v_mfma_f32_16x16x128" in text for name, text in kept.items() if name.endswith("amdgcn"))


@pytest.mark.parametrize("after", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_build_that_is_called_off_leaves_nothing(tmp_path, number, code, after) -> None:
    """Neither half a directory, nor the child, nor its scratch folder. after: s, from the child's start on."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "nkc", *ALLOW, *sorted(map(str, EXAMPLES.glob("*.json"))), "-o", "k"]
    # A job in the background ignores interrupts, and what ignores them hands that on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, cwd=tmp_path, env={"TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    while process.poll() is None and not any(scratch.iterdir()):  # the child is being started
        time.sleep(0.001)
    time.sleep(after)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    # Python ends by the signal itself where it came while a class was being made; a shell shows both as 130.
    assert process.returncode == code or (number, process.returncode) == (signal.SIGINT, -number)
    assert err.strip() == ("nkc: interrupted" if number is signal.SIGINT else "")
    assert not (tmp_path / "k").exists()
    assert list(scratch.iterdir()) == []


def test_names_that_shells_and_make_trip_over(tmp_path) -> None:
    """F38."""
    place = tmp_path / "in put: 1"
    place.mkdir()
    contract = place / "a contract: é $x.json"
    shutil.copy(SM_90, contract)
    out = tmp_path / "out dir" / "été#1$"
    done = nkc(*ALLOW, "--keep", contract, "-o", f"{out}/")
    assert (done.code, done.err) == (0, "")
    (entry,) = manifest(out).entries
    assert [binding.source for binding in entry.bindings] == [contract.name]
    assert json.loads((out / entry.explain).read_bytes().decode("utf-8"))["id"] == entry.id
    assert nkc("explain", out).code == 0
    assert nkc("inspect", out / entry.object).code == 0
    assert nkc("id", contract).out.strip() == entry.request


def test_closest_is_what_the_smallest_edit_admits(tmp_path) -> None:
    """A grid that no tactic has is one edit from every tactic that serves the rest, and two from a split along k."""
    contract = write(tmp_path / "c.json", {"$.launch": {"grid": [1, 1, 1]}, "$.fallback": "framework"})
    done = nkc(*ALLOW, contract, "-o", tmp_path / "k")
    assert done.code == 0
    near = json.loads(nkc("explain", contract, "--near", "--format", "json").out)["near"]
    assert f"closest is {near[0]['tactic']}: $.launch.grid" in done.err
