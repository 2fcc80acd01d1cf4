"""Acceptance: what comparisons inside a layer say of a tactic, and what they do not.

A tactic has one word, and serves many contracts. So a comparison counts for the contract it was made of, and only where
selection, free to choose, chose the tactic for it, at today's code. A contract is held where our kernel is no slower
than any other route it was held against, and lost where it is slower than one of them beyond the noise. Then:

- `accepted`: some contract is held and none is lost;
- `rejected`: some contract is lost and none is held: whatever else it did alone, inside a layer it only lost;
- in between the tactic stays what its proofs make it, and says where it lost: one lost row count does not take away a
  kernel that wins at another, and does not become an acceptance either.

A loss stays on record, and counts until the kernel changes: its digest is another one then. Looking again does not take
it away.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nkc.tactics.layer import Comparison, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class InLayers:
    """What a tactic's comparisons come to. held, lost, undecided: contracts (request ids), each in one of them.

    losses: the comparisons that lost. stale, void: comparisons of another kernel, and those that must not be judged by.
    """

    held: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()
    losses: tuple[Comparison, ...] = ()
    stale: int = 0
    void: int = 0

    @property
    def compared(self) -> int:
        """How many contracts were compared, with a word or without."""
        return len(self.held) + len(self.lost) + len(self.undecided)

    @property
    def accepts(self) -> bool:
        """Whether the layers bear out `accepted`."""
        return bool(self.held) and not self.lost

    @property
    def rejects(self) -> bool:
        """Whether all that was seen inside layers is loss."""
        return bool(self.lost) and not self.held

    def __str__(self) -> str:
        """Say it in a line."""
        if not self.compared:
            beside = [f"{self.stale} of another kernel"] if self.stale else []
            beside += [f"{self.void} void"] if self.void else []
            return " but ".join(["no comparison inside a layer", *([", ".join(beside)] if beside else [])])
        words = [f"held {len(self.held)} of {self.compared} contracts inside a layer"]
        words += [f"undecided {len(self.undecided)}"] if self.undecided else []
        if self.losses:
            worst = min(self.losses, key=lambda each: each.saved_us[1])
            words.append(
                f"lost {len(self.lost)} (most: {-worst.saved_us[1]:.2f} us a step to {worst.theirs.name}, "
                f"{worst.operation} of {worst.layer}, {worst.rows} rows)"
            )
        return ", ".join(words)


def weigh(comparisons: Iterable[Comparison], today: Callable[[Comparison], str | None]) -> InLayers:
    """Return what comparisons come to. today: the code digest that our side of one has now, None where unknown."""
    words: dict[str, set[Verdict]] = {}
    losses, stale, void = [], 0, 0
    for each in comparisons:
        if each.ours.code_digest != today(each):
            stale += 1
        elif (verdict := each.verdict) is Verdict.VOID:
            void += 1
        else:
            words.setdefault(each.request, set()).add(verdict)
            losses += [each] if verdict is Verdict.LOST else []
    lost = {request for request, said in words.items() if Verdict.LOST in said}
    held = {request for request, said in words.items() if said == {Verdict.HELD}}
    return InLayers(
        held=frozenset(held),
        lost=frozenset(lost),
        undecided=frozenset(set(words) - lost - held),
        losses=tuple(losses),
        stale=stale,
        void=void,
    )
