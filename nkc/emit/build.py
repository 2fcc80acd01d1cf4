"""Builds contracts: render, compile, hold the object against its contract, seal, and lay everything out on disk.

The straight line of one build; what fails is an error with its reasons, and nothing half done is left.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from nkc.emit import hold, proofs, render
from nkc.emit.explain import Explain, SourceRecord, ToolchainRecord, encode, explain
from nkc.emit.inspect.resources import occupancy
from nkc.emit.launch import launch_record
from nkc.emit.output import Output
from nkc.emit.source import CodeObject, Source
from nkc.ir import canonical, targets
from nkc.ir.contract import Code, Contract, Lds
from nkc.ir.errors import ContractError, NkcError, Problem, ToolError
from nkc.ir.launch import Launch
from nkc.ir.manifest import MANIFEST_FILE, Binding, Disposition, Entry, Manifest
from nkc.tactics.reason import Reason, StageName
from nkc.tactics.select import Candidate, Policy, Selection, select
from nkc.tactics.tactic import Lowered

if TYPE_CHECKING:
    from nkc.ir.target import Target


class Toolchain(Protocol):
    """What compiles a source; a fake one stands in for it in tests."""

    def compile(self, source: Source, target: "Target") -> CodeObject:
        """Return the code object. Raises ToolError."""


Checks = Callable[[CodeObject, Contract], tuple[Reason, ...]]
"""What else an object must satisfy, given with its lowered contract: a reason for everything that it does not.

The room above knows how to read machine code instruction by instruction; it hands that in.
"""


def no_checks(built: CodeObject, contract: Contract) -> tuple[Reason, ...]:
    """Ask nothing beyond what `hold` asks."""
    del built, contract
    return ()


class OnMismatch(StrEnum):
    """What to do when a selected tactic does not build, or its object disagrees with the contract."""

    FAIL = "fail"
    NEXT = "next"


class ObjectMismatchError(ToolError):
    """A built object that disagrees with its contract or its tactic's guarantees."""

    def __init__(self, tactic: str, reasons: Sequence[Reason]) -> None:
        self.reasons = tuple(reasons)
        said = "; ".join(f"{r.field}: wanted {r.wanted}, the object has {r.actual} ({r.predicate})" for r in reasons)
        super().__init__(f"{tactic}: the object disagrees with its contract: {said}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A sealed contract with its object: what one directory `OUT/<id>` holds."""

    contract: Contract
    id: str
    tactic: str
    source: Source
    built: CodeObject
    launch: Launch

    @property
    def object_name(self) -> str:
        """The file name of the code object."""
        return f"kernel.{self.built.kind}"

    def files(self, *, keep: bool) -> dict[str, bytes]:
        """Return the directory's files; keep adds the rendered source and the compiler's intermediate texts."""
        files = {
            "contract.json": canonical_document(self.contract),
            "launch.json": encode(self.launch),
            self.object_name: self.built.data,
        }
        if keep:
            suffix = {"triton": "py", "cuda": "cu"}[self.source.language]
            files[f"keep/source.{suffix}"] = self.source.text.encode()
            files.update({f"keep/kernel.{name}": text.encode() for name, text in self.built.intermediates})
        return files


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one contract: its explanation, its artifact where one was built, or the error that stopped it."""

    contract: Contract
    explain: Explain | None
    artifact: Artifact | None = None
    error: NkcError | None = None


def canonical_document(contract: Contract) -> bytes:
    """Return a contract as the JSON file that is written."""
    import orjson  # loaded only where something is written

    return orjson.dumps(canonical.contract_document(contract), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def build(lowered: Lowered, toolchain: Toolchain, checks: Checks = no_checks) -> Artifact:
    """Compile one lowered contract and seal it.

    Raises ToolError where rendering or compiling fails, ObjectMismatchError where the object is not what was asked.
    """
    source = render.render(lowered)
    built = toolchain.compile(source, targets.get(lowered.contract.target.arch))
    disagreements = (
        *hold.hold(built, source, lowered.contract, lowered.tactic),
        *checks(built, lowered.contract),
    )
    if disagreements:
        raise ObjectMismatchError(lowered.tactic.name, disagreements)
    sealed = msgspec.structs.replace(
        lowered.contract,
        lds=Lds(fixed_bytes=built.resources.lds_fixed_bytes, dynamic_bytes=built.lds_dynamic_bytes),
        code=Code(language=source.language, digest=source.digest),
    )
    sealed_id = canonical.contract_id(sealed)
    launch = launch_record(
        sealed,
        lowered.tactic,
        built,
        contract_id=sealed_id,
        object_name=f"kernel.{built.kind}",
        sha256=hashlib.sha256(built.data).hexdigest(),
    )
    return Artifact(
        contract=sealed, id=sealed_id, tactic=lowered.tactic.name, source=source, built=built, launch=launch
    )


def build_selection(
    selection: Selection, toolchain: Toolchain, *, on_mismatch: OnMismatch, checks: Checks = no_checks
) -> Outcome:
    """Build the selected candidate; with NEXT, one that fails becomes a recorded rejection and the next is built."""
    while selection.selected is not None:
        candidate = selection.selected
        try:
            artifact = build(selection.lower(candidate), toolchain, checks)
        except ToolError as error:
            if on_mismatch is OnMismatch.FAIL:
                return Outcome(contract=selection.contract, explain=None, error=error)
            selection = _without(selection, candidate, _object_reasons(error))
            continue
        return Outcome(
            contract=selection.contract, explain=explain_artifact(explain(selection), artifact), artifact=artifact
        )
    return Outcome(contract=selection.contract, explain=explain(selection))


def _object_reasons(error: ToolError) -> tuple[Reason, ...]:
    if isinstance(error, ObjectMismatchError):
        return error.reasons
    return (
        Reason(
            stage=StageName.OBJECT, predicate="builds", field="$", wanted="an object", actual="; ".join(error.lines())
        ),
    )


def _without(selection: Selection, failed: Candidate, reasons: tuple[Reason, ...]) -> Selection:
    """Return the selection with one candidate rejected by what its object turned out to be."""
    rejected = msgspec.structs.replace(failed, reasons=(*failed.reasons, *reasons))
    return msgspec.structs.replace(
        selection,
        candidates=tuple(rejected if other is failed else other for other in selection.candidates),
        eligible=selection.eligible[1:],
    )


def explain_artifact(record: Explain, artifact: Artifact) -> Explain:
    """Return an explanation with the object sections filled in."""
    contract, built, source = artifact.contract, artifact.built, artifact.source
    x, y, z = artifact.launch.block
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in artifact.files(keep=False).items()}
    return msgspec.structs.replace(
        record,
        id=artifact.id,
        sealed=canonical.contract_document(contract),
        resources=built.resources,
        occupancy=occupancy(
            built.resources,
            targets.get(contract.target.arch),
            threads=x * y * z,
            lds_dynamic_bytes=built.lds_dynamic_bytes,
        ),
        launch=artifact.launch,
        source=SourceRecord(
            language=source.language,
            symbol=source.symbol,
            digest=source.digest,
            closure_digest=source.closure_digest,
            closure={file.name: file.sha256 for file in source.closure},
            options=dict(source.options),
        ),
        toolchain=ToolchainRecord(
            name=built.toolchain.name, version=built.toolchain.version, digest=built.toolchain.digest
        ),
        artifacts=digests,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One contract to build, and every input that asked for it."""

    contract: Contract
    id: str
    bindings: tuple[Binding, ...]


def gather_requests(inputs: Iterable[tuple[str, Contract]]) -> tuple[Request, ...]:
    """Merge inputs (file, contract) that ask for the same thing, in the order of their request ids.

    Raises ContractError where two of them name different fallbacks.
    """
    by_id: dict[str, list[tuple[str, Contract]]] = {}
    for file, contract in inputs:
        by_id.setdefault(canonical.contract_id(contract), []).append((file, contract))
    requests = []
    for request_id, group in sorted(by_id.items()):
        first_file, first = group[0]
        for file, contract in group[1:]:
            if contract.fallback != first.fallback:
                what = f"{_route(contract)}, but the same contract in {first_file} has {_route(first)}"
                raise ContractError(file, [Problem(field="$.fallback", what=what, mend="agree on one route")])
        bindings = {
            encode(binding): binding
            for file, contract in group
            for binding in [
                Binding(source=Path(file).name, fallback=contract.fallback, provenance=dict(contract.provenance))
            ]
        }
        requests.append(
            Request(contract=first, id=request_id, bindings=tuple(bindings[key] for key in sorted(bindings)))
        )
    return tuple(requests)


def _route(contract: Contract) -> str:
    return "no fallback" if contract.fallback is None else f"the fallback `{contract.fallback}`"


def build_all(
    requests: Sequence[Request],
    toolchain: Toolchain,
    *,
    policy: Policy | None = None,
    on_mismatch: OnMismatch = OnMismatch.FAIL,
    done: Callable[[Request, Outcome], None] = lambda _request, _outcome: None,
    checks: Checks = no_checks,
) -> tuple[Outcome, ...]:
    """Build requests in turn; one that fails does not stop the others. `done` is told of each as it ends."""
    outcomes = []
    book = proofs.book()
    for request in requests:
        selection = select(request.contract, policy, book=book)
        outcome = build_selection(selection, toolchain, on_mismatch=on_mismatch, checks=checks)
        done(request, outcome)
        outcomes.append(outcome)
    return tuple(outcomes)


def write_all(out: Path, requests: Sequence[Request], outcomes: Sequence[Outcome], *, keep: bool = False) -> Manifest:
    """Lay outcomes out under `out`, or leave nothing there that was not: see `lay_out`."""
    with Output(out) as output:
        return lay_out(output, requests, outcomes, keep=keep)


def lay_out(
    output: Output, requests: Sequence[Request], outcomes: Sequence[Outcome], *, keep: bool = False
) -> Manifest:
    """Lay outcomes out in a directory: whole directories, then the manifest, which is replaced last.

    A contract whose build failed leaves nothing and has no entry.
    """
    directories: dict[str, dict[str, bytes]] = {}
    entries = []
    for request, outcome in zip(requests, outcomes, strict=True):
        if outcome.explain is None:
            continue
        explained = encode(outcome.explain)
        directories.setdefault(request.id, {})["explain.json"] = explained
        digests = {"explain.json": hashlib.sha256(explained).hexdigest()}
        if outcome.artifact is not None:
            files = outcome.artifact.files(keep=keep)
            directories.setdefault(outcome.artifact.id, {}).update(files)
            digests.update(_digests(files))
        entries.append(_entry(request, outcome.explain, outcome.artifact, digests))
    for name, files in sorted(directories.items()):
        output.directory(name, files)
    manifest = Manifest(entries=tuple(entries))
    output.file(MANIFEST_FILE, encode(manifest))
    return manifest


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items()) if "/" not in name}


def _entry(request: Request, explained: Explain, artifact: Artifact | None, digests: Mapping[str, str]) -> Entry:
    place = f"{artifact.id}/" if artifact else ""
    return Entry(
        id=artifact.id if artifact else None,
        request=request.id,
        operation=request.contract.operation,
        target=request.contract.target.arch,
        disposition=explained.disposition,
        tactic=artifact.tactic if artifact else None,
        object=f"{place}{artifact.object_name}" if artifact else None,
        explain=f"{request.id}/explain.json",
        contract=f"{place}contract.json" if artifact else None,
        launch=f"{place}launch.json" if artifact else None,
        sha256=dict(sorted(digests.items())),
        bindings=request.bindings,
    )


__all__ = ["Artifact", "Disposition", "OnMismatch", "Outcome", "Request", "build", "build_all", "lay_out", "write_all"]
