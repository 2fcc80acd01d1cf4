"""Contracts that put a ring of stages to the test: blocks of k for one stage, for all of them, one more, one less.

And one of each kernel that fills every multiprocessor with as many workgroups as it holds: they contend for what a
ring's signals must order.
"""

import fnmatch
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from nkc.ir import targets
from nkc.ir.contract import Contract, DType
from nkc.ir.frozen import FrozenMap
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.predicate import AtLeast, AtMost
from nkc.tactics.select import Policy
from nkc.tactics.tactic import Tactic


def pipelined(pattern: str) -> Iterator[Tactic]:
    """Yield the kernels that we pipeline ourselves; of the others a compiler does."""
    for tactic in tactics_of("dense"):
        ring = tactic.kernel.language == "cuda" and "gemv" not in tactic.kernel.template
        if ring and fnmatch.fnmatchcase(tactic.name, pattern):
            yield tactic


def contracts(tactic: Tactic) -> tuple[Contract, ...]:
    """Return the fourth proof, of several tiles a workgroup where it is persistent, at each number of filled stages.

    From one stage to two rounds of the ring and one more; each workgroup of a cluster has as many.
    """
    stages, split = tactic.schedule.stages, tactic.schedule.split_k or 1
    assert stages is not None
    assert tactic.schedule.tile is not None
    tile_k = tactic.schedule.tile[2]
    least = (rule.limit for rule in tactic.requires if isinstance(rule, AtLeast) and rule.field == "$.shape.k")
    step = max((limit // split for limit in least), default=tile_k)  # what one stage holds
    base = tactic.proofs(tactic)[3]
    filled = sorted({1, stages - 1, stages, stages + 1, 2 * stages - 1, 2 * stages, 2 * stages + 1} - {0})
    made = (_with_k(base, count * step * split) for count in filled)
    return tuple(one for one in made if not any(rule.check(one) for rule in tactic.predicates))


def _with_k(contract: Contract, k: int) -> Contract:
    return msgspec.structs.replace(contract, shape=FrozenMap({**contract.shape, "k": k}))


FULL_K, FULL_ROUNDS = 4096, 1.5
"""Elements of k a workgroup, and rounds of workgroups, of a contract that fills all multiprocessors."""
UNIT_BYTES, CTA_BYTES = 233_472, 1024
"""Shared memory of a multiprocessor, and what it keeps for each workgroup."""


def full(tactic: Tactic) -> Contract:
    """Return the first proof at an n for which every multiprocessor is full, and a long k."""
    assert tactic.schedule.tile is not None
    tile_n, split = tactic.schedule.tile[1], tactic.schedule.split_k or 1
    shared = tactic.kernel.options["dynamic_lds_bytes"]
    assert isinstance(shared, int)
    workgroups = targets.get(tactic.target).compute_units * (UNIT_BYTES // (shared + CTA_BYTES)) * FULL_ROUNDS
    most = [rule.limit for rule in tactic.requires if isinstance(rule, AtMost) and rule.field == "$.shape.k"]
    k = min(FULL_K * split, *most) if most else FULL_K * split
    shape = {**tactic.proofs(tactic)[0].shape, "n": round(workgroups / split) * tile_n, "k": k}
    return msgspec.structs.replace(tactic.proofs(tactic)[0], shape=FrozenMap(shape))


def build(out: Path, pattern: str) -> int:
    """Build them, a folder for each kernel."""
    from nkc.emit.toolchains.by_language import Toolchains
    from nkc.verify import gather

    count = 0
    with Toolchains() as toolchain:
        for tactic in pipelined(pattern):
            policy = Policy(allow_experimental=True, only_tactic=tactic.name)
            made = contracts(tactic)
            if tactic.proofs(tactic)[0].dtypes["out"] is not DType.FP8_E4M3:  # codes have no float64 to be held against
                made = (*made, full(tactic))
            named = [(f"k{contract.exact('k')}.n{contract.exact('n')}.json", contract) for contract in made]
            count += len(gather.build_contracts(named, out / tactic.name, toolchain, policy))
    print(f"{out}: {count} kernels", file=sys.stderr)
    return 0
