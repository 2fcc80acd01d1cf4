"""The kernels for few rows through the compiler: a stage is handed back only after its scales were read.

An arrival at a barrier may overtake a load from shared memory that no instruction has waited for, and the next copy
then overwrites what is loaded. Seen on an H200 in a prototype: one block in two hundred wrong, others in every run.
"""

import re
from collections.abc import Iterator

import pytest

from nkc.emit.render import render
from nkc.emit.toolchains.by_language import Toolchains
from nkc.ir import targets
from nkc.tactics import Tactic, tactics_of
from nkc.tactics.tactic import Lowered
from tests.fixtures.listing import listed_together
from tests.fixtures.toolchain import nvrtc_is_installed

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(not nvrtc_is_installed(), reason="NVRTC is not installed (pip install 'nkc[nvrtc]')"),
]

CODES = "sm_90.dense.fp8_skinny_codes"
TACTICS = [
    tactic
    for tactic in tactics_of("dense")
    if tactic.family in ("sm_90.dense.fp8_skinny", CODES) and "_ready" not in tactic.name
]

_LOAD = re.compile(r"\bLDS(?:\.U)?\.64 R(\d+),")
_HAND_BACK = "SYNCS.ARRIVE.TRANS64.A1T0"  # one arrival; that of a copy counts bytes and is written otherwise


@pytest.fixture(scope="module")
def toolchain() -> Iterator[Toolchains]:
    with Toolchains() as running:
        yield running


def early(listing: str) -> list[str]:
    """Return the arrivals before which a pair of scales was loaded that nothing has read since."""
    waiting: set[int] = set()
    found = []
    for line in listing.splitlines():
        text = line.partition("*/")[2].strip()
        if load := _LOAD.search(text):
            first = int(load[1])
            waiting |= {first, first + 1}
            continue
        registers = [int(number) for number in re.findall(r"\bR(\d+)\b", text)]
        waiting -= set(registers[1:])  # the first is written
        if _HAND_BACK in text and waiting:
            found.append(f"{text} before {sorted(waiting)}")
    return found


def test_an_arrival_before_a_read_is_found() -> None:
    load, read, arrive = (
        "/*0470*/ LDS.64 R16, [R41+0xa800] ;",
        "/*0560*/ FMUL R23, R40.reuse, R16 ;\n/*0570*/ FMUL R22, R40, R17 ;",
        f"/*0760*/ @!P0 {_HAND_BACK} RZ, [UR21+0xa910], RZ ;",
    )
    assert early("\n".join((load, read, arrive))) == []
    assert len(early("\n".join((load, arrive, read)))) == 1


@pytest.mark.parametrize("tactic", TACTICS, ids=[tactic.name for tactic in TACTICS])
def test_a_stage_is_handed_back_after_its_scales_were_read(toolchain: Toolchains, tactic: Tactic) -> None:
    # more blocks than a ring holds: scales by TMA, and one by one, as all are whose results become codes
    objects = []
    for proof in tactic.proofs(tactic)[1 : 2 if tactic.family == CODES else 3]:
        source = render(Lowered.of(proof, tactic))
        objects.append(toolchain.compile(source, targets.get(tactic.target)).data)
    for listing in listed_together(objects):
        assert _HAND_BACK in listing
        assert _LOAD.search(listing)
        assert early(listing) == []
