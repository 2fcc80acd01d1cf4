"""The gate on real operands: what is right passes, and each way of being wrong that a bench could miss is red."""

import pytest

pytestmark = pytest.mark.toolchain  # torch holds the operands

from nkc.ir import canonical  # noqa: E402
from nkc.tactics import catalogue  # noqa: E402

from ..fixtures.contracts import bf16, contract  # noqa: E402

SHAPE = {
    "$.target.arch": "sm_90",
    "$.shape.m": 24,
    "$.shape.n": 320,
    "$.shape.k": 512,
    "$.numerics.accumulate": "tensor_core_fp8",
    "$.scales.a.layout": "m_major",
    "$.scales.a.leading_dim": {"multiple_of": 4},
}
CASES = {
    "fp8": (SHAPE, "sm_90.dense.fp8_wgmma_64x32x128_w4_s6"),
    "bias": (
        {**SHAPE, "$.epilogue": {"kind": "bias", "dtype": "bf16"}},
        "sm_90.dense.fp8_wgmma_64x32x128_w4_s6",
    ),
    "bf16": (
        bf16({"$.target.arch": "sm_90", "$.shape.m": 24, "$.shape.n": 320, "$.shape.k": 512}),
        "sm_90.dense.bf16_32x32x128_w4_s5",
    ),
}


@pytest.fixture(params=sorted(CASES))
def case(request):
    """Return the cell, its operands on the host, the gate and the lowered contract."""
    from nkc.bench.cell import Cell
    from nkc.bench.subjects.dense import Reference, make

    edits, name = CASES[request.param]
    one = contract(edits)
    cell = Cell(contract=one, request=canonical.contract_id(one), dims={})
    made = make(cell, 1, "cpu")
    tactic = catalogue.find("dense", name)
    return made, Reference(cell, made, 1), tactic.lower(one, tactic)


def right(made, reference):
    out = made.tensors["out"]
    return lambda: out.copy_(reference._whole.to(out.dtype))


def test_a_right_result_is_green_and_its_digest_repeats(case) -> None:
    made, reference, sealed = case
    found = reference.judge(right(made, reference), made, sealed)
    assert found.passed
    assert found.worst <= 1
    assert found == reference.judge(right(made, reference), made, sealed)


def wrong_element(out, made):
    out[-1, -1] += 0.2 * out.float().square().mean().sqrt()


def nothing_written(out, made):
    out.fill_(float("nan"))


def one_left_out(out, made):
    out[5, 7] = float("nan")


def rows_exchanged(out, made):
    out[[0, 1]] = out[[1, 0]]


def twice_rounded(out, made):
    import torch

    out.copy_((out.float() * 1.004).to(torch.bfloat16))


@pytest.mark.parametrize("spoil", [wrong_element, nothing_written, one_left_out, rows_exchanged, twice_rounded])
def test_a_wrong_result_is_red(case, spoil) -> None:
    made, reference, sealed = case
    out = made.tensors["out"]

    def launch() -> None:
        right(made, reference)()
        spoil(out, made)

    assert not reference.judge(launch, made, sealed).passed


def test_a_launch_that_does_nothing_is_red(case) -> None:
    made, reference, sealed = case
    assert not reference.judge(lambda: None, made, sealed).passed


CODES = {
    **SHAPE,
    "$.shape.n": 384,
    "$.dtypes.out": "fp8_e4m3",
    "$.scales.out": {"block": [1, 128], "layout": "m_major", "leading_dim": 26},
    "$.numerics.staging": "bf16",
    "$.numerics.quantize": "divide",
    "$.numerics.overflow": "saturate",
    "$.numerics.amax_floor": 1e-10,
}


def codes_wrong(tensors):
    tensors["out"].view(torch_uint8())[23, 300:] ^= 0x10


def codes_sign(tensors):
    tensors["out"].view(torch_uint8())[0, 5] ^= 0x80


def scale_left_out(tensors):
    tensors["out_scales"][11, 1] = float("nan")


def scale_beside(tensors):
    tensors["out_scales"][23] *= 1.25


def torch_uint8():
    import torch

    return torch.uint8


@pytest.mark.parametrize("spoil", [None, codes_wrong, codes_sign, scale_left_out, scale_beside])
def test_codes_and_scales_are_gated(spoil) -> None:
    import torch

    from nkc.bench.cell import Cell
    from nkc.bench.subjects.dense import Reference, make
    from nkc.verify import legal_codes, quantised

    one = contract(CODES)
    cell = Cell(contract=one, request=canonical.contract_id(one), dims={})
    assert "codes, M-major" in cell.name
    made = make(cell, 1, "cpu")
    assert made.written == ("out", "out_scales")
    reference = Reference(cell, made, 1)
    tactic = catalogue.find("dense", "sm_90.dense.fp8_wave_codes_64x128x128_s4_o2")

    def launch() -> None:
        value = legal_codes.staged(reference._whole.numpy(), quantised.staging_of(one))
        found = legal_codes.quantise(value, quantised.Rules.of(one))
        made.tensors["out"].view(torch.uint8).copy_(torch.from_numpy(found.codes))
        made.tensors["out_scales"].copy_(torch.from_numpy(found.scales))
        if spoil is not None:
            spoil(made.tensors)

    assert reference.judge(launch, made, tactic.lower(one, tactic)).passed is (spoil is None)


def test_copies_hold_the_same_bits_elsewhere(case) -> None:
    import torch

    from nkc.bench import operands

    made, _, _ = case
    other = operands.clone(made)
    for name, tensor in made.tensors.items():
        twin = other.tensors[name]
        assert twin.data_ptr() != tensor.data_ptr()
        assert twin.stride() == tensor.stride()
        assert torch.equal(twin.float().nan_to_num(), tensor.float().nan_to_num())


def test_the_bf16_baseline_follows_another_rule_for_an_fp8_contract(case) -> None:
    from nkc.bench.cell import Cell
    from nkc.bench.subjects.dense import baselines

    made, reference, sealed = case
    if sealed.epilogue.kind != "identity":
        assert baselines(Cell(contract=sealed, request="", dims={})) == ()
        return
    cell = Cell(contract=sealed, request="", dims={})
    found = {each.name: each for each in baselines(cell)}
    matmul = found["torch.matmul bf16"]
    assert matmul.same_rule is not bool(sealed.scales)
    gate = reference.judge(matmul.prepare(cell, made), made, None)
    assert gate.passed
    assert gate.err_ratio > 1e-3


def test_fp8_libraries_are_compared_only_where_the_contract_licenses_the_fp8_unit() -> None:
    from nkc.bench.cell import Cell
    from nkc.bench.subjects.dense import baselines

    for rule, licensed in (("tensor_core_fp8", True), ("matrix_unit_fp32", False)):
        one = contract({**SHAPE, "$.numerics.accumulate": rule})
        found = {each.name: each.same_rule for each in baselines(Cell(contract=one, request="", dims={}))}
        assert found["DeepGEMM"] is licensed
