"""Finds tactics by listing the folder of their operation. Loaded on demand, checked once, sorted by name."""

import importlib
from functools import lru_cache
from types import ModuleType

from nkc.ir import folder
from nkc.ir.errors import ToolError
from nkc.tactics.tactic import Tactic


def packs(operation: str) -> tuple[str, ...]:
    """Return the module names of an operation's tactic packs, sorted; none where the operation has no folder."""
    try:
        package = importlib.import_module(f"nkc.tactics.{operation}")
    except ModuleNotFoundError as error:
        if error.name == f"nkc.tactics.{operation}":
            return ()
        raise ToolError(f"nkc.tactics.{operation}: cannot be loaded: {error}") from error
    return tuple(f"{package.__name__}.{name}" for name in folder.members(package))


def _load(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ToolError(f"{module}: this tactic pack cannot be loaded: {error}") from error


@lru_cache(maxsize=64)
def tactics_of(operation: str) -> tuple[Tactic, ...]:
    """Return all tactics of an operation on every target, sorted by name.

    Raises ToolError naming the pack where one cannot be loaded, or where two tactics share a name.
    """
    found: dict[str, str] = {}
    tactics: list[Tactic] = []
    for module in packs(operation):
        for tactic in getattr(_load(module), "TACTICS", ()):
            if tactic.name in found:
                raise ToolError(f"{module}: `{tactic.name}` is defined in {found[tactic.name]} already (rename one)")
            found[tactic.name] = module
            tactics.append(tactic)
    return tuple(sorted(tactics, key=lambda tactic: tactic.name))


def find(operation: str, name: str) -> Tactic:
    """Return one tactic by name. Raises KeyError for an unknown one."""
    for tactic in tactics_of(operation):
        if tactic.name == name:
            return tactic
    raise KeyError(name)
