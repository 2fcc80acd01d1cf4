"""The wheel, installed elsewhere: it carries its templates and compiles without the checkout."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.cli.running import GFX950, SM_90, nkc, tree

pytestmark = pytest.mark.toolchain

ABSENT = ("numpy", "torch")
ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    """Run a command outside the checkout, without a way back to it, and return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_compiles_outside_the_checkout(tmp_path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("nkc-*.whl")
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    python = venv / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    # Dependencies come from this environment. Path files inside it, such as an editable nkc's, are not followed.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    # A core install has neither: they come with the extra `verify`.
    for name in ABSENT:
        (packages / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", "--force-reinstall", wheel, cwd=tmp_path)

    where = run(python, "-c", "import nkc; print(nkc.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(venv)
    assert sorted(path.name for path in (Path(where).parent / "_templates").iterdir()) == sorted(
        path.name for path in (ROOT / "templates").iterdir()
    )
    contracts = []
    for name, source in (("sm_90", SM_90), ("gfx950", GFX950)):
        contracts.append(tmp_path / f"{name}.json")
        contracts[-1].write_bytes(source.read_bytes())
    run(venv / "bin" / "nkc", "compile", "--allow-experimental", *contracts, "-o", tmp_path / "wheel", cwd=tmp_path)
    assert nkc("compile", "--allow-experimental", *contracts, "-o", tmp_path / "checkout").code == 0
    assert tree(tmp_path / "wheel") == tree(tmp_path / "checkout")
    assert {name.rpartition("/")[2] for name in tree(tmp_path / "wheel")} >= {"kernel.cubin", "kernel.hsaco"}
    (hsaco,) = (tmp_path / "wheel").glob("*/kernel.hsaco")
    assert "wait_states" in run(venv / "bin" / "nkc", "inspect", hsaco, cwd=tmp_path)
    assert "s_endpgm" in run(venv / "bin" / "nkc", "inspect", "--disassemble", hsaco, cwd=tmp_path)
