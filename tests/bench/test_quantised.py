"""The bench of operations that write codes: the gate sees each way of being wrong, peers in torch are right."""

import pytest

pytestmark = pytest.mark.toolchain  # torch holds the operands

from nkc.bench.cell import Cell  # noqa: E402
from nkc.ir import canonical  # noqa: E402
from nkc.ir.reader import parse_document  # noqa: E402
from nkc.tactics.performance import Ceilings  # noqa: E402

from .test_cells import CELLS  # noqa: E402

M, K = 40, 512
DOCUMENTS = {name.partition(".k")[0]: document for name, document in CELLS.around(M, K)}
BF16_OUT = {
    **DOCUMENTS["rms_norm_quant"],
    "dtypes": {"x": "bf16", "weight": "bf16", "out": "bf16"},
    "scales": {},
    "numerics": {"reduce": "tree", "staging": "bf16", "weight": "one_plus", "epsilon": 1e-6},
}
UE8M0 = {
    **DOCUMENTS["group_quant"],
    "numerics": {"quantize": "ue8m0", "overflow": "saturate", "amax_floor": 1e-10},
}
PRODUCT = {
    **DOCUMENTS["silu_mul_quant"],
    "dtypes": {"x": "bf16", "product": "bf16", "out": "fp8_e4m3"},
    "layouts": {"x": "row_major", "product": "row_major", "out": "row_major"},
    "epilogue": {"kind": "gated_silu", "gate": "interleaved"},
    "numerics": {**DOCUMENTS["silu_mul_quant"]["numerics"], "staging": "bf16"},
}
CASES = {**DOCUMENTS, "rms_norm.bf16": BF16_OUT, "group_quant.ue8m0": UE8M0, "silu_mul_quant.product": PRODUCT}


@pytest.fixture(params=sorted(CASES))
def case(request):
    """Return the cell, its operands on the host, the gate, and the operation in torch."""
    from nkc.bench import subjects

    one = parse_document(CASES[request.param], request.param)
    cell = Cell(contract=one, request=canonical.contract_id(one), dims={})
    benched = subjects.find(one.operation)
    made = benched.make(cell, 1, "cpu")
    torch_s = next(each for each in benched.baselines(cell) if each.name == "torch")
    return cell, made, benched.reference(cell, made, 1), torch_s.prepare(cell, made)


def test_what_torch_computes_is_green_and_the_digest_repeats(case) -> None:
    cell, made, reference, launch = case
    found = reference.judge(launch, made, cell.contract)
    assert found.passed
    assert found.worst <= 1
    assert 1e-3 < found.err_ratio < found.err_ratio_limit
    assert found == reference.judge(launch, made, cell.contract)
    assert reference.judge(launch, made, None).worst is None


def nothing_written(tensors):
    for name in ("out", "out_scales"):
        if name in tensors:
            tensors[name].fill_(float("nan"))


def one_left_out(tensors):
    tensors["out"][18, 130] = float("nan")  # in no row of the window


def one_in_the_window(tensors):
    tensors["out"][-1, -1] = -tensors["out"][-1, -1].float() - tensors["out"].float().abs().amax() / 8


def one_outside_the_window(tensors):
    tensors["out"][18, 130] = -tensors["out"][18, 130].float() - tensors["out"].float().abs().amax() / 8


def rows_exchanged(tensors):
    import torch

    other = torch.cat([tensors["out"][1:2].float(), tensors["out"][0:1].float()])
    tensors["out"][:2] = other.to(tensors["out"].dtype)


@pytest.mark.parametrize(
    "spoil", [nothing_written, one_left_out, one_in_the_window, one_outside_the_window, rows_exchanged]
)
def test_a_wrong_result_is_red(case, spoil) -> None:
    cell, made, reference, launch = case

    def wrong() -> None:
        launch()
        spoil(made.tensors)

    assert not reference.judge(wrong, made, cell.contract).passed


def test_a_launch_that_does_nothing_is_red(case) -> None:
    cell, made, reference, _ = case
    assert not reference.judge(lambda: None, made, cell.contract).passed


def test_a_scale_of_another_group_and_a_sum_that_is_off_are_red(case) -> None:
    cell, made, reference, launch = case
    assert 18 not in reference._rows, "the whole result is looked at, not the window alone"
    for name, where in (("out_scales", (18, 1)), ("residual_out", (18, 130)), ("product", (18, 130))):
        if name not in made.tensors:
            continue

        def wrong(name=name, where=where) -> None:
            launch()
            made.tensors[name][where] *= 1.0625

        assert not reference.judge(wrong, made, cell.contract).passed, name


def test_a_copy_of_as_many_bytes_is_judged_by_what_it_copies(case) -> None:
    from nkc.bench import subjects

    cell, made, _, _ = case
    copy = next(each for each in subjects.find(cell.contract.operation).baselines(cell) if each.judge is not None)
    assert not copy.same_rule
    launch = copy.prepare(cell, made)
    assert copy.judge(launch).passed


def test_bytes_are_counted_once_and_held_against_copying() -> None:
    one = parse_document(DOCUMENTS["rms_norm_quant.residual"], "one")
    cell = Cell(contract=one, request="", dims={})
    assert cell.bytes == M * K * (2 + 2 + 2 + 1) + K * 2 + M * (K // 128) * 4
    assert cell.flops == 0
    ceilings = Ceilings(read_gbs=4500.0, copy_gbs=4200.0, tflops={})
    assert cell.floor_us(ceilings) == (pytest.approx(cell.bytes / 4200e9 * 1e6), 0.0)
    assert cell.name == f"rms_norm_quant sm_90 bf16 m {M}, k {K}, residual, M-major"


def test_rules_that_torch_has_no_word_for_say_why() -> None:
    from nkc.bench import subjects

    numerics = {"quantize": "reciprocal", "overflow": "saturate", "amax_floor": 1e-10}
    one = parse_document({**DOCUMENTS["group_quant"], "numerics": numerics}, "one")
    cell = Cell(contract=one, request="", dims={})
    benched = subjects.find("group_quant")
    made = benched.make(cell, 1, "cpu")
    eager = benched.baselines(cell)[0]
    with pytest.raises(ValueError, match="nobody writes this rule"):
        eager.prepare(cell, made)
