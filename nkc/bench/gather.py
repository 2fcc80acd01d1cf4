"""What is benched: the kernels of each contract, built here tactic by tactic, or built elsewhere and found."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nkc.bench.cell import check_operation
from nkc.emit import build, proofs
from nkc.emit.explain import Explain
from nkc.emit.output import Output
from nkc.ir.contract import Contract, dim_max
from nkc.ir.errors import UsageError
from nkc.ir.manifest import MANIFEST_FILE
from nkc.ir.reader import parse_document
from nkc.tactics import catalogue
from nkc.tactics.select import Policy, Selection, select
from nkc.tactics.tactic import Tactic
from nkc.verify import gather
from nkc.verify.static import static_checks
from nkc.verify.subject import Subject

ALLOWED = Policy(allow_experimental=True)
Done = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One contract to bench, with the kernels that are there for it, by tactic."""

    contract: Contract
    request: str
    subjects: tuple[Subject, ...]


def contract_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return contract files: each path that is a file, and the .json files right below each that is a folder."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{path}: holds no contract (*.json) and nothing that was built")
        found.extend(inside)
    return tuple(found)


def dependent(contract: Contract) -> Contract:
    """Return a contract that declares constant what any kernel that is launched dependent reads before it waits.

    Raises UsageError where no kernel of the operation is launched so.
    """
    early = {
        name
        for tactic in catalogue.tactics_of(contract.operation)
        if tactic.before_the_wait is not None and tactic.target == contract.target.arch
        for name in tactic.before_the_wait.of(contract)
    }
    if not early:
        raise UsageError(f"no kernel of `{contract.operation}` on {contract.target.arch} is launched dependent")
    constant = tuple(sorted({*contract.properties.constant, *early}))
    properties = msgspec.structs.replace(contract.properties, constant=constant)
    return msgspec.structs.replace(contract, properties=properties)


def is_built(path: Path) -> bool:
    """Return whether a path is a build's output, or a folder of such outputs."""
    return path.is_dir() and ((path / MANIFEST_FILE).is_file() or any(path.glob(f"*/{MANIFEST_FILE}")))


def built(directory: Path) -> tuple[Asked, ...]:
    """Return every contract that has kernels below a directory, in the order of their dims, rows last."""
    subjects: dict[str, dict[str, Subject]] = {}
    for subject in gather.built(directory):
        subjects.setdefault(subject.request, {})[subject.tactic] = subject
    found = []
    for request, by_tactic in sorted(subjects.items()):
        one = next(iter(by_tactic.values()))
        explained = msgspec.json.decode((one.directory / request / "explain.json").read_bytes(), type=Explain)
        contract = parse_document(explained.contract, f"{request}/explain.json")
        check_operation(contract, f"{request}/explain.json")
        ordered = tuple(by_tactic[name] for name in sorted(by_tactic))
        found.append(Asked(contract=contract, request=request, subjects=ordered))
    return tuple(sorted(found, key=_order))


def _order(asked: Asked) -> tuple[str, str, list[tuple[str, int]], int, str]:
    contract = asked.contract
    dims = sorted((name, dim_max(dim)) for name, dim in contract.shape.items() if name != "m")
    return contract.operation, contract.target.arch, dims, dim_max(contract.shape["m"]), asked.request


def plain_of(contract: Contract, names: Iterable[str]) -> str | None:
    """Return the simplest of these tactics: in Triton, one workgroup a tile, first by the catalogue's rank.

    None without one: it stands for a kernel that nobody tuned, and none of ours in CUDA C++ does.
    """
    known = {tactic.name: tactic for tactic in catalogue.tactics_of(contract.operation)}
    simple = [known[name] for name in names if name in known and _is_plain(known[name])]
    return min(simple, key=lambda tactic: (tactic.rank, tactic.name)).name if simple else None


def _is_plain(tactic: Tactic) -> bool:
    return tactic.kernel.language == "triton" and (tactic.schedule.split_k or 1) == 1


def choices(selection: Selection, *, every: bool, first: int | None = None) -> tuple[str, ...]:
    """Return the tactics to build for a contract: every eligible one, or the selected one and the plain one.

    first: so many, as selection orders them by tuning rows and rule, and the plain one, which is a baseline.
    """
    names = [candidate.tactic.name for candidate in selection.eligible]
    if every:
        return tuple(names)
    plain = plain_of(selection.contract, names)
    return tuple(dict.fromkeys((*names[: first or 1], *([plain] if plain is not None else []))))


def build_all(
    contracts: Sequence[tuple[str, Contract]],
    out: Path,
    toolchain: build.Toolchain,
    *,
    every: bool,
    first: int | None = None,
    done: Done = lambda _: None,
) -> tuple[str, ...]:
    """Build kernels into one folder a tactic below `out`; return what could not be built, one line each.

    Raises UsageError for an operation that cannot be benched, and where nothing at all could be built. What stops it
    half way leaves nothing behind.
    """
    book = proofs.book()
    wanted: dict[str, list[tuple[str, Contract]]] = {}
    for file, contract in contracts:
        check_operation(contract, file)
        for name in choices(select(contract, ALLOWED, book=book), every=every, first=first):
            wanted.setdefault(name, []).append((file, contract))
    problems: list[str] = []
    count = 0
    with Output(out) as output:
        for name, inputs in sorted(wanted.items()):
            requests = build.gather_requests(inputs)
            policy = Policy(allow_experimental=True, only_tactic=name)
            outcomes = build.build_all(
                requests,
                toolchain,
                policy=policy,
                done=lambda request, _: done(request.id),
                checks=static_checks,
            )
            for request, outcome in zip(requests, outcomes, strict=True):
                if outcome.error is not None:
                    problems.append(f"{request.bindings[0].source}: {name}: {'; '.join(outcome.error.lines())}")
                count += outcome.artifact is not None
            build.lay_out(output.below(name), requests, outcomes)
        if not count:
            raise UsageError("\n".join(["nkc: no tactic has a kernel for these contracts", *problems]))
    return tuple(problems)
