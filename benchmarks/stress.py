"""Stress that finds races: python benchmarks/stress.py build|replays|chain|sanitize DIR..., all but build on a GPU.

`build OUT` compiles the kernels of `stress.cu` and `dependent.cu`, and below OUT/ratios each pipelined kernel at every
ratio of stages to blocks of k, and once so large that all multiprocessors are full. The others take folders of built
kernels, such as `nkc verify --build-only` leaves:

`replays`   each kernel 1,000 times by graph. Before every launch its results and the shared memory of all
            multiprocessors are filled with NaN, NaN lies around every operand, and a second stream reads and writes
            memory meanwhile. Bits are held against the first launch, that one against the oracle (float64 on the GPU
            where a contract is large).
`chain`     each kernel that is launched dependent, 1,000 replays of a chain through the worst neighbours
            (`dependent.py`).
`sanitize`  one launch of each kernel under compute-sanitizer: memcheck, racecheck, synccheck. A kernel with one fault
            for each of them comes first: a tool that does not report it is not used.

Exit 1 where anything was found or a kernel was not reached, 2 without a GPU. --record merges rows into a
file, by contract and check.
"""

import argparse
import contextlib
import datetime
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import stress_record
from running import exit_with, require_gpu
from stress_record import BEGUN, MARK, PROBE, TOOLS, Check, Row, Run

HERE = Path(__file__).parent
REPLAYS = 1000
PATIENCE = 25.0
"""Seconds that the last kernel of a process may take."""
KERNELS = {"stress.cu": ("unsettle", "differ", "load", "flawed"), "dependent.cu": ("produce", "judge")}
METHODS = {
    Check.REPLAYS: "regime exact, seed 1, judged by the oracle; from 2^30 products on random operands, judged by "
    "float64 as nkc bench does; before each launch results and shared memory NaN, NaN around operands; a second stream "
    "reads and writes 1 GiB from 24 workgroups",
    Check.CHAIN: "8 links between neighbours that are launched dependent, which delay by 0, 3,000 or 20,000 cycles",
    **{tool: f"compute-sanitizer --tool {tool.value}, one launch, regime exact, seed 1" for tool in TOOLS},
}
SANITIZED = ("dense_", "group_quant_", "rms_norm_quant_", "silu_mul_quant_", "flawed")


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("build", "replays", "chain", "sanitize", "part"))
    parser.add_argument("built", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--kernels", type=Path, default=Path("."), help="where `build` left those beside the tested")
    parser.add_argument("--tactics", default="*", help="only of tactics whose names match")
    parser.add_argument("--replays", type=int, default=REPLAYS)
    parser.add_argument("--tool", choices=[tool.value for tool in TOOLS], action="append", help="all by default")
    parser.add_argument("--jobs", type=int, default=4, help="processes that share the GPU")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no further kernel after so long")
    parser.add_argument("--most-products", type=float, default=1e18, help="only kernels of so many products at most")
    parser.add_argument("--each", type=int, default=10**9, help="so many kernels of each tactic, small ones first")
    parser.add_argument("--record", type=Path)
    parser.add_argument(
        "--missing", action="store_true", help="only kernels of which the record has no row that passed"
    )
    parser.add_argument("--without", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--check", type=Check, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    said = parser.parse_args()
    match said.command:
        case "build":
            return build(said.built[0], said.tactics)
        case "part":
            import stress_kernel

            stress_kernel.run(said)
            return 0
        case "sanitize":
            checks = said.tool or [tool.value for tool in TOOLS]
        case name:
            checks = [name]
    require_gpu("`build` needs none; run the checks where one is")
    return max([over_all(Check(name), said) for name in checks])


def build(out: Path, pattern: str) -> int:
    """Compile what runs beside the kernels under test, and the kernels at every ratio."""
    import ratios
    import raw

    for file, symbols in KERNELS.items():
        raw.build(HERE / file, symbols, out)
    return ratios.build(out / "ratios", pattern)


def over_all(check: Check, said: argparse.Namespace) -> int:
    """Run a check in several processes, print what was found, and merge it into the record."""
    import stress_kernel

    said.check = check
    wanted = {(subject.tactic, subject.request) for subject in stress_kernel.subjects(said)}
    if not wanted:
        print(f"{check}: no kernel is left to check")
        return 0
    began = time.monotonic()
    if check in TOOLS and not stress_record.reports(_run_child(said, PROBE, began, without=[])[1]):
        print(f"{check}: the tool does not report the fault that `stress.cu` has for it", file=sys.stderr)
        return 1
    with ThreadPoolExecutor(said.jobs) as pool:
        parts = [pool.submit(_part, said, part, began) for part in range(min(said.jobs, len(wanted)))]
        rows = [row for part in parts for row in part.result()]
    bad, missing = [row for row in rows if not row.passed], wanted - {(row.tactic, row.request) for row in rows}
    for row in bad:
        print(f"{check}: {row.tactic}: {row.request}: {row.findings} findings", file=sys.stderr)
    print(
        f"{check}: {len(rows)} kernels of {len({row.tactic for row in rows})} tactics, {len(bad)} with findings, "
        f"{len(missing)} not reached, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    if said.record is not None and rows:
        stress_record.keep(said.record, _run(check), rows)
    return int(bool(bad or missing or not rows))


def _part(said: argparse.Namespace, part: int, began: float) -> list[Row]:
    """Check a part of the kernels in processes of its own: where one ends a process, the next goes on behind it."""
    rows: list[Row] = []
    while True:
        done = [f"{row.tactic}:{row.request}" for row in rows]
        code, text = _run_child(said, part, began, without=done)
        found = stress_record.rows_of(said.check, text)
        rows += found
        for line in stress_record.findings_of(said.check, text):
            print(line, file=sys.stderr)
        if code:
            print(f"{said.check}: a process ended with {code}: {_last_words(text)}", file=sys.stderr)
        if not code or not found or time.monotonic() - began > said.seconds:
            return rows


def _run_child(said: argparse.Namespace, part: int, began: float, *, without: list[str]) -> tuple[int, str]:
    """Run one process to its end and return its exit code and what it printed."""
    with tempfile.TemporaryFile("w+") as file:
        child = _child(said, part, file, without=without)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(began + said.seconds + PATIENCE - time.monotonic(), 1))
        child.kill()  # of one that has ended nothing is left; a kernel that waits for ever holds the other
        code = child.wait()
        file.seek(0)
        return code, file.read()


def _child(said: argparse.Namespace, part: int, out: IO[str], *, without: list[str]) -> "subprocess.Popen[str]":
    """Start one process, under the sanitizer where that is the check; each allocation is then one of the driver's."""
    options = ("check", "kernels", "tactics", "replays", "jobs", "seconds", "most_products", "each")
    words = [sys.executable, __file__, "part", *map(str, said.built), "--part", str(part)]
    words += [word for name in options for word in (f"--{name.replace('_', '-')}", str(getattr(said, name)))]
    words += [word for one in without for word in ("--without", one)]
    if said.missing:
        words += ["--missing", "--record", str(said.record)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    if said.check in TOOLS:
        words = [*_sanitizer(said.check), *words]
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return subprocess.Popen(words, stdout=out, text=True, env=environment)


def _sanitizer(tool: Check) -> list[str]:
    """Return the command up to the program: kernels under test alone, and no report of what a loader asks in vain."""
    only = [word for name in SANITIZED for word in ("--kernel-name", f"kernel_substring={name}")]
    return ["compute-sanitizer", "--tool", tool.value, "--report-api-errors", "no", "--print-limit", "1000", *only]


def _last_words(text: str) -> str:
    return " | ".join([line for line in text.splitlines() if line and not line.startswith((BEGUN, MARK))][-3:])


def _run(check: Check) -> Run:
    import torch

    import nkc
    from nkc.verify.engines.driver import driver_version

    return Run(
        device=torch.cuda.get_device_name(),
        driver=driver_version(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        nkc=nkc.__version__,
        torch=str(torch.__version__),
        method=METHODS[check],
    )


if __name__ == "__main__":
    exit_with(main)
