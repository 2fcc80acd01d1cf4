"""Triton kernels that take a result as one run of groups over the ends of rows: one table row, one tactic."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from nkc.ir.contract import Contract, Schedule
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import Predicate
from nkc.tactics.quantising.constants import DECIDING_FILES, lower, run_workgroups
from nkc.tactics.quantising.requirements import few_rows, quantised, tensors
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic


class Row(NamedTuple):
    """One geometry. run: groups of 128 that a workgroup takes. max_m None: for any number of rows."""

    rank: int
    run: int
    waves: int
    max_m: int | None
    note: str


class Constants(Protocol):
    """What an operation's template places, for one lowered contract."""

    def __call__(self, contract: Contract, tactic: Tactic, *, run: int) -> Mapping[str, object]:
        """Return it."""


def run_tactic(
    operation: str,
    target: str,
    row: Row,
    *,
    first: tuple[Predicate, ...],
    constants: Constants,
    proofs: Callable[..., tuple[Contract, ...]],
    offsets: OffsetUnit,
    options: Mapping[str, int | bool | str],
    range_bits: int | None,
) -> Tactic:
    """Return the tactic of one row. first: what an operation requires before what all of them do."""
    geometry = f"run{row.run}_w{row.waves}"
    return Tactic(
        name=f"{target}.{operation}.groups_{geometry}",
        operation=operation,
        target=target,
        rank=row.rank,
        requires=(*first, *quantised(offsets), *tensors(operation, offsets), *few_rows(row.max_m)),
        guarantees=Guarantees(deterministic=True, graph_capture=True),
        schedule=Schedule(waves=row.waves),
        geometry=geometry,
        lower=partial(lower_run, run=row.run),
        kernel=Kernel(
            template=f"triton/{operation}.py.j2",
            constants=partial(constants, run=row.run),
            options={"enable_fp_fusion": False, "num_warps": row.waves, **options},
            pattern=CodePattern(matrix=(), at_least=0),
            pointer_range_bits=range_bits,
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(proofs, run=row.run),
        note=row.note,
    )


def lower_run(contract: Contract, tactic: Tactic, *, run: int) -> Contract:
    """Fill in what the contract leaves open: as many workgroups as the groups of every row need."""
    return lower(contract, tactic, run_workgroups(contract, run))
