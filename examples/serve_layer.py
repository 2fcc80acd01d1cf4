"""One decoder layer of a Qwen3-8B-like FP8 model through nkc: eager and under CUDA graph replay, with and without it.

    python examples/serve_layer.py build -o build/layer            # compiles the bundle; needs no GPU
    python examples/serve_layer.py run build/layer --rows 1 16 64  # needs a GPU that the bundle is for
    python examples/serve_layer.py compare build/layer --record layer.json

The layer is `decoder_layer.py`'s: real shapes, random weights, one decode step of `rows` sequences. Three ways:
`nkc` (the bundle's kernels where their guards hold, the named fallback elsewhere), `fallback` (the plain PyTorch
bodies, same semantics) and `bf16` (the same layer with bf16 weights and torch's own products: what a server without
FP8 kernels would run). Each way is run again and again, eager and replayed, and every operation's result is compared
bit for bit with the first step's. Prints tokens a second of this one layer, the routes taken, and how far outputs
are apart. Exit 1 where any bit differs, or outputs are further apart than they may be.

`compare` holds every kernel of ours against what a server would otherwise run in its place, one operation at a time and
all else equal, and writes records that `nkc evidence add` takes in: without one no tactic is `accepted`.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import otherwise
from decoder_layer import OPERATIONS, SMALL, Layer, Results, Shape, contracts, fallbacks

from nkc.ir.errors import NkcError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from nkc.runtime.dispatch import Explanation
    from nkc.tactics.layer import Comparison

MODEL = "Qwen3-8B-like"
ROWS = (1, 16, 64, 128)
REPEATS = 200
APART = {"fallback": 5e-2, "bf16": 0.2}
"""How far `nkc` may be from another way: RMS of the difference over RMS. bf16 weights are other weights."""

T = TypeVar("T")
Step = Callable[[], "tuple[Tensor, Tensor]"]


def build(out: Path, arch: str, rows: tuple[int, ...], shape: Shape, plain: Path | None) -> None:
    """Compile the bundle into `out`, and what `compare` wants beside it into `plain`; needs no GPU."""
    import nkc

    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, contract in contracts(shape, arch, rows).items():
            contract["provenance"] = {"model": MODEL, "layer": name}
            files[Path(folder, f"{name}.{arch}.json")] = contract
        for file, contract in files.items():
            file.write_text(json.dumps(contract))
        manifest = nkc.compile(list(files), out, allow_experimental=True)
        if plain is not None:
            otherwise.build_plain(files, plain)
    for entry in manifest.entries:
        sources = ", ".join(binding.source for binding in entry.bindings)
        print(f"{sources}: {entry.tactic or entry.disposition}")


def run(bundle: Path | None, rows: tuple[int, ...], context: int, rounds: int, device: str, shape: Shape) -> int:
    """Run the layer in every way and print; 1 where a bit differs, or outputs are further apart than they may be."""
    import torch

    from nkc import runtime

    if bundle is not None:
        library = runtime.load(bundle)
        runtime.use(library)
        print(f"{len(library)} kernels for {library.driver.isa} from {bundle.name}")
    failed = False
    for m in rows:
        layer = Layer(shape, device, context, m)
        dispatched = dict(layer.functions)
        print(f"\n{m} rows, context {context}")
        with torch.inference_mode():
            routes = {name: said_of_route(explained) for name, explained in layer.explained().items()}
            for name, route in routes.items():
                print(f"  {name}: {route}")
            outputs, times = {}, {}
            for way in ("nkc", "fallback", "bf16"):
                layer.functions = fallbacks(dispatched) if way == "fallback" else dispatched
                step = layer.step_bf16 if way == "bf16" else layer.step
                outputs[way] = step()[0].clone()
                served = routes if way == "nkc" else {}
                failed |= not repeats_bit_for_bit(way, layer, step, served, REPEATS if device != "cpu" else 2)
                times[way, "eager"] = seconds(step, device, rounds)
                if device != "cpu":
                    times[way, "graph"] = seconds(captured(step)[0], device, rounds)
        for (way, how), each in times.items():
            print(f"  {way:8} {how:5} {each * 1e6:9.1f} us  {m / each:12.0f} tokens/s")
        for other, limit in APART.items():
            apart = distance(outputs["nkc"], outputs[other])
            print(f"  nkc and {other}: {apart:.2e} apart (RMS difference over RMS; at most {limit:.0e})")
            failed |= not apart <= limit
    return int(failed)


def compare(
    bundle: Path,
    plain: Path | None,
    rows: tuple[int, ...],
    context: int,
    operations: tuple[str, ...],
    record: Path | None,
    device: str = "cuda",
    shape: Shape | None = None,
) -> int:
    """Hold every kernel against the other routes of its operation inside the layer; print, and write the records."""
    import torch

    from nkc import runtime
    from nkc.bench import layer as in_layer
    from nkc.bench import layer_records, machine
    from nkc.tactics.layer import LayerRecords
    from nkc.verify import gather

    runtime.use(runtime.load(bundle))
    subjects = {subject.launch.id: subject for subject in gather.built(bundle)}
    plain_kernels = {} if plain is None else otherwise.load_plain(plain)
    shape, found = shape or Shape(), []
    with machine.Sampler() as sampler, torch.inference_mode():
        session = machine.session("python examples/serve_layer.py compare", sampler)
        for m in rows:
            layer = Layer(shape, device, context, m)
            explained = {name: each.kernel for name, each in layer.explained().items()}
            print(f"\n{m} rows, context {context}")
            for operation in operations:
                kernel = explained[operation]
                if kernel is None:
                    print(f"  {operation}: the fallback serves it")
                    continue
                place = in_layer.Place(
                    layer=f"{MODEL} decoder layer",
                    dims=asdict(shape),
                    rows=m,
                    context=context,
                    operation=operation,
                    step=partial(layer.served, operation),
                    arguments=layer.arguments(operation),
                    reference=("PyTorch, fp32 products", layer.functions[operation].fallback),
                )
                args, kwargs = place.arguments
                for peer in otherwise.peers(operation, subjects[kernel].request, plain_kernels):
                    try:
                        theirs = in_layer.Contender(
                            name=peer.name,
                            software=peer.software,
                            serve=peer.prepare(*args, **kwargs),
                            code_digest=peer.code_digest,
                        )
                        one = in_layer.compare(
                            place, subjects[kernel], layer.functions[operation], theirs, session=session.digest
                        )
                    except (ImportError, RuntimeError, ValueError, TypeError) as error:
                        print(f"  {operation}: {peer.name}: {' '.join(str(error).split())[:200]}")
                        continue
                    found.append(one)
                    print(f"  {said_of(one)}", flush=True)
    if record is not None:
        record.write_bytes(layer_records.document(LayerRecords.of([session], found)))
    return 0


def said_of(one: "Comparison") -> str:
    """Return a line on one comparison."""
    from nkc.tactics.layer import median_us

    low, saved, high = one.saved_us
    return (
        f"{one.operation:15} {one.ours.name.removeprefix('sm_90.'):42} {one.verdict:9} saves {saved:8.2f} us of "
        f"{median_us(one.theirs):7.1f} ({low:.2f} to {high:.2f}, noise {one.noise_us:.2f}) beside {one.theirs.name}; "
        f"errors {one.ours.err_ratio:.1e}, {one.theirs.err_ratio:.1e}, outputs {one.apart:.1e} apart, "
        f"{one.differing} of {2 * one.replays} replays differ"
    )


def said_of_route(explained: "Explanation") -> str:
    """Return the route of a call, with the reason where it is the fallback."""
    if explained.selected != "fallback":
        return explained.selected
    reasons = "; ".join(f"{each.route}: {each.reason}" for each in explained.routes if each.reason)
    return f"fallback ({reasons or 'there is no route'})"


def repeats_bit_for_bit(way: str, layer: Layer, step: Step, routes: dict[str, str], repeats: int) -> bool:
    """Return whether every operation gives the bits of the first eager step, eager and replayed; print what does not.

    A result that differs between eager steps varies by itself, and no capture is to blame for it.
    """
    first = {name: tuple(each.clone() for each in results) for name, results in layer.noted(step).items()}
    counts = {"eager steps": differing(first, lambda: layer.noted(step), repeats)}
    if first[next(iter(first))][0].is_cuda:
        replay, written = captured(lambda: layer.noted(step))

        def replayed() -> Results:
            for results in written.values():
                for each in results:
                    bits(each).fill_(0xA7)  # a replay that writes nothing must not pass
            replay()
            return written

        counts["replays"] = differing(first, replayed, repeats)
    said = []
    for how, different in counts.items():
        name = next((name for name, count in different.items() if count), None)
        if name is not None:
            route = routes.get(name, "torch")
            said.append(f"`{name}` ({route}) is the first to differ, in {different[name]} of {repeats} {how}")
    equal = f"{' and '.join(f'{repeats} {how}' for how in counts)} equal the first step, every operation bit for bit"
    print(f"  {way}: {'; '.join(said) or equal}")
    return not said


def differing(first: Results, again: Callable[[], Results], repeats: int) -> dict[str, int]:
    """Return how many repeats of each operation differ in any bit; counted on the device, waited for once."""
    import torch

    counts = torch.zeros(len(first), dtype=torch.int64, device=next(iter(first.values()))[0].device)
    for _ in range(repeats):
        found = again()
        different = [
            torch.stack([(bits(mine) != bits(its)).any() for mine, its in zip(first[name], found[name], strict=True)])
            for name in first
        ]
        counts += torch.stack([each.any() for each in different])
    return dict(zip(first, counts.tolist(), strict=True))


def bits(tensor: "Tensor") -> "Tensor":
    """Return a tensor's bytes, so that NaN equals NaN and -0 is not 0."""
    import torch

    return tensor.view(torch.uint8)


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


def captured(step: Callable[[], T]) -> tuple[Callable[[], None], T]:
    """Return the replay of a captured step, and the results that it writes."""
    import torch

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    return graph.replay, results


def distance(mine: "Tensor", its: "Tensor") -> float:
    """Return the RMS of the difference over the RMS of `its`."""
    mine, its = mine.double(), its.double()
    return float((mine - its).square().mean().sqrt() / its.square().mean().sqrt())


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    of_build, of_run, of_compare = (commands.add_parser(name) for name in ("build", "run", "compare"))
    for command in (of_build, of_run, of_compare):
        command.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    for command in (of_build, of_run):
        command.add_argument("--small", action="store_true", help="a layer of toy size, for a machine without a GPU")
    for command in (of_run, of_compare):
        command.add_argument("--context", type=int, default=2048)
    of_build.add_argument("-o", "--output", type=Path, required=True)
    of_build.add_argument("--arch", default="sm_90")
    of_build.add_argument("--plain", type=Path, help="build the plain Triton kernels there, for `compare`")
    of_run.add_argument("bundle", type=Path, nargs="?", help="without one, everything is the fallback")
    of_run.add_argument("--rounds", type=int, default=50)
    of_run.add_argument("--device", default="cuda")
    of_compare.add_argument("bundle", type=Path)
    of_compare.add_argument("--plain", type=Path, help="what `build --plain` left")
    of_compare.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="NAME")
    of_compare.add_argument("--record", type=Path, help="write the comparisons there, for `nkc evidence add`")
    said = parser.parse_args(arguments)
    try:
        return do(said)
    except NkcError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code


def do(said: argparse.Namespace) -> int:
    """Do what the command line says. Raises UsageError where it needs a GPU and none is there."""
    rows = tuple(said.rows)
    if said.command != "build" and importlib.util.find_spec("torch") is None:
        raise UsageError("serve_layer.py: torch is not installed (`build` needs none)")
    if said.command == "compare" or (said.command == "run" and said.device == "cuda"):
        import torch

        if not torch.cuda.is_available():
            raise UsageError("serve_layer.py: no GPU is present (`run --small --device cpu` needs none)")
    match said.command:
        case "build":
            build(said.output, said.arch, rows, SMALL if said.small else Shape(), said.plain)
            return 0
        case "run":
            shape = SMALL if said.small else Shape()
            return run(said.bundle, rows, said.context, said.rounds, said.device, shape)
        case _:
            return compare(said.bundle, said.plain, rows, said.context, tuple(said.operations), said.record)


if __name__ == "__main__":
    sys.exit(main())
