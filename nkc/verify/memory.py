"""Kernel arguments as the bytes they are in memory, the same for every engine."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkc.ir.contract import DType

Bits = NDArray[np.generic]

STORAGE: dict[DType, type[np.generic]] = {
    DType.FP8_E4M3: np.uint8,
    DType.BF16: np.uint16,
    DType.FP16: np.uint16,
    DType.FP32: np.float32,
    DType.INT32: np.int32,
}
"""What holds one element: codes and 16-bit patterns as unsigned integers."""

POISON = 0xFF  # every byte: NaN in each format that has one


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor argument: flat storage in elements, and the view of it that the kernel is promised.

    shape and strides in elements. written: the kernel writes it; its storage starts poisoned.
    """

    name: str
    dtype: DType
    storage: Bits
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    written: bool = False

    def view(self, storage: Bits | None = None) -> Bits:
        """Return the logical view of this storage, or of another of the same size (what a run left)."""
        flat = self.storage if storage is None else storage
        steps = tuple(stride * flat.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps)


def dense_tensor(name: str, dtype: DType, values: Bits) -> Tensor:
    """Return a row-major input tensor that holds these elements."""
    array = np.ascontiguousarray(values)
    strides = tuple(int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim))
    return Tensor(name=name, dtype=dtype, storage=array.reshape(-1), shape=array.shape, strides=strides)


def m_major_tensor(name: str, dtype: DType, values: Bits, leading_dim: int) -> Tensor:
    """Return an input [M, G] stored as [G, leading_dim]; the lanes between M and leading_dim hold poison."""
    rows, groups = values.shape
    storage = poisoned(dtype, groups * leading_dim).reshape(groups, leading_dim)
    storage[:, :rows] = values.T
    return Tensor(name=name, dtype=dtype, storage=storage.reshape(-1), shape=(rows, groups), strides=(1, leading_dim))


def output_tensor(name: str, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return a row-major output, poisoned."""
    count = int(np.prod(shape))
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    return Tensor(name=name, dtype=dtype, storage=poisoned(dtype, count), shape=shape, strides=strides, written=True)


def m_major_output(name: str, dtype: DType, shape: tuple[int, int], leading_dim: int) -> Tensor:
    """Return an output [M, G] stored as [G, leading_dim], poisoned; lanes from M on belong to nobody."""
    storage = poisoned(dtype, shape[1] * leading_dim)
    return Tensor(name=name, dtype=dtype, storage=storage, shape=shape, strides=(1, leading_dim), written=True)


def poisoned(dtype: DType, count: int) -> Bits:
    """Return so many elements whose every byte is poison."""
    kind = np.dtype(STORAGE[dtype])
    return np.full(count * kind.itemsize, POISON, np.uint8).view(kind)
