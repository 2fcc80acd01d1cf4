"""Finds tactics by listing the folder of their operation. Loaded on demand, checked once, sorted by name."""

import dataclasses
import importlib
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from nkc.ir import folder
from nkc.ir.contract import Maturity
from nkc.ir.errors import ToolError
from nkc.tactics.maturity import read_claims
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
    claims = _claims(operation)
    for module in packs(operation):
        for tactic in getattr(_load(module), "TACTICS", ()):
            if tactic.name in found:
                raise ToolError(f"{module}: `{tactic.name}` is defined in {found[tactic.name]} already (rename one)")
            found[tactic.name] = module
            claim = claims.pop(tactic.name, None)
            tactics.append(tactic if claim is None else dataclasses.replace(tactic, claim=claim))
    if claims:
        raise ToolError(f"nkc.tactics.{operation}: claims name no tactic: {', '.join(sorted(claims))} (drop them)")
    return tuple(sorted(tactics, key=lambda tactic: tactic.name))


def folder_of(operation: str) -> Path | None:
    """Return the folder of an operation's tactics, None where it has none."""
    if not packs(operation):
        return None
    file = sys.modules[f"nkc.tactics.{operation}"].__file__
    return None if file is None else Path(file).parent


def _claims(operation: str) -> dict[str, Maturity]:
    folder = folder_of(operation)
    return {} if folder is None else read_claims(folder)


def find(operation: str, name: str) -> Tactic:
    """Return one tactic by name. Raises KeyError for an unknown one."""
    for tactic in tactics_of(operation):
        if tactic.name == name:
            return tactic
    raise KeyError(name)
