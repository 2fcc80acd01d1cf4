"""The interpreter engine: it runs both targets' algorithms, fails what is wrong, and passes nothing it cannot see."""

import dataclasses

import msgspec
import pytest

from nkc.emit.toolchains.by_language import Toolchains
from nkc.ir.contract import DType
from nkc.ir.errors import ToolError
from nkc.ir.reader import parse
from nkc.tactics.evidence import Answer
from nkc.tactics.select import Policy
from nkc.verify.check import verify
from nkc.verify.engines import interpreter
from nkc.verify.engines.interpreter import InterpreterEngine
from nkc.verify.gather import build_contracts
from nkc.verify.regimes import Regime
from nkc.verify.subject import Subject
from tests.verify.subjects import SMALL, subjects

pytestmark = pytest.mark.toolchain

SPLIT = "sm_90.dense.fp8_as_f16_16x64x128_w4_s5_k4"


@pytest.fixture(scope="module", autouse=True)
def child(tmp_path_factory):
    """A child of this module's own, started in an environment that would lead it astray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        patch.setenv("TRITON_CACHE_DIR", "/nowhere")
        patch.setenv("PYTHONPATH", "/nowhere")
        interpreter._child.cache_clear()
        yield interpreter._child()
    interpreter._child().close()
    interpreter._child.cache_clear()


@pytest.mark.parametrize("name", [SMALL, SPLIT])
def test_it_agrees_and_never_says_passed_of_an_object(tmp_path, name) -> None:
    for subject in subjects(tmp_path, name):
        assert InterpreterEngine().why_not(subject) is None
        for row in verify(subject, InterpreterEngine(), [Regime.EXACT, Regime.EDGES]):
            assert row.passed
            assert row.worst <= 1
            assert (row.repeated, row.replay, row.outside) == (Answer.NOT_RUN,) * 3
            assert row.bit_equal is (Answer.NOT_RUN if row.regime == "exact" else Answer.NOT_PROMISED)
            assert row.model_bits is Answer.NOT_PROMISED
            assert row.notes == {"sampled": "1", "store": "not checked"}
    assert not InterpreterEngine.runs_object


NORM = """{
  "schema": "nkc.contract/1", "target": {"arch": "gfx950"}, "operation": "rms_norm_quant", "shape": {"m": 2, "k": 512},
  "dtypes": {"x": "bf16", "weight": "bf16", "out": "bf16", "residual": "bf16", "residual_out": "bf16"},
  "layouts": {"x": "row_major", "weight": "row_major", "out": "row_major", "residual": "row_major",
              "residual_out": "row_major"},
  "numerics": {"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-06}
}"""


def test_what_a_kernel_itself_casts_to_bf16_is_rounded_to_nearest_and_keeps_subnormal_values(tmp_path) -> None:
    contract = parse(NORM.encode())
    with Toolchains() as toolchain:
        (subject,) = build_contracts([("norm.json", contract)], tmp_path, toolchain, Policy(allow_experimental=True))
    assert ".to(tl.bfloat16)" in InterpreterEngine().text(subject)
    for row in verify(subject, InterpreterEngine(), [Regime.MODEL_LIKE, Regime.EDGES]):
        assert row.passed, row


class Edited(InterpreterEngine):
    """Runs a kernel with one line changed."""

    def __init__(self, old: str, new: str) -> None:
        self._edit = old, new

    def text(self, subject: Subject) -> str:
        sound = super().text(subject)
        assert self._edit[0] in sound
        return sound.replace(*self._edit)


def test_a_workspace_that_is_not_left_as_it_was_found_fails(tmp_path) -> None:
    subject = subjects(tmp_path, SPLIT)[0]
    (row,) = verify(subject, Edited("tl.store(workspace + tile, 0)", "pass"), [Regime.EXACT])
    assert (row.passed, row.repeated) == (False, Answer.FAILED)


def test_a_store_outside_fails(tmp_path) -> None:
    subject = subjects(tmp_path)[1]
    edited = Edited("(rows[:, None] < 13)", "(rows[:, None] < 14)")
    (row,) = verify(subject, edited, [Regime.EXACT])
    assert (row.passed, row.outside) == (False, Answer.FAILED)
    assert row.hazards == ("the red zone around out was written",)


def test_a_kernel_that_raises_is_a_tool_s_error_and_the_next_one_runs(tmp_path) -> None:
    subject = subjects(tmp_path)[0]
    with pytest.raises(ToolError, match=r"Triton's interpreter failed: .*nothing_of_that_name"):
        verify(subject, Edited("tl.load(a_tile", "nothing_of_that_name(a_tile"), [Regime.EXACT])
    (row,) = verify(subject, InterpreterEngine(), [Regime.EXACT])
    assert row.passed


def test_a_child_that_dies_is_said_and_replaced(tmp_path) -> None:
    subject = subjects(tmp_path)[0]
    with pytest.raises(ToolError, match="Triton's interpreter died"):
        verify(subject, Edited("tile = tl.program_id(0)", "import os; os._exit(3)"), [Regime.EXACT])
    (row,) = verify(subject, InterpreterEngine(), [Regime.EXACT])
    assert row.passed


def test_what_it_would_encode_wrongly_it_does_not_run(tmp_path) -> None:
    subject = subjects(tmp_path)[0]
    coded = tuple(
        msgspec.structs.replace(argument, dtype=DType.FP8_E4M3) if argument.name == "out" else argument
        for argument in subject.launch.arguments
    )
    other = dataclasses.replace(subject, launch=msgspec.structs.replace(subject.launch, arguments=coded))
    assert "encodes fp8_e4m3 wrongly" in str(InterpreterEngine().why_not(other))


def test_a_large_grid_is_sampled_and_only_what_ran_is_judged(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(interpreter, "WHOLE_GRID", 3)
    monkeypatch.setattr(interpreter, "SAMPLE", 1)
    subject = subjects(tmp_path)[1]  # six tiles along n
    (row,) = verify(subject, InterpreterEngine(), [Regime.WIDE])
    assert row.passed
    assert float(row.notes["sampled"]) < 1
    (row,) = verify(
        subject, Edited("sum_0 = tl.dot(a_block, b_block, sum_0", "sum_0 = tl.dot(a_block, b_block"), [Regime.WIDE]
    )
    assert not row.passed
