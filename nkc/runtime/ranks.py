"""Several ranks: a decision whose inputs may differ by rank is taken only when every rank accepts it.

A kernel on one rank and a fallback on another give results that differ, or a hang where either communicates. So one
collective per decision, of the same length on every rank, combines what all accept; and before the first launch all
ranks compare the digest of their bundle's plan.
"""

from typing import Any, Protocol

from nkc.ir.errors import NkcError


class RankError(NkcError):
    """Ranks that do not agree on what they run."""

    exit_code = 4


class Ranks(Protocol):
    """The ranks that must decide alike."""

    def all_accept(self, accepted: tuple[bool, ...]) -> tuple[bool, ...]:
        """Return, route by route, whether every rank accepts. One collective."""

    def gather(self, text: str) -> tuple[str, ...]:
        """Return every rank's text, by rank. One collective."""


class TorchRanks:
    """The ranks of a `torch.distributed` group. Decisions are the host's, so a CPU (gloo) group is what to give."""

    def __init__(self, group: Any = None) -> None:
        import torch.distributed as distributed

        self._distributed = distributed
        self._group = group

    def all_accept(self, accepted: tuple[bool, ...]) -> tuple[bool, ...]:
        """Return the conjunction over ranks by one all-reduce."""
        import torch

        votes = torch.tensor(accepted, dtype=torch.int32)
        self._distributed.all_reduce(votes, op=self._distributed.ReduceOp.MIN, group=self._group)
        return tuple(bool(vote) for vote in votes.tolist())

    def gather(self, text: str) -> tuple[str, ...]:
        """Return every rank's text."""
        found: list[Any] = [None] * self._distributed.get_world_size(self._group)
        self._distributed.all_gather_object(found, text, group=self._group)
        return tuple(found)


def compare_plans(ranks: Ranks, digest: str) -> None:
    """Compare the plan digest over all ranks. Errors: RankError naming the ranks that differ, on every rank."""
    digests = ranks.gather(digest)
    if len(set(digests)) > 1:
        listed = ", ".join(f"rank {rank} {each[:12]}" for rank, each in enumerate(digests))
        raise RankError(f"ranks loaded different bundles: {listed} (deploy one bundle to all ranks)")
