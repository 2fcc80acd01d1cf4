"""The one loader of templates: finds their root, picks delimiters by folder, and refuses whatever is undefined.

Two roots, never both: `_templates` inside the package (a wheel), else `templates` beside it (a checkout).
"""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from nkc.ir.errors import ToolError
from nkc.ir.package import templates_root

if TYPE_CHECKING:
    from jinja2 import Environment

_JINJA = ("{%", "%}", "{{", "}}", "{#", "#}")
_DELIMITERS = {"cuda": ("<%", "%>", "<$", "$>", "<#", "#>")}
"""Block, variable and comment delimiters by folder; jinja2's own elsewhere (C++ and PTX nest braces)."""


def root() -> Path:
    """Return the folder that holds the templates."""
    return templates_root()


@lru_cache(maxsize=16)
def environment(folder: str) -> "Environment":
    """Return the environment for the templates of one folder (`triton`), which loads nothing by itself.

    It has no globals: templates place text, and whatever has to be computed is computed and tested in Python.
    """
    from jinja2 import Environment, StrictUndefined

    block, block_end, variable, variable_end, comment, comment_end = _DELIMITERS.get(folder, _JINJA)
    environment = Environment(
        block_start_string=block,
        block_end_string=block_end,
        variable_start_string=variable,
        variable_end_string=variable_end,
        comment_start_string=comment,
        comment_end_string=comment_end,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.clear()
    return environment


def read(name: str, root: Path, *, wanted_by: str = "") -> str:
    """Return a template's text. Raises ToolError when there is none of that name below the root."""
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
        where = f"{wanted_by}: includes" if wanted_by else "templates:"
        raise ToolError(f"{where} `{name}`, which is not there (names are relative to the templates folder)")
    return path.read_text(encoding="utf-8")
