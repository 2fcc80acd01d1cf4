"""Evidence that was made elsewhere, as somebody hands it in: read by its kind, and refused where it contradicts itself.

What a record says of itself is held against its own figures and against what is asked of every record; limits, least
runs and least replays are refused where records are read, whatever their source. Here is what takes the catalogue.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from nkc.bench import layer_records, records
from nkc.ir import canonical
from nkc.ir.errors import ContractError, UsageError
from nkc.ir.reader import parse_document
from nkc.ir.schema_named import schema_named
from nkc.tactics.evidence import RECORDS_SCHEMA, Records
from nkc.tactics.layer import LAYER_SCHEMA, Comparison, LayerRecords
from nkc.tactics.performance import MEASUREMENTS_SCHEMA, Measurements, Record
from nkc.tactics.tactic import Tactic
from nkc.verify.subject import dim_values

Evidence: TypeAlias = Measurements | LayerRecords | tuple[Records, ...]

WRITERS = "nkc verify --export, nkc bench --export or examples/serve_layer.py compare --record writes it"


def read(file: Path) -> Evidence:
    """Return the evidence in a file. Raises UsageError for another file, and for a damaged one."""
    schema = schema_named(file)
    if schema == MEASUREMENTS_SCHEMA:
        return records.read_exported(file)
    if schema == LAYER_SCHEMA:
        return layer_records.read_exported(file)
    if schema not in (RECORDS_SCHEMA, None):
        raise UsageError(f"{file}: `{schema}` is no evidence ({WRITERS})")
    try:
        return tuple(msgspec.json.decode(file.read_bytes(), type=list[Records]))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except msgspec.DecodeError as error:
        what, how = ("no evidence", WRITERS) if schema is None else ("no exported records", "nkc verify --export FILE")
        raise UsageError(f"{file}: {what}: {error} ({how})") from None


def check_contracts(file: Path, found: Iterable[Record | Comparison]) -> None:
    """Raise UsageError for a record whose contract is not the one that its request names."""
    problems = []
    for each in found:
        try:
            request = canonical.contract_id(parse_document(each.contract, each.cell))
        except ContractError as error:
            problems.append(error.lines()[0])
            continue
        if request != each.request:
            problems.append(f"{each.cell}: its contract is {request}, and it names {each.request}")
    _refuse(file, problems)


def check_proofs(file: Path, found: Records, tactic: Tactic) -> None:
    """Raise UsageError where a tactic's records say `passed` and do not bear it out, or ran less than their proof."""
    proofs = {canonical.contract_id(proof): proof for proof in tactic.proofs(tactic)}
    problems = []
    for each in found.checks:
        why = each.contradiction
        if why is None and each.request in proofs and each.passed:
            asked = tuple(dims for dims in dim_values(proofs[each.request]) if dims)
            if missing := [dims for dims in asked if dims not in each.dims]:
                why = f"passed, but not at {', '.join(f'{k} {v}' for dims in missing for k, v in dims.items())}"
        if why is not None:
            problems.append(f"{tactic.name}, {each.request}, regime {each.regime}: {why}")
    _refuse(file, problems)


def _refuse(file: Path, problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise UsageError(f"{file}: {found[0]}{more} (make it again)")
