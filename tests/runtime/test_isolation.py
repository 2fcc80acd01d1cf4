"""The runtime alone: no compiler, no torch of its own accord, quick to import."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import msgspec
import pytest

import nkc
from tests.fixtures.speed import slowness

from .support import build_standin, dense_launch, write_bundle

# Everything that a serving machine need not have. Found by name, so that a stub would not hide an import.
FORBIDDEN = ("triton", "jinja2", "networkx", "click", "rich", "orjson", "elftools", "numpy", "torch")

PROGRAM = """
import sys, json, importlib.abc
class Forbid(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {forbidden!r}:
            raise ImportError('forbidden: ' + name)
sys.meta_path.insert(0, Forbid())
import nkc.runtime
"""


def run(program: str, forbidden: tuple[str, ...] = FORBIDDEN) -> str:
    text = PROGRAM.format(forbidden=forbidden) + program
    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_launch_records_manifests_and_errors_of_ours_are_imported() -> None:
    loaded = json.loads(run("print(json.dumps(sorted(m for m in sys.modules if m.startswith('nkc'))))"))
    rooms = {name.split(".")[1] for name in loaded if name != "nkc"}
    assert rooms == {"ir", "runtime"}


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds msgspec and nkc and nothing else: what a serving image may be."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(home, symlinks=True, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    for package in (nkc, msgspec):
        folder = Path(package.__file__).parent
        (site / folder.name).symlink_to(folder)
    return home / "bin" / "python"


@pytest.mark.parametrize("package", ["triton", "torch", "jinja2", "click", "numpy"])
def test_the_bare_environment_is_bare(bare_python, package) -> None:
    done = subprocess.run([bare_python, "-c", f"import {package}"], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in done.stderr


def test_a_bundle_loads_and_launches_without_a_compiler(tmp_path, bare_python) -> None:
    """The stand-in HIP library, because it needs no Python package at all."""
    library = build_standin(tmp_path, "hip")
    write_bundle(tmp_path / "b", [dense_launch(arch="gfx950", m=1, n=128, k=128)])
    program = f"""
from nkc.runtime import hip, load, read
class Array:
    def __init__(self, shape, typestr, at):
        self.__cuda_array_interface__ = dict(shape=shape, typestr=typestr, data=(at, False), strides=None, version=3)
(kernel,) = load(read({str(tmp_path / "b")!r}), driver=hip.open_device(0, {str(library)!r}))
a, b = Array((1, 128), '|u1', 4096), Array((128, 128), '|u1', 8192)
sa, sb, out = Array((1, 1), '<f4', 32768), Array((1, 1), '<f4', 65536), Array((1, 128), '<u2', 131072)
kernel.launch(a, b, sa, sb, out)
print(kernel.id, 'launched')
"""
    done = subprocess.run([bare_python, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "launched" in done.stdout


def test_import_is_quick() -> None:
    """Under 0.15 s without torch: the processor's time and the best of five, for other work is no fault of ours."""
    program = "import time; t = time.process_time(); import nkc.runtime; print(time.process_time() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.15 * slowness()
