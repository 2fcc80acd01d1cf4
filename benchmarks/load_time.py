"""Loading a bundle of many kernels: `python benchmarks/load_time.py BUNDLE [--kernels 200] [--record FILE]`.

A bundle with fewer kernels is filled up with copies of its own under other ids, and the output says how many are real.
Times reading with all checks, and loading with all modules, symbols, attributes, workspaces and launch functions; the
device's context exists before, as it does in a server. Aim: 200 kernels under 0.5 s in all.
"""

import argparse
import hashlib
import tempfile
import time
from pathlib import Path

import msgspec
from running import exit_with, require_gpu

from nkc import runtime
from nkc.ir.manifest import Entry, Manifest
from nkc.runtime.bundle import Bundle


def filled_up(bundle: Bundle, target: str, count: int, root: Path) -> Path:
    """Write a bundle of `count` kernels for a target, the given ones first and copies after them."""
    real = [(entry, launch) for entry, launch in bundle.entries() if launch.target.arch == target]
    entries = []
    for index in range(count):
        entry, launch = real[index % len(real)]
        digest = hashlib.sha256(f"{launch.id} {index}".encode()).hexdigest()[:24]
        copy = launch if index < len(real) else msgspec.structs.replace(launch, id=f"nk_{digest}")
        request = entry.request if index < len(real) else f"nk_{digest[::-1]}"
        files = {
            launch.object: bundle.image(entry),
            "launch.json": msgspec.json.encode(copy),
            "contract.json": bundle.files[entry.contract or ""],
            "explain.json": bundle.files[entry.explain],
        }
        for name, data in files.items():
            folder = root / (request if name == "explain.json" else copy.id)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        entries.append(
            Entry(
                id=copy.id,
                request=request,
                operation=entry.operation,
                target=entry.target,
                disposition=entry.disposition,
                tactic=entry.tactic,
                object=f"{copy.id}/{launch.object}",
                explain=f"{request}/explain.json",
                contract=f"{copy.id}/contract.json",
                launch=f"{copy.id}/launch.json",
                sha256={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
            )
        )
    (root / "manifest.json").write_bytes(msgspec.json.encode(Manifest(entries=tuple(entries))))
    return root


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    require_gpu()
    import torch
    from tensors import machine, record

    torch.zeros(1, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        given = runtime.read(said.bundle)
        major, minor = torch.cuda.get_device_capability()
        real = sum(launch.target.arch == f"sm_{major}{minor}" for _, launch in given.entries())
        whole = filled_up(given, f"sm_{major}{minor}", said.kernels, Path(folder))
        packed = Path(folder, "all.nkb")
        runtime.bundle.pack(whole, packed)
        rows: dict[str, float] = {}
        for name, path in (("directory", whole), ("packed", packed)):
            times = []
            for _ in range(said.rounds):
                start = time.perf_counter()
                bundle = runtime.read(path)
                read = time.perf_counter() - start
                library = runtime.load(bundle)
                times.append((time.perf_counter() - start, read))
                assert len(library) == said.kernels
                library.close()
            total, read = sorted(times)[len(times) // 2]
            rows[name] = total
            print(f"{name}: {total:.3f} s for {said.kernels} kernels ({real} real), of it checking {read:.3f} s")
    record(said.record, {"benchmark": "load_time", "kernels": said.kernels, "real": real, "seconds": rows, **machine()})


if __name__ == "__main__":
    exit_with(main)
