"""Comparisons inside a layer as they are kept: by tactic, the later in place of the earlier, none edited."""

import msgspec
import pytest

from nkc.bench import layer_records
from nkc.ir.errors import UsageError
from nkc.ir.schema_named import schema_named
from nkc.tactics.layer import LAYER_SCHEMA, LayerRecords, read_layer
from tests.fixtures.layers import SESSION, TACTIC, comparison, records, side

LATER = msgspec.structs.replace(SESSION, date="2026-11-30 07:00 UTC")


@pytest.fixture(autouse=True)
def fresh():
    read_layer.cache_clear()
    yield
    read_layer.cache_clear()


def test_comparisons_go_to_their_tactic_s_file_in_one_order(tmp_path) -> None:
    other = comparison(tactic="gfx950.dense.other", selected="gfx950.dense.other")
    found = records(comparison(rows=16, request="nk_b"), other, comparison())
    assert [path.stem for path in layer_records.merge(found, folder=tmp_path)] == ["gfx950.dense.other", TACTIC]
    assert [each.rows for each in read_layer(TACTIC, tmp_path).comparisons.values()] == [1, 16]
    before = (tmp_path / f"{TACTIC}.json").read_bytes()
    layer_records.merge(found, folder=tmp_path)
    assert (tmp_path / f"{TACTIC}.json").read_bytes() == before


def test_a_later_comparison_of_the_same_thing_takes_the_place_of_the_earlier(tmp_path) -> None:
    layer_records.merge(records(comparison(), comparison(rows=16)), folder=tmp_path)
    again = LayerRecords.of([LATER], [comparison(100.0, 120.0, session=LATER.digest)])
    layer_records.merge(again, folder=tmp_path)
    kept = read_layer(TACTIC, tmp_path)
    assert [(each.rows, round(each.saved_us[1])) for each in kept.comparisons.values()] == [(1, 20), (16, 10)]
    assert set(kept.sessions) == {SESSION.digest, LATER.digest}
    layer_records.merge(LayerRecords.of([LATER], [comparison(rows=16, session=LATER.digest)]), folder=tmp_path)
    assert set(read_layer(TACTIC, tmp_path).sessions) == {LATER.digest}


def test_a_second_look_does_not_take_a_loss_away(tmp_path) -> None:
    lost = comparison(100.0, 95.0)
    layer_records.merge(records(lost), folder=tmp_path)
    layer_records.merge(LayerRecords.of([LATER], [comparison(session=LATER.digest)]), folder=tmp_path)
    kept = read_layer(TACTIC, tmp_path).comparisons
    assert (lost.digest in kept, len(kept)) == (True, 2)
    layer_records.merge(records(lost), folder=tmp_path)
    assert set(read_layer(TACTIC, tmp_path).comparisons) == set(kept)


def test_another_route_or_another_place_is_another_comparison(tmp_path) -> None:
    different = (
        comparison(),
        comparison(theirs=side("another library", 110.0)),
        comparison(operation="qkv_proj"),
        comparison(context=32),
        comparison(dims={"hidden": 512}),
    )
    layer_records.merge(records(*different), folder=tmp_path)
    assert len(read_layer(TACTIC, tmp_path).comparisons) == len(different)


def test_an_export_is_known_by_its_schema_and_read_whole_or_not_at_all(tmp_path) -> None:
    file = tmp_path / "layer.json"
    file.write_bytes(layer_records.document(records(comparison())))
    assert schema_named(file) == LAYER_SCHEMA
    assert layer_records.read_exported(file) == records(comparison())
    file.write_text(file.read_text().replace('"differing":0', '"differing":7'))
    assert schema_named(file) == LAYER_SCHEMA
    with pytest.raises(UsageError, match=r"no exported comparisons: .*not what was written"):
        layer_records.read_exported(file)
