"""The build compiles the launch in C where it can, and says why where it cannot; nothing fails for it."""

import importlib.util
import shutil
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """hatch_build.py as a module."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(hook, tmp_path: Path) -> Path:
    """A folder with the one source file."""
    source = tmp_path / hook.SOURCE
    source.parent.mkdir(parents=True)
    shutil.copy(ROOT / hook.SOURCE, source)
    return tmp_path


def test_it_compiles_without_a_warning_and_serves_later_pythons(hook, checkout, monkeypatch) -> None:
    monkeypatch.setattr(hook, "FLAGS", (*hook.FLAGS, "-Werror"))
    assert hook.compile_extension(checkout) is None
    assert (checkout / hook.BINARY).read_bytes().startswith(b"\x7fELF")
    assert sorted(path.name for path in (checkout / hook.BINARY).parent.iterdir()) == ["_launch.abi3.so", "_launch.c"]
    assert b"Py_LIMITED_API 0x030b0000" in (checkout / hook.SOURCE).read_bytes()


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (
            lambda patch, root: patch.setattr(sysconfig, "get_config_var", lambda _: "no-such-cc -x"),
            "no-such-cc: No such",
        ),
        (lambda patch, root: patch.setattr(sysconfig, "get_path", lambda _: str(root)), "headers are not installed"),
        (lambda patch, root: (root / "nkc/runtime/_launch.c").write_text("int x = ;\n"), "failed:\n"),
    ],
)
def test_what_keeps_it_from_that_is_said_and_leaves_nothing(hook, checkout, monkeypatch, break_it, said) -> None:
    break_it(monkeypatch, checkout)
    assert said in hook.compile_extension(checkout)
    assert not (checkout / hook.BINARY).exists()


def _project(hook, root: Path) -> Path:
    """Return a project with what a build reads and little else."""
    (root / "nkc" / "runtime").mkdir(parents=True)
    (root / "templates").mkdir()
    (root / "templates" / "one.j2").write_text("x")
    files = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", hook.SOURCE, "nkc/__init__.py", ".gitignore")
    for name in files:
        shutil.copy(ROOT / name, root / name)
    return root


def test_an_editable_install_has_it_in_its_checkout(hook, tmp_path) -> None:
    root = _project(hook, tmp_path / "project")
    data: dict[str, object] = {"artifacts": []}
    hook.ExtensionHook(str(root), {}, None, None, str(tmp_path), "wheel").initialize("editable", data)
    assert (root / hook.BINARY).is_file()
    assert data == {"artifacts": []}, "a wheel that points to a checkout is for any platform"


@pytest.mark.parametrize("works", [True, False])
def test_a_wheel_says_its_platform_only_where_it_holds_machine_code(hook, tmp_path, monkeypatch, works) -> None:
    from hatchling.builders.wheel import WheelBuilder

    root = _project(hook, tmp_path / "project")
    if not works:
        monkeypatch.setattr(sysconfig, "get_config_var", lambda _: "no-such-cc")
    (built,) = WheelBuilder(str(root)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        assert (hook.BINARY in wheel.namelist()) == works
    tag = Path(built).name.removeprefix("nkc-0.1.0-").removesuffix(".whl")
    assert tag.startswith("cp311-abi3-linux") if works else tag == "py3-none-any"
