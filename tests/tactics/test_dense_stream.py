"""fp8_stream launched dependent: who is admitted, and that no turn meets a slot whose copies are still under way."""

import re
from collections.abc import Iterator

import msgspec
import pytest

from nkc.emit.render import render
from nkc.ir.contract import Contract, Properties
from nkc.ir.frozen import FrozenMap
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.predicate import AtLeast
from nkc.tactics.tactic import DEPENDENT, Lowered, Tactic

FAMILY = "sm_90.dense.fp8_stream"
BY_NAME = {tactic.name: tactic for tactic in tactics_of("dense") if tactic.family == FAMILY}
TWINS = [tactic for tactic in BY_NAME.values() if tactic.dependent]
MEMORY = r"copy_\w+\(|load_\w+\(|\bout\b"


def body(tactic: Tactic, contract: Contract) -> str:
    """Return the kernel's own text, from its name on."""
    return render(Lowered.of(contract, tactic)).text.partition('extern "C" __global__')[2]


def test_every_tile_has_a_twin_of_the_same_shared_memory_and_guarantees() -> None:
    assert {twin.independent_name for twin in TWINS} == {name for name in BY_NAME if not name.endswith(DEPENDENT)}
    for twin in TWINS:
        plain = BY_NAME[twin.independent_name]
        assert (twin.rank, twin.schedule, twin.guarantees) == (plain.rank, plain.schedule, plain.guarantees)
        assert twin.kernel.options == plain.kernel.options
        assert set(twin.requires) - set(plain.requires) == {twin.before_the_wait}


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_it_is_admitted_where_what_it_reads_early_is_constant_and_nowhere_else(twin: Tactic) -> None:
    for proof in twin.proofs(twin):
        early = proof.properties.constant
        assert {"b", "b_scales"} <= set(early)
        for missing in early:
            fewer = Properties(constant=tuple(name for name in early if name != missing))
            near_miss = msgspec.structs.replace(proof, properties=fewer)
            reasons = [reason for rule in twin.predicates if (reason := rule.check(near_miss))]
            assert [(reason.predicate, reason.nearest) for reason in reasons] == [("constant_operands", early)]
            plain = BY_NAME[twin.independent_name]
            assert not [rule for rule in plain.predicates if rule.check(near_miss)]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_before_the_wait_stand_weights_and_their_scales_alone(twin: Tactic) -> None:
    for proof in twin.proofs(twin):
        text = body(twin, proof).partition("{")[2]
        before, *behind = text.split("  grids_ahead_wait();")
        assert len(behind) == 1
        trigger, weights = before.split("  grid_behind_begin();")
        assert not re.findall(MEMORY, trigger)
        assert set(re.findall(MEMORY, weights)) == {"copy_weights("}
        loads = re.findall(r"ld\.global\S* .*", weights)
        assert len(loads) == 1
        assert '"l"(b_scale + ' in loads[0]
        # Activations pass from hand to hand of every kernel: never by the read-only path.
        assert set(re.findall(MEMORY, behind[0])) >= {"load_tokens_behind(", "load_behind(", "out"}
        assert "ld.global.nc" not in text
        assert "__ldg" not in text


class Ring:
    """What the rendered loop says of its groups: copies land as late as its waits allow, and not a turn later."""

    def __init__(self, text: str) -> None:
        def one(pattern: str) -> int:
            (found,) = re.findall(pattern, text)
            return int(found)

        self.filled = one(r"for \(int i = 0; i < (\d+); i\+\+\) \{\n +if \(i < count\)")
        self.first_wait = one(r"if \(it == 0\) \{\s+asm volatile\(\"cp\.async\.wait_group (\d+);")
        self.later_wait = one(r"else \{\s+asm volatile\(\"cp\.async\.wait_group (\d+);")
        self.slots = one(r"if \(\+\+stage == (\d+)\)")
        self.lead = one(r"if \(it \+ (\d+) < count\)")
        assert len(re.findall(r"cp\.async\.commit_group", text)) == 2
        assert re.search(r"if \(it\) \{[^}]*\n +if \(it \+", text), "the first turn asks for nothing"

    def faults(self, count: int) -> Iterator[str]:
        """Yield what goes wrong with so many stages of k."""
        groups: list[tuple[int, int] | None] = [(i, i) if i < count else None for i in range(self.filled)]
        landed: dict[int, int] = {}
        seen = stage = 0
        refill = -1  # of no use in the first turn
        for turn in range(count):
            due = len(groups) - (self.later_wait if turn else self.first_wait)
            landed |= {slot: number for number, slot in filter(None, groups[seen:due])}
            seen = max(seen, due)
            if landed.get(stage) != turn:
                yield f"turn {turn} finds {landed.get(stage)} in slot {stage}"
            if seen != turn + 1:
                yield f"turn {turn} waits for {seen} groups"
            if turn:
                if turn + self.lead < count:
                    if landed.pop(refill, None) != turn - 1:
                        yield f"turn {turn} overwrites slot {refill}"
                    groups.append((turn + self.lead, refill))
                else:
                    groups.append(None)
            refill = stage
            stage = (stage + 1) % self.slots
        if {entry for entry in groups if entry} != {(i, i % self.slots) for i in range(count)}:
            yield "not every stage was asked for"


def long(twin: Tactic) -> Contract:
    """Return a proof of which each CTA has more stages than its ring."""
    return max(twin.proofs(twin), key=lambda proof: proof.exact("k"))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_every_turn_finds_its_stage_and_waits_for_no_later_one(twin: Tactic) -> None:
    ring = Ring(body(twin, long(twin)))
    stages = twin.schedule.stages
    assert stages == ring.slots == ring.filled
    for count in range(1, 4 * stages):
        assert list(ring.faults(count)) == []


@pytest.mark.parametrize(
    ("wrong", "by"),
    [("first_wait", 1), ("first_wait", -1), ("later_wait", 1), ("lead", 1), ("filled", -1), ("slots", 1)],
)
def test_a_ring_that_counts_otherwise_is_found(wrong: str, by: int) -> None:
    ring = Ring(body(TWINS[0], long(TWINS[0])))
    setattr(ring, wrong, getattr(ring, wrong) + by)
    assert list(ring.faults(3 * ring.slots))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_a_ring_that_holds_all_stages_is_never_refilled(twin: Tactic) -> None:
    (least,) = [rule.limit for rule in twin.requires if isinstance(rule, AtLeast) and rule.field == "$.shape.k"]
    base, stages = twin.proofs(twin)[0], twin.schedule.stages
    assert stages is not None
    for filled, refilled in ((stages, False), (stages + 1, True)):
        contract = msgspec.structs.replace(base, shape=FrozenMap({**base.shape, "k": filled * least}))
        text = body(twin, contract)
        assert ("copy_tokens(" in text) is refilled
        assert len(re.findall(r"for \(int i = 0; i < \d+; i\+\+\)\n +copy_weights", text)) == 2 * (1 + refilled)
