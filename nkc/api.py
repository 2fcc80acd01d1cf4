"""The verbs of the command line for Python: thin, typed, and each loads what it needs when it is called.

Errors are `nkc.ir.NkcError`s: the command's exit code in `exit_code`, its lines in `lines()`. Nothing here prints.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nkc import ir
from nkc.ir.contract import Contract
from nkc.ir.errors import ContractError, NkcError, Problem, ToolError, UsageError, did_you_mean

if TYPE_CHECKING:
    from nkc.emit.build import Outcome, Request
    from nkc.emit.compare import Diff
    from nkc.emit.explain import Explain
    from nkc.emit.inspect import Resources
    from nkc.ir.manifest import Manifest
    from nkc.ir.target import Target
    from nkc.tactics.capabilities import Capabilities
    from nkc.tactics.near import Near
    from nkc.tactics.select import Policy
    from nkc.tactics.tactic import Tactic
    from nkc.verify.gfx950.profile_record import ProfileRecord
    from nkc.verify.static import CheckResult

    Done = Callable[[Request, Outcome], None]

PathLike = str | os.PathLike[str]

MOST_OBJECT_BYTES = 64 << 20
"""The largest objects are below 1 MiB; a file that never ends has to be refused somewhere."""

WORST_FIRST = (1, 4, 3)
"""The order in which exit codes of several contracts count; one that ended well gives way to all of them."""


class UnreadableError(NkcError):
    """One or more contracts could not be read; holds the problems of all of them."""

    exit_code = 2

    def __init__(self, errors: Sequence[ContractError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> tuple[str, ...]:
        """Return the lines of every file in turn."""
        return tuple(line for error in self.errors for line in error.lines())


class BuildError(NkcError):
    """One or more contracts of a build have no kernel; the others were built and written all the same."""

    def __init__(self, failures: "Sequence[Failure]") -> None:
        self.failures = tuple(failures)
        codes = {failure.exit_code for failure in failures}
        self.exit_code = next(code for code in WORST_FIRST if code in codes)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> tuple[str, ...]:
        """Return the lines of every contract in turn."""
        return tuple(line for failure in self.failures for line in failure.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why one contract has no kernel. exit_code 0: it has a fallback, and nothing required better."""

    lines: tuple[str, ...]
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a build wrote, and every contract of it that has no kernel."""

    manifest: "Manifest"
    failures: tuple[Failure, ...]


def read(path: PathLike) -> Contract:
    """Return the checked contract in a file, defaults resolved. Raises ContractError with every problem in it."""
    return ir.read(path)


def read_all(paths: Iterable[PathLike]) -> tuple[tuple[str, Contract], ...]:
    """Return (file, contract) for every path. Raises UnreadableError with the problems of all files."""
    found, errors = [], []
    for path in paths:
        try:
            found.append((os.fspath(path), ir.read(path)))
        except ContractError as error:
            errors.append(error)
    if errors:
        raise UnreadableError(errors)
    return tuple(found)


def identify(contract: Contract | PathLike) -> str:
    """Return the id of a contract: what it computes, whatever it is called or wherever it lies."""
    return ir.contract_id(_contract(contract))


def check(path: PathLike) -> tuple[Problem, ...]:
    """Return every problem of a contract file, none where it is sound."""
    try:
        ir.read(path)
    except ContractError as error:
        return error.problems
    return ()


def explain(
    contract: Contract | PathLike,
    *,
    allow_experimental: bool = False,
    only_tactic: str | None = None,
    strict_evidence: bool = False,
) -> "Explain":
    """Return why which tactic is selected, with every reason of every candidate; compiles nothing.

    A directory that a build wrote gives its recorded explanation; the policy is then the build's.
    """
    from nkc.emit.explain import explain as explained
    from nkc.emit.proofs import book
    from nkc.tactics.select import select

    if not isinstance(contract, Contract) and Path(contract).is_dir():
        from nkc.emit.locate import read_explain

        return read_explain(Path(contract))
    policy = _policy(allow_experimental, only_tactic, strict_evidence)
    return explained(select(_contract(contract), policy, book=book()))


def near(
    contract: Contract | PathLike, *, allow_experimental: bool = False, only_tactic: str | None = None
) -> "tuple[Near, ...]":
    """Return the rejected candidates that an edit of the contract would admit, fewest and smallest edits first.

    A directory that a build wrote gives the contract that it was built from.
    """
    from nkc.emit.proofs import book
    from nkc.ir.reader import parse_document
    from nkc.tactics.near import near as nearest
    from nkc.tactics.select import select

    policy = _policy(allow_experimental, only_tactic)
    if not isinstance(contract, Contract) and Path(contract).is_dir():
        contract = parse_document(explain(contract).contract, str(contract))
    return nearest(select(_contract(contract), policy, book=book()))


def diff(
    before: PathLike, after: PathLike, *, allow_experimental: bool = False, only_tactic: str | None = None
) -> "Diff":
    """Return what differs between two contract files, two built directories, or the outputs of two builds."""
    from nkc.emit.compare import compare

    policy = _policy(allow_experimental, only_tactic)
    return compare(Path(before), Path(after), policy)


def compile(  # noqa: A001 - the verb; nothing here calls the builtin
    contracts: PathLike | Iterable[PathLike],
    out: PathLike,
    *,
    keep: bool = False,
    allow_experimental: bool = False,
    only_tactic: str | None = None,
    require_optimized: bool = False,
    on_object_mismatch: Literal["fail", "next"] = "fail",
) -> "Manifest":
    """Build contract files into `out` and return the manifest written there.

    A contract that falls back is an entry like any other. Raises UnreadableError before anything is written, and
    BuildError after everything that can be built was, where a contract is unsupported, failed, or fell back although
    `require_optimized`.
    """
    paths = [contracts] if isinstance(contracts, str | os.PathLike) else list(contracts)
    built = build_files(
        paths,
        Path(out),
        keep=keep,
        allow_experimental=allow_experimental,
        only_tactic=only_tactic,
        require_optimized=require_optimized,
        on_object_mismatch=on_object_mismatch,
    )
    failures = [failure for failure in built.failures if failure.exit_code]
    if failures:
        raise BuildError(failures)
    return built.manifest


def build_files(
    paths: Sequence[PathLike],
    out: Path,
    *,
    keep: bool,
    allow_experimental: bool,
    only_tactic: str | None,
    require_optimized: bool,
    on_object_mismatch: str,
    strict_evidence: bool = False,
    progress: "Callable[[int], AbstractContextManager[Done]] | None" = None,
) -> Build:
    """Read, select, compile and write; `progress` is given the number of requests and told of each as it ends.

    Raises UnreadableError, ContractError or UsageError before anything is written.
    """
    from nkc.emit.toolchains.by_language import Toolchains

    policy = _policy(allow_experimental, only_tactic, strict_evidence)
    # The child loads its compiler while this process reads, selects and renders.
    with Toolchains() as toolchain:
        inputs = read_all(paths)
        from nkc.emit import build
        from nkc.verify.static import static_checks

        requests = build.gather_requests(inputs)
        with progress(len(requests)) if progress else nullcontext(lambda _request, _outcome: None) as done:
            outcomes = build.build_all(
                requests,
                toolchain,
                policy=policy,
                on_mismatch=build.OnMismatch(on_object_mismatch),
                done=done,
                checks=static_checks,
            )
    manifest = build.write_all(out, requests, outcomes, keep=keep)
    failures = [
        failure
        for request, outcome in zip(requests, outcomes, strict=True)
        if (failure := _failure(request, outcome, out, require_optimized=require_optimized)) is not None
    ]
    return Build(manifest=manifest, failures=tuple(failures))


def inspect(path: PathLike) -> "Resources":
    """Return what an HSACO or cubin says about itself. Raises ObjectError for a file that is neither, or damaged."""
    from nkc.emit.inspect import inspect as inspected

    return inspected(read_object(path), name=Path(path).name)


def disassemble(path: PathLike) -> str:
    """Return the machine code of an HSACO or cubin as text. Raises ToolError where it cannot be read."""
    data, name = read_object(path), Path(path).name
    if inspect(path).container == "cubin":
        from nkc.emit.inspect.disassemble import disassemble_cubin

        return disassemble_cubin(data, name=name)
    from nkc.verify.gfx950.code_object import ObjectError, read_code_object
    from nkc.verify.gfx950.instruction import DecodeError
    from nkc.verify.gfx950.listing import listing

    try:
        return listing(read_code_object(data))
    except (ObjectError, DecodeError) as error:
        raise ToolError(f"{name}: cannot be disassembled: {error}") from None


def check_code(path: PathLike) -> "tuple[CheckResult, ...]":
    """Return every static check of an object with what it found, under the launch.json beside it where there is one.

    None for machine code that is not read instruction by instruction (a cubin). Raises as `inspect`.
    """
    from nkc.emit.agree import read_launch
    from nkc.verify.static import checks_of

    beside = Path(path).parent / "launch.json"
    return checks_of(read_object(path), inspect(path), read_launch(beside) if beside.is_file() else None)


def profile(path: PathLike) -> "ProfileRecord":
    """Return what an emulated run and the listing say of a gfx950 object's performance; it lies beside its launch.json.

    Raises UsageError for another object, and ToolError where it cannot be emulated.
    """
    from nkc.emit.agree import read_launch
    from nkc.verify.static import ISA

    data, name = read_object(path), Path(path).name
    if inspect(path).isa != ISA:
        raise UsageError(f"{name}: only {ISA} objects can be profiled without a device")
    try:
        from nkc.verify.engines.emulator import EMULATOR_ERRORS, launch_spec
        from nkc.verify.gfx950.profile_record import profile_object
        from nkc.verify.gfx950.stand_in import largest_dims
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name}: a profile runs the emulator, which needs {error.name} (install nkc[verify])"
        ) from None
    launch = read_launch(Path(path).parent / "launch.json")
    try:
        return profile_object(data, launch, launch_spec(launch, largest_dims(launch)))
    except EMULATOR_ERRORS as error:
        raise ToolError(f"{name}: the emulator cannot run it: {error}") from None


def read_object(path: PathLike) -> bytes:
    """Return a file's bytes. Raises UsageError where it cannot be read, or is too large to be one kernel's object."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_OBJECT_BYTES + 1)
        if len(data) <= MOST_OBJECT_BYTES:
            return data
        raise UsageError(
            f"{path}: more than {MOST_OBJECT_BYTES >> 20} MiB is no kernel's object (name an HSACO or cubin)"
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def list_tactics(*, operation: str | None = None, target: str | None = None) -> "tuple[Tactic, ...]":
    """Return the catalogue by operation and name. Raises UsageError for an operation or target that is not known."""
    from nkc.ir import operations, targets
    from nkc.tactics.catalogue import tactics_of

    _known("operation", operation, operations.names())
    _known("target", target, targets.names())
    wanted = operations.names() if operation is None else (operation,)
    return tuple(tactic for name in wanted for tactic in tactics_of(name) if target in (None, tactic.target))


def list_capabilities(*, operation: str | None = None, target: str | None = None) -> "Capabilities":
    """Return what is implemented, and why the rest is not. Raises UsageError for a name that is not known."""
    from nkc.ir import operations, targets
    from nkc.tactics.capabilities import capabilities

    _known("operation", operation, operations.names())
    _known("target", target, targets.names())
    return capabilities(
        operations.names() if operation is None else (operation,), targets.names() if target is None else (target,)
    )


def list_targets(arch: str | None = None) -> "tuple[Target, ...]":
    """Return the targets with their facts, by name. Raises UsageError for one that is not known."""
    from nkc.ir import targets

    names = targets.names()
    _known("target", arch, names)
    return tuple(targets.get(name) for name in names if arch in (None, name))


def _policy(allow_experimental: bool, only_tactic: str | None, strict_evidence: bool = False) -> "Policy":
    """Return what the caller allows. Raises UsageError for a tactic that nobody knows."""
    from nkc.tactics.select import Policy

    if only_tactic is not None:
        _known("tactic", only_tactic, tuple(tactic.name for tactic in list_tactics()))
    return Policy(allow_experimental=allow_experimental, only_tactic=only_tactic, strict_evidence=strict_evidence)


def _known(word: str, value: str | None, known: Sequence[str]) -> None:
    """Raise UsageError for a name that is none of the known ones."""
    if value is not None and value not in known:
        raise UsageError(f"nkc: unknown {word} `{value}` ({did_you_mean(value, known)})")


def _contract(contract: Contract | PathLike) -> Contract:
    return contract if isinstance(contract, Contract) else ir.read(contract)


def _failure(request: "Request", outcome: "Outcome", out: Path, *, require_optimized: bool) -> Failure | None:
    """Return why a request has no kernel, or None where it has one."""
    from nkc.ir.manifest import Disposition

    name = request.bindings[0].source
    if outcome.error is not None:
        lines = tuple(f"{name}: {line}" for line in outcome.error.lines())
        return Failure(lines=lines, exit_code=outcome.error.exit_code)
    record = outcome.explain
    if record is None or record.disposition is Disposition.OPTIMIZED:
        return None
    strict = require_optimized or record.disposition is Disposition.UNSUPPORTED
    return Failure(
        lines=(f"{name}: {_no_kernel(request.contract, record, out / request.id)}",), exit_code=3 if strict else 0
    )


def _no_kernel(contract: Contract, record: "Explain", place: Path) -> str:
    """Return what becomes of a contract without a kernel, the closest candidate's reason, and where the rest is.

    Closest is what the fewest and smallest edits would admit; where no edit does, what has the fewest reasons.
    """
    from nkc.tactics.near import near
    from nkc.tactics.select import select

    edited = [found.candidate.tactic.name for found in near(select(contract, record.policy))[:1]]
    route = f"falls back to `{record.fallback}`" if record.fallback else "unsupported, and no fallback is named"
    closest = min(
        record.candidates,
        key=lambda c: (c.name not in edited, c.target != record.target, len(c.reasons), c.effective_rank, c.name),
        default=None,
    )
    why = "no tactic is known"
    if closest is not None and closest.reasons:
        reason = closest.reasons[0]
        why = f"closest is {closest.name}: {reason.field} wanted {reason.wanted}, found {reason.actual}"
        if len(closest.reasons) > 1:
            why += f", and {len(closest.reasons) - 1} more"
    return f"{route}; {why} (see nkc explain {place})"
