"""What a cold compile costs against the compiler alone: `python benchmarks/compile.py [CONTRACT] [--rounds N]`.

Both run in fresh processes with fresh caches, taken in turn; both times are from starting Python to its end.
nkc: `nkc compile` of the contract, objects and explanations written. triton: import triton, then `triton.compile` of
the very same source for the same target and options. Prints every time, the medians, the minima and their ratios.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARE = """import importlib.util, json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

said = json.load(open(sys.argv[1]))
spec = importlib.util.spec_from_file_location("kernel", said["file"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
attributes = {(i,): pairs for i, pairs in enumerate(said["attributes"])}
source = ASTSource(getattr(module, said["symbol"]), said["signature"], {}, attributes)
built = triton.compile(source, target=GPUTarget(*said["target"]), options=said["options"])
assert built.kernel
"""


def prepare(contract_file: Path, folder: Path) -> Path:
    """Write what the bare compiler needs: the rendered source, and its request as JSON. Returns the request's path."""
    import json

    from nkc import ir
    from nkc.emit.render import render
    from nkc.emit.toolchains.triton import backend_target, promises
    from nkc.ir import targets
    from nkc.tactics import Policy, select

    contract = ir.read(contract_file)
    selection = select(contract, Policy(allow_experimental=True))
    assert selection.selected is not None, f"{contract_file} has no kernel"
    source = render(selection.lower(selection.selected))
    kernel = folder / "kernel_source.py"
    kernel.write_text(source.text)
    request = {
        "file": str(kernel),
        "symbol": source.symbol,
        "signature": {parameter.name: parameter.type for parameter in source.parameters},
        "attributes": [[list(pair) for pair in promises(parameter)] for parameter in source.parameters],
        "target": backend_target(targets.get(contract.target.arch)),
        "options": dict(source.options),
    }
    place = folder / "request.json"
    place.write_text(json.dumps(request))
    return place


def timed(command: list[str], folder: Path) -> float:
    """Return the seconds a command takes, in a folder of its own with an empty cache."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_DEFAULT_FP_FUSION": "0"}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contracts", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    examples = Path(__file__).parents[1] / "examples"
    contracts = arguments.contracts or [examples / f"qwen3.6-35b.o_proj.m1.{arch}.json" for arch in ("gfx950", "sm_90")]
    for contract in contracts:
        times: dict[str, list[float]] = {"triton": [], "nkc": []}
        with tempfile.TemporaryDirectory(prefix="nkc-bench-") as name:
            request = prepare(contract.resolve(), Path(name))
            bare = [sys.executable, "-c", BARE, str(request)]
            ours = [
                sys.executable,
                "-m",
                "nkc",
                "compile",
                "--allow-experimental",
                str(contract.resolve()),
                "-o",
                "out",
            ]
            for turn in range(arguments.rounds + 1):  # the first turn warms the file system and counts for neither
                for what, command in (("triton", bare), ("nkc", ours)):
                    folder = Path(name) / f"{what}-{turn}"
                    folder.mkdir()
                    seconds = timed(command, folder)
                    if turn:
                        times[what].append(seconds)
        print(contract.name)
        for what, taken in times.items():
            listing = " ".join(f"{seconds:.2f}" for seconds in taken)
            print(f"  {what:7} median {statistics.median(taken):.3f} s  minimum {min(taken):.3f} s  ({listing})")
        median = statistics.median(times["nkc"]) / statistics.median(times["triton"])
        print(f"  ratio   median {median:.2f}     minimum {min(times['nkc']) / min(times['triton']):.2f}")


if __name__ == "__main__":
    main()
