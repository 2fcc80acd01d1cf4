"""The walls: imports point one way, heavy packages stay where they are used, and only the command line prints."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.sources import modules

MAY_IMPORT = {
    "ir": set(),
    "tactics": {"ir"},
    "emit": {"ir", "tactics"},
    "runtime": {"ir"},
    "verify": {"ir", "tactics", "emit", "runtime"},
    "bench": {"ir", "tactics", "emit", "runtime", "verify"},
    "api": {"ir", "tactics", "emit", "runtime", "verify"},
    "cli": {"ir", "tactics", "emit", "runtime", "verify", "bench", "api"},
}
"""Room to the rooms it may import. `nkc` itself (the version) is open to all."""

HEAVY = {
    "torch": {"verify", "runtime", "bench"},
    "triton": {"emit", "verify", "bench"},
    "jinja2": {"emit", "cli"},
    "networkx": {"emit"},
    "numpy": {"verify", "runtime", "bench"},
    "rich": {"cli"},
    "click": {"cli"},
}
"""Package to the rooms that may import it."""

MODULES = modules()


def room(name: str) -> str:
    """Return the room of a module, given as a path (`nkc/ir/reader.py`) or dotted (`nkc.ir.reader`)."""
    parts = name.removesuffix(".py").replace("/", ".").split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield every module that is imported anywhere in a file, for types alone too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_one_way(name) -> None:
    here = room(name)
    if here in ("", "__init__", "__main__"):
        return
    for imported in imports(MODULES[name]):
        if imported.startswith("nkc.") and imported != "nkc.__version__":
            assert room(imported) in MAY_IMPORT[here] | {here}, f"{name} imports {imported}"
        package = imported.split(".")[0]
        assert here in HEAVY.get(package, {here}), f"{name} imports {package}"


def test_every_folder_is_a_room_that_is_known() -> None:
    assert {room(name) for name in MODULES} - {"__init__", "__main__"} <= set(MAY_IMPORT)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name) -> None:
    assert ast.get_docstring(MODULES[name]), f"{name} has no docstring"


def test_only_the_command_line_prints() -> None:
    for name, tree in MODULES.items():
        if room(name) == "cli":
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"], name


def test_nothing_reads_a_switch_from_the_environment_while_compiling() -> None:
    """Hidden switches are left out on purpose; what decides an outcome is in the contract or on the command line."""
    for name, tree in MODULES.items():
        if room(name) not in ("ir", "tactics", "emit") or name == "nkc/emit/toolchains/worker.py":
            continue  # the worker empties its own environment
        reads = [
            node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
        ]
        assert not reads, f"{name}:{[node.lineno for node in reads]}"
