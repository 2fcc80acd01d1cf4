"""Open sets live in folders: one module per member, found by listing the folder, sorted by name."""

import importlib
import pkgutil
from functools import lru_cache
from types import ModuleType


@lru_cache(maxsize=32)
def _listed(package: str, path: tuple[str, ...]) -> tuple[str, ...]:
    del package
    return tuple(sorted(module.name for module in pkgutil.iter_modules(path)))


def members(package: ModuleType) -> tuple[str, ...]:
    """Return the names of a package's modules, sorted; an extended `__path__` extends the set."""
    return _listed(package.__name__, tuple(package.__path__))


def load(package: ModuleType, name: str) -> ModuleType:
    """Import one member of a package on demand."""
    return importlib.import_module(f"{package.__name__}.{name}")
