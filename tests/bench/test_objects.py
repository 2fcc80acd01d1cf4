"""Kept objects: what agrees in everything that decides it is not compiled again, and anything else is."""

import dataclasses
import shutil
from itertools import combinations
from types import SimpleNamespace

import pytest

from nkc.bench import objects
from nkc.bench.objects import KeptObjects, build_key
from nkc.emit import render
from nkc.emit.inspect.elf import ObjectError
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
    """A folder and what stands for a real cubin's reader: the fake object is no ELF file, but it names its chip."""

    def inspect(data, name):
        words = data.decode().split()
        if len(words) != 5:
            raise ObjectError(f"{name}: cut off")
        return SimpleNamespace(isa=words[-1], of=(data, name))

    monkeypatch.setattr(objects, "inspect", inspect)
    return lambda toolchain: KeptObjects(toolchain, tmp_path / "kept")


def test_an_object_is_compiled_once(keeper) -> None:
    compiler = FakeToolchain()
    first = keeper(compiler).compile(source(), SM_90)
    again = keeper(compiler)
    second = again.compile(source(), SM_90)
    assert len(compiler.compiled) == 1
    assert again.reused == 1
    assert second.resources.of == (first.data, f"{first.symbol}.cubin")
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


def spoil(file, **fields) -> None:
    """Change fields of a kept object."""
    import msgspec

    file.write_bytes(msgspec.msgpack.encode({**msgspec.msgpack.decode(file.read_bytes()), **fields}))


@pytest.mark.parametrize("data", [b"object of something for sm_100a\n", b"object of some"], ids=["another", "damaged"])
def test_F34_a_kept_object_is_asked_for_its_own_chip_before_it_is_used(keeper, tmp_path, data) -> None:
    compiler = FakeToolchain()
    kept = keeper(compiler)
    first = kept.compile(source(), SM_90)
    (file,) = (tmp_path / "kept").iterdir()
    spoil(file, data=data)
    assert kept.compile(source(), SM_90).data == first.data
    assert (len(compiler.compiled), kept.reused) == (2, 0)
    assert kept.compile(source(), SM_90).data == first.data
    assert kept.reused == 1, "the right one took its place"


def test_F37_a_folder_that_cannot_be_written_stops_nothing_and_says_so(keeper, tmp_path) -> None:
    compiler = FakeToolchain()
    kept = keeper(compiler)
    shutil.rmtree(tmp_path / "kept")
    assert kept.unkept is None
    for m in (16, 17):
        assert kept.compile(source(m), SM_90).symbol == source(m).symbol
    assert len(compiler.compiled) == 2
    assert kept.unkept.startswith(f"{tmp_path / 'kept'}/")
    assert kept.unkept.endswith(": cannot be written: no such file or directory")


def test_F37_what_a_folder_holds_is_used_where_nothing_can_be_added(keeper, tmp_path, monkeypatch) -> None:
    keeper(FakeToolchain()).compile(source(), SM_90)
    written = []

    def refuse(place, data):
        written.append(place)
        raise ToolError(f"{place}: cannot be written: read-only file system")

    def missing(place):
        raise ToolError(f"{place}: cannot be made: read-only file system")

    monkeypatch.setattr(objects, "write_file", refuse)
    compiler = FakeToolchain()
    kept = keeper(compiler)
    kept.compile(source(), SM_90)
    assert (compiler.compiled, kept.reused, kept.unkept) == ([], 1, None)
    for m in (17, 18):
        kept.compile(source(m), SM_90)
    assert (len(compiler.compiled), len(written)) == (2, 1), "tried once, not for every kernel"
    monkeypatch.setattr(objects, "make_output", missing)
    unmade = keeper(FakeToolchain())
    unmade.compile(source(17), SM_90)
    assert unmade.unkept == f"{tmp_path / 'kept'}: cannot be made: read-only file system"
    assert len(written) == 1


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
    """F34: options among them, with which a kernel is compiled with fast math or without."""
    one = source()
    if change == {"language": one.language}:
        change = {"language": "triton"}
    assert build_key(dataclasses.replace(one, **change), SM_90) != build_key(one, SM_90)


def test_the_target_is_in_the_key_and_what_decides_nothing_is_not() -> None:
    one = source()
    assert build_key(one, targets.get("gfx950")) != build_key(one, SM_90)
    assert build_key(dataclasses.replace(one, closure=(), closure_digest="x"), SM_90) == build_key(one, SM_90)


def test_F34_every_chip_has_a_key_of_its_own() -> None:
    one = source()
    keys = {arch: build_key(one, targets.get(arch)) for arch in targets.names()}
    assert [pair for pair in combinations(keys, 2) if keys[pair[0]] == keys[pair[1]]] == []
    renamed = dataclasses.replace(SM_90, arch="sm_91"), dataclasses.replace(SM_90, isa="sm_91a")
    assert len({build_key(one, target) for target in (SM_90, *renamed)}) == 3


@pytest.mark.parametrize("part", ["_compiler_digest", "_driver_digest"])
def test_F34_another_compiler_or_another_way_to_drive_it_is_another_key(monkeypatch, part) -> None:
    before = build_key(source(), SM_90)
    monkeypatch.setattr(objects, part, lambda *_: "0" * 64)
    assert build_key(source(), SM_90) != before
