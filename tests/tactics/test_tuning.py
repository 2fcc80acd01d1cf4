"""The tuning table in selection: which rows apply, what makes them stale, and what no table can do."""

import itertools
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.bench import records
from nkc.ir.errors import ToolError
from nkc.tactics import performance, tuning
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.evidence import Book
from nkc.tactics.performance import CellDigests, PerformanceIndex
from nkc.tactics.pieces import Piece
from nkc.tactics.reason import StageName
from nkc.tactics.select import Policy, select
from nkc.tactics.tuning import Row, Table, Tuning, problems_of

from ..fixtures import measured
from ..fixtures.contracts import contract

EXPERIMENTS = Policy(allow_experimental=True)
BASE = {"$.target.arch": "sm_90", "$.shape.m": 64, "$.shape.n": 2112, "$.shape.k": 7168}
WGMMA = {**BASE, "$.numerics.accumulate": "tensor_core_fp8"}
FAST, SLOW, EXACT = (
    "sm_90.dense.fp8_wgmma_64x64x128_w4_s6",
    "sm_90.dense.fp8_wgmma_64x32x128_w4_s6",
    "sm_90.dense.fp8_as_f16_64x64x128_w4_s4",
)


@pytest.fixture(autouse=True)
def fresh_caches():
    def clear() -> None:
        for cached in (tuning.read_table, performance.read_measurements, performance.read_performance_index):
            cached.cache_clear()

    clear()
    yield
    clear()


class Tables:
    """A folder of tables and one of records."""

    def __init__(self, root: Path) -> None:
        self.root, self.records = root / "tactics", root / "performance"
        (self.root / "dense").mkdir(parents=True)
        self.records.mkdir()

    def tuning(self) -> Tuning:
        return Tuning(root=self.root, records=self.records)

    def write(self, *rows: Row) -> None:
        (self.root / "dense" / "tuning.json").write_bytes(tuning.document(Table(operation="dense", rows=rows)))

    def measure(self, edits=WGMMA, *, digest: str = "d1", today: str = "d1") -> str:
        """Keep a record of both tactics at a digest, with an index that says what it is today; return its digest."""
        one = measured.record(
            contract(edits), (measured.route(FAST, 5.0, digest=digest), measured.route(SLOW, 6.0, digest=digest))
        )
        records.merge(measured.measurements(one), folder=self.records)
        index = PerformanceIndex(
            files={}, tactics={name: CellDigests(requests={one.request: today}, files=()) for name in (FAST, SLOW)}
        )
        (self.records / "index.json").write_bytes(msgspec.json.encode(index))
        return one.digest

    def select(self, edits=WGMMA):
        return select(contract(edits), EXPERIMENTS, book=Book(tuning=self.tuning()))


@pytest.fixture
def tables(tmp_path) -> Tables:
    return Tables(tmp_path)


def row(*order: str, m=(17, 64), records: tuple[str, ...] = (), n: int = 2112) -> Row:
    return Row(target="sm_90", dims={"n": n, "k": 7168}, m=m, order=order or (FAST, SLOW), records=records)


def ranked(selection) -> dict[str, tuple[tuple[int, int], str]]:
    return {each.tactic.name: (each.effective_rank, each.rank_source) for each in selection.candidates}


def test_a_fresh_row_goes_before_every_rank_and_says_so(tables) -> None:
    digest = tables.measure()
    tables.write(row(FAST, SLOW, records=(digest,)))
    selection = tables.select()
    assert selection.selected.tactic.name == FAST
    found = ranked(selection)
    assert [found[name][0] for name in (FAST, SLOW)] == [(0, 0), (0, 1)]
    assert found[FAST][1] == f"dense/tuning.json: sm_90, n 2112, k 7168, m 17..64; records {digest[:12]}"
    assert found[EXACT][0][0] == 1
    assert found[EXACT][1] == "rule"
    tables.write(row(SLOW, FAST, records=(digest,)))
    tuning.read_table.cache_clear()
    assert tables.select().selected.tactic.name == SLOW


@pytest.mark.parametrize(
    ("m", "applies"),
    [
        (17, True),
        (64, True),
        (16, False),
        (65, False),
        ({"min": 17, "max": 64}, True),
        ({"min": 16, "max": 64}, False),
        ({"min": 0, "max": 64}, False),
        ({"min": 17, "max": 65}, False),
    ],
    ids=str,
)
def test_a_row_applies_only_to_a_range_that_it_holds_whole(tables, m, applies) -> None:
    tables.write(row(FAST, SLOW, records=(tables.measure(),)))
    found = ranked(tables.select({**WGMMA, "$.shape.m": m}))
    assert (found[FAST][0][0] == 0) is applies
    assert (found[FAST][1] in ("catalogue", "rule")) is not applies


@pytest.mark.parametrize("edits", [{"$.shape.n": 2240}, {"$.shape.k": 7296}, {"$.target.arch": "gfx950"}], ids=str)
def test_another_shape_or_target_is_another_row(tables, edits) -> None:
    tables.write(row(FAST, SLOW, records=(tables.measure(),)))
    assert {source for _, source in ranked(tables.select({**WGMMA, **edits})).values()} <= {"catalogue", "rule"}


def test_a_row_whose_kernel_changed_is_shown_and_ignored(tables) -> None:
    digest = tables.measure(today="d2")
    tables.write(row(SLOW, FAST, records=(digest,)))
    found = ranked(tables.select())
    assert found[FAST][0][0] == 1
    assert found[FAST][1].startswith("rule; stale row dense/tuning.json: sm_90, n 2112, k 7168, m 17..64: record")
    assert f"timed another kernel of {SLOW}" in found[SLOW][1]
    assert found[EXACT][1] == "rule"


def test_a_row_whose_record_is_gone_is_ignored(tables) -> None:
    tables.measure()
    tables.write(row(FAST, SLOW, records=("e" * 64,)))
    found = ranked(tables.select())
    assert found[FAST][0][0] == 1
    assert "record eeeeeeeeeeee is not there" in found[FAST][1]


def test_an_edited_record_is_another_record(tables) -> None:
    """A row names its records by what they say: whoever improves a figure by hand loses the row."""
    digest = tables.measure()
    tables.write(row(FAST, SLOW, records=(digest,)))
    (file,) = tables.records.glob("sm_90*.json")
    whole = file.read_text()
    file.write_text(whole.replace('_us":6.0', '_us":4.0'))
    performance.read_measurements.cache_clear()
    assert f"record {digest[:12]} is not there" in ranked(tables.select())[FAST][1]
    file.write_text(whole.replace('"median_us":6.0', '"median_us":4.0'))
    performance.read_measurements.cache_clear()
    with pytest.raises(ToolError, match="a median of 4 us that does not lie between its percentiles"):
        tables.select()


def test_where_files_changed_the_kernel_is_rendered_and_decides(tables) -> None:
    digest = tables.measure(today="d2")
    index = json.loads((tables.records / "index.json").read_text())
    for entry in index["tactics"].values():
        entry["files"] = ["nkc/no_such_file.py"]
    index["files"] = {"nkc/no_such_file.py": "0" * 64}
    (tables.records / "index.json").write_text(json.dumps(index))
    tables.write(row(FAST, SLOW, records=(digest,)))
    asked: list[str] = []

    def rendered(record, tactic: str) -> str:
        asked.append(tactic)
        return "d1"

    book = Book(tuning=Tuning(digests=rendered, root=tables.root, records=tables.records))
    assert ranked(select(contract(WGMMA), EXPERIMENTS, book=book))[FAST][0] == (0, 0)
    assert sorted(set(asked) & {FAST, SLOW}) == sorted([FAST, SLOW])
    assert ranked(tables.select())[FAST][0][0] == 1, "without a renderer it is stale"


def test_no_row_admits_what_the_numerical_rule_forbids(tables) -> None:
    """A planted row names a kernel on the FP8 unit first, for a contract that wants 23 bits: predicates decide."""
    tables.write(row(FAST, EXACT, records=(tables.measure(),)))
    selection = tables.select(BASE)
    planted = next(each for each in selection.candidates if each.tactic.name == FAST)
    assert planted.effective_rank == (0, 0), "the row does rank it"
    assert [reason.field for reason in planted.reasons] == ["$.numerics.accumulate"]
    assert planted.reasons[0].stage is StageName.PREDICATE
    assert selection.selected.tactic.name == EXACT


def test_a_table_lifts_neither_maturity_nor_policy(tables) -> None:
    tables.write(row(FAST, SLOW, records=(tables.measure(),)))
    book = Book(tuning=tables.tuning())
    assert {reason.stage for reason in _reasons(select(contract(WGMMA), Policy(), book=book), FAST)} <= {
        StageName.MATURITY
    }
    only = Policy(allow_experimental=True, only_tactic=SLOW)
    assert select(contract(WGMMA), only, book=book).selected.tactic.name == SLOW


def _reasons(selection, name: str):
    return next(each.reasons for each in selection.candidates if each.tactic.name == name)


def test_overlapping_rows_are_an_error_that_names_both(tables) -> None:
    tables.write(row(FAST, m=(17, 64)), row(SLOW, m=(64, 128)))
    with pytest.raises(ToolError, match=r"n 2112, k 7168, m 17\.\.64 and m 64\.\.128 overlap \(one m, one row\)"):
        tables.select()


def test_a_table_names_only_tactics_that_exist(tables) -> None:
    tables.write(row("sm_90.dense.fp8_wgmma_1x1x1_w4_s6"), row("gfx950.dense.fp8_mfma_64x64x128_s2", m=(1, 2)))
    with pytest.raises(ToolError) as raised:
        tables.select()
    said = str(raised.value).splitlines()
    assert "no tactic of sm_90 is named `sm_90.dense.fp8_wgmma_1x1x1_w4_s6`" in said[0]
    assert "no tactic of sm_90 is named `gfx950.dense.fp8_mfma_64x64x128_s2`" in said[1]
    assert raised.value.exit_code == 4


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b'{"schema": "nkc.tuning/2", "operation": "dense", "rows": []}',
        b'{"operation": "dense", "rows": [], "x": 1}',
    ],
    ids=["cut", "schema", "field"],
)
def test_a_damaged_table_stops_selection(tables, broken) -> None:
    (tables.root / "dense" / "tuning.json").write_bytes(broken)
    with pytest.raises(ToolError, match=r"dense/tuning\.json: not a tuning table"):
        tables.select()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=5))
def test_problems_are_found_exactly_where_rows_share_an_m_or_say_nothing(intervals) -> None:
    table = Table(operation="dense", rows=tuple(row(FAST, m=interval) for interval in intervals))
    sets = [set(range(low, high + 1)) for low, high in intervals]
    bad = any(not each for each in sets) or any(left & right for left, right in itertools.combinations(sets, 2))
    assert bool(problems_of(table)) is bad


@given(st.permutations([each.name for each in tactics_of("dense") if each.target == "sm_90" and not each.dependent]))
def test_ranks_are_places_in_the_order(order) -> None:
    named = order[1:]
    ranks = tuning.Ranks(
        places={name: place for place, name in enumerate(named)}, source="a row", named=frozenset(named)
    )
    known = {tactic.name: tactic for tactic in tactics_of("dense")}
    assert sorted(order, key=lambda name: ranks.of(known[name], 1)[0]) == [*named, order[0]]
    another = known[order[0]]
    assert ranks.of(another) == ((1, another.rank), "catalogue")
    assert ranks.of(another, 4321) == ((1, 4321), "rule")


PIECES = {"$.shape.m": {"min": 10, "max": 40}}


def test_rows_that_agree_rank_a_range_that_none_holds_whole(tables) -> None:
    digest = tables.measure()
    tables.write(row(FAST, SLOW, m=(9, 16), records=(digest,)), row(FAST, m=(17, 64), records=(digest,)))
    selection = tables.select({**WGMMA, **PIECES})
    assert selection.selected.tactic.name == FAST
    assert selection.pieces == (Piece(m=(10, 40), tactic=FAST),)
    place, source = ranked(selection)[FAST]
    assert place == (0, 0)
    assert source == "dense/tuning.json: rows m 9..16, 17..64 agree on it for the whole range"


def test_rows_that_differ_rank_nothing_and_show_where_they_meet(tables) -> None:
    digest = tables.measure()
    tables.write(row(FAST, m=(9, 16), records=(digest,)), row(SLOW, m=(17, 64), records=(digest,)))
    selection = tables.select({**WGMMA, **PIECES})
    assert {place for place, _ in ranked(selection).values() if place[0] == 0} == set()
    assert selection.pieces == (Piece(m=(10, 16), tactic=FAST), Piece(m=(17, 40), tactic=SLOW))


@pytest.mark.parametrize(
    "rows",
    [[(9, 16), (18, 64)], [(11, 16), (17, 64)], [(9, 16), (17, 39)], [(9, 16)]],
    ids=["gap", "begin", "end", "alone"],
)
def test_rows_with_a_gap_say_nothing_of_the_range(tables, rows) -> None:
    digest = tables.measure()
    tables.write(*(row(FAST, m=m, records=(digest,)) for m in rows))
    selection = tables.select({**WGMMA, **PIECES})
    assert selection.pieces == ()
    assert {place[0] for place, _ in ranked(selection).values()} == {1}


def test_a_stale_row_is_a_gap(tables) -> None:
    digest = tables.measure()
    tables.write(row(FAST, m=(9, 16), records=(digest,)), row(FAST, m=(17, 64), records=("e" * 64,)))
    assert tables.select({**WGMMA, **PIECES}).pieces == ()
