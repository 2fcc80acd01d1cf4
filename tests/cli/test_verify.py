"""`nkc verify`: the table, the exit codes, and what is said of a failure."""

import json
import re

import msgspec
import pytest

from nkc.cli.verify import report
from nkc.tactics.evidence import Answer, Records
from nkc.verify.check import verify
from nkc.verify.regimes import Regime
from tests.cli.running import EXAMPLES, SM_90, nkc
from tests.verify.subjects import SMALL, FakeEngine, subjects


def reported(capsys, tmp_path, engine, *, regime=Regime.EXACT, place=0, **options):
    subject = subjects(tmp_path / "built")[place]
    rows = verify(subject, engine, [regime])
    code = report([(subject, engine, rows)], **{"record": False, "export": None, "form": "table", **options})
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_what_passes_is_a_row_and_exit_0(capsys, tmp_path) -> None:
    code, out, err = reported(capsys, tmp_path, FakeEngine())
    assert (code, err) == (0, "")
    assert re.search(r"dense_bf16_mfma.*exact.*passed.*yes.*yes \(3\).*not run.*clean", out)


def test_a_failure_is_exit_5_with_the_first_element_expected_and_got(capsys, tmp_path) -> None:
    def spoil(bits, contract):
        bits[2 * contract.exact("n") + 3] = 1e30

    code, out, err = reported(capsys, tmp_path, FakeEngine(spoil=spoil), regime=Regime.WIDE, place=1)
    assert code == 5
    assert "FAILED" in out
    assert re.search(
        r"^dense_bf16_mfma\w+: wide: out\[2, 3\] is 1\.0\d*e\+30, expected -?[\d.e+-]+ within [\d.e+-]+"
        r" \(1 elements outside their bounds\)$",
        err.strip(),
    )


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"repeated": Answer.FAILED}, "runs differ"),
        ({"replay": Answer.FAILED}, "graph replay differs"),
        ({"outside": Answer.FAILED}, "something was written outside the outputs"),
        ({"hazards": ("a race in LDS",)}, "a race in LDS"),
    ],
)
def test_each_broken_promise_is_said(capsys, tmp_path, answers, said) -> None:
    code, _, err = reported(capsys, tmp_path, FakeEngine(**answers))
    assert code == 5
    assert err.strip().endswith(f": exact: {said}")


def test_a_flipped_bit_is_told_to_the_bit(capsys, tmp_path) -> None:
    def spoil(bits, contract):
        bits[0] ^= 1

    code, _, err = reported(capsys, tmp_path, FakeEngine(spoil=spoil, model=None))
    assert code == 5
    assert "out[0, 0] is " in err


def test_json_holds_every_row_and_names_kernel_engine_and_compiler(capsys, tmp_path) -> None:
    code, out, _ = reported(capsys, tmp_path, FakeEngine(), form="json")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "nkc.verify/1")
    (kernel,) = document["kernels"]
    assert (kernel["tactic"], kernel["engine"], kernel["device"], kernel["toolchain"]) == (
        SMALL,
        "emulator",
        "nothing",
        "fake 1",
    )
    assert kernel["rows"][0]["passed"] is True


def test_an_export_is_what_evidence_add_reads_and_an_interpreter_exports_nothing(capsys, tmp_path) -> None:
    file = tmp_path / "results.json"
    reported(capsys, tmp_path, FakeEngine(), export=file)
    (records,) = msgspec.json.decode(file.read_bytes(), type=list[Records])
    assert (records.tactic, len(records.checks)) == (SMALL, 1)

    class Interpreting(FakeEngine):
        runs_object = False

    _, out, _ = reported(capsys, tmp_path / "other", Interpreting(), export=file)
    assert "agrees" in out
    assert "passed" not in out
    assert msgspec.json.decode(file.read_bytes(), type=list[Records]) == []


def test_bad_usage(tmp_path) -> None:
    for arguments, said in (
        ((), "nothing to verify"),
        (("--tactic", "gfx950.dense.none*"), "no tactic matches"),
        ((tmp_path,), "holds no manifest.json"),
    ):
        done = nkc("verify", *arguments)
        assert (done.code, done.out, len(done.errors)) == (2, "", 1)
        assert said in done.err


@pytest.mark.toolchain
def test_the_emulator_runs_the_object_of_a_tactic_s_proofs(tmp_path) -> None:
    file = tmp_path / "results.json"
    done = nkc("verify", "--tactic", SMALL, "--engine", "emulator", "--regime", "exact", "--export", file)
    assert done.code == 0, done.err
    assert done.errors == ["engine emulator (emulator of gfx950, MFMA model once)"]
    assert done.out.count("passed") == 4
    (records,) = msgspec.json.decode(file.read_bytes(), type=list[Records])
    assert {(c.engine, c.bit_equal, c.repeated, c.replay) for c in records.checks} == {
        ("emulator", Answer.PASSED, Answer.PASSED, Answer.NOT_RUN)
    }
    assert all(check.toolchain.startswith("triton ") for check in records.checks)


@pytest.mark.toolchain
def test_all_models_have_rows_of_their_own_and_claims_are_listed_apart() -> None:
    asked = ("--tactic", "gfx950.dense.fp8_mfma_16x64x128_s3", "--engine", "emulator", "--regime", "exact")
    done = nkc("verify", *asked, "--model", "all")
    assert done.code == 0, done.err
    assert [line.rpartition(" ")[2] for line in done.errors] == ["once)", "sequential)", "tree)"]
    every, one = done.out.split("holds under every model of the matrix unit")[1].split("holds under one model")
    assert re.search(r"bit-equal to the oracle on exact data +(\d+) of \1$", every, re.M)
    assert re.search(r"no race, no missing wait or barrier, nothing undefined is read +(\d+) of \1$", every, re.M)
    assert re.search(r"bit-exact under model once +(\d+) of \1$", one, re.M)
    assert re.search(r"bit-exact under model tree +0 of (\d+) +\1 not predicted$", one, re.M)
    assert "MI350X" not in done.out
    kernels = json.loads(nkc("verify", *asked, "--model", "tree", "--format", "json").out)
    assert {row["notes"]["model"] for kernel in kernels["kernels"] for row in kernel["rows"]} == {"tree"}
    assert {claim["model"] for claims in kernels["claims"].values() for claim in claims} == {"every", "tree"}


def test_evidence_is_kept_under_one_model(tmp_path) -> None:
    for keep in (("--record",), ("--export", tmp_path / "x.json")):
        done = nkc("verify", SM_90, "--model", "all", *keep)
        assert (done.code, done.out, len(done.errors)) == (2, "", 1)
        assert "evidence is kept under model once" in done.err


@pytest.mark.toolchain
def test_an_engine_that_cannot_says_why() -> None:
    done = nkc("verify", "--engine", "emulator", SM_90)
    assert (done.code, done.out) == (2, "")
    assert ": emulator: emulates gfx950 objects, not sm_90a (take another --engine" in done.err


def test_what_no_kernel_serves_cannot_be_verified() -> None:
    done = nkc("verify", EXAMPLES / "qwen3.6-27b.qkv_proj.m16.shuffled.gfx950.json")
    assert (done.code, done.out) == (3, "")
    assert "no kernel serves it" in done.err
