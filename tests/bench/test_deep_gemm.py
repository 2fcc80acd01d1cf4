"""DeepGEMM's ways of being called, with a stand-in that computes what it would: rows padded, launched dependent."""

import sys
from types import ModuleType

import pytest

pytestmark = pytest.mark.toolchain  # torch holds the operands

from nkc.bench.cell import Cell  # noqa: E402
from nkc.ir import canonical  # noqa: E402

from ..fixtures.contracts import contract  # noqa: E402

SHAPE = {
    "$.target.arch": "sm_90",
    "$.shape.n": 320,
    "$.shape.k": 512,
    "$.numerics.accumulate": "tensor_core_fp8",
    "$.scales.a.layout": "m_major",
    "$.scales.a.leading_dim": {"multiple_of": 4},
}


class Library(ModuleType):
    """fp8_gemm_nt in float64; `calls` holds (dependent, rows) of each."""

    __version__ = "0"

    def __init__(self) -> None:
        super().__init__("deep_gemm")
        self.calls: list[tuple[bool, int]] = []
        self._dependent = False

    def set_pdl(self, enabled: bool) -> None:
        self._dependent = enabled

    def fp8_gemm_nt(self, left, right, out) -> None:
        import torch

        from nkc.bench.subjects.dense.libraries import dequantised

        (a, a_scales), (b, b_scales) = left, right
        pitch = -(-a.shape[0] // 4) * 4
        assert a_scales.stride() == (1, pitch), "M-major, rows to whole 16 bytes"
        self.calls.append((self._dependent, a.shape[0]))
        wide = dequantised(a, a_scales, 1, 128, torch.float64)
        out.copy_(wide @ dequantised(b, b_scales, 128, 128, torch.float64).T)


@pytest.fixture
def library(monkeypatch):
    import torch

    found = Library()
    monkeypatch.setitem(sys.modules, "deep_gemm", found)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    return found


def case(m: int, *, constant: bool = False, layout: str = "m_major"):
    from nkc.bench.subjects.dense import Reference, make
    from nkc.bench.subjects.dense.deep_gemm import routes

    edits = {**SHAPE, "$.shape.m": m, "$.scales.a.layout": layout}
    if layout == "row_major":
        del edits["$.scales.a.leading_dim"]
    if constant:
        edits["$.properties.constant"] = ["b", "b_scales"]
    one = contract(edits)
    cell = Cell(contract=one, request=canonical.contract_id(one), dims={})
    made = make(cell, 1, "cpu")
    return cell, made, Reference(cell, made, 1), routes(cell, same_rule=True)


@pytest.mark.parametrize("layout", ["m_major", "row_major"])
@pytest.mark.parametrize("m", [1, 24, 64])
def test_every_way_is_green_and_says_how_it_is_called(library, m, layout) -> None:
    cell, made, reference, ways = case(m, constant=True, layout=layout)
    names = ["DeepGEMM", "DeepGEMM, dependent"]
    if m < 64:
        names += ["DeepGEMM, padded", "DeepGEMM, padded, dependent"]
    assert [each.name for each in ways] == names
    for way in ways:
        launch = way.prepare(cell, made)
        library.calls.clear()
        assert reference.judge(way.finished(launch), made, None).passed, way.name
        assert library.calls == [("dependent" in way.name, 64 if "padded" in way.name else m)]


def test_without_constant_operands_nobody_is_launched_dependent(library) -> None:
    _, _, _, ways = case(24)
    assert [each.name for each in ways] == ["DeepGEMM", "DeepGEMM, padded"]


def test_a_padded_result_that_is_not_brought_back_is_red(library) -> None:
    cell, made, reference, ways = case(24)
    launch = ways[1].prepare(cell, made)
    assert not reference.judge(launch, made, None).passed


def test_without_the_library_the_reason_is_an_import_error() -> None:
    cell, made, _, ways = case(24)
    with pytest.raises(ImportError):
        ways[0].prepare(cell, made)
