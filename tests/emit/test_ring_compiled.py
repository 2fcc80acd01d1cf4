"""Rings of stages through the compiler: fp8_wave and fp8_tma hand a stage back only after its scales were read.

An arrival at a barrier may overtake a load from shared memory that no instruction has waited for; the next copy into
the stage then wins.
"""

import re
from collections.abc import Iterator

import pytest

from nkc.emit.render import render
from nkc.emit.toolchains.nvrtc import NvrtcToolchain
from nkc.ir import targets
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.tactic import Lowered, Tactic
from tests.fixtures.listing import listed
from tests.fixtures.toolchain import nvrtc_is_installed

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(not nvrtc_is_installed(), reason="NVRTC is not installed (pip install 'nkc[nvrtc]')"),
]

BY_NAME = {tactic.name: tactic for tactic in tactics_of("dense")}
HAND_BACK = "SYNCS.ARRIVE.TRANS64.A1T0"  # one arrival; that of a copy counts bytes and is written otherwise
_LOAD = re.compile(r"\bLDS R(\d+),")


@pytest.fixture(scope="module")
def toolchain() -> Iterator[NvrtcToolchain]:
    with NvrtcToolchain() as running:
        yield running


def early(listing: str) -> tuple[int, int]:
    """Return how many arrivals there are, and before how many a scale was loaded that nothing has read since."""
    waiting: set[int] = set()
    arrivals = found = 0
    for line in listing.splitlines():
        text = line.partition("*/")[2].strip()
        if load := _LOAD.search(text):
            waiting.add(int(load[1]))
            continue
        registers = [int(number) for number in re.findall(r"\bR(\d+)\b", text)]
        waiting -= set(registers[1:])  # the first is written
        if HAND_BACK in text:
            arrivals += 1
            waiting -= set(registers)  # its address
            found += bool(waiting)
    return arrivals, found


def test_an_arrival_before_a_read_is_found() -> None:
    load, read = "/*0470*/ LDS R16, [R41+0xa800] ;", "/*0560*/ FMUL R23, R40.reuse, R16 ;"
    arrive = f"/*0760*/ @!P0 {HAND_BACK} RZ, [UR21+0xa910], RZ ;"
    hanging = f"/*0760*/ @!P0 {HAND_BACK} RZ, [R16+UR21+0xa910], RZ ;"
    assert early("\n".join((load, read, arrive))) == (1, 0)
    assert early("\n".join((load, arrive, read))) == (1, 1)
    assert early("\n".join((load, hanging, read))) == (1, 0)


@pytest.mark.parametrize(
    ("tactic", "harmless"),
    [
        ("sm_90.dense.fp8_wave_64x128x128_s4_o2", 0),
        ("sm_90.dense.fp8_wave_64x96x128_s3_o3", 0),
        ("sm_90.dense.fp8_tma_128x128x128_s5_ahead", 0),
        ("sm_90.dense.fp8_tma_128x64x128_s8_ahead", 0),
        # The last arrival of a tile: nothing is copied into that stage any more.
        ("sm_90.dense.fp8_wave_64x64x128_s4_o3", 1),
        ("sm_90.dense.fp8_wave_128x128x128_s6", 1),
        ("sm_90.dense.fp8_wave_128x32x128_s10_k2", 1),
    ],
)
def test_a_stage_is_handed_back_after_its_scales_were_read(
    toolchain: NvrtcToolchain, tactic: str, harmless: int
) -> None:
    known: Tactic = BY_NAME[tactic]
    for proof in known.proofs(known)[:2]:  # one block of k, and more than a ring holds; scales by TMA
        built = toolchain.compile(render(Lowered.of(proof, known)), targets.get("sm_90"))
        arrivals, found = early(listed(built.data))
        assert arrivals >= 1
        assert found <= harmless
