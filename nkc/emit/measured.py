"""Measured kernels as code: today's digest of what a performance record timed, and the index that is committed."""

from functools import lru_cache

from nkc.emit import proofs, render
from nkc.emit.explain import encode
from nkc.ir.contract import Contract
from nkc.ir.package import file_sha256
from nkc.ir.reader import parse_document
from nkc.tactics import catalogue
from nkc.tactics.performance import FOLDER, CellDigests, PerformanceIndex, Record, read_all, read_performance_index
from nkc.tactics.select import obstacles
from nkc.tactics.tactic import Lowered
from nkc.tactics.tuning import Tuning


def tuning() -> Tuning:
    """Return the tuning tables, rendering kernels anew where files have changed since the index was made."""
    return Tuning(digests=code_digest)


def code_digest(record: Record, tactic: str) -> str | None:
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
    for record in read_all().records:
        for route in record.routes:
            if not route.tactic or route.code_digest is None:
                continue
            today = code_digest(record, route.name)
            if today is not None:
                digests.setdefault(route.name, {})[record.request] = today
                if route.name not in files:
                    operation = str(record.contract["operation"])
                    files[route.name] = proofs.deciding_files(catalogue.find(operation, route.name))
    names = sorted({name for each in files.values() for name in each})
    return PerformanceIndex(
        files={name: digest for name in names if (digest := file_sha256(name)) is not None},
        tactics={
            name: CellDigests(requests=dict(sorted(digests[name].items())), files=files[name])
            for name in sorted(digests)
        },
    )


def write_index() -> None:
    """Write the index into the checkout."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "index.json").write_bytes(encode(make_index()))
    read_performance_index.cache_clear()
