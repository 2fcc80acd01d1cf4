"""fp8_stream launched dependent, through the compiler: what the object reads before it waits, how it counts copies.

ptxas may move loads over a wait, and says nothing of it. So each access to global memory is traced to the parameters
that its address was made from.
"""

import re
from collections.abc import Iterator

import pytest

from nkc.emit import build
from nkc.emit.toolchains.nvrtc import NvrtcToolchain
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.tactic import Lowered, Tactic
from tests.fixtures.listing import listed
from tests.fixtures.toolchain import nvrtc_is_installed

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(not nvrtc_is_installed(), reason="NVRTC is not installed (pip install 'nkc[nvrtc]')"),
]

TWINS = [tactic for tactic in tactics_of("dense") if tactic.family == "sm_90.dense.fp8_stream" and tactic.dependent]
FIRST_PARAMETER = 0x210
"""Where parameters begin in their bank, on sm_90."""
_PLACE = re.compile(r"\s+/\*[0-9a-f]{4,}\*/")
_INSTRUCTION = re.compile(r"(@!?U?P\w+ )?\s*(\S+)\s*(.*?) ?;")
_WRITES_NONE = ("ST", "LDGSTS", "RED", "BRA", "ISETP", "BAR", "SYNCS")
_WIDE = re.compile(r"\.(64|WIDE)\b")
_ACCESS = re.compile(r"\b(LDG|LDGSTS|STG|ATOMG|RED|LD|ST|UBLKCP|UTMALDG|UTMASTG)\b")


class Pointers:
    """Which parameters the value of each register may hang on; what is written under a predicate counts under it."""

    def __init__(self) -> None:
        self._always: dict[str, frozenset[str]] = {}
        self._under: dict[tuple[str, str], frozenset[str]] = {}

    def of(self, register: str, guard: str) -> frozenset[str]:
        """Return those of a register that is read under a guard, or under none (``)."""
        if (register, guard) in self._under:
            return self._under[register, guard]
        maybe = [made for (each, _), made in self._under.items() if each == register]
        return self._always.get(register, frozenset()).union(*maybe)

    def write(self, register: str, guard: str, made: frozenset[str]) -> None:
        """Remember what a register holds from here on."""
        if guard:
            self._under[register, guard] = made
            return
        self._always[register] = made
        self._under = {key: value for key, value in self._under.items() if key[0] != register}

    def forget(self, predicate: str) -> None:
        """Take what was written under a predicate that may have changed for what may be there."""
        for register, guard in [key for key in self._under if key[1].strip("@! ") == predicate]:
            made = self._under.pop((register, guard))
            self._always[register] = self._always.get(register, frozenset()) | made


def accesses(listing: str, parameters: tuple[str, ...]) -> list[tuple[str, frozenset[str]]]:
    """Return each access to global memory in order, with the pointers that its address may hang on.

    Loops are walked twice, so that what a turn leaves in a register counts in the next.
    """
    lines = [line.partition("*/")[2].strip() for line in listing.splitlines() if _PLACE.match(line)]
    pointers = Pointers()
    for _ in _walk(lines, parameters, pointers):
        pass
    return list(_walk(lines, parameters, pointers))


def _walk(lines: list[str], parameters: tuple[str, ...], pointers: Pointers) -> Iterator[tuple[str, frozenset[str]]]:
    for line in lines:
        parts = _INSTRUCTION.match(line)
        assert parts, line
        guard, word, operands = parts[1] or "", parts[2], re.sub(r"desc\[\w+\]", "", parts[3])
        if word in ("ACQBULK", "PREEXIT"):
            yield word, frozenset()
        if _ACCESS.match(word):  # of a copy the second address: the first is shared memory
            yield word, pointers.of(re.findall(r"\[(U?R\d+)", operands)[-1], guard)
        registers = re.findall(r"\bU?R\d+", operands)
        if registers and not word.startswith(_WRITES_NONE):
            places = [int(place, 16) - FIRST_PARAMETER for place in re.findall(r"c\[0x0\]\[(0x[0-9a-f]+)\]", operands)]
            named = frozenset(parameters[place // 8] for place in places if 0 <= place < 8 * len(parameters))
            value = named.union(*(pointers.of(source, guard) for source in registers[1:]))
            for each in _pair(registers[0])[: 2 if _WIDE.search(word) else 1]:
                pointers.write(each, guard, frozenset() if _ACCESS.match(word) else value)
        for predicate in re.findall(r"\bU?P\d\b", operands):
            pointers.forget(predicate)


def _pair(register: str) -> tuple[str, str]:
    kind, number = register.rstrip("0123456789"), int(re.sub(r"\D", "", register))
    return register, f"{kind}{number + 1}"


def test_an_address_is_traced_through_registers_and_loops() -> None:
    lines = (
        "ULDC.64 UR6, c[0x0][0x218]",
        "ULDC.64 UR16, c[0x0][0x208]",
        "IMAD.WIDE.U32 R12, R6, 0x2280, RZ",
        "IADD3 R12, P5, R12, UR6, RZ",
        "LDGSTS.E.BYPASS.LTC256B.128 [R11+-0x3800], desc[UR16][R12.64], !P0",
        "@!P3 LDC.64 R18, c[0x0][0x210]",
        "ACQBULK",
        "LDG.E.128 R20, desc[UR16][R18.64+0x80]",
        "LDG.E R22, desc[UR16][R30.64]",
        "IMAD.MOV.U32 R30, RZ, RZ, R18",
        "STG.E desc[UR16][R20.64], R18",
    )
    listing = "\n".join(f"        /*{16 * i:04x}*/  {line} ;" for i, line in enumerate(lines))
    assert accesses(listing, ("a", "b")) == [
        ("LDGSTS.E.BYPASS.LTC256B.128", {"b"}),
        ("ACQBULK", set()),
        ("LDG.E.128", {"a"}),
        ("LDG.E", {"a"}),  # by the turn before
        ("STG.E", set()),
    ]


@pytest.fixture(scope="module")
def toolchain() -> Iterator[NvrtcToolchain]:
    with NvrtcToolchain() as running:
        yield running


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_what_stands_before_the_wait_is_constant_and_copies_are_counted(
    twin: Tactic, toolchain: NvrtcToolchain
) -> None:
    proof = twin.proofs(twin)[2]  # row-major scales, bias, more stages than a ring holds
    made = build.build(Lowered.of(proof, twin), toolchain)
    assert made.built.resources.scratch_bytes == 0
    listing = listed(made.built.data)
    _, *seen = accesses(listing, tuple(argument.name for argument in made.contract.arguments or ()))
    wait = [word for word, _ in seen].index("ACQBULK")
    before, behind = seen[:wait], seen[wait + 1 :]
    stages, waves, tile = twin.schedule.stages, twin.schedule.waves, twin.schedule.tile
    assert stages is not None
    assert waves is not None
    assert tile is not None
    blocks, threads, weights = 2, 32 * waves, tile[1]
    copied = [(word, made_of) for word, made_of in before if word.startswith("LDGSTS")]
    assert copied == [("LDGSTS.E.BYPASS.LTC256B.128", {"b"})] * (blocks * weights * 8 // threads)
    rest = [(word, made_of) for word, made_of in before if not word.startswith("LDGSTS")]
    assert {word for word, _ in rest} == {"LDG.E"}
    assert all("b_scales" in made_of <= {"b", "b_scales"} for _, made_of in rest)
    loaded = [(word, made_of) for word, made_of in behind if made_of == {"a"} and word.startswith("LDG.")]
    present = -(-proof.exact("m") * 8 // threads)  # rows that are there
    assert loaded == [("LDG.E.128", {"a"})] * (stages * blocks * present)
    read_only = [made_of for word, made_of in behind if "CONSTANT" in word]
    assert read_only
    assert set(read_only) == {frozenset({"bias"})}
    assert {*frozenset().union(*(made_of for word, made_of in behind if word.startswith("STG")))} == {"out"}
    waits = {int(left, 16) for left in re.findall(r"\bDEPBAR\.LE SB0, (0x[0-9a-f]+)", listing)}
    assert waits == {stages - 1, stages - 2}
