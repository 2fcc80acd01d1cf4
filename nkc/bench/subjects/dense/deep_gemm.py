"""DeepGEMM's fp8_gemm_nt in the ways that a server can call it: as given, with few rows padded, launched dependent.

It has no tiles below 64 rows and serves fewer by leaving rows out; padded operands let it store whole tiles, which is
the faster of both on some shapes. Whoever pads keeps the rows of the padded result: taking them out costs nothing.
"""

from functools import partial
from typing import Any

from nkc.bench.baseline import Baseline, Launch
from nkc.bench.cell import Cell
from nkc.bench.operands import Copy

NAME = "DeepGEMM"
PADDED = "DeepGEMM, padded"
DEPENDENT = ", dependent"
TILE_ROWS = 64
ALIGNED_ROWS = 4
"""Rows of fp32 scales that 16 bytes hold: the pitch that it wants of them."""


def routes(cell: Cell, *, same_rule: bool) -> tuple[Baseline, ...]:
    """Return every way that may be the fastest; dependent ones where the contract lets ours be launched so."""
    ways: list[tuple[str, int | None]] = [(NAME, None)]
    if cell.size["m"] < TILE_ROWS:
        ways.append((PADDED, TILE_ROWS))
    found = []
    for name, rows in ways:
        for dependent in (False, True) if cell.contract.properties.constant else (False,):
            found.append(
                Baseline(
                    name=f"{name}{DEPENDENT}" if dependent else name,
                    same_rule=same_rule,
                    prepare=partial(_prepare, rows=rows, dependent=dependent),
                    finish=_finish,
                )
            )
    return tuple(found)


class _Call:
    """One call; `result` is what it writes, at least as many rows as `out`, which it is where nothing is padded."""

    def __init__(self, copy: Copy, rows: int | None, *, dependent: bool) -> None:
        import torch

        self._library: Any = __import__("deep_gemm")
        self._dependent = dependent
        a, self.out = copy.tensors["a"], copy.tensors["out"]
        scales, self.result = copy.tensors["a_scales"], self.out
        if rows is not None:
            padded = torch.zeros((rows, a.shape[1]), dtype=torch.uint8, device=a.device)
            padded[: a.shape[0]] = a.view(torch.uint8)
            a = padded.view(a.dtype)
            self.result = torch.empty((rows, self.out.shape[1]), dtype=self.out.dtype, device=a.device)
        self._a = a, _m_major(scales, a.shape[0])
        self._b = copy.tensors["b"], copy.tensors["b_scales"]

    def __call__(self) -> object:
        self._library.set_pdl(self._dependent)
        return self._library.fp8_gemm_nt(self._a, self._b, self.result)


def _prepare(cell: Cell, copy: Copy, *, rows: int | None, dependent: bool) -> Launch:
    """Return the call, made once. Raises ImportError without the library, its own errors where it refuses."""
    import torch

    del cell
    call = _Call(copy, rows, dependent=dependent)
    call()
    torch.cuda.synchronize()
    return call


def _finish(launch: Launch) -> None:
    """Bring the rows that count into the output."""
    assert isinstance(launch, _Call)
    if launch.result is not launch.out:
        launch.out.copy_(launch.result[: launch.out.shape[0]])


def _m_major(scales: Any, rows: int) -> Any:
    """Return scales [M, G] as the library wants them: M-major, `rows` of them to whole 16 bytes, absent ones zero."""
    import torch

    given, groups = scales.shape
    pitch = -(-rows // ALIGNED_ROWS) * ALIGNED_ROWS
    if given == rows and scales.stride() == (1, pitch):
        return scales
    storage = torch.zeros((groups, pitch), dtype=torch.float32, device=scales.device)
    storage[:, :given] = scales.T
    return storage.as_strided((rows, groups), (1, pitch))
