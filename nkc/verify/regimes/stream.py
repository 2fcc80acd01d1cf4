"""Random integers that are the same on every machine, and the exact reals made of them."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


class Stream:
    """Integers from Philox's raw 64-bit stream, which numpy keeps stable, and exact reals made of them."""

    def __init__(self, seed: int, purpose: str) -> None:
        """Each purpose has a key of its own, so that adding an array moves no other."""
        key = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(key[:16], "little"))

    def integers(self, shape: tuple[int, ...], low: int, high: int) -> I64:
        """Return integers in [low, high); the bias of the remainder, below 2^-32, does not matter here."""
        count = int(np.prod(shape))
        raw = np.asarray(self._bits.random_raw(count), np.uint64).reshape(shape)
        return (raw >> np.uint64(16)).astype(np.int64) % (high - low) + low

    def normal(self, shape: tuple[int, ...]) -> F64:
        """Return nearly normal values (mean 0, variance 1): the sum of twelve uniforms less 6, exact, within +-6."""
        total = np.zeros(shape, np.int64)
        for _ in range(4):  # three 16-bit uniforms a draw
            raw = self.integers(shape, 0, 1 << 48)
            total += (raw & 0xFFFF) + (raw >> 16 & 0xFFFF) + (raw >> 32)
        return total / 65536.0 - 6.0

    def log_normal(self, shape: tuple[int, ...], binades: float) -> F64:
        """Return about 2^(binades * normal): the power's fraction is interpolated linearly, so it is exact."""
        exponent = self.normal(shape) * binades
        whole = np.floor(exponent)
        return np.ldexp(1.0 + (exponent - whole), whole.astype(np.int64))

    def signs(self, shape: tuple[int, ...]) -> I64:
        """Return -1 or 1."""
        return 2 * self.integers(shape, 0, 2) - 1


def finite_codes(stream: Stream, shape: tuple[int, ...]) -> U8:
    """Return every finite e4m3fn code with equal odds."""
    return (stream.integers(shape, 0, 127) | (stream.integers(shape, 0, 2) << 7)).astype(np.uint8)
