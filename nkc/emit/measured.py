"""Measured kernels as code: today's digest of what was timed, alone or inside a layer, and the committed index."""

from collections.abc import Iterator
from functools import lru_cache

from nkc.emit import proofs, render
from nkc.emit.explain import encode
from nkc.ir.contract import Contract
from nkc.ir.package import file_sha256
from nkc.ir.reader import parse_document
from nkc.tactics import catalogue, layer
from nkc.tactics.performance import FOLDER, CellDigests, PerformanceIndex, Timed, read_all, read_performance_index
from nkc.tactics.select import obstacles
from nkc.tactics.tactic import Lowered
from nkc.tactics.tuning import Tuning


def tuning() -> Tuning:
    """Return the tuning tables, rendering kernels anew where files have changed since the index was made."""
    return Tuning(digests=code_digest)


def code_digest(record: Timed, tactic: str) -> str | None:
    """Return today's code digest of a record's contract under a tactic; None where that no longer serves it."""
    return _digest(parse_document(record.contract, record.cell), tactic)


@lru_cache(maxsize=4096)
def _digest(contract: Contract, name: str) -> str | None:
    try:
        tactic = catalogue.find(contract.operation, name)
    except KeyError:
        return None
    if obstacles(contract, tactic):
        return None
    return render.render(Lowered.of(contract, tactic)).digest


def make_index() -> PerformanceIndex:
    """Render every kernel that was timed, if only at a first look, and return the index that ought to be committed."""
    digests: dict[str, dict[str, str]] = {}
    files: dict[str, tuple[str, ...]] = {}
    for record, name in _timed():
        today = code_digest(record, name)
        if today is not None:
            digests.setdefault(name, {})[record.request] = today
            if name not in files:
                files[name] = proofs.deciding_files(catalogue.find(str(record.contract["operation"]), name))
    names = sorted({name for each in files.values() for name in each})
    return PerformanceIndex(
        files={name: digest for name in names if (digest := file_sha256(name)) is not None},
        tactics={
            name: CellDigests(requests=dict(sorted(digests[name].items())), files=files[name])
            for name in sorted(digests)
        },
    )


def _timed() -> Iterator[tuple[Timed, str]]:
    """Yield every kernel of a record with its tactic: those timed alone, then those inside a layer."""
    for record in read_all().records:
        yield from ((record, route.name) for route in record.routes if route.tactic and route.code_digest is not None)
    yield from ((comparison, comparison.ours.name) for comparison in layer.read_all())


def write_index() -> None:
    """Write the index into the checkout."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "index.json").write_bytes(encode(make_index()))
    read_performance_index.cache_clear()
