"""An immutable, hashable mapping: what a contract's open-ended sections are made of."""

from typing import NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(dict[K, V]):
    """A dict that cannot change after it is made, so that a contract can be shared and hashed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a contract never changes; make a new one with msgspec.structs.replace")

    __setitem__ = __delitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[K, V]]]:
        """Let it travel to another process: there it is made whole, because it cannot be filled."""
        return type(self), (dict(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def freeze(value: object) -> object:
    """Return plain JSON values as what cannot change: objects as FrozenMap, arrays as tuples."""
    if isinstance(value, dict):
        return FrozenMap({name: freeze(item) for name, item in value.items()})
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    return value
