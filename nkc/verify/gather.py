"""Finds or builds what is to be verified: a built directory, a contract, or the proof sets of tactics."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from nkc import ir
from nkc.emit import build
from nkc.emit.agree import read_launch
from nkc.emit.explain import Explain
from nkc.emit.locate import read_manifest
from nkc.emit.output import Output
from nkc.ir.contract import Contract
from nkc.ir.errors import ToolError, UnsupportedError, UsageError
from nkc.ir.manifest import MANIFEST_FILE, Entry
from nkc.tactics.select import Policy
from nkc.tactics.tactic import Tactic
from nkc.verify.static import static_checks
from nkc.verify.subject import Subject


def built(directory: Path) -> tuple[Subject, ...]:
    """Return every kernel below a build output, or below a folder of such outputs, in the order of their names.

    Raises UsageError where nothing was built there, ToolError where a file is not what the manifest recorded.
    """
    if (directory / MANIFEST_FILE).is_file():
        outputs = [directory]
    else:
        outputs = sorted(path.parent for path in directory.glob(f"*/{MANIFEST_FILE}"))
    if not outputs:
        raise UsageError(f"{directory}: holds no {MANIFEST_FILE} (name what `nkc compile -o` wrote)")
    subjects = [
        _subject(out, entry) for out in outputs for entry in read_manifest(out).entries if entry.object is not None
    ]
    if not subjects:
        raise UsageError(f"{directory}: no contract there has a kernel (all are fallback or unsupported)")
    return tuple(subjects)


def _subject(out: Path, entry: Entry) -> Subject:
    assert entry.object is not None
    assert entry.contract is not None
    assert entry.launch is not None
    data = (out / entry.object).read_bytes()
    launch = read_launch(out / entry.launch)
    if hashlib.sha256(data).hexdigest() != launch.sha256:
        raise ToolError(f"{out / entry.object}: the bytes are not those that {entry.launch} records (build it again)")
    explained = msgspec.json.decode((out / entry.explain).read_bytes(), type=Explain)
    assert explained.toolchain is not None
    return Subject(
        contract=ir.read(out / entry.contract),
        request=entry.request,
        launch=launch,
        object=data,
        directory=out,
        toolchain=f"{explained.toolchain.name} {explained.toolchain.version}",
    )


def build_contracts(
    contracts: Iterable[tuple[str, Contract]],
    out: Path,
    toolchain: build.Toolchain,
    policy: Policy,
    *,
    checks: build.Checks = static_checks,
) -> tuple[Subject, ...]:
    """Build contracts into `out` and return their kernels, or leave nothing there: see `build_into`."""
    with Output(out) as output:
        return build_into(output, contracts, toolchain, policy, checks=checks)


def build_into(
    output: Output,
    contracts: Iterable[tuple[str, Contract]],
    toolchain: build.Toolchain,
    policy: Policy,
    *,
    checks: build.Checks = static_checks,
) -> tuple[Subject, ...]:
    """Build contracts and return their kernels. Raises the first error, or UnsupportedError."""
    requests = build.gather_requests(contracts)
    outcomes = build.build_all(requests, toolchain, policy=policy, checks=checks)
    for request, outcome in zip(requests, outcomes, strict=True):
        if outcome.error is not None:
            raise outcome.error
        if outcome.artifact is None:
            name = request.bindings[0].source
            raise UnsupportedError(f"{name}: no kernel serves it, so there is nothing to verify (nkc explain says why)")
    build.lay_out(output, requests, outcomes)
    return built(output.place)


def build_proofs(
    output: Output, tactics: Iterable[Tactic], toolchain: build.Toolchain
) -> Iterator[tuple[Subject, ...]]:
    """Build the proof set of each tactic into a folder of its own."""
    for tactic in tactics:
        proofs = [(f"proof-{place}.json", proof) for place, proof in enumerate(tactic.proofs(tactic))]
        policy = Policy(allow_experimental=True, only_tactic=tactic.name)
        yield build_into(output.below(tactic.name), proofs, toolchain, policy)
