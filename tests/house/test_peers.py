"""The run in which every peer was timed: whole, of one session, and what the note says of it."""

from pathlib import Path

import msgspec

from tests.fixtures.scripts import benchmark

ROOT = Path(__file__).parents[2]
peers = benchmark("peers")
RUN = msgspec.json.decode((ROOT / "benchmarks/records/h200/peers.json").read_bytes(), type=peers.Run)


def test_every_cell_was_timed_beside_deep_gemm() -> None:
    assert len({(cell.m, cell.n, cell.k) for cell in RUN.cells}) == len(RUN.cells) == 66
    for cell in RUN.cells:
        assert "DeepGEMM" in cell.peers
        assert ("DeepGEMM, padded" in cell.peers) is (cell.m < 64)
        assert all(us >= cell.floor_us for us in (cell.us, *cell.peers.values()))


def test_the_note_says_what_the_run_says() -> None:
    note = (ROOT / "docs/notes/hopper-dense.md").read_text()
    for line in peers.table(RUN)[2:]:
        rows, _, share, ratio, worst = (part.strip() for part in line.strip("|").split("|"))
        least, _, where = worst.partition(", ")
        place = ", ".join(part for part in where.split(", ") if rows == "all" or not part.startswith("m "))
        if rows == "all":
            place = ", ".join((*place.split(", ")[1:], place.split(", ")[0]))
        assert f"| {rows} | {share} | {float(ratio):.2f} | {least}, {place} |" in note, line
