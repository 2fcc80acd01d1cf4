"""The tables of other tuners, line by line: vLLM's and SGLang's JSON by file name, AITER's CSV by columns.

JSON: `N=2112,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json`, number of rows to a Triton
configuration. CSV: columns M, N, K, kernelName, and gfx or cu_num; us where it was timed.
"""

import csv
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from nkc.ir.contract import Triple
from nkc.ir.errors import UsageError

DEVICES = (
    ("H100", "sm_90"),
    ("H200", "sm_90"),
    ("H20", "sm_90"),
    ("GH200", "sm_90"),
    ("B200", "sm_100"),
    ("L40S", "sm_89"),
    ("MI350", "gfx950"),
    ("MI355", "gfx950"),
    ("MI300", "gfx942"),
    ("MI308", "gfx942"),
    ("MI325", "gfx942"),
)
"""Part of a device's name in vLLM's file names, and the chip."""
COMPUTE_UNITS = {304: "gfx942", 80: "gfx942", 256: "gfx950"}
"""AITER's cu_num. MI300X and MI325X have 304, MI308X 80, MI350X and MI355X 256."""

_FILE = re.compile(r"N=(\d+),K=(\d+),device_name=([^,]+),dtype=(\w+)(?:,block_shape=\[(\d+),\s*(\d+)\])?\.json")
_CK_TILE = re.compile(r"1x128x128_(\d+)x(\d+)x(\d+)x(\d+)_")
"""CK's block-scaled GEMMs: scale blocks, then threads, then the tile along m, n and k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of a source. origin: `file:place`."""

    target: str
    m: int
    n: int
    k: int
    kernel: str
    tile: Triple | None
    waves: int | None
    stages: int | None
    us: float | None
    origin: str


def read(file: Path, target: str | None) -> tuple[str, tuple[Line, ...]]:
    """Return the SHA-256 of a file and its lines. Raises UsageError, one line for each problem."""
    try:
        data = file.read_bytes()
        text = data.decode()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: byte 0x{data[error.start]:02x} at {error.start} is not UTF-8") from None
    lines = _csv(file, text, target) if file.suffix == ".csv" else _json(file, text, target)
    return hashlib.sha256(data).hexdigest(), lines


def _json(file: Path, text: str, target: str | None) -> tuple[Line, ...]:
    named = _FILE.fullmatch(file.name)
    if named is None:
        raise UsageError(
            f"{file}: neither an AITER .csv nor named like vLLM's and SGLang's "
            "(N=…,K=…,device_name=…,dtype=…,block_shape=[…,…].json)"
        )
    n, k, device, dtype, block_n, block_k = named.groups()
    if dtype != "fp8_w8a8" or (block_n, block_k) != ("128", "128"):
        raise UsageError(f"{file}: tuned for {dtype} and other scale blocks than 128x128")
    arch = target or next((arch for word, arch in DEVICES if word in device), None)
    if arch is None:
        raise UsageError(f"{file}: `{device}` is no chip that is known (name it with --target)")

    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in found]
        for place, name in enumerate(names):
            if name in names[:place]:
                places = [
                    text.count("\n", 0, each.start()) + 1 for each in re.finditer(f'"{re.escape(name)}"\\s*:', text)
                ]
                told = " and ".join(f"{file.name}:{line}" for line in places[:2])
                raise UsageError(f"{file.name}: `{name}` stands there twice, at {told} (keep one)")
        return dict(found)

    try:
        document = json.loads(text, object_pairs_hook=pairs)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{file}: not a table of configurations by number of rows")
    lines, problems = [], []
    for rows, config in document.items():
        if rows == "triton_version":
            continue
        tile = _integers(config, "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
        launch = _integers(config, "num_warps", "num_stages")
        if not rows.isdecimal() or int(rows) < 1 or tile is None or launch is None:
            problems.append(f"{file.name}:{rows}: not a number of rows with BLOCK_SIZE_*, num_warps and num_stages")
            continue
        kernel = f"triton {'x'.join(map(str, tile))} w{launch[0]} s{launch[1]}"
        lines.append(
            Line(
                target=arch,
                m=int(rows),
                n=int(n),
                k=int(k),
                kernel=kernel,
                tile=(tile[0], tile[1], tile[2]),
                waves=launch[0],
                stages=launch[1],
                us=None,
                origin=f"{file.name}:{rows}",
            )
        )
    if problems:
        raise UsageError("\n".join(problems))
    return tuple(lines)


def _integers(config: object, *names: str) -> tuple[int, ...] | None:
    if not isinstance(config, dict):
        return None
    values = [config.get(name) for name in names]
    sound = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    return tuple(sound) if len(sound) == len(names) else None


def _csv(file: Path, text: str, target: str | None) -> tuple[Line, ...]:
    reader = csv.DictReader(text.splitlines())
    missing = {"M", "N", "K", "kernelName"} - set(reader.fieldnames or ())
    if missing:
        raise UsageError(f"{file}: no column {', '.join(sorted(missing))} (an AITER tuned table has them)")
    lines, problems = [], []
    try:
        for row in reader:
            origin = f"{file.name}:{reader.line_num}"
            line = _csv_line(row, origin, target)
            if isinstance(line, str):
                problems.append(f"{origin}: {line}")
            else:
                lines.append(line)
    except csv.Error as error:
        raise UsageError(f"{file}: not CSV: {error}") from None
    if problems:
        raise UsageError("\n".join(problems))
    return tuple(lines)


def _csv_line(row: dict[str, str], origin: str, target: str | None) -> Line | str:
    """Return one line, or what is wrong with it."""
    try:
        m, n, k = (int(row[name]) for name in ("M", "N", "K"))
        us = float(row["us"]) if row.get("us") else None
    except (TypeError, ValueError):
        return "M, N, K or us is no number"
    units = row.get("cu_num") or ""
    arch = target or row.get("gfx") or (COMPUTE_UNITS.get(int(units)) if units.isdecimal() else None)
    if arch is None:
        return f"cu_num {units or 'missing'} is no chip that is known (name it with --target)"
    kernel = row["kernelName"] or ""
    if not kernel or min(m, n, k) < 1 or (us is not None and not 0 < us < 1e9):
        return "a kernel without a name, or a size or time that cannot be"
    shape = _CK_TILE.search(kernel)
    threads, *tile = map(int, shape.groups()) if shape else (0, 0, 0, 0)
    return Line(
        target=arch,
        m=m,
        n=n,
        k=k,
        kernel=kernel,
        tile=(tile[0], tile[1], tile[2]) if shape else None,
        waves=threads // 64 if shape else None,
        stages=None,
        us=us,
        origin=origin,
    )
