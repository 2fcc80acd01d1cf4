"""The short way through a dispatch that was decided before: no defaults, no checks and no route are gone through again.

A call looks like an earlier one when its arguments agree in everything that a decision may depend on: of tensors
dtype, shape, strides, device, alignment and whether a gradient is wanted, of all else type and value. Then the same
kernel serves it, and its launch still checks every guard.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from nkc.runtime.route import Call

# Takes the arguments of the public function as they were given.
Prepared: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
# Kernel argument to where the caller gives it: a position, or a keyword.
Places: TypeAlias = Mapping[str, int | str]

# Alignment promises go up to this many bytes; two addresses that agree modulo it meet the same ones.
ADDRESS_MODULUS = 4096


@runtime_checkable
class Preparing(Protocol):
    """A route that can serve calls that look alike without being asked again."""

    def prepare(self, call: Call, places: Places) -> Prepared:
        """Return what serves every call that looks like this one, which was just served. It keeps no tensor."""


def look(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a call looks like; a key where every argument that is no tensor has a hash."""
    torch = sys.modules.get("torch")
    if torch is None:
        return (*[(value.__class__, value) for value in args], *kwargs.items())
    tensor = torch.Tensor
    seen: list[Any] = [torch.is_grad_enabled(), *kwargs]
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, tensor):
            seen += (
                value.dtype,
                value.shape,
                value.stride(),
                value.get_device(),
                value.data_ptr() % ADDRESS_MODULUS,
                value.requires_grad,
            )
        else:
            seen += (value.__class__, value)  # 1, 1.0 and True are equal, but not one argument
    return tuple(seen)


def find(call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Places:
    """Return where the caller gave each tensor of a call."""
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return {name: next(place for place, value in given if value is tensor) for name, tensor in call.tensors.items()}
