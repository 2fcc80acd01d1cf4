"""The serving layer: sound contracts, each with a kernel or a named fallback; and it runs where there is no GPU."""

import importlib.util
import json

import pytest

from nkc import ir
from tests.cli.running import EXAMPLES


@pytest.fixture(scope="module")
def example():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("serve_layer", EXAMPLES / "serve_layer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
def test_its_contracts_are_sound(example, tmp_path, arch) -> None:
    written = example.contracts(example.Shape(), arch, (1, 64))
    assert len(written) == 14
    for name, contract in written.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(contract))
        read = ir.read(path)
        assert read.fallback == "torch"


def test_it_runs_without_a_gpu_and_everything_agrees(example, capsys) -> None:
    pytest.importorskip("torch")
    command = ["run", "--small", "--device", "cpu", "--rows", "3", "--context", "16", "--rounds", "1"]
    assert example.main(command) == 0
    said = capsys.readouterr().out
    assert "dense_fp8 (3, 256) x (512, 256): fallback (there is no route)" in said
    assert "nkc and fallback: 0.00e+00 apart" in said
    assert "tokens/s" in said
