"""The kernels around a GEMM against copy bandwidth: `quant.py build OUT` here, `quant.py run OUT` on the GPU.

`build` needs the compilers and no GPU: every tactic that serves a cell (m x k of deployments, row-major and M-major
scales at one of them), one folder a tactic. `run` needs torch and the runtime alone. Bytes: each input read once, each
output written once. Each kernel is first held against its oracle on the first rows of the very operands that are timed.

Time: one graph a route, launches walking through copies of every tensor that exceed the L2 four times, 1024 copies at
most; 11 replays, routes of a cell in turns, the median of a launch, gaps between graph nodes (0.9 us on an H200, where
nothing is done) inside. Small cells are timed a second time over two copies, which stay in the L2: what a server finds
whose kernel before wrote x. What it is compared with, in the same run: a torch copy of 1 GiB outside of any graph (in
one it is a memcpy node, a third slower); an elementwise kernel, timed as ours are, that moves as many bytes, half of
them read; and one of nearly our own mix, which a DRAM serves faster the less of it is written.
"""

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from running import exit_with, require_gpu

ROWS = (1, 64, 512, 4096, 16384)
COLUMNS = (2048, 4096, 5120, 7168, 17408)
L2_TIMES = 4
MOST_COPIES = 1024
COPY_BYTES = 1 << 30
CHECKED_ROWS = 8
SMALL_BYTES = 1 << 20
"""Of a cell that is timed in the L2 too."""
IN_L2 = " in the L2"
RULES = {"quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}
NORM = {"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-6}
ROW_MAJOR = {"out": {"block": [1, 128], "layout": "row_major"}}
M_MAJOR = {"out": {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}}}


def documents(arch: str, m: int, k: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the contracts of one cell with a word for each."""

    def document(operation: str, dtypes: Mapping[str, str], numerics: Mapping[str, object], **more: object) -> Any:
        return {
            "schema": "nkc.contract/1",
            "target": {"arch": arch},
            "operation": operation,
            "shape": {"m": m, "k": k},
            "dtypes": dict(dtypes),
            "layouts": dict.fromkeys(dtypes, "row_major"),
            "scales": ROW_MAJOR,
            "numerics": dict(numerics),
            **more,
        }

    codes = {"x": "bf16", "out": "fp8_e4m3"}
    halves, pairs = ({"epilogue": {"kind": "gated_silu", "gate": gate}} for gate in ("halves", "interleaved"))
    norm = {"x": "bf16", "weight": "bf16", "out": "fp8_e4m3"}
    yield "group_quant", document("group_quant", codes, RULES)
    yield "silu_mul_quant", document("silu_mul_quant", codes, {"staging": "fp32", **RULES}, **halves)
    yield "rms_norm_quant", document("rms_norm_quant", norm, {**NORM, **RULES})
    if (m, k) not in ((1, 7168), (4096, 7168)):
        return
    summed = {**norm, "residual": "bf16", "residual_out": "bf16"}
    yield "group_quant M-major", document("group_quant", codes, RULES, scales=M_MAJOR)
    yield "group_quant ue8m0", document("group_quant", codes, {**RULES, "quantize": "ue8m0"})
    yield "silu_mul_quant interleaved", document("silu_mul_quant", codes, {"staging": "fp32", **RULES}, **pairs)
    yield "rms_norm_quant residual", document("rms_norm_quant", summed, {**NORM, **RULES}, scales=M_MAJOR)
    yield "rms_norm bf16", document("rms_norm_quant", {**norm, "out": "bf16"}, NORM, scales={})


def build(
    out: Path, arch: str, rows: Iterable[int], columns: Iterable[int], only: Sequence[str], *, selected: bool = False
) -> int:
    """Build every kernel of every cell, or the selected one; `cells.json` has a word for each kernel's id.

    One folder a tactic.
    """
    from nkc.emit import build as emit
    from nkc.emit.toolchains.by_language import Toolchains
    from nkc.ir.reader import parse_document
    from nkc.tactics.catalogue import tactics_of
    from nkc.tactics.select import Policy, obstacles, select

    wanted: dict[str, list[tuple[str, Any]]] = {}
    for m in rows:
        for k in columns:
            for word, document in documents(arch, m, k):
                contract = parse_document(document)
                found = select(contract, Policy(allow_experimental=True)).selected if selected else None
                chosen = (found.tactic,) if found else () if selected else tactics_of(contract.operation)
                for tactic in chosen:
                    if matches(tactic.name, only) and not obstacles(contract, tactic):
                        wanted.setdefault(tactic.name, []).append((word, contract))
    words: dict[str, str] = {}
    with Toolchains() as toolchain:
        for name, cells in sorted(wanted.items()):
            requests = emit.gather_requests((f"{word}.json", contract) for word, contract in cells)
            policy = Policy(allow_experimental=True, only_tactic=name)
            outcomes = emit.build_all(requests, toolchain, policy=policy)
            for request, outcome in zip(requests, outcomes, strict=True):
                if outcome.artifact is None:
                    print(f"{name}: {outcome.error}", file=sys.stderr)
                    continue
                words[outcome.artifact.id] = request.bindings[0].source.removesuffix(".json")
            emit.write_all(out / name, requests, outcomes)
            print(f"{name}: {len(outcomes)} kernels", file=sys.stderr)
    (out / "cells.json").write_text(json.dumps(words, indent=1, sort_keys=True) + "\n")
    return 0


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a tactic's name is one that was asked for."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


class Copies:
    """Tensors of a kernel in so many copies, each argument's in one storage; a vector stays what it is, in one."""

    def __init__(self, guards: Any, bytes_each: int, l2_bytes: int) -> None:
        import torch

        from nkc.ir.contract import DType
        from nkc.runtime.tensor import torch_dtype

        self.count = min(MOST_COPIES, max(2, -(-L2_TIMES * l2_bytes // bytes_each) + 1))
        self._views: dict[str, list[Any]] = {}
        draw = torch.Generator(device="cuda").manual_seed(7)
        for guard in guards:
            shape, strides = ([extent.of({}) for extent in extents] for extents in (guard.shape, guard.strides))
            size = 1 + sum((one - 1) * step for one, step in zip(shape, strides, strict=True))
            size = -(-size // 256) * 256
            count = self.count if len(shape) > 1 else 1
            dtype = torch_dtype(guard.dtype)
            storage = torch.empty(count * size, dtype=dtype, device="cuda")
            for first in range(0, storage.numel(), 1 << 26) if guard.dtype is not DType.FP8_E4M3 else ():
                part = storage[first : first + (1 << 26)]
                part.copy_(torch.randn(part.numel(), generator=draw, device="cuda"))
            parts = [storage[place * size :].as_strided(shape, strides) for place in range(count)]
            self._views[guard.argument] = parts

    def of(self, names: Iterable[str], place: int) -> list[Any]:
        """Return one copy in the kernel's order."""
        return [self._views[name][place % len(self._views[name])] for name in names]

    def named(self, place: int) -> dict[str, Any]:
        """Return one copy by argument."""
        return {name: views[place % len(views)] for name, views in self._views.items()}


def moved_bytes(guards: Any) -> int:
    """Return the bytes that a launch reads or writes at least."""
    total = 0
    for guard in guards:
        elements = 1
        for extent in guard.shape:
            elements *= extent.of({})
        total += elements * guard.dtype.size_bytes
    return total


def check(directory: Path, kernel: Any, tensors: Mapping[str, Any]) -> str:
    """Return what the first rows show against the oracle: `exact`, `within`, or what is wrong."""
    import numpy as np
    import torch

    from nkc import ir
    from nkc.ir.contract import DType, Gate, Weight
    from nkc.verify import quant_bounds, quantised
    from nkc.verify.numbers import bf16
    from nkc.verify.oracles.epilogues import Halves
    from nkc.verify.oracles.group_quant import group_quant
    from nkc.verify.oracles.rms_norm_quant import rms_norm, rms_norm_quant
    from nkc.verify.oracles.silu_mul_quant import silu_mul_quant

    contract = ir.read(directory / kernel.id / "contract.json")
    kernel.launch(*(tensors[name] for name in kernel.arguments))
    torch.cuda.synchronize()

    def rows(name: str) -> Any:
        part = tensors[name][:CHECKED_ROWS] if tensors[name].dim() > 1 else tensors[name]
        return part.float().cpu().numpy()

    x = rows("x")
    if contract.dtypes["out"] is DType.BF16:
        one_plus = contract.numerics["weight"] is Weight.ONE_PLUS
        wanted = rms_norm(x, rows("weight"), eps=float(contract.numerics["epsilon"]), one_plus_weight=one_plus)
        got = bf16.encode(rows("out"))
        return "within" if np.abs(bf16.order(got) - bf16.order(wanted.normed)).max() <= 1 else "WRONG: y"
    rules = quantised.Rules.of(contract)
    said = {"flavour": rules.flavour, "overflow": rules.overflow, "amax_floor": rules.amax_floor}
    value, staging = None, quant_bounds.Intermediate.FP32
    match contract.operation:
        case "group_quant":
            expected, limits = group_quant(x, **said), quant_bounds.EXACT
        case "silu_mul_quant":
            order = Halves.HALVES if contract.epilogue.gate is Gate.HALVES else Halves.INTERLEAVED
            staging = quantised.staging_of(contract)
            found = silu_mul_quant(x, order=order, intermediate=staging, **said)
            expected, value, limits = found.quantised, found.value, quant_bounds.SILU_MUL
        case _:
            residual = rows("residual") if "residual" in tensors else None
            norm = rms_norm_quant(x, rows("weight"), eps=float(contract.numerics["epsilon"]), residual=residual, **said)
            expected, limits = norm.quantised, quant_bounds.RMS_NORM
            if residual is not None and not np.array_equal(bf16.encode(rows("residual_out")), norm.residual_out):
                return "WRONG: residual_out"
    codes = tensors["out"][:CHECKED_ROWS].view(torch.uint8).cpu().numpy()
    scales = np.ascontiguousarray(rows("out_scales"))
    verdict = quant_bounds.judge_quantised(
        codes, scales, expected, limits, overflow=rules.overflow, value=value, intermediate=staging
    )
    if not verdict.passed:
        return f"WRONG: {verdict}"
    return "exact" if limits is quant_bounds.EXACT else "within"


def elementwise_us(count: int, reads: int = 1) -> float:
    """Return the microseconds of an elementwise kernel that moves `count` bytes beyond the L2.

    reads: tensors of equal size that it reads for the one that it writes, 1 to 3.
    """
    import torch

    from nkc.bench.timing import round_robin

    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    copies = min(MOST_COPIES, max(2, -(-L2_TIMES * l2_bytes // count) + 1))
    dtype = torch.int32 if reads == 1 else torch.float32
    size = -(-count // (reads + 1) // 16) * 4
    *sources, target = (torch.ones((copies, size), dtype=dtype, device="cuda") for _ in range(reads + 1))
    function = (torch.bitwise_not, torch.add, torch.addcmul)[reads - 1]

    def launch(place: int) -> Any:
        return lambda: function(*(source[place] for source in sources), out=target[place])

    routes = {"": ([launch(place) for place in range(copies)], max(1.0, count / 4e6))}
    return round_robin(routes)[""].median_us


def copy_rate() -> float:
    """Return the bandwidth of a large copy in GB/s, reads and writes together: the best of ten."""
    import torch

    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(11):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * COPY_BYTES / min(times[1:]) / 1e6


def run(out: Path, record_to: Path | None, only: Sequence[str]) -> int:
    """Time every kernel and print a table; exit 1 where one is wrong."""
    import torch
    from tensors import machine, record, written

    from nkc import runtime
    from nkc.bench.timing import quick, round_robin

    words = json.loads((out / "cells.json").read_text())
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    cells: dict[tuple[str, str], list[tuple[Path, Any]]] = {}
    folders = sorted(path for path in out.iterdir() if path.is_dir() and matches(path.name, only))
    libraries = {folder: runtime.load(folder) for folder in folders}
    for folder, library in libraries.items():
        for kernel in library:
            dims = kernel.record.symbol.rpartition("_m")[2]
            cells.setdefault((words[kernel.id], f"m{dims}"), []).append((folder, kernel))
    known = {kernel: said for library in libraries.values() for kernel, said in identities(library).items()}
    large = copy_rate()
    print(f"copy of {COPY_BYTES >> 20} MiB: {large:.0f} GB/s", flush=True)
    found: list[dict[str, object]] = []
    elementwise: dict[tuple[int, int], float] = {}
    for (word, dims), kernels in sorted(
        cells.items(), key=lambda item: (item[0][0], moved_bytes(item[1][0][1].guards.tensors))
    ):
        count = moved_bytes(kernels[0][1].guards.tensors)
        copies = Copies(kernels[0][1].guards.tensors, count, l2_bytes)
        verdicts, routes = {}, {}
        ids = {folder.name: kernel.id for folder, kernel in kernels}
        for folder, kernel in kernels:
            verdicts[folder.name] = check(folder, kernel, copies.named(0))
            if verdicts[folder.name].startswith("WRONG"):
                print(f"{folder.name} {dims}: {verdicts[folder.name]}", flush=True)
                continue
            launches = [_launch(kernel, copies.of(kernel.arguments, place)) for place in range(copies.count)]
            routes[folder.name] = (launches, quick(launches))
            if count < SMALL_BYTES:
                routes[folder.name + IN_L2] = (launches[:2], quick(launches[:2]))
        results = moved_bytes(
            guard for guard in kernels[0][1].guards.tensors if guard.argument in written(kernels[0][1])
        )
        reads = min(3, max(1, round((count - results) / results)))
        for kind in {1, reads}:
            if (count, kind) not in elementwise:
                elementwise[count, kind] = elementwise_us(max(512, count), kind)
        same, mixed = elementwise[count, 1], elementwise[count, reads]
        timed = round_robin(routes) if routes else {}
        in_l2 = {name.removesuffix(IN_L2): timed.pop(name).median_us for name in list(timed) if name.endswith(IN_L2)}
        for name, latency in sorted(timed.items(), key=lambda item: item[1].median_us):
            rate = count / latency.median_us / 1e3
            found.append(
                {
                    "cell": word,
                    "dims": dims,
                    "tactic": name,
                    **known[ids[name]],
                    "bytes": count,
                    "copies": copies.count,
                    "check": verdicts[name],
                    "median_us": latency.median_us,
                    "p10_us": latency.p10_us,
                    "p90_us": latency.p90_us,
                    "gb_per_s": float(f"{rate:.5g}"),
                    "of_copy": float(f"{rate / large:.4g}"),
                    "copy_of_same_bytes_us": same,
                    "elementwise_reads": reads,
                    "elementwise_us": mixed,
                    **({"in_l2_us": in_l2[name]} if name in in_l2 else {}),
                }
            )
            print(
                f"{word:28} {dims:14} {count / 1e6:7.1f} MB  {name.partition('.')[2]:44} {latency.median_us:9.2f} us"
                f"  {rate:6.0f} GB/s  {rate / large:.3f} of copy"
                f"  {same / latency.median_us:.3f} of as many bytes  {mixed / latency.median_us:.3f} at {reads}:1"
                f"  {verdicts[name]}" + (f"  {in_l2[name]:.2f} us in the L2" if name in in_l2 else ""),
                flush=True,
            )
        del copies, routes
        torch.cuda.empty_cache()
        wrong = {name: said for name, said in verdicts.items() if said.startswith("WRONG")}
        found += [
            {"cell": word, "dims": dims, "tactic": name, **known[ids[name]], "check": said}
            for name, said in wrong.items()
        ]
    record(record_to, {"benchmark": "quant", "copy_gb_per_s": float(f"{large:.5g}"), "rows": found, **machine()})
    return int(not found or any(str(row["check"]).startswith("WRONG") for row in found))


def identities(library: Any) -> dict[str, dict[str, str]]:
    """Return which contract each kernel was built for and its code digest, by its id: what a row is a figure of."""
    said = {}
    for entry, launch in library.bundle.entries():
        contract = json.loads(library.bundle.files[entry.contract])
        said[launch.id] = {"request": entry.request, "code_digest": contract["code"]["digest"]}
    return said


def _launch(kernel: Any, tensors: list[Any]) -> Any:
    return lambda: kernel.launch(*tensors)


def main() -> int:
    """Build, or run what was built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--columns", type=int, nargs="*", default=COLUMNS)
    parser.add_argument("--only", nargs="*", default=["*"], help="tactics, as patterns")
    parser.add_argument("--selected", action="store_true", help="build only what selection takes for each cell")
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    if said.step == "build":
        return build(said.out, said.target, said.rows, said.columns, said.only, selected=said.selected)
    require_gpu("`build` needs none; run what it left where one is")
    return run(said.out, said.record, said.only)


if __name__ == "__main__":
    exit_with(main)
