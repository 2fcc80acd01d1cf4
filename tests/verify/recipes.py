"""The two input recipes of the numerical cases, and the digest they are stated in."""

import hashlib

import numpy as np


def grid(shape, a, m, c, s):
    """((i a) mod m - c) / s over the row-major index i; every value is exact in bf16."""
    index = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (((index * a) % m - c) / s).astype(np.float32).reshape(shape)


def codes(shape, a, b):
    """((i a + b) mod 127), negative where i is a multiple of three; never NaN."""
    index = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (((index * a + b) % 127) | np.where(index % 3 == 0, 0x80, 0)).astype(np.uint8).reshape(shape)


def sha(array):
    """First 16 hex digits of SHA-256 over the raw bytes, C order."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
