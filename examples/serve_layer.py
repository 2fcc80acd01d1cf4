"""One decoder layer of a Qwen3-8B-like FP8 model through nkc: eager and under CUDA graph replay, with and without it.

    python examples/serve_layer.py build -o build/layer            # compiles the bundle; needs no GPU
    python examples/serve_layer.py run build/layer --rows 1 16 64  # needs a GPU that the bundle is for

Real shapes, random weights. A step is one decode step of `rows` sequences over a filled KV cache: two norms, four
projections, attention, the gated activation, every projection quantised per 1 x 128 and 128 x 128. Rotary embedding
and the cache's update are the framework's own and left out. Three ways:
`nkc` (the bundle's kernels where their guards hold, the named fallback elsewhere), `fallback` (the plain PyTorch
bodies, same semantics) and `bf16` (the same layer with bf16 weights and torch's own products: what a server without
FP8 kernels would run). Prints tokens a second of this one layer, the routes taken, and how far outputs are apart.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FP8_BLOCK = 128
ROWS = (1, 16, 64, 128)
EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder layer. Defaults: Qwen/Qwen3-8B-FP8."""

    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 12288

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Return n and k of every projection."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        return {
            "qkv_proj": (qkv, self.hidden),
            "o_proj": (self.hidden, self.heads * self.head_dim),
            "gate_up_proj": (2 * self.intermediate, self.hidden),
            "down_proj": (self.hidden, self.intermediate),
        }


SMALL = Shape(hidden=256, heads=2, kv_heads=1, head_dim=128, intermediate=256)


def contracts(shape: Shape, arch: str, rows: tuple[int, ...]) -> dict[str, dict]:
    """Return the contracts of the layer by file name: four projections, two norms, two quantisations a row count."""
    found = {}
    scales = {"dtype": "fp32", "layout": "row_major"}
    shared = {"schema": "nkc.contract/1", "target": {"arch": arch}, "fallback": "torch"}
    quantising = {"quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}
    for m in rows:
        for name, (n, k) in shape.projections.items():
            found[f"{name}.m{m}"] = {
                **shared,
                "operation": "dense",
                "shape": {"m": m, "n": n, "k": k},
                "dtypes": {"a": "fp8_e4m3", "b": "fp8_e4m3", "acc": "fp32", "out": "bf16"},
                "scales": {"a": {"block": [1, FP8_BLOCK], **scales}, "b": {"block": [FP8_BLOCK, FP8_BLOCK], **scales}},
                "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
                "numerics": {"accumulate": "tensor_core_fp8", "combine": "fixed_order"},
            }
        codes = {"scales": {"out": {"block": [1, FP8_BLOCK], **scales}}}
        found[f"group_quant.m{m}"] = {
            **shared,
            **codes,
            "operation": "group_quant",
            "shape": {"m": m, "k": shape.heads * shape.head_dim},
            "dtypes": {"x": "bf16", "out": "fp8_e4m3"},
            "layouts": {"x": "row_major", "out": "row_major"},
            "numerics": quantising,
        }
        found[f"silu_mul_quant.m{m}"] = {
            **shared,
            **codes,
            "operation": "silu_mul_quant",
            "shape": {"m": m, "k": shape.intermediate},
            "dtypes": {"x": "bf16", "out": "fp8_e4m3"},
            "layouts": {"x": "row_major", "out": "row_major"},
            "epilogue": {"kind": "gated_silu", "gate": "halves"},
            "numerics": {"staging": "fp32", **quantising},
        }
        norm = ("x", "residual", "weight", "residual_out")
        found[f"rms_norm_quant.m{m}"] = {
            **shared,
            **codes,
            "operation": "rms_norm_quant",
            "shape": {"m": m, "k": shape.hidden},
            "dtypes": {**dict.fromkeys(norm, "bf16"), "out": "fp8_e4m3"},
            "layouts": dict.fromkeys((*norm, "out"), "row_major"),
            "numerics": {
                "reduce": "tree",
                "staging": "bf16",
                "weight": "plain",
                "epsilon": EPSILON,
                **quantising,
            },
        }
    return found


def build(out: Path, arch: str, rows: tuple[int, ...], shape: Shape) -> None:
    """Compile the layer's bundle into `out`, on a machine without a GPU."""
    import nkc

    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, contract in contracts(shape, arch, rows).items():
            contract["provenance"] = {"model": "Qwen3-8B-like", "layer": name}
            files.append(Path(folder, f"{name}.{arch}.json"))
            files[-1].write_text(json.dumps(contract))
        manifest = nkc.compile(files, out, allow_experimental=True)
    for entry in manifest.entries:
        sources = ", ".join(binding.source for binding in entry.bindings)
        print(f"{sources}: {entry.tactic or entry.disposition}")


class Layer:
    """The layer's weights and one decode step. functions: how each quantised operation is served."""

    def __init__(self, shape: Shape, device: str, context: int, rows: int, seed: int = 0) -> None:
        import torch

        from nkc import runtime

        generator = torch.Generator(device=device).manual_seed(seed)
        self.shape = shape
        self.torch = torch
        self.functions: dict[str, Callable] = {
            name: getattr(runtime, name) for name in ("dense_fp8", "group_quant", "silu_mul_quant", "rms_norm_quant")
        }

        def normal(*size: int) -> "torch.Tensor":
            return torch.randn(*size, generator=generator, device=device).to(torch.bfloat16)

        self.wide = {name: normal(n, k) * k**-0.5 for name, (n, k) in shape.projections.items()}
        self.weights = {name: quantise_blocks(weight) for name, weight in self.wide.items()}
        self.norms = [torch.ones(shape.hidden, dtype=torch.bfloat16, device=device) for _ in range(2)]
        cache = (rows, shape.kv_heads, context, shape.head_dim)
        self.keys, self.values = normal(*cache), normal(*cache)
        self.x, self.residual = normal(rows, shape.hidden), normal(rows, shape.hidden)

    def step(self) -> "tuple":
        """Return the layer's output and its residual, both [rows, hidden] bf16."""
        quantised, scales, residual = self.functions["rms_norm_quant"](
            self.x, self.norms[0], eps=EPSILON, residual=self.residual
        )
        attended = self.attend(self._project("qkv_proj", quantised, scales))
        quantised, scales = self.functions["group_quant"](attended)
        out = self._project("o_proj", quantised, scales)
        quantised, scales, residual = self.functions["rms_norm_quant"](
            out, self.norms[1], eps=EPSILON, residual=residual
        )
        both = self._project("gate_up_proj", quantised, scales)
        quantised, scales, _ = self.functions["silu_mul_quant"](both)
        return self._project("down_proj", quantised, scales), residual

    def step_bf16(self) -> "tuple":
        """Return the same from the bf16 weights, nothing quantised."""
        torch = self.torch
        functional = torch.nn.functional
        residual = self.x + self.residual
        h = functional.rms_norm(residual, (self.shape.hidden,), self.norms[0], EPSILON)
        out = functional.linear(self.attend(functional.linear(h, self.wide["qkv_proj"])), self.wide["o_proj"])
        residual = residual + out
        h = functional.rms_norm(residual, (self.shape.hidden,), self.norms[1], EPSILON)
        gate, up = functional.linear(h, self.wide["gate_up_proj"]).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, self.wide["down_proj"]), residual

    def attend(self, qkv) -> "object":
        """Return attention of this step's queries over the cache, [rows, heads * head_dim]."""
        shape = self.shape
        rows = qkv.shape[0]
        query = qkv[:, : shape.heads * shape.head_dim].view(rows, shape.heads, 1, shape.head_dim)
        grouped = shape.heads // shape.kv_heads > 1
        attended = self.torch.nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, enable_gqa=grouped
        )
        return attended.reshape(rows, shape.heads * shape.head_dim)

    def routes(self) -> dict[str, str]:
        """Return the route of every quantised call of a step, with the reason where it is the fallback."""
        from nkc.runtime import explain_call

        taken: dict[str, str] = {}
        plain = dict(self.functions)

        def watched(name: str) -> Callable:
            def call(*args, **kwargs):
                explained = explain_call(plain[name], *args, **kwargs)
                reasons = "; ".join(f"{each.route}: {each.reason}" for each in explained.routes if each.reason)
                label = f"{name} {' x '.join(str(tuple(each.shape)) for each in args[:2])}"
                why = f" ({reasons or 'there is no route'})" if explained.selected == "fallback" else ""
                taken[label] = explained.selected + why
                return plain[name](*args, **kwargs)

            return call

        self.functions = {name: watched(name) for name in plain}
        try:
            self.step()
        finally:
            self.functions = plain
        return taken

    def _project(self, name: str, quantised, scales):
        weight, weight_scales = self.weights[name]
        return self.functions["dense_fp8"](quantised, weight, scales, weight_scales)


def quantise_blocks(weight) -> "tuple":
    """Return fp8 codes and fp32 scales of a weight per 128 x 128."""
    import torch

    n, k = weight.shape
    blocks = weight.float().view(n // FP8_BLOCK, FP8_BLOCK, k // FP8_BLOCK, FP8_BLOCK)
    scales = blocks.abs().amax((1, 3)).clamp_min(1e-10) / 448.0
    codes = (blocks / scales[:, None, :, None]).clamp(-448.0, 448.0).view(n, k)
    return codes.to(torch.float8_e4m3fn), scales


def seconds(step: Callable[[], object], device: str, rounds: int) -> float:
    """Return the median time of a step, each waited for."""
    import torch

    times = []
    for _ in range(rounds):
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def captured(step: Callable[[], "tuple"]) -> "tuple[Callable[[], None], tuple]":
    """Return the replay of a captured step, and the outputs that it writes."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    return graph.replay, outputs


def run(bundle: Path | None, rows: tuple[int, ...], context: int, rounds: int, device: str, shape: Shape) -> int:
    """Run the layer in every way and print; 1 where outputs are further apart than they may be."""
    import torch

    from nkc import runtime

    if bundle is not None:
        library = runtime.load(bundle)
        runtime.use(library)
        print(f"{len(library)} kernels for {library.driver.isa} from {bundle}")
    failed = 0
    for m in rows:
        layer = Layer(shape, device, context, m)
        dispatched = dict(layer.functions)
        fallbacks = {name: getattr(function, "fallback", function) for name, function in dispatched.items()}
        print(f"\n{m} rows, context {context}")
        with torch.inference_mode():
            for call, route in layer.routes().items():
                print(f"  {call}: {route}")
            outputs, times = {}, {}
            for name, functions in (("nkc", dispatched), ("fallback", fallbacks), ("bf16", None)):
                layer.functions = dispatched if functions is None else functions
                step = layer.step_bf16 if functions is None else layer.step
                eager = tuple(each.clone() for each in step())
                outputs[name] = eager
                times[name, "eager"] = seconds(step, device, rounds)
                if device != "cpu":
                    replay, written = captured(step)
                    replay()
                    torch.cuda.synchronize()
                    same = all(torch.equal(mine, its) for mine, its in zip(eager, written, strict=True))
                    failed |= not same
                    times[name, "graph"] = seconds(replay, device, rounds)
                    print(f"  {name}: replay {'equals eager bit for bit' if same else 'DIFFERS from eager'}")
        for (name, how), each in times.items():
            print(f"  {name:8} {how:5} {each * 1e6:9.1f} us  {m / each:12.0f} tokens/s")
        for other, limit in (("fallback", 5e-2), ("bf16", 0.2)):
            apart = distance(outputs["nkc"][0], outputs[other][0])
            print(f"  nkc and {other}: {apart:.2e} apart (RMS difference over RMS; at most {limit:.0e})")
            failed |= not apart <= limit
    return int(failed)


def distance(mine, its) -> float:
    """Return the RMS of the difference over the RMS of `its`."""
    mine, its = mine.double(), its.double()
    return float((mine - its).square().mean().sqrt() / its.square().mean().sqrt())


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and do one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("build", "run"):
        command = commands.add_parser(name)
        command.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
        command.add_argument("--small", action="store_true", help="a layer of toy size, for a machine without a GPU")
        if name == "build":
            command.add_argument("-o", "--output", type=Path, required=True)
            command.add_argument("--arch", default="sm_90")
        else:
            command.add_argument("bundle", type=Path, nargs="?", help="without one, everything is the fallback")
            command.add_argument("--context", type=int, default=2048)
            command.add_argument("--rounds", type=int, default=50)
            command.add_argument("--device", default="cuda")
    said = parser.parse_args(arguments)
    shape = SMALL if said.small else Shape()
    if said.command == "build":
        build(said.output, said.arch, tuple(said.rows), shape)
        return 0
    return run(said.bundle, tuple(said.rows), said.context, said.rounds, said.device, shape)


if __name__ == "__main__":
    sys.exit(main())
