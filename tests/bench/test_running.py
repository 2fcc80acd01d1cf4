"""Scripts that run kernels, on a machine that cannot: one line and an exit code, and never a traceback."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.fixtures.scripts import BENCHMARKS
from tests.runtime.support import dense_launch, write_bundle

BUILT = "`build` needs none; run what it left where one is"
CHECKS = "`build` needs none; run the checks where one is"
ELSEWHERE = "it runs kernels that were built elsewhere"
COMMANDS = (
    ("host_cost", ("BUNDLE",), ELSEWHERE),
    ("load_time", ("BUNDLE",), ELSEWHERE),
    ("parity", ("BUNDLE",), ELSEWHERE),
    ("replay", ("BUNDLE",), ELSEWHERE),
    ("quant", ("run", "BUNDLE"), BUILT),
    ("quantised_product", ("run", "BUNDLE"), BUILT),
    *(("stress", (check, "BUNDLE"), CHECKS) for check in ("replays", "chain", "sanitize")),
)


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Start a script as its last line does, and return its exit code."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bundle = write_bundle(tmp_path / "bundle", [dense_launch()], fallback="framework")
    own = {path.stem for path in BENCHMARKS.glob("*.py")}

    def started(name: str, *words: str, bundle: Path = bundle) -> int:
        for module in own & set(sys.modules):
            monkeypatch.delitem(sys.modules, module)
        given = [str(bundle) if word == "BUNDLE" else word for word in words]
        monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / f"{name}.py"), *given])
        with pytest.raises(SystemExit) as ended:
            importlib.import_module("running").exit_with(lambda: importlib.import_module(name).main())
        for module in own & set(sys.modules):
            monkeypatch.delitem(sys.modules, module)
        return ended.value.code

    return started


@pytest.mark.parametrize(("name", "words", "instead"), COMMANDS)
def test_without_a_gpu_a_script_says_so_in_a_line(monkeypatch, capsys, start, name, words, instead) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert start(name, *words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{name}.py: no GPU is present ({instead})\n")


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, words, _ in COMMANDS])
def test_without_torch_a_script_says_so_in_a_line(monkeypatch, capsys, start, name, words) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert start(name, *words) == 2
    assert capsys.readouterr().err == f"{name}.py: torch is not installed, and it runs where a GPU is\n"


@pytest.mark.parametrize("name", ["load_time", "quant"])
def test_what_is_not_there_is_a_line(monkeypatch, capsys, start, tmp_path, name) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("Device", (), {"L2_cache_size": 1}))
    words = ("run", "BUNDLE") if name == "quant" else ("BUNDLE",)
    assert start(name, *words, bundle=tmp_path / "none") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no such file or directory" in said


def test_every_script_that_runs_kernels_ends_so() -> None:
    """A script that launches on a device and is started by hand goes through `exit_with`."""
    for path in sorted(BENCHMARKS.glob("*.py")):
        text = path.read_text()
        if "__main__" in text and ("torch.cuda" in text or "from tensors import" in text):
            assert "    exit_with(main)\n" in text, path.name
            assert "require_gpu(" in text, path.name
