"""benchmarks/agreement.py: what both runs timed, at the same code, by their medians."""

import pytest

from ..fixtures.contracts import contract
from ..fixtures.measured import measurements, record, route
from ..fixtures.scripts import benchmark

AGREEMENT = benchmark("agreement")

OURS = "sm_90.dense.fp8_as_f16_16x64x128_w4_s5"
SHAPE = {"$.target.arch": "sm_90", "$.shape.n": 2112, "$.shape.k": 7168, "$.shape.m": 16}


def run(*routes, **edits):
    return measurements(record(contract({**SHAPE, **edits}), routes))


def test_what_both_timed_is_compared_by_its_median() -> None:
    first = run(route(OURS, 10.0, digest="a"), route("cuBLASLt", 20.0))
    second = run(route(OURS, 10.2, digest="a"), route("cuBLASLt", 19.0))
    found = AGREEMENT.summary(first, second)
    assert found["all"]["routes"] == 2
    assert found["worst"][0]["route"] == "cuBLASLt"
    assert found["worst"][0]["apart"] == pytest.approx(20 / 19 - 1, rel=1e-2)
    assert found["all"]["beyond"] == 1
    assert found["by_rows"]["16"] == found["all"]


def test_other_code_another_cell_and_a_first_look_are_not() -> None:
    first = run(route(OURS, 10.0, digest="a"), route("cuBLASLt", 20.0), route("torch.matmul bf16", 20.0))
    second = run(route(OURS, 20.0, digest="b"), route("cuBLASLt", None), route("torch.matmul bf16", 20.0))
    assert [each[3] for each in AGREEMENT.apart(first, second)] == ["torch.matmul bf16"]
    assert list(AGREEMENT.apart(first, run(route(OURS, 10.0, digest="a"), **{"$.shape.m": 17}))) == []
