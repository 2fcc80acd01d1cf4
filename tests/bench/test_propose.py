"""Rows from records: order, intervals, and what may not become a row; coverage of a set and its holes."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.bench.cover import _missing, holes
from nkc.bench.propose import merge, propose, serving
from nkc.bench.records import merge as keep
from nkc.ir.reader import parse_document
from nkc.ir.split import split
from nkc.tactics import performance, tuning
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.performance import CellDigests, PerformanceIndex
from nkc.tactics.tuning import Row, Table, Tuning, problems_of

from ..fixtures.contracts import bf16, contract
from ..fixtures.measured import measurements, record, route

A, B, C = (
    "sm_90.dense.fp8_wgmma_64x64x128_w4_s6",
    "sm_90.dense.fp8_wgmma_64x32x128_w4_s6",
    "sm_90.dense.fp8_wgmma_64x64x128_w4_s4",
)
SHAPE = {"$.target.arch": "sm_90", "$.shape.n": 2112, "$.shape.k": 7168, "$.numerics.accumulate": "tensor_core_fp8"}


def cell(m, *unseen, **times):
    names = {"a": A, "b": B, "c": C}
    routes = tuple(route(names[key], us, digest=f"d{key}") for key, us in times.items())
    return seen(contract({**SHAPE, "$.shape.m": m}), routes, *unseen)


def seen(asked, routes, *unseen, **fields):
    """Return a record that looked at every tactic, however shortly, but for the unseen ones."""
    others = sorted({tactic.name for tactic in tactics_of("dense")} - {route.name for route in routes} - {*unseen})
    return record(asked, (*routes, *(route(name, None, digest="cut") for name in others)), **fields)


def rows(*cells) -> tuple[Row, ...]:
    tables, problems = propose(cells)
    assert problems == ()
    return tables["dense"].rows


def test_the_fastest_goes_first_and_the_slow_are_left_to_their_rank() -> None:
    (row,) = rows(cell(64, a=10.0, b=9.0, c=13.6))
    assert row.order == (B, A)
    assert (row.target, row.dims, row.m) == ("sm_90", {"k": 7168, "n": 2112}, (33, 64))


def test_a_strict_rule_alone_makes_no_row_where_a_looser_one_licenses_more() -> None:
    exact = "sm_90.dense.fp8_as_f16_64x64x128_w4_s4"
    strict = seen(
        contract({**SHAPE, "$.shape.m": 64, "$.numerics.accumulate": "matrix_unit_fp32"}),
        (route(exact, 20.0, digest="e"),),
    )
    tables, problems = propose([strict])
    assert tables == {}
    assert "strict rule alone would go before sm_90.dense.fp8_" in problems[0]
    (row,) = rows(strict, cell(64, a=10.0, b=9.0))
    assert row.order == (B, A, exact)


def test_a_first_look_gives_way_to_whole_turns_of_another_record_of_the_same_rows() -> None:
    """Two exact tactics: cut short under the loose rule, where the slower one looked faster; whole under the strict."""
    slow, fast = "sm_90.dense.fp8_as_f16_64x64x128_w4_s4", "sm_90.dense.fp8_as_f16_32x64x128_w4_s5"
    base = route("cuBLASLt", 20.0)
    loose = seen(
        contract({**SHAPE, "$.shape.m": 64}),
        (
            base,
            route(A, 10.0, digest="a"),
            *(
                msgspec.structs.replace(route(name, None, digest=name), quick_us=us)
                for name, us in ((slow, 14.0), (fast, 19.0))
            ),
        ),
    )
    strict = seen(
        contract({**SHAPE, "$.shape.m": 64, "$.numerics.accumulate": "matrix_unit_fp32"}),
        (base, route(slow, 18.0, digest=slow), route(fast, 16.0, digest=fast)),
    )
    assert rows(loose, strict)[0].order == (A, fast, slow)


def test_what_was_cut_short_or_is_red_is_in_no_order() -> None:
    one = seen(
        contract({**SHAPE, "$.shape.m": 64}),
        (route(A, 10.0, digest="a"), route(B, None, digest="b"), route(C, 1.0, digest="c", passed=False)),
    )
    assert rows(one)[0].order == (A,)


def test_with_dependent_launch_a_kernel_has_a_place_of_its_own_and_the_first_of_two_alike() -> None:
    """The fastest tile with dependent launch need not be the fastest without; a contract takes what it licenses."""
    gemv = "sm_90.dense.fp8_gemv_r4_w8"
    one = seen(
        contract({**SHAPE, "$.shape.m": 1}),
        (route(gemv, 10.0, digest="a"), route(f"{gemv}_dependent", 7.0, digest="b"), route(A, 9.0, digest="c")),
    )
    assert rows(one)[0].order == (f"{gemv}_dependent", A, gemv)
    alone = seen(contract({**SHAPE, "$.shape.m": 1}), (route(gemv, 10.0, digest="a"),))
    constant = {"$.shape.m": 1, "$.properties.constant": ["b", "b_scales"]}
    waiting = seen(contract({**SHAPE, **constant}), (route(f"{gemv}_dependent", 7.0, digest="b"),))
    assert rows(alone, waiting)[0].order == (f"{gemv}_dependent", gemv)


def test_a_fixed_m_stands_for_the_rows_down_to_the_next_smaller() -> None:
    found = rows(cell(16, a=1.0), cell(1, b=1.0), cell(48, b=1.0), cell(64, c=1.0), cell(4096, a=1.0))
    assert [(row.m, row.order) for row in found] == [
        ((0, 1), (B,)),
        ((2, 16), (A,)),
        ((25, 48), (B,)),  # tiles of 16 and 32 rows may win below
        ((49, 64), (C,)),
        ((513, 4096), (A,)),
    ]
    assert problems_of(Table(operation="dense", rows=found)) == ()


def test_two_rules_at_one_m_share_a_row_and_both_records_stand_behind_it() -> None:
    exact = seen(
        contract({**SHAPE, "$.shape.m": 64, "$.numerics.accumulate": "matrix_unit_fp32"}),
        (route("sm_90.dense.fp8_as_f16_64x64x128_w4_s4", 20.0, digest="e"),),
    )
    (row,) = rows(cell(64, a=10.0), exact)
    assert set(row.order) == {A, "sm_90.dense.fp8_as_f16_64x64x128_w4_s4"}
    assert len(row.records) == 2


def test_what_wins_under_a_strict_rule_stands_where_it_belongs_among_what_a_looser_one_admits() -> None:
    slow = "sm_90.dense.fp8_as_f16_64x64x128_w4_s4"
    matmul = route("torch.matmul bf16", 10.0, same_rule=False)
    loose = seen(contract({**SHAPE, "$.shape.m": 64}), (route(A, 6.0, digest="a"), route(B, 8.0, digest="b"), matmul))
    strict = seen(
        contract({**SHAPE, "$.shape.m": 64, "$.numerics.accumulate": "matrix_unit_fp32"}),
        (route(slow, 7.0, digest="e"), route("torch.matmul bf16", 5.0, same_rule=False)),  # a session twice as fast
    )
    assert rows(loose, strict)[0].order == (A, B, slow)


def test_a_range_is_judged_over_every_value_that_was_measured() -> None:
    whole = {"$.shape.m": {"min": 0, "max": 64}}
    one = contract({**SHAPE, **whole})
    taken = [
        seen(one, (route(A, a, digest="a"), route(B, b, digest="b")), dims={"m": m})
        for m, a, b in ((1, 10.0, 12.0), (32, 10.0, 10.0), (64, 15.0, 10.0))
    ]
    (row,) = rows(*taken)
    assert row.m == (0, 64)
    assert row.order == (B, A), f"{math.prod((1.0, 1.0, 1.5))} beats {math.prod((1.2, 1.0, 1.0))}"
    assert len(row.records) == 3


def test_ranges_that_overlap_are_reported_and_left_out() -> None:
    wide = seen(contract({**SHAPE, "$.shape.m": {"min": 0, "max": 128}}), (route(A, 1.0, digest="a"),))
    tables, problems = propose([cell(64, b=1.0), wide])
    assert [row.m for row in tables["dense"].rows] == [(33, 64)]
    assert "m 0..128 overlaps what ends at 64 (nkc split --at 64)" in problems[0]


def test_nothing_green_is_no_row() -> None:
    one = seen(contract({**SHAPE, "$.shape.m": 64}), (route(A, 1.0, digest="a", passed=False),))
    tables, problems = propose([one])
    assert tables == {}
    assert "no tactic was timed behind a green gate" in problems[0]


@given(st.sets(st.integers(1, 4096), min_size=1, max_size=8), st.randoms())
def test_rows_of_fixed_m_hold_what_was_measured_and_nothing_twice(values, random) -> None:
    cells = [cell(m, a=1.0) for m in values]
    random.shuffle(cells)
    found = rows(*cells)
    assert [row.m[1] for row in found] == sorted(values)
    covered = [m for row in found for m in range(row.m[0], row.m[1] + 1)]
    assert covered == sorted(set(covered))
    assert all(row.m[0] > row.m[1] // 8 for row in found if row.m[1] > 16)


def test_no_row_goes_before_a_tactic_that_nobody_timed_and_the_rule_has_far_ahead() -> None:
    asked = parse_document(cell(64, a=1.0).contract, "a cell")
    told = {name: each.estimate(asked, each) for name, each in serving(asked).items()}
    first = min((name for name, estimate in told.items() if estimate), key=lambda name: told[name].ns)
    assert told[first].ns * 1.15 < told[A].ns
    tables, problems = propose([cell(64, first, f"{first}_dependent", a=10.0)])
    assert tables == {}
    assert f"the rule puts {first}, which nobody timed, far before {A}" in problems[0]
    assert rows(cell(64, a=10.0))[0].order == (A,)


def test_what_keeps_one_type_of_operands_from_a_row_does_not_keep_another() -> None:
    """No tactic serves both, and a cell of the one said nothing of the other."""
    asked = contract(bf16({"$.target.arch": "sm_90", "$.shape.n": 2112, "$.shape.k": 7168, "$.shape.m": 64}))
    told = {name: told.ns for name, each in serving(asked).items() if (told := each.estimate(asked, each))}
    first, other = min(told, key=told.__getitem__), max(told, key=told.__getitem__)
    assert told[first] * 1.15 < told[other]
    lost = seen(asked, (route(other, 1.0, digest="d"),), first, f"{first}_dependent")
    tables, problems = propose([lost, cell(64, a=10.0)])
    assert [row.order for row in tables["dense"].rows] == [(A,)]
    assert tables["dense"].rows[0].records == (cell(64, a=10.0).digest,)
    assert [problem.startswith(f"{lost.cell}: the rule puts {first}, ") for problem in problems] == [True]


def test_merged_rows_replace_what_they_overlap_and_nothing_else() -> None:
    def row(m, n=2112, order=(A,)):
        return Row(target="sm_90", dims={"n": n, "k": 7168}, m=m, order=order, records=())

    old = Table(operation="dense", rows=(row((0, 16)), row((17, 64)), row((17, 64), n=4096)))
    new = Table(operation="dense", rows=(row((17, 32), order=(B,)), row((33, 64), order=(B,))))
    merged = merge(old, new)
    assert {(each.dims["n"], each.m, each.order) for each in merged.rows} == {
        (2112, (0, 16), (A,)),
        (2112, (17, 32), (B,)),
        (2112, (33, 64), (B,)),
        (4096, (17, 64), (A,)),
    }
    assert merge(merged, new) == merged


def test_a_row_whose_records_were_heard_anew_is_told_anew_or_not_at_all() -> None:
    def row(m, *records):
        return Row(target="sm_90", dims={"n": 2112, "k": 7168}, m=m, order=(A,), records=records)

    old = Table(operation="dense", rows=(row((0, 16), "r1"), row((17, 64), "r1", "r2"), row((65, 128), "r2")))
    merged = merge(old, Table(operation="dense", rows=()), {"r1"})
    assert [each.m for each in merged.rows] == [(17, 64), (65, 128)]
    assert [each.m for each in merge(old, merged, there={"r2"}).rows] == [(17, 64), (65, 128)]
    assert [each.m for each in merge(merged, Table(operation="dense", rows=()), there={"r2"}).rows] == [(65, 128)]


def test_a_row_that_speaks_of_other_kernels_goes_with_the_next_that_are_written() -> None:
    rows = tuple(
        Row(target="sm_90", dims={"n": 2112, "k": 7168}, m=m, order=(A,), records=("r1",)) for m in ((0, 16), (17, 64))
    )
    old, none = Table(operation="dense", rows=rows), Table(operation="dense", rows=())
    assert merge(old, none).rows == rows
    assert merge(old, none, stale=rows[:1]).rows == rows[1:]


@pytest.fixture
def tables(tmp_path):
    """Return a Tuning over rows for m 0..1, 2..16 and 65..128, all fresh."""
    for cached in (tuning.read_table, performance.read_measurements, performance.read_performance_index):
        cached.cache_clear()
    (tmp_path / "dense").mkdir()
    cells = [cell(1, a=1.0), cell(16, a=1.0), cell(128, a=1.0)]
    keep(measurements(*cells), folder=tmp_path)
    found = rows(*cells)
    found = (*found[:2], Row(**{**{f: getattr(found[2], f) for f in Row.__struct_fields__}, "m": (65, 128)}))
    tuning.write_table(Table(operation="dense", rows=found), tmp_path)
    entry = CellDigests(requests={each.request: "da" for each in cells}, files=())
    (tmp_path / "index.json").write_bytes(msgspec.json.encode(PerformanceIndex(files={}, tactics={A: entry})))
    yield Tuning(root=tmp_path, records=tmp_path)
    for cached in (tuning.read_table, performance.read_measurements, performance.read_performance_index):
        cached.cache_clear()


def test_a_range_over_rows_that_differ_is_a_hole_with_the_split_that_mends_it(tables, tmp_path) -> None:
    keep(measurements(*(cells := (cell(1, a=1.0), cell(16, c=1.0)))), folder=tmp_path)
    tuning.write_table(Table(operation="dense", rows=rows(*cells)), tmp_path)
    known = {A: CellDigests(requests={cells[0].request: "da"}, files=())}
    known[C] = CellDigests(requests={cells[1].request: "dc"}, files=())
    (tmp_path / "index.json").write_bytes(msgspec.json.encode(PerformanceIndex(files={}, tactics=known)))
    performance.read_performance_index.cache_clear()
    asked = contract({**SHAPE, "$.shape.m": {"min": 0, "max": 16}})
    (hole,) = holes([("some.json", asked)], Tuning(root=tmp_path, records=tmp_path))
    assert hole.open == ()
    assert hole.what == f"m 0..16: its rows differ, 0..1 {A}, 2..16 {C} (nkc split some.json --at 1)"


def test_coverage_prints_exactly_the_holes(tables) -> None:
    def ranged(low, high):
        return contract({**SHAPE, "$.shape.m": {"min": low, "max": high}})

    named = [
        ("whole", ranged(3, 16)),
        ("pieces", ranged(0, 16)),
        ("gap", ranged(0, 128)),
        ("beyond", ranged(65, 200)),
        ("point", contract({**SHAPE, "$.shape.m": 16})),
        ("other", contract({**SHAPE, "$.shape.n": 64})),
    ]
    found = {hole.file: hole for hole in holes(named, tables)}
    assert set(found) == {"gap", "beyond", "other"}, "rows 0..1 and 2..16 agree"
    assert found["gap"].open == ((17, 64),)
    assert found["beyond"].open == ((129, 200),)
    assert "nothing covers m 17..64" in found["gap"].what
    assert found["other"].open == ((1, 1),)


def test_a_row_that_never_saw_a_tactic_of_today_is_a_hole(tmp_path) -> None:
    for cached in (tuning.read_table, performance.read_measurements, performance.read_performance_index):
        cached.cache_clear()
    (tmp_path / "dense").mkdir()
    one = cell(64, B, a=1.0)
    keep(measurements(one), folder=tmp_path)
    (row,) = rows(cell(64, a=1.0))
    told = msgspec.structs.replace(row, records=(one.digest,))
    tuning.write_table(Table(operation="dense", rows=(told,)), tmp_path)
    entry = CellDigests(requests={one.request: "da"}, files=())
    (tmp_path / "index.json").write_bytes(msgspec.json.encode(PerformanceIndex(files={}, tactics={A: entry})))
    (hole,) = holes([("x", contract({**SHAPE, "$.shape.m": 64}))], Tuning(root=tmp_path, records=tmp_path))
    assert hole.what == f"m 64: its row never saw {B} (nkc bench --every --record, nkc tune)"
    for cached in (tuning.read_table, performance.read_measurements, performance.read_performance_index):
        cached.cache_clear()


def test_the_split_that_is_advised_closes_the_hole(tables) -> None:
    parts = split(contract({**SHAPE, "$.shape.m": {"min": 0, "max": 16}}), (1,))
    assert holes([("part", part) for part in parts], tables) == ()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6), st.integers(0, 60), st.integers(0, 60))
def test_missing_is_the_difference_of_sets(intervals, low, high) -> None:
    intervals = [(min(pair), max(pair)) for pair in intervals]
    wanted = set(range(low, high + 1)) - {m for a, b in intervals for m in range(a, b + 1)}
    found = _missing(low, high, intervals) if low <= high else ()
    assert {m for a, b in found for m in range(a, b + 1)} == wanted
    assert list(found) == sorted(found)
