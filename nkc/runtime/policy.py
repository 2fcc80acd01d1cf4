"""Switches of the dispatch: read once, parsed strictly, never guessed.

`NKC_DISABLE_DISPATCH=1` makes every public function its plain body. `NKC_ROUTE_<NAME>=0` or `=1` turns one route off or
on, `<NAME>` being the route's name in capitals with `_` for everything else (`NKC_ROUTE_NKC` for `nkc`). Only `0` and
`1` are values; anything else is an error that names the variable, since `false` must not mean true. So is a name that
was meant for a switch and is none, as `NKC_DISABLE` or `nkc_route_x`: it would switch nothing.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from nkc.ir.errors import UsageError

DISABLE = "NKC_DISABLE_DISPATCH"
ROUTE = "NKC_ROUTE_"
_MEANT = re.compile(r"nkc_?(route|disable).*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the environment says. dispatch: whether routes are tried at all. routes: switch to on or off."""

    dispatch: bool = True
    routes: Mapping[str, bool]

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Policy":
        """Return the policy of an environment. Errors: UsageError naming what is wrong in values and names."""
        names = [name for name in environment if _MEANT.fullmatch(name)]
        if wrong := sorted(name for name in names if name != DISABLE and not re.fullmatch(f"{ROUTE}[A-Z0-9_]+", name)):
            raise UsageError(f"{', '.join(wrong)}: no switch of nkc ({DISABLE}, or {ROUTE}<NAME> in capitals)")
        said = {name: value for name, value in environment.items() if name == DISABLE or name.startswith(ROUTE)}
        if wrong := [f"{name}={value!r}" for name, value in sorted(said.items()) if value not in ("0", "1")]:
            raise UsageError(f"{', '.join(wrong)}: a switch is 0 or 1 (unset it for the default)")
        routes = {name: value == "1" for name, value in said.items() if name.startswith(ROUTE)}
        return cls(dispatch=said.get(DISABLE, "0") == "0", routes=routes)

    def enabled(self, route: str, default: bool) -> tuple[bool, str | None]:
        """Return whether a route is on, and why not."""
        name = switch(route)
        on = self.routes.get(name, default)
        if on:
            return True, None
        return False, f"{name}=0" if name in self.routes else f"off by default ({name}=1 turns it on)"


def switch(route: str) -> str:
    """Return the name of a route's switch."""
    return ROUTE + re.sub(r"[^A-Z0-9]", "_", route.upper())


@cache
def policy() -> Policy:
    """Return this process's policy, read at the first use."""
    return Policy.read(os.environ)
