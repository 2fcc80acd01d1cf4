"""Published times beside measured ones: scaled by what both sessions timed, shown with the factor, never measured."""

import msgspec
import pytest

from nkc.bench import plot, records
from nkc.bench.published import PUBLISHED_FILE, Published, peers, read_published
from nkc.bench.summary import summarise

from ..fixtures.contracts import contract
from ..fixtures.measured import SESSION, measurements, record, route

OURS = "sm_90.dense.fp8_as_f16_16x64x128_w4_s5"
H200 = msgspec.structs.replace(SESSION, device="NVIDIA H200")
SHAPE = {"$.target.arch": "sm_90", "$.shape.n": 2112, "$.shape.k": 7168, "$.numerics.accumulate": "tensor_core_fp8"}
DEEP_US, CUBLASLT_US = 9.246, 14.893  # m 16, n 2112, k 7168


def cell(*baselines, us: float = 8.0, **edits):
    written = {"$.shape.m": 16, **edits}
    found = record(contract({**SHAPE, **written}), (route(OURS, us, digest="a"), *baselines), selected=OURS)
    return msgspec.structs.replace(found, session=H200.digest)


def said(*found):
    return summarise([records.of(H200, found)])


def test_a_peer_is_scaled_by_cublaslt_of_the_same_run() -> None:
    deep, triton = peers(cell(route("cuBLASLt block-scaled", 1.1 * CUBLASLT_US)), H200)
    assert (deep.name, deep.published_us, deep.scaled_by) == ("DeepGEMM", DEEP_US, "cuBLASLt block-scaled")
    assert deep.factor == pytest.approx(1.1)
    assert deep.us == pytest.approx(1.1 * DEEP_US, rel=1e-4)
    assert triton.name == "Triton, tuned"
    assert triton.us > deep.us


def test_where_cublaslt_serves_nothing_bf16_matmul_scales_and_else_nothing_does() -> None:
    refused = msgspec.structs.replace(route("cuBLASLt block-scaled", None), why_not="not served", gate=None)
    wide = route("torch.matmul bf16", 12.886 * 0.9, same_rule=False)
    assert peers(cell(refused, wide), H200)[0].scaled_by == "torch.matmul bf16"
    assert peers(cell(refused, wide), H200)[0].us == pytest.approx(0.9 * DEEP_US, rel=1e-4)
    alone = peers(cell(), H200)[0]
    assert (alone.factor, alone.scaled_by, alone.us) == (1.0, None, DEEP_US)


def test_beside_constant_operands_stands_what_dependent_launch_makes_of_a_peer() -> None:
    """DeepGEMM took 9.61 us without and 9.44 us with it in one process; Triton's was never launched so."""
    constant = {"$.properties.constant": ["b", "b_scales"]}
    by_name = {
        peer.name: peer for peer in peers(cell(route("cuBLASLt block-scaled", 1.1 * CUBLASLT_US), **constant), H200)
    }
    assert sorted(by_name) == ["DeepGEMM, dependent", "Triton, tuned"]
    assert by_name["DeepGEMM, dependent"].published_us == pytest.approx(DEEP_US * 9.44 / 9.61, rel=1e-3)
    assert by_name["DeepGEMM, dependent"].us == pytest.approx(1.1 * DEEP_US * 9.44 / 9.61, rel=1e-3)
    unknown = {**constant, "$.shape.n": 32768, "$.shape.k": 512}
    assert [peer.name for peer in peers(cell(**unknown), H200)] == ["DeepGEMM", "Triton, tuned"]
    assert said(cell(**constant), cell()).rows[0].rule == "fp8_e4m3, tensor_core_fp8"
    assert said(cell(**constant), cell()).rows[1].rule == "fp8_e4m3, tensor_core_fp8, constant operands"


def test_a_library_that_was_timed_here_is_not_told_from_paper() -> None:
    assert [peer.name for peer in peers(cell(route("DeepGEMM", 9.0)), H200)] == ["Triton, tuned"]


@pytest.mark.parametrize(
    "edits",
    [
        {"$.shape.m": 17},
        {"$.shape.m": {"min": 1, "max": 16}},
        {"$.dtypes.out": "fp32"},
        {"$.epilogue": {"kind": "bias", "dtype": "bf16"}},
    ],
    ids=["rows", "range", "result", "bias"],
)
def test_another_contract_has_no_published_time(edits) -> None:
    assert peers(cell(**edits), H200) == ()


def test_another_device_has_none() -> None:
    assert peers(cell(), SESSION) == ()


def test_the_best_of_all_peers_is_what_ours_is_held_against() -> None:
    (line,) = said(cell(route("cuBLASLt block-scaled", 1.1 * CUBLASLT_US))).cells
    assert line.over == pytest.approx(1.1 * DEEP_US / 8.0, rel=1e-3)
    assert line.over_unscaled == pytest.approx(DEEP_US / 8.0, rel=1e-3)
    assert line.over_timed == pytest.approx(1.1 * CUBLASLT_US / 8.0, rel=1e-3)
    assert line.peers[0].factor == pytest.approx(1.1)


def test_a_peer_of_another_rule_is_no_peer() -> None:
    strict = cell(**{"$.numerics.accumulate": "matrix_unit_fp32"})
    assert not peers(strict, H200)[0].same_rule
    (line,) = said(strict).cells
    assert (line.over, line.peers) == (None, ())
    assert next((peer.name, peer.published_us) for peer in line.others) == ("DeepGEMM", DEEP_US)


def test_a_red_gate_prints_no_ratio() -> None:
    red = msgspec.structs.replace(
        cell(), routes=(route(OURS, 8.0, digest="a", passed=False), route("cuBLASLt block-scaled", 12.0))
    )
    (line,) = said(red).cells
    assert (line.over, line.over_unscaled, line.over_timed) == (None, None, None)
    assert line.refused == "the candidate's gate is red"


def test_means_are_geometric_by_rows_and_the_worst_cell_is_named() -> None:
    scale = route("cuBLASLt block-scaled", CUBLASLT_US)
    wide = route("torch.matmul bf16", 12.409, same_rule=False)
    found = said(cell(scale), cell(scale, us=4.0, **{"$.shape.n": 4096}), cell(wide, **{"$.shape.m": 1}))
    assert [line.rows for line in found.rows] == [1, 16, None]
    _, sixteen, every = found.rows
    ratios = [line.over for line in found.cells if line.rows == 16]
    assert sixteen.over == pytest.approx((ratios[0] * ratios[1]) ** 0.5, rel=1e-3)
    assert every.cells == 3
    assert sixteen.worst == min(ratios)
    assert sixteen.worst_cell == found.cells[ratios.index(min(ratios))].cell


def test_every_peer_is_named_with_its_own_mean_and_its_rule() -> None:
    scale = route("cuBLASLt block-scaled", CUBLASLT_US)
    wide = route("torch.matmul bf16", 16.0, same_rule=False)
    (line,) = said(cell(scale, wide)).rows
    named = {each.name: (each.over, each.same_rule, each.cells) for each in line.versus}
    assert named["torch.matmul bf16"] == (2.0, False, 1)
    assert named["DeepGEMM"] == (pytest.approx(DEEP_US / 8.0, rel=1e-3), True, 1)
    assert [each.same_rule for each in line.versus] == [True, True, True, False]


def test_who_adds_by_another_rule_stands_beside_where_nobody_adds_by_the_contract_s() -> None:
    """A speed-up needs a baseline of the same rule; what another product takes needs none, in every cell alike."""
    wide = route("torch.matmul bf16", 16.0, same_rule=False)
    strict = cell(wide, **{"$.numerics.accumulate": "matrix_unit_fp32"})
    plain = route("sm_90.dense.fp8_as_f16_16x32x128_w4_s6", 12.0, digest="b")
    beside = cell(plain, wide, us=4.0, **{"$.shape.n": 4096, "$.numerics.accumulate": "matrix_unit_fp32"})
    (line,) = said(strict, msgspec.structs.replace(beside, plain=plain.name)).rows
    assert (line.cells, line.compared) == (2, 1)
    named = {each.name: (each.over, each.cells) for each in line.versus}
    assert named["torch.matmul bf16"] == (pytest.approx(8**0.5, rel=1e-3), 2)
    assert named["DeepGEMM"][1] == 2
    assert line.over_others == pytest.approx(min(named["DeepGEMM"][0], named["Triton, tuned"][0]), rel=1e-3)


def test_what_is_said_beside_records_is_never_kept(tmp_path) -> None:
    found = records.of(H200, [cell(route("cuBLASLt block-scaled", CUBLASLT_US))])
    file = tmp_path / "said.json"
    file.write_bytes(records.document(found, summarise([found])))
    again = records.read_exported(file)
    assert again.records == found.records
    assert again.summary["cells"][0]["peers"][0]["scaled_by"] == "cuBLASLt block-scaled"
    (kept,) = records.merge(again, folder=tmp_path / "kept")
    assert "summary" not in kept.read_text()


def test_the_picture_tells_a_published_peer_apart() -> None:
    drawn = plot.svg([records.of(H200, [cell(route("cuBLASLt block-scaled", CUBLASLT_US))])]).decode()
    assert "times as fast as DeepGEMM at 9.246 us (published 9.246 us, times 1.000 by cuBLASLt block-scaled)" in drawn
    assert "(published " not in plot.svg([measurements(cell_elsewhere())]).decode()


def cell_elsewhere():
    return msgspec.structs.replace(cell(route("cuBLASLt block-scaled", 12.0)), session=SESSION.digest)


def test_the_file_is_whole() -> None:
    found = msgspec.json.decode(PUBLISHED_FILE.read_bytes(), type=Published)
    assert found == read_published()
    assert len({(each.m, each.n, each.k) for each in found.cells}) == len(found.cells) == 66
    for each in found.cells:
        assert set(each.peers_us) == {"DeepGEMM", "Triton, tuned"}
        assert "torch.matmul bf16" in each.references_us
        assert ("cuBLASLt block-scaled" in each.references_us) is (each.m > 1)
