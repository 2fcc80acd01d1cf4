"""dense with quantised output beside dense and group_quant as two launches: `build OUT` here, `run OUT` on the GPU.

`build` needs the compilers and no GPU. A cell is a shape [n, k] at a number of rows; for each it builds every kernel
that quantises what it multiplies and is meant for so many rows, and the two kernels that nkc selects for `dense` with a
bf16 result and for `group_quant` of it. `run` needs torch and the runtime alone.

Time: one graph a route, launches walking through copies of every tensor that exceed the L2 four times; 11 replays,
routes of a cell in turns, the median of a launch, gaps between graph nodes (1.3 us on an H200) inside, two of them
where there are two launches. No dependent launch. Each route's codes are held against those of the two launches first:
sums differ in their last bits where k is cut another way, so a share of codes may be their neighbours.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from running import exit_with, require_gpu

ROWS = (1, 16, 64, 128, 512, 4096)
SHAPES = ((7168, 2048), (4096, 7168), (24576, 1536))
L2_TIMES = 4
MOST_COPIES = 256
MOVED = 0.05
"""Share of codes that may differ from those of the two launches."""
RULES = {"quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}
SUMS = {"accumulate": "tensor_core_fp8", "combine": "fixed_order"}
ROW_MAJOR = {"block": [1, 128], "layout": "row_major"}
M_MAJOR = {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}}


def documents(arch: str, m: int, n: int, k: int) -> dict[str, dict[str, object]]:
    """Return the contracts of one cell: `fused`, and `dense` and `group_quant` of its result."""
    operands = {"a": "fp8_e4m3", "b": "fp8_e4m3", "acc": "fp32"}
    scales = {"a": M_MAJOR, "b": {"block": [128, 128], "layout": "row_major"}}
    layouts = {"a": "row_major", "b": "row_major_nk", "out": "row_major"}
    common = {"schema": "nkc.contract/1", "target": {"arch": arch}}
    dense = {**common, "operation": "dense", "shape": {"m": m, "n": n, "k": k}, "layouts": layouts}
    return {
        "fused": {
            **dense,
            "dtypes": {**operands, "out": "fp8_e4m3"},
            "scales": {**scales, "out": ROW_MAJOR},
            "numerics": {**SUMS, "staging": "bf16", **RULES},
        },
        "dense": {**dense, "dtypes": {**operands, "out": "bf16"}, "scales": scales, "numerics": SUMS},
        "group_quant": {
            **common,
            "operation": "group_quant",
            "shape": {"m": m, "k": n},
            "dtypes": {"x": "bf16", "out": "fp8_e4m3"},
            "scales": {"out": ROW_MAJOR},
            "layouts": {"x": "row_major", "out": "row_major"},
            "numerics": RULES,
        },
    }


def meant_for(tactic: Any, m: int) -> bool:
    """Return whether a kernel's tile is not far more rows than there are, nor one for a few of them."""
    rows = tactic.schedule.tile[0]
    return not tactic.dependent and (rows <= 32) == (m <= 32) and rows <= max(8, m) and m <= 64 * rows


def build(out: Path, arch: str, rows: Iterable[int]) -> int:
    """Build every kernel of every cell, one folder each, and `cells.json` with what each one is."""
    from nkc.emit import build as emit
    from nkc.emit.toolchains.by_language import Toolchains
    from nkc.ir.reader import parse_document
    from nkc.tactics.catalogue import tactics_of
    from nkc.tactics.select import Policy, obstacles

    said: list[dict[str, object]] = []
    with Toolchains() as toolchain:
        for m in rows:
            for n, k in SHAPES:
                for word, document in documents(arch, m, n, k).items():
                    contract = parse_document(document)
                    names: list[str | None] = [None]
                    if word == "fused":
                        names = [
                            tactic.name
                            for tactic in tactics_of("dense")
                            if tactic.target == arch and meant_for(tactic, m) and not obstacles(contract, tactic)
                        ]
                    for name in names:
                        requests = emit.gather_requests([("cell.json", contract)])
                        policy = Policy(allow_experimental=name is not None, only_tactic=name)
                        outcomes = emit.build_all(requests, toolchain, policy=policy)
                        (outcome,) = outcomes
                        if outcome.artifact is None:
                            print(f"{name}: {outcome.error}", file=sys.stderr)
                            continue
                        tactic = outcome.artifact.launch.tactic
                        folder = f"{m}x{n}x{k}.{word}.{tactic}"
                        emit.write_all(out / folder, requests, outcomes)
                        said.append({"m": m, "n": n, "k": k, "word": word, "tactic": tactic, "folder": folder})
            print(f"m = {m}: {len(said)} kernels so far", file=sys.stderr)
    (out / "cells.json").write_text(json.dumps(said, indent=1) + "\n")
    return 0


class Copies:
    """The tensors of a cell in so many copies that they exceed the L2: operands, the bf16 result, codes, scales."""

    def __init__(self, m: int, n: int, k: int) -> None:
        import torch

        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        each = m * k + n * k + 3 * m * n
        self.count = min(MOST_COPIES, max(2, -(-L2_TIMES * l2_bytes // each) + 1))
        draw = torch.Generator(device="cuda").manual_seed(7)

        def codes(rows: int, columns: int) -> Any:
            return (
                torch.randn((rows, columns), generator=draw, device="cuda")
                .clamp(-4, 4)
                .mul(100)
                .to(torch.float8_e4m3fn)
            )

        def scales(rows: int, columns: int) -> Any:
            return torch.rand((columns, -(-rows // 4) * 4), generator=draw, device="cuda").add(0.5).mul(1e-3).t()[:rows]

        self.tensors = [
            {
                "a": codes(m, k),
                "b": codes(n, k),
                "a_scales": scales(m, k // 128),
                "b_scales": torch.rand((n // 128, k // 128), generator=draw, device="cuda") * 1e-3,
                "x": torch.empty((m, n), dtype=torch.bfloat16, device="cuda"),
                "out": torch.empty((m, n), dtype=torch.float8_e4m3fn, device="cuda"),
                "out_scales": torch.empty((m, n // 128), dtype=torch.float32, device="cuda"),
            }
            for _ in range(self.count)
        ]

    def launches(self, kernels: Sequence[tuple[str, Any]]) -> list[Any]:
        """Return one call a copy that launches these kernels in turn; a dense kernel's bf16 result is `x`."""

        def call(tensors: Mapping[str, Any]) -> Any:
            calls = []
            for word, kernel in kernels:
                names = ["x" if word == "dense" and name == "out" else name for name in kernel.arguments]
                calls.append((kernel.launch, [tensors[name] for name in names]))

            def launch() -> None:
                for do, arguments in calls:
                    do(*arguments)

            return launch

        return [call(tensors) for tensors in self.tensors]


def compare(tensors: Mapping[str, Any], expected: tuple[Any, Any]) -> tuple[str, float]:
    """Return what is wrong with codes and scales beside those of the two launches, and the share that moved.

    A code may stand for a value that is half a step of its own away, and what two sums of one product differ by: 1e-3
    of the group's largest, more than the FP8 unit was seen to lose.
    """
    import torch

    codes, scales = tensors["out"], tensors["out_scales"]
    want, want_scales = expected
    moved = (codes.view(torch.uint8) != want.view(torch.uint8)).float().mean().item()
    each, want_each = (one.repeat_interleave(128, dim=1) for one in (scales, want_scales))
    value, want_value = codes.float() * each, want.float() * want_each
    far = ((value - want_value).abs() > 2.0**-3 * want_value.abs() + 1e-3 * 448 * want_each).sum().item()
    apart = ((scales - want_scales).abs() / want_scales).max().item()
    wrong = [f"{far} codes too far away"] * bool(far) + [f"a scale {apart:.3g} away"] * (not apart <= 2.0**-6)
    return ", ".join(wrong + [f"{moved:.3f} of the codes moved"] * (moved > MOVED)), moved


def run(out: Path, record_to: Path | None) -> int:
    """Time every route and print a table; exit 1 where one is wrong."""
    import torch
    from tensors import machine, record

    from nkc import runtime
    from nkc.bench.timing import quick, round_robin

    said = json.loads((out / "cells.json").read_text())
    rows: list[dict[str, object]] = []
    for m, n, k in dict.fromkeys((one["m"], one["n"], one["k"]) for one in said):
        here = [one for one in said if (one["m"], one["n"], one["k"]) == (m, n, k)]
        loaded = {one["folder"]: runtime.load(out / one["folder"]) for one in here}
        kernels = {one["folder"]: next(iter(loaded[one["folder"]])) for one in here}
        two = [(one["word"], kernels[one["folder"]]) for one in here if one["word"] != "fused"]
        copies = Copies(m, n, k)
        routes: dict[str, tuple[list[Any], float]] = {}
        wrong: dict[str, str] = {}
        moved: dict[str, float] = {}
        pair = copies.launches(two)
        pair[0]()
        torch.cuda.synchronize()
        first = copies.tensors[0]
        expected = first["out"].clone(), first["out_scales"].clone()
        routes["two launches"] = pair, quick(pair)
        alone = copies.launches(two[:1])
        routes["dense alone"] = alone, quick(alone)
        for one in here:
            if one["word"] != "fused":
                continue
            first["out"].view(torch.uint8).fill_(0xFF)
            first["out_scales"].fill_(float("nan"))
            launches = copies.launches([("fused", kernels[one["folder"]])])
            launches[0]()
            torch.cuda.synchronize()
            wrong[one["tactic"]], moved[one["tactic"]] = compare(first, expected)
            routes[one["tactic"]] = launches, quick(launches)
        timed = round_robin(routes)
        names = ", ".join(one["tactic"].partition(".")[2] for one in here if one["word"] != "fused")
        faults = {name: f"  WRONG: {fault}" for name, fault in wrong.items() if fault}
        print(f"m {m} n {n} k {k}: {copies.count} copies; two launches: {names}", flush=True)
        base = timed["two launches"].median_us
        for name, latency in sorted(timed.items(), key=lambda item: item[1].median_us):
            print(
                f"  {name.partition('.')[2] or name:52} {latency.median_us:9.2f} us  {base / latency.median_us:6.3f}"
                f"  moved {moved.get(name, 0.0):.4f}{faults.get(name, '')}",
                flush=True,
            )
            rows.append(
                {
                    "m": m,
                    "n": n,
                    "k": k,
                    "route": name,
                    "median_us": latency.median_us,
                    "p10_us": latency.p10_us,
                    "p90_us": latency.p90_us,
                    "moved": moved.get(name, 0.0),
                    "wrong": wrong.get(name, ""),
                    "beside": names,
                }
            )
        del copies, routes
        torch.cuda.empty_cache()
    record(record_to, {"benchmark": "quantised_product", "rows": rows, **machine()})
    return int(not rows or any(row["wrong"] for row in rows))


def main() -> int:
    """Build, or run what was built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    if said.step == "build":
        return build(said.out, said.target, said.rows)
    require_gpu("`build` needs none; run what it left where one is")
    return run(said.out, said.record)


if __name__ == "__main__":
    exit_with(main)
