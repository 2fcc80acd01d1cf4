"""Launches of the checked-in objects: inputs, and what must come out, stated with numpy and ml_dtypes alone."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from nkc.verify.gfx950.launch import Access, LaunchArgument, LaunchSpec

FOLDER = Path(__file__).with_name("objects")
DTYPES = {
    "*fp8e4nv": ml_dtypes.float8_e4m3fn,
    "*bf16": ml_dtypes.bfloat16,
    "*fp16": np.float16,
    "*fp32": np.float32,
    "*i32": np.int32,
}
ACCESS = {"C": Access.OUT, "Q": Access.OUT, "S": Access.OUT, "Y": Access.OUT, "WS": Access.OUT, "CNT": Access.INOUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One launch with its expected outputs (exact, byte for byte)."""

    name: str
    data: bytes
    launch: LaunchSpec
    buffers: dict[str, Any]
    expected: dict[str, Any]

    def wrong(self, outputs: dict[str, Any]) -> dict[str, int]:
        """Return how many bytes of each expected output differ."""
        return {name: int((as_bytes(outputs[name]) != as_bytes(value)).sum()) for name, value in self.expected.items()}


def as_bytes(array: Any) -> Any:
    """Return an array's bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def facts(name: str) -> dict[str, Any]:
    """Return the facts beside an object."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def code(name: str) -> bytes:
    """Return an object's bytes."""
    return (FOLDER / f"{name}.hsaco").read_bytes()


def spec(name: str, grid: tuple[int, int, int], values: dict[str, int]) -> LaunchSpec:
    """Return the launch of an object: arguments in order, naturally aligned."""
    known = facts(name)
    arguments, offset = [], 0
    for argument, kind in known["signature"].items():
        size = 8 if kind.startswith("*") else 4
        offset = (offset + size - 1) // size * size
        access = ACCESS.get(argument, Access.IN)
        arguments.append(
            LaunchArgument(name=argument, offset=offset, size=size, access=access, value=values.get(argument))
        )
        offset += size
    return LaunchSpec(
        symbol=known["symbol"],
        arguments=tuple(arguments),
        grid=grid,
        block=(64 * known["waves"], 1, 1),
        dynamic_lds_bytes=known["dynamic_lds_bytes"],
    )


def fp8_gemm(name: str, m: int) -> Case:
    """Block-scaled FP8 GEMM on small integers and powers of two: every partial sum is exact in float32."""
    known = facts(name)
    c, signature = known["constants"], known["signature"]
    n, k, bm, bn = c["N"], c["K"], c["BM"], c["BN"]
    rng = np.random.default_rng(7)
    a = rng.integers(-4, 5, (m, k)).astype(DTYPES["*fp8e4nv"])
    b = rng.integers(-4, 5, (n, k)).astype(DTYPES["*fp8e4nv"])
    sa = (2.0 ** rng.integers(-2, 3, (m, k // 128))).astype(np.float32)
    sb = (2.0 ** rng.integers(-2, 3, (-(-n // 128), k // 128))).astype(np.float32)
    out = DTYPES[signature["C"]]
    wide_a = a.astype(np.float64) * np.repeat(sa, 128, axis=1)
    wide_b = b.astype(np.float64) * np.repeat(np.repeat(sb, 128, axis=0)[:n], 128, axis=1)
    return Case(
        name=name,
        data=code(name),
        launch=spec(name, (-(-m // bm), n // bn, 1), {"M": m}),
        buffers={"A": a, "B": b, "SA": sa, "SB": sb, "C": np.zeros((m, n), out)},
        expected={"C": (wide_a @ wide_b.T).astype(np.float32).astype(out)},
    )


def mx_gemm(name: str) -> Case:
    """MX GEMM: random exponents per 32 elements along k, so that a wrong K layout or scale byte shows."""
    c = facts(name)["constants"]
    m, n, k = 2 * c["BM"], c["N"], c["K"]
    rng = np.random.default_rng(11)
    fp8 = DTYPES["*fp8e4nv"]
    a, b = (rng.integers(-4, 5, (rows, k)).astype(fp8) for rows in (m, n))
    sa, sb = (rng.integers(125, 130, (rows, k // 32)).astype(np.uint8) for rows in (m, n))
    wide_a = a.astype(np.float64) * np.repeat(2.0 ** (sa.astype(int) - 127), 32, axis=1)
    wide_b = b.astype(np.float64) * np.repeat(2.0 ** (sb.astype(int) - 127), 32, axis=1)
    return Case(
        name=name,
        data=code(name),
        launch=spec(name, (m // c["BM"], n // c["BN"], 1), {"M": m}),
        buffers={"A": a, "B": b, "SA": sa, "SB": sb, "C": np.zeros((m, n), np.float32)},
        expected={"C": (wide_a @ wide_b.T).astype(np.float32)},
    )


def gemm(name: str, m: int) -> Case:
    """A GEMM with B as [K, N] on small integers."""
    known = facts(name)
    c, signature = known["constants"], known["signature"]
    rng = np.random.default_rng(8)
    a = rng.integers(-4, 5, (m, c["K"])).astype(DTYPES[signature["A"]])
    b = rng.integers(-4, 5, (c["K"], c["N"])).astype(DTYPES[signature["B"]])
    return Case(
        name=name,
        data=code(name),
        launch=spec(name, (-(-m // c["BM"]), c["N"] // c["BN"], 1), {"M": m}),
        buffers={"A": a, "B": b, "C": np.zeros((m, c["N"]), np.float32)},
        expected={"C": (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)},
    )


def quant(name: str, m: int) -> Case:
    """1x128 quantisation, with a row of zeros and values over many powers of two."""
    c = facts(name)["constants"]
    d = c["D"]
    rng = np.random.default_rng(9)
    x = (rng.standard_normal((m, d)) * np.exp(2 * rng.standard_normal((m, d)))).astype(DTYPES["*bf16"])
    x[1] = 0
    groups = x.astype(np.float32).reshape(m, d // 128, 128)
    scale = (np.maximum(np.abs(groups).max(axis=-1), np.float32(1e-10)) / np.float32(448)).astype(np.float32)
    q = np.clip(groups / scale[..., None], -448, 448).astype(DTYPES["*fp8e4nv"]).reshape(m, d)
    return Case(
        name=name,
        data=code(name),
        launch=spec(name, (-(-m // c["ROWS"]), d // 128, 1), {"M": m}),
        buffers={"X": x, "Q": np.zeros_like(q), "S": np.zeros_like(scale)},
        expected={"Q": q, "S": scale},
    )


def softmax(name: str, m: int) -> Case:
    """Row softmax; bf16 rounding hides the last bits of exp, so this shows structure, not numerics."""
    d = facts(name)["constants"]["D"]
    x = np.random.default_rng(3).standard_normal((m, d)).astype(DTYPES["*bf16"])
    e = np.exp(x.astype(np.float64))
    return Case(
        name=name,
        data=code(name),
        launch=spec(name, (m, 1, 1), {"M": m}),
        buffers={"X": x, "Y": np.zeros_like(x)},
        expected={"Y": (e / e.sum(axis=1, keepdims=True)).astype(np.float32).astype(DTYPES["*bf16"])},
    )


def split_k(name: str, m: int) -> Case:
    """Split-K with a counter in the workspace; the counter must be zero again afterwards."""
    c = facts(name)["constants"]
    n, k, bm, bn, pieces = (c[key] for key in ("N", "K", "BM", "BN", "SK"))
    rng = np.random.default_rng(10)
    a = rng.integers(-4, 5, (m, k)).astype(DTYPES["*fp8e4nv"])
    b = rng.integers(-4, 5, (n, k)).astype(DTYPES["*fp8e4nv"])
    tiles = -(-m // bm) * (n // bn)
    counters = np.zeros(tiles, np.int32)
    product = a.astype(np.float64) @ b.astype(np.float64).T
    return Case(
        name=name,
        data=code(name),
        launch=spec(name, (-(-m // bm), n // bn, pieces), {"M": m}),
        buffers={
            "A": a,
            "B": b,
            "C": np.zeros((m, n), DTYPES["*bf16"]),
            "WS": np.zeros(tiles * pieces * bm * bn, np.float32),
            "CNT": counters,
        },
        expected={"C": product.astype(np.float32).astype(DTYPES["*bf16"]), "CNT": counters},
    )


CASES: dict[str, Callable[[], Case]] = {
    "fp8_16x64": lambda: fp8_gemm("fp8_16x64", 27),
    "fp8_64x64": lambda: fp8_gemm("fp8_64x64", 123),
    "fp8_64x64_m32": lambda: fp8_gemm("fp8_64x64_m32", 123),
    "fp8_64x64_flat": lambda: fp8_gemm("fp8_64x64_flat", 123),
    "fp8_128x128": lambda: fp8_gemm("fp8_128x128", 251),
    "fp8_256x128": lambda: fp8_gemm("fp8_256x128", 300),
    "fp8_32x32": lambda: fp8_gemm("fp8_32x32", 59),
    "mx_16": lambda: mx_gemm("mx_16"),
    "mx_32": lambda: mx_gemm("mx_32"),
    "fp8_kn": lambda: gemm("fp8_kn", 123),
    "bf16_kn": lambda: gemm("bf16_kn", 123),
    "f16_kn": lambda: gemm("f16_kn", 123),
    "quant": lambda: quant("quant", 37),
    "quant_flat": lambda: quant("quant_flat", 37),
    "softmax": lambda: softmax("softmax", 9),
    "split_k_all": lambda: split_k("split_k_all", 27),
}
