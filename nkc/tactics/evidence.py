"""Evidence: committed records of what was checked, and whether they still speak of the code in the tree.

`evidence/<tactic>.json` holds a tactic's records, `evidence/index.json` each proof's code digest beside the hashes of
every file that decides it: while those agree, digests are known without rendering anything. `evidence/proven.json`
says which tactics' records were found to prove them; while nothing of theirs has changed they need not be weighed.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from nkc.ir.contract import Maturity
from nkc.ir.errors import ToolError
from nkc.ir.package import PACKAGE, file_sha256
from nkc.tactics.acceptance import InLayers, weigh
from nkc.tactics.layer import read_layer, recorded_in
from nkc.tactics.proven import Proven, read_proven, seal
from nkc.tactics.tactic import Tactic
from nkc.tactics.tuning import Tuning

RECORDS_SCHEMA: Literal["nkc.evidence/1"] = "nkc.evidence/1"
INDEX_SCHEMA: Literal["nkc.evidence-index/1"] = "nkc.evidence-index/1"
FOLDER = PACKAGE / "tactics" / "evidence"
REGIMES = ("exact", "model_like", "wide", "edges")
PROVING_ENGINES = ("device", "emulator")  # those that run the object
LEAST_RUNS: Mapping[str, int] = {"device": 21, "emulator": 3}
"""Runs that an engine compares bit for bit: the first, and its repeats; the emulator's are differently scheduled."""
LEAST_REPLAYS = 20
"""Of a captured graph on a device, each compared with the eager run."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class Answer(StrEnum):
    """The outcome of one check. `not_run`: this engine cannot do it; `not_promised`: the contract does not ask."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    NOT_PROMISED = "not_promised"


class Check(_Record, frozen=True, kw_only=True):
    """One regime's check of one contract's object.

    request: id of the contract as written. code_digest: of the kernel that ran. device and toolchain: what ran it and
    what compiled it. dims: values of bounded dims that were run. worst: largest error over its derived bound.
    repeats: runs compared bit for bit. model_bits: every bit is that of the unit's model, which the notes name. notes:
    the emulator's model and sampled fraction, the device's replays.
    """

    request: str
    code_digest: str
    engine: str
    device: str
    toolchain: str
    regime: str
    seed: int
    recipe_version: int
    dims: tuple[dict[str, int], ...]
    passed: bool
    worst: float
    err_ratio: float
    bit_equal: Answer
    repeats: int
    repeated: Answer
    replay: Answer
    outside: Answer
    hazards: tuple[str, ...]
    notes: dict[str, str]
    model_bits: Answer = Answer.NOT_PROMISED

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What a later check of the same thing replaces: contract, engine, regime, seed."""
        return self.request, self.engine, self.regime, self.seed

    @property
    def contradiction(self) -> str | None:
        """Return what in a record that says `passed` does not bear it out, None where everything does.

        A record is a file that somebody hands in: its word is held against its own figures, and those against what
        is asked of every check.
        """
        if not self.passed:
            return None
        if self.hazards:
            return f"passed, but {self.hazards[0]}"
        if not 0 <= self.worst <= 1:
            return f"passed, but its largest error is {self.worst:g} of its bound"
        promised = self.bit_equal, self.repeated, self.replay, self.outside
        # The emulator's bits are the model's; on a chip they are a finding.
        if Answer.FAILED in promised or (self.model_bits is Answer.FAILED and self.engine == "emulator"):
            return "passed, but a check of it failed"
        if self.repeats < LEAST_RUNS.get(self.engine, 1):
            return f"{self.repeats} runs compared, and {LEAST_RUNS[self.engine]} are asked for"
        if self.outside is not Answer.PASSED:
            return "nobody looked at what was written outside"
        if self.engine == "device" and self.replay is Answer.PASSED and self._replays < LEAST_REPLAYS:
            return f"{self._replays} replays of its graph, and {LEAST_REPLAYS} are asked for"
        return None

    @property
    def _replays(self) -> int:
        """Return how many replays its notes tell of."""
        said = self.notes.get("replays", "")
        return int(said) if said.isdecimal() else 0


class Records(_Record, frozen=True, kw_only=True):
    """Everything that was recorded of one tactic, in order of contract, engine, regime and seed."""

    schema: Literal["nkc.evidence/1"] = RECORDS_SCHEMA
    tactic: str
    checks: tuple[Check, ...]


class IndexEntry(_Record, frozen=True, kw_only=True):
    """One tactic's proofs: request id to code digest, and the files that decide those digests, by name."""

    proofs: dict[str, str]
    files: tuple[str, ...]


class Index(_Record, frozen=True, kw_only=True):
    """The digests of all proofs, and the SHA-256 of every file that decides one."""

    schema: Literal["nkc.evidence-index/1"] = INDEX_SCHEMA
    files: dict[str, str]
    tactics: dict[str, IndexEntry]


class Standing(_Record, frozen=True, kw_only=True):
    """How far a tactic's proof has come.

    maturity: the effective word. claimed: the catalogue's. engine: what ran the object for its proofs. proofs:
    contracts of the proof set with passing records in every regime at their current digests, of `proofs_wanted`.
    measured_here: this very contract has a passing record. needs: what is missing or stale, and what would restore it.
    held, compared: contracts in which the kernel held its place inside a layer, of those that were compared.
    toolchains: the compilers that the counted records name. foreign: those of them that are not the one installed
    here: such records count, unless evidence is asked to be strict.
    """

    maturity: Maturity
    claimed: Maturity
    engine: str | None = None
    proofs: int = 0
    proofs_wanted: int = 0
    measured_here: bool = False
    held: int = 0
    compared: int = 0
    needs: str | None = None
    toolchains: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


Digests = Callable[[Tactic], Mapping[str, str]]


def records_path(tactic: str, folder: Path | None = None) -> Path:
    """Return where a tactic's records lie."""
    return (FOLDER if folder is None else folder) / f"{tactic}.json"


@lru_cache(maxsize=512)
def read_records(tactic: str, folder: Path | None = None) -> Records:
    """Return a tactic's records, none where no file holds any. Raises ToolError for a damaged file."""
    path = records_path(tactic, folder)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Records)
    except FileNotFoundError:
        return Records(tactic=tactic, checks=())
    except (OSError, msgspec.DecodeError) as error:
        raise ToolError(
            f"{path.name}: not evidence that this nkc reads: {error} (restore it from version control)"
        ) from None


@lru_cache(maxsize=4)
def read_index(folder: Path | None = None) -> Index:
    """Return the index, an empty one where there is none. Raises ToolError for a damaged file."""
    path = (FOLDER if folder is None else folder) / "index.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Index)
    except FileNotFoundError:
        return Index(files={}, tactics={})
    except (OSError, msgspec.DecodeError) as error:
        raise ToolError(f"{path.name}: not an index that this nkc reads: {error} (nkc evidence index)") from None


def _current(index: Index) -> frozenset[str]:
    """Return the files that have the bytes that the index saw."""
    return frozenset(name for name, digest in index.files.items() if file_sha256(name) == digest)


class Book:
    """What the evidence says of tactics.

    digests: renders a tactic's proofs where the index no longer can tell; without it, evidence whose files have
    changed is stale, and counts for nothing until it is looked at again. toolchain: says which compiler of a tactic's
    language is installed, as records name it (`triton 3.9.0`), or None; asked only where there are records. tuning: the
    tables of ranks.
    """

    def __init__(
        self,
        *,
        digests: Digests | None = None,
        toolchain: Callable[[Tactic], str | None] = lambda _: None,
        folder: Path | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self.tuning = Tuning() if tuning is None else tuning
        self._digests = digests
        self._toolchain = toolchain
        self._folder = folder
        self._current: frozenset[str] | None = None
        self._known: dict[str, Mapping[str, str] | None] = {}
        self._standings: dict[tuple[str, bool], Standing] = {}
        self._proven: dict[str, Proven | None] = {}
        self._in_layer_files: frozenset[str] | None = None

    def proof_digests(self, tactic: Tactic) -> Mapping[str, str] | None:
        """Return request id to current code digest for the proof set; None where that cannot be told."""
        if tactic.name not in self._known:
            index = read_index(self._folder)
            entry = index.tactics.get(tactic.name)
            if self._current is None:
                self._current = _current(index)
            if entry is not None and self._current.issuperset(entry.files):
                self._known[tactic.name] = entry.proofs
            else:
                self._known[tactic.name] = self._digests(tactic) if self._digests is not None else None
        return self._known[tactic.name]

    def records(self, tactic: Tactic) -> tuple[Check, ...]:
        """Return everything that was recorded of a tactic."""
        return read_records(tactic.name, self._folder).checks

    def standing(self, tactic: Tactic, request: str | None = None, *, strict: bool = False) -> Standing:
        """Return a tactic's effective maturity; `request` is the contract it is being considered for.

        strict: records of another toolchain than the installed one count for nothing.
        """
        key = tactic.name, strict
        if key not in self._standings:
            self._standings[key] = self._in_layers(tactic, self._stands(tactic, strict=strict), strict=strict)
        found = self._standings[key]
        if request is None or not self._measured(tactic, request, strict=strict):
            return found
        return msgspec.structs.replace(found, measured_here=True)

    def in_layers(self, tactic: Tactic, *, strict: bool = False) -> InLayers:
        """Return what comparisons inside layers say of a tactic at its current code."""
        folder = None if self._folder is None else self._folder / "layer"
        if self._in_layer_files is None:
            self._in_layer_files = recorded_in(folder)
        comparisons = read_layer(tactic.name, folder).comparisons if tactic.name in self._in_layer_files else {}
        if not comparisons:
            return InLayers()
        installed = self._toolchain(tactic) if strict and comparisons else None
        admitted = [each for each in comparisons.values() if not strict or each.ours.software == installed]
        return weigh(admitted, lambda each: self.tuning.today(each, tactic.name))

    def _in_layers(self, tactic: Tactic, standing: Standing, *, strict: bool) -> Standing:
        """Return a standing as layers leave it: raised to `accepted`, taken down to `rejected`, or as it was."""
        found = self.in_layers(tactic, strict=strict)
        standing = msgspec.structs.replace(standing, held=len(found.held), compared=found.compared)
        if found.rejects:
            return msgspec.structs.replace(standing, maturity=Maturity.REJECTED, needs=f"another kernel: {found}")
        if standing.maturity is Maturity.VERIFIED and tactic.claim is Maturity.ACCEPTED:
            if found.accepts:
                return msgspec.structs.replace(standing, maturity=Maturity.ACCEPTED)
            return msgspec.structs.replace(standing, needs=str(found))
        return standing

    def proven(self, tactic: Tactic) -> Proven | None:
        """Return what is kept of a tactic whose proofs all hold, None where that was weighed from other bytes."""
        if tactic.name not in self._proven:
            folder = FOLDER if self._folder is None else self._folder
            kept = read_proven(folder).tactics.get(tactic.name)
            if kept is not None:
                digests = self.proof_digests(tactic)
                if digests is None or seal(digests, records_path(tactic.name, folder)) != kept.seal:
                    kept = None
            self._proven[tactic.name] = kept
        return self._proven[tactic.name]

    def _measured(self, tactic: Tactic, request: str, *, strict: bool) -> bool:
        if not strict and self.proven(tactic) is not None:
            return request in (self.proof_digests(tactic) or {})
        checks = [check for check in self.records(tactic) if check.request == request]
        if not checks:
            return False
        digests = self.proof_digests(tactic) or {}
        return any(proves(check, digests) for check in self._admitted(tactic, checks, strict=strict))

    def _admitted(self, tactic: Tactic, checks: Iterable[Check], *, strict: bool) -> tuple[Check, ...]:
        installed = self._toolchain(tactic) if strict else None
        return tuple(check for check in checks if not strict or check.toolchain == installed)

    def _stands(self, tactic: Tactic, *, strict: bool) -> Standing:
        claimed = tactic.claim
        if claimed is Maturity.REJECTED:
            return Standing(maturity=claimed, claimed=claimed)
        if not strict and (kept := self.proven(tactic)) is not None:
            proofs = len(self.proof_digests(tactic) or {})
            return self._marked(tactic, _whole(tactic, kept.engine, proofs, kept.toolchains))
        recorded = self.records(tactic)
        if not recorded:
            needs = f"no evidence ({_remedy(tactic)})"
            return Standing(maturity=Maturity.EXPERIMENT, claimed=claimed, needs=needs)
        checks = self._admitted(tactic, recorded, strict=strict)
        if not checks:
            named = ", ".join(sorted({check.toolchain for check in recorded}))
            here = self._toolchain(tactic) or "no toolchain"
            needs = f"records of {named}, and here is {here} ({_remedy(tactic)})"
            return Standing(maturity=Maturity.EXPERIMENT, claimed=claimed, needs=needs)
        digests = self.proof_digests(tactic)
        if digests is None:
            needs = f"its kernel's files have changed ({_remedy(tactic)})"
            return Standing(maturity=Maturity.EXPERIMENT, claimed=claimed, needs=needs)
        return self._marked(tactic, weighed(tactic, checks, digests))

    def _marked(self, tactic: Tactic, standing: Standing) -> Standing:
        """Return a standing with those of its compilers that are not the one here."""
        installed = self._toolchain(tactic)
        foreign = tuple(name for name in standing.toolchains if installed is not None and name != installed)
        return msgspec.structs.replace(standing, foreign=foreign)


def _remedy(tactic: Tactic) -> str:
    return f"nkc verify --tactic {tactic.name} --record"


def kept(tactic: Tactic, digests: Mapping[str, str], folder: Path = FOLDER) -> Proven | None:
    """Return what may be kept of a tactic: that its proofs all hold at these digests; None where they do not."""
    checks, sealed = read_records(tactic.name, folder).checks, seal(digests, records_path(tactic.name, folder))
    standing = weighed(tactic, checks, digests)
    if sealed is None or standing.engine is None or standing.proofs != standing.proofs_wanted:
        return None
    return Proven(seal=sealed, engine=standing.engine, toolchains=standing.toolchains)


def _whole(tactic: Tactic, engine: str, proofs: int, toolchains: tuple[str, ...]) -> Standing:
    """Return the standing of a tactic whose proofs all hold."""
    experiment = tactic.claim is Maturity.EXPERIMENT
    return Standing(
        maturity=Maturity.EXPERIMENT if experiment else Maturity.VERIFIED,
        claimed=tactic.claim,
        engine=engine,
        proofs=proofs,
        proofs_wanted=proofs,
        toolchains=toolchains,
        needs=f"its claim (nkc promote {tactic.name}); every proof holds on the {engine}" if experiment else None,
    )


def weighed(tactic: Tactic, checks: tuple[Check, ...], digests: Mapping[str, str]) -> Standing:
    """Return the standing that records give at the current digests, by the strongest engine that proves all.

    A contract whose kernel failed any check of an engine that ran it is not proven, whatever else it passed.
    """
    best: Standing | None = None
    broken = {check.request for check in checks if _failed(check, digests)}
    sound = [check for check in checks if proves(check, digests)]
    for engine in PROVING_ENGINES:
        counted = [check for check in sound if check.engine == engine]
        regimes: dict[str, set[str]] = {}
        for check in counted:
            regimes.setdefault(check.request, set()).add(check.regime)
        whole = sum(found.issuperset(REGIMES) and request not in broken for request, found in regimes.items())
        toolchains = tuple(sorted({check.toolchain for check in counted}))
        if whole == len(digests) > 0:
            return _whole(tactic, engine, whole, toolchains)
        standing = Standing(
            maturity=Maturity.EXPERIMENT,
            claimed=tactic.claim,
            engine=engine if whole else None,
            proofs=whole,
            proofs_wanted=len(digests),
            toolchains=toolchains,
            needs=_needs(tactic, checks, digests, whole),
        )
        if best is None or standing.proofs > best.proofs:
            best = standing
    assert best is not None
    return best


def _failed(check: Check, digests: Mapping[str, str]) -> bool:
    return not check.passed and check.engine in PROVING_ENGINES and digests.get(check.request) == check.code_digest


def proves(check: Check, digests: Mapping[str, str]) -> bool:
    """Return whether a record counts: it passed, as its own figures say too, repeated, and ran today's kernel.

    On a device a kernel that promises graph capture has been replayed; an emulator cannot, and that blocks nothing.
    """
    return (
        check.passed
        and check.contradiction is None
        and check.repeated is Answer.PASSED
        and (check.replay is not Answer.NOT_RUN or check.engine != "device")
        and check.engine in PROVING_ENGINES
        and digests.get(check.request) == check.code_digest
    )


def _needs(tactic: Tactic, checks: tuple[Check, ...], digests: Mapping[str, str], whole: int) -> str:
    stale = sum(check.code_digest != digests.get(check.request) for check in checks)
    failed = sum(not check.passed for check in checks)
    what = [f"{whole} of {len(digests)} proofs hold"]
    what += [f"{stale} records are of another kernel"] if stale else []
    what += [f"{failed} records failed"] if failed else []
    unborne = [why for check in checks if (why := check.contradiction) is not None]
    what += [f"{len(unborne)} records do not bear out their word ({unborne[0]})"] if unborne else []
    return f"{', '.join(what)} ({_remedy(tactic)})"
