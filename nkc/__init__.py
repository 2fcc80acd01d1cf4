"""nkc: an ahead-of-time kernel compiler for model-serving builds.

A build hands it contracts, it hands back code objects with everything needed to launch them, and an
`explain.json` that says of every candidate why it was chosen or not. Nothing is decided on the request path.

The command line's verbs are functions here: `nkc.read`, `nkc.identify`, `nkc.check`, `nkc.explain`, `nkc.near`,
`nkc.diff`, `nkc.compile`, `nkc.inspect`, `nkc.list_tactics`, `nkc.list_targets`, `nkc.list_capabilities`. Importing nkc
loads none of what they need.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nkc.api import (
        check,
        compile,  # noqa: A004
        diff,
        explain,
        identify,
        inspect,
        list_capabilities,
        list_tactics,
        list_targets,
        near,
        read,
    )

__version__ = "0.1.0"

__all__ = [
    "check",
    "compile",
    "diff",
    "explain",
    "identify",
    "inspect",
    "list_capabilities",
    "list_tactics",
    "list_targets",
    "near",
    "read",
]


def __getattr__(name: str) -> object:
    """Load a verb when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nkc import api

    value: object = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of a module, the verbs among them."""
    return sorted({*globals(), *__all__})
