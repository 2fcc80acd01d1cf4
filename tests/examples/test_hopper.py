"""The Hopper examples: each is served by a kernel in CUDA C++, by one that begins early where operands are constant."""

from pathlib import Path

import pytest

from nkc import ir
from nkc.ir.contract import dim_max
from nkc.tactics.select import Policy, select
from tests.cli.running import nkc

from ..fixtures.toolchain import nvrtc_is_installed

FOLDER = Path(__file__).parents[2] / "examples" / "hopper"
FILES = sorted(FOLDER.glob("*.json"))


def test_rows_from_few_to_many_are_there_with_and_without_constant_operands() -> None:
    contracts = [ir.read(file) for file in FILES]
    rows = {dim_max(contract.shape["m"]) for contract in contracts}
    assert {1, 16, 64, 512, 4096} <= rows
    for few in (1, 16, 64):
        said = {bool(contract.properties.constant) for contract in contracts if dim_max(contract.shape["m"]) == few}
        assert said == {True, False}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_some_kernel_in_cuda_serves_it_and_one_begins_early_where_it_may(file: Path) -> None:
    contract = ir.read(file)
    selection = select(contract, Policy(allow_experimental=True))
    languages = {candidate.tactic.kernel.language for candidate in selection.eligible}
    assert "cuda" in languages
    asked = bool(contract.properties.constant)
    assert asked == (".dependent" in file.name)
    assert any(candidate.tactic.dependent for candidate in selection.eligible) == asked


@pytest.mark.toolchain
@pytest.mark.skipif(not nvrtc_is_installed(), reason="nvidia-cuda-nvrtc is not installed")
def test_all_of_them_compile_without_a_gpu(tmp_path: Path) -> None:
    done = nkc("compile", *FILES, "-o", tmp_path)
    assert done.code == 0, done.err
    assert len(list(tmp_path.glob("*/kernel.cubin"))) == len(FILES)
