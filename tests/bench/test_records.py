"""Records on disk: a later one replaces the earlier, files read back as written, and pictures are the same bytes."""

import xml.etree.ElementTree as ET

import msgspec
import pytest

from nkc.bench import plot, records
from nkc.bench.cell import Cell
from nkc.bench.operands import L2_TIMES, copies_wanted
from nkc.bench.timing import count_for, summary
from nkc.ir import canonical
from nkc.ir.errors import ToolError, UsageError
from nkc.ir.schema_named import schema_named
from nkc.tactics import performance
from nkc.tactics.performance import file_name, read_measurements

from ..fixtures.contracts import bf16, contract
from ..fixtures.measured import SESSION, measurements, record, route

SHAPE = {"$.target.arch": "sm_90", "$.shape.n": 2112, "$.shape.k": 7168}
OURS = "sm_90.dense.fp8_as_f16_16x64x128_w4_s5"


@pytest.fixture(autouse=True)
def fresh_cache():
    read_measurements.cache_clear()
    yield
    read_measurements.cache_clear()


def cell(m: int, us: float = 10.0):
    routes = (route(OURS, us, digest="a"), route("cuBLASLt", 12.0))
    return record(contract({**SHAPE, "$.shape.m": m}), routes, selected=OURS)


def test_a_later_record_of_the_same_contract_replaces_the_earlier(tmp_path) -> None:
    (path,) = records.merge(measurements(cell(16), cell(1)), folder=tmp_path)
    assert path.name == "sm_90.dense.k7168.n2112.json"
    records.merge(measurements(cell(16, 5.0)), folder=tmp_path)
    found = read_measurements(path)
    assert [each.contract["shape"]["m"] for each in found.records] == [1, 16]
    assert found.records[1].routes[0].latency.median_us == 5.0
    assert path.read_bytes() == records.document(found)


def test_a_record_of_another_device_stays_beside_it(tmp_path) -> None:
    records.merge(measurements(cell(16)), folder=tmp_path)
    other = msgspec.structs.replace(SESSION, device="another GPU")
    moved = msgspec.structs.replace(cell(16), session=other.digest)
    (path,) = records.merge(records.of(other, [moved]), folder=tmp_path)
    found = read_measurements(path)
    assert len(found.records) == 2
    assert set(found.sessions) == {SESSION.digest, other.digest}


def test_a_session_that_no_record_names_is_dropped(tmp_path) -> None:
    records.merge(measurements(cell(16)), folder=tmp_path)
    later = msgspec.structs.replace(SESSION, date="2026-12-01 00:00 UTC")
    again = msgspec.structs.replace(cell(16), session=later.digest)
    (path,) = records.merge(records.of(later, [again]), folder=tmp_path)
    assert set(read_measurements(path).sessions) == {later.digest}


def test_damaged_files_are_refused(tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"schema": "nkc.performance/1", "sessions": {}, "records": [], "more": 1}')
    with pytest.raises(ToolError, match=r"x\.json: not a performance record"):
        read_measurements(path)
    path.write_bytes(records.document(msgspec.structs.replace(measurements(cell(1)), sessions={})))
    read_measurements.cache_clear()
    with pytest.raises(ToolError, match="its session is not in the file"):
        read_measurements(path)
    with pytest.raises(UsageError, match="no exported measurements"):
        records.read_exported(tmp_path / "none.json")


def test_exported_measurements_are_told_from_other_exports(tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(records.document(measurements(cell(1))))
    assert schema_named(path) == performance.MEASUREMENTS_SCHEMA
    assert records.read_exported(path) == measurements(cell(1))
    path.write_text("[]")
    assert schema_named(path) is None


def test_file_names_come_from_target_operation_and_fixed_dims() -> None:
    assert file_name(cell(4096)) == "sm_90.dense.k7168.n2112.json"


def test_bytes_and_flops_of_a_cell_are_counted_once() -> None:
    fp8 = contract({**SHAPE, "$.shape.m": 16})
    one = Cell(contract=fp8, request=canonical.contract_id(fp8), dims={})
    scales = 16 * 56 * 4 + 17 * 56 * 4  # 2112 / 128 is 16.5: seventeen rows
    assert one.bytes == 16 * 7168 + 2112 * 7168 + 16 * 2112 * 2 + scales
    assert one.flops == 2 * 16 * 2112 * 7168
    wide = contract({**bf16(SHAPE), "$.shape.m": 16, "$.epilogue": {"kind": "bias", "dtype": "fp32"}})
    two = Cell(contract=wide, request="", dims={})
    assert two.bytes == 2 * (16 * 7168 + 2112 * 7168 + 16 * 2112) + 2112 * 4
    by_bytes, by_flops = one.floor_us(SESSION.ceilings)
    assert by_bytes == pytest.approx(one.bytes / 4500e9 * 1e6)
    assert by_flops == pytest.approx(one.flops / 1390e12 * 1e6)
    assert two.floor_us(SESSION.ceilings)[1] == pytest.approx(two.flops / 780e12 * 1e6)


L2_BYTES = 62_914_560


@pytest.mark.parametrize(("m", "n", "k"), [(1, 2112, 7168), (64, 2112, 7168), (4096, 2112, 7168), (1, 128, 256)])
def test_copies_exceed_the_l2_four_times(m, n, k) -> None:
    edits = {**SHAPE, "$.shape.m": m, "$.shape.n": n, "$.shape.k": k}
    one = Cell(contract=contract(edits), request="", dims={})
    count = copies_wanted(one, L2_BYTES)
    assert count >= 2
    assert (count - 1) * one.bytes >= L2_TIMES * L2_BYTES


def test_a_cell_too_small_to_walk_through_is_refused() -> None:
    one = Cell(contract=contract({**SHAPE, "$.shape.n": 8, "$.shape.k": 128}), request="", dims={})
    with pytest.raises(UsageError, match=r"n 8, k 128: \d+ bytes would take \d+ copies to exceed the L2 4 times"):
        copies_wanted(one, L2_BYTES)


def test_statistics_of_replays() -> None:
    found = summary([float(value) for value in range(1, 12)], 100)
    assert (found.median_us, found.min_us, found.p10_us, found.p90_us) == (6.0, 1.0, 2.0, 10.0)
    assert (found.replays, found.launches) == (11, 100)
    assert count_for(4.0, 4000.0) == 1000
    assert count_for(9000.0, 4000.0) == 1


def test_a_picture_is_well_formed_and_the_same_bytes() -> None:
    found = [measurements(cell(1), cell(16, 5.0), cell(4096, 900.0))]
    first = plot.svg(found)
    assert plot.svg(found) == first
    root = ET.fromstring(first)
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 3 * 3, "each cell in the roofline, over the baseline, and over the floor"
    assert any("2.4 times as fast as cuBLASLt" in title for title in titles)
    assert "a GPU, driver 1.0, 2026-11-30" in first.decode()


def test_a_picture_shows_no_ratio_that_may_not_be_said() -> None:
    red = record(
        contract({**SHAPE, "$.shape.m": 64}),
        (route(OURS, 5.0, digest="a"), route("x", 5.0, passed=False)),
        selected=OURS,
    )
    text = plot.svg([measurements(cell(1), red)]).decode()
    assert "1 cells have none" in text


def test_no_records_no_picture() -> None:
    with pytest.raises(UsageError, match="no records to draw"):
        plot.svg([])
