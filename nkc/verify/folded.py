"""A large problem that repeats a small one, for runs that sample it: oracle and bound cost what the small one does.

Row r of a holds the data of row r - m modulo the period along m, so that the last row is the last of the small problem
(where tails and the NaN of `edges` lie); column c that of column c modulo the period along n, whole scale blocks. The
periods fit no tile and no power of two of them, so that a workgroup which takes another's rows or columns shows.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.ir import operations
from nkc.ir.contract import Bounded, Contract
from nkc.ir.frozen import FrozenMap
from nkc.ir.launch import Launch, TensorGuard
from nkc.ir.scales import argument_name
from nkc.verify.bounds import Failure, Verdict
from nkc.verify.memory import Bits, Tensor, poisoned
from nkc.verify.oracles.matrix_unit import MatrixUnit
from nkc.verify.regimes import Recipe
from nkc.verify.subject import Judge, Judgement, sizes

PERIODS = {"m": 131, "n": 3 * 128}
FROM_THE_END = "m"

Run = tuple[int, int, int]
"""A run of indices [low, high) of the large problem, and where it begins in the small one."""
Axis = tuple[str, int]
"""The dim of an axis, and how many of its elements share one entry."""


class Folded:
    """A judge of the small problem, to which it hands what was computed of the large one, piece by piece."""

    def __init__(self, judge: Judge, launch: Launch) -> None:
        self._judge = judge
        self._guards = {guard.argument: guard for guard in launch.guards if isinstance(guard, TensorGuard)}

    def periods(self, contract: Contract, dims: Mapping[str, int]) -> dict[str, int]:
        """Return the dims that repeat, with their periods; those that are short do not."""
        size = sizes(contract, dims)
        return {name: period for name, period in PERIODS.items() if size.get(name, 0) > 2 * period}

    def tensors(self, contract: Contract, recipe: Recipe, dims: Mapping[str, int]) -> tuple[Tensor, ...]:
        """Return the large problem's tensors, made of the small one's."""
        periods = self.periods(contract, dims)
        made = self._judge.tensors(*self._small(contract, recipe, dims))
        return tuple(self._unfold(contract, tensor, periods, dims) for tensor in made) if periods else made

    def judge(
        self,
        contract: Contract,
        recipe: Recipe,
        dims: Mapping[str, int],
        outputs: Mapping[str, Bits],
        covered: Mapping[str, NDArray[np.bool_]],
    ) -> Judgement:
        """Judge every element that was computed, each piece of the large problem against the small one."""
        periods = self.periods(contract, dims)
        small, _, small_dims = self._small(contract, recipe, dims)
        if not periods:
            return self._judge.judge(contract, recipe, dims, outputs, covered)
        written = [tensor for tensor in self._judge.tensors(small, recipe, small_dims) if tensor.written]
        size = sizes(contract, dims)
        pieces = itertools.product(*(tuple(_runs(name, size[name], period)) for name, period in periods.items()))
        found: list[tuple[dict[str, Run], Judgement]] = []
        for piece in pieces:
            runs = dict(zip(periods, piece, strict=True))
            left: dict[str, Bits] = {}
            kept: dict[str, NDArray[np.bool_]] = {}
            for tensor in written:
                axes = axes_of(contract, tensor.name)
                left[tensor.name] = self._piece(tensor, outputs[tensor.name], axes, runs, dims)
                kept[tensor.name] = self._piece(tensor, covered[tensor.name], axes, runs, dims).astype(np.bool_)
            if any(mask.any() for mask in kept.values()):
                found.append((runs, self._judge.judge(small, recipe, small_dims, left, kept)))
        return _joined(contract, found)

    def decoded(self, contract: Contract, name: str, bits: Bits, dims: Mapping[str, int]) -> NDArray[np.float32]:
        """Return an output's storage as shaped fp32 values."""
        return self._judge.decoded(contract, name, bits, dims)

    def predict(
        self, contract: Contract, unit: MatrixUnit, recipe: Recipe, dims: Mapping[str, int]
    ) -> Mapping[str, NDArray[np.float32]] | None:
        """Return None where the problem is folded: every bit of a large K costs too much."""
        if self.periods(contract, dims):
            return None
        return self._judge.predict(contract, unit, recipe, dims)

    def _small(
        self, contract: Contract, recipe: Recipe, dims: Mapping[str, int]
    ) -> tuple[Contract, Recipe, dict[str, int]]:
        periods = self.periods(contract, dims)
        exact = {name: period for name, period in periods.items() if not isinstance(contract.shape[name], Bounded)}
        small = msgspec.structs.replace(contract, shape=FrozenMap({**contract.shape, **exact}))
        return small, recipe, {name: periods.get(name, value) for name, value in dims.items()}

    def _unfold(
        self, contract: Contract, tensor: Tensor, periods: Mapping[str, int], dims: Mapping[str, int]
    ) -> Tensor:
        shape, strides = self._layout(tensor, dims)
        storage = poisoned(tensor.dtype, max(a * b for a, b in zip(shape, strides, strict=True)))
        large = Tensor(
            name=tensor.name,
            dtype=tensor.dtype,
            storage=storage,
            shape=shape,
            strides=strides,
            written=tensor.written,
        )
        if not tensor.written:
            size = sizes(contract, dims)
            indices = [
                _index(name, size[name], periods[name], divisor) if name in periods else np.arange(extent)
                for (name, divisor), extent in zip(axes_of(contract, tensor.name), shape, strict=True)
            ]
            large.view()[...] = tensor.view()[np.ix_(*indices)]
        return large

    def _layout(self, tensor: Tensor, dims: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides of an argument in the large problem, as launches are held to them."""
        guard = self._guards[tensor.name]
        values = dict(dims)
        return tuple(item.of(values) for item in guard.shape), tuple(item.of(values) for item in guard.strides)

    def _piece(
        self,
        small: Tensor,
        flat: NDArray[np.generic],
        axes: Sequence[Axis],
        runs: Mapping[str, Run],
        dims: Mapping[str, int],
    ) -> NDArray[np.generic]:
        """Return the small problem's storage with one piece of the large one's in its place, zeros elsewhere."""
        shape, strides = self._layout(small, dims)
        source = _strided(np.ascontiguousarray(flat), shape, strides)
        out = np.zeros(small.storage.size, flat.dtype)
        target = _strided(out, small.shape, small.strides)
        taken, placed = [], []
        for (name, divisor), extent in zip(axes, shape, strict=True):
            low, high, at = runs.get(name, (0, extent * divisor, 0))
            taken.append(slice(low // divisor, -(-high // divisor)))
            placed.append(slice(at // divisor, at // divisor + taken[-1].stop - taken[-1].start))
        target[tuple(placed)] = source[tuple(taken)]
        return out


def axes_of(contract: Contract, argument: str) -> tuple[Axis, ...]:
    """Return the axes of a tensor argument: an operand, the scales of one, or the epilogue's."""
    operation = operations.get(contract.operation)
    for operand in operation.present(contract.dtypes):
        if operand.name == argument:
            return tuple((name, 1) for name in operand.axes)
        if operand.name in contract.scales and argument_name(operand.name) == argument:
            return tuple(zip(operand.axes, contract.scales[operand.name].block, strict=True))
    return (("n", 1),)


def _index(name: str, size: int, period: int, divisor: int) -> NDArray[np.int64]:
    """Return, for every entry along an axis, its entry in the small problem."""
    if name == FROM_THE_END:
        assert divisor == 1, "scales of single rows"
        return (np.arange(size) - size) % period
    assert period % divisor == 0, "whole scale blocks"
    return np.arange(-(-size // divisor)) % (period // divisor)


def _runs(name: str, size: int, period: int) -> Iterator[Run]:
    """Yield the runs of a dim that are contiguous in the small problem."""
    low = 0
    while low < size:
        at = (low - size) % period if name == FROM_THE_END else 0
        high = min(size, low + period - at)
        yield low, high, at
        low = high


def _strided(flat: NDArray[np.generic], shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[np.generic]:
    return np.lib.stride_tricks.as_strided(flat, shape, tuple(stride * flat.itemsize for stride in strides))


def _joined(contract: Contract, found: Sequence[tuple[dict[str, Run], Judgement]]) -> Judgement:
    """Return one judgement of all pieces; the first failure is placed in the large problem."""
    names = found[0][1].verdicts
    verdicts, differs = {}, {}
    for name in names:
        each = [(runs, judged.verdicts[name]) for runs, judged in found]
        first = next(((runs, verdict.first) for runs, verdict in each if verdict.first is not None), None)
        verdicts[name] = Verdict(
            passed=all(verdict.passed for _, verdict in each),
            worst=max(verdict.worst for _, verdict in each),
            err_ratio=max(verdict.err_ratio for _, verdict in each),
            err_ratio_limit=each[0][1].err_ratio_limit,
            failures=sum(verdict.failures for _, verdict in each),
            first=None if first is None else _placed(contract, name, *first),
        )
        other = next(((runs, judged.differs[name]) for runs, judged in found if name in judged.differs), None)
        if other is not None:
            differs[name] = _placed(contract, name, *other)
    answers = [judged.bit_equal for _, judged in found]
    equal = None if answers[0] is None else all(answers)
    return Judgement(verdicts=verdicts, bit_equal=equal, differs=differs)


def _placed(contract: Contract, name: str, runs: Mapping[str, Run], failure: Failure) -> Failure:
    index = tuple(
        place + (runs[dim][0] - runs[dim][2]) // divisor if dim in runs else place
        for place, (dim, divisor) in zip(failure.index, axes_of(contract, name), strict=True)
    )
    return msgspec.structs.replace(failure, index=index)
