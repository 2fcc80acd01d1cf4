"""Where the package's own files lie, whether it runs from a checkout or from a wheel."""

import hashlib
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def templates_root() -> Path:
    """Return the folder that holds the templates: `_templates` in the package (a wheel), else `templates` beside it."""
    shipped = PACKAGE / "_templates"
    return shipped if shipped.is_dir() else PACKAGE.parent / "templates"


def resolve(name: str) -> Path:
    """Return the file behind a name that means the same in a checkout and a wheel: `nkc/...` or `templates/...`."""
    top, _, rest = name.partition("/")
    return (templates_root() if top == "templates" else PACKAGE) / rest


@lru_cache(maxsize=1024)
def file_sha256(name: str) -> str | None:
    """Return the SHA-256 of such a file's bytes, None where there is no such file."""
    try:
        return hashlib.sha256(resolve(name).read_bytes()).hexdigest()
    except OSError:
        return None
