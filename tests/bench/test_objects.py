"""Kept objects: what agrees in everything that decides it is not compiled again, and anything else is."""

import dataclasses

import pytest

from nkc.bench.objects import KeptObjects, build_key
from nkc.emit import render
from nkc.ir import targets
from nkc.ir.errors import ToolError
from nkc.tactics.select import Policy, select

from ..fixtures.contracts import contract
from ..fixtures.toolchain import FakeToolchain

SHAPE = {"$.target.arch": "sm_90", "$.shape.m": 16, "$.shape.n": 2112, "$.shape.k": 7168}
SM_90 = targets.get("sm_90")


def source(m: int = 16):
    selection = select(contract({**SHAPE, "$.shape.m": m}), Policy(allow_experimental=True))
    assert selection.selected is not None
    return render.render(selection.lower(selection.selected))


@pytest.fixture
def keeper(tmp_path, monkeypatch):
    """A folder and what stands for a real cubin's reader: the fake object is no ELF file."""
    monkeypatch.setattr("nkc.bench.objects.inspect", lambda data, name: (data, name))
    return lambda toolchain: KeptObjects(toolchain, tmp_path / "kept")


def test_an_object_is_compiled_once(keeper) -> None:
    compiler = FakeToolchain()
    first = keeper(compiler).compile(source(), SM_90)
    again = keeper(compiler)
    second = again.compile(source(), SM_90)
    assert len(compiler.compiled) == 1
    assert again.reused == 1
    assert second.resources == (first.data, f"{first.symbol}.cubin")
    same = dataclasses.replace(second, resources=first.resources, intermediates=first.intermediates)
    assert same == first


def test_a_damaged_file_is_compiled_anew(keeper, tmp_path) -> None:
    compiler = FakeToolchain()
    kept = keeper(compiler)
    kept.compile(source(), SM_90)
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(b"cut")
    kept.compile(source(), SM_90)
    assert len(compiler.compiled) == 2
    assert kept.reused == 0


def test_a_kernel_that_does_not_compile_is_not_kept(keeper, tmp_path) -> None:
    with pytest.raises(ToolError):
        keeper(FakeToolchain(failing=("dense",))).compile(source(), SM_90)
    assert not list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"text": "another"},
        {"symbol": "another"},
        {"parameters": ()},
        {"options": (("num_warps", 1),)},
        {"language": "cuda"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_decides_an_object_is_in_its_key(change) -> None:
    one = source()
    if change == {"language": one.language}:
        change = {"language": "triton"}
    assert build_key(dataclasses.replace(one, **change), SM_90) != build_key(one, SM_90)


def test_the_target_is_in_the_key_and_what_decides_nothing_is_not() -> None:
    one = source()
    assert build_key(one, targets.get("gfx950")) != build_key(one, SM_90)
    assert build_key(dataclasses.replace(one, closure=(), closure_digest="x"), SM_90) == build_key(one, SM_90)
