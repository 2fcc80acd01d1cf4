"""Evidence that is handed in: known by its schema even where it is cut short, and held against itself."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nkc.bench import handed_in, layer_records, records
from nkc.ir import canonical
from nkc.ir.errors import UsageError
from nkc.ir.schema_named import schema_named
from nkc.tactics.catalogue import find
from nkc.tactics.evidence import Answer, Records
from nkc.verify.subject import dim_values
from tests.fixtures.contracts import contract
from tests.fixtures.layers import comparison
from tests.fixtures.layers import records as compared
from tests.fixtures.measured import measurements, record, route
from tests.verify.subjects import check_of

MEASURED = measurements(record(contract(), (route("gfx950.dense.plain", 10.0, digest="1" * 64),)))
CHECKED = (Records(tactic="gfx950.dense.plain", checks=(check_of("nk_a", "1" * 64),)),)
KINDS = {
    "measurements": (records.document(MEASURED), MEASURED),
    "comparisons": (layer_records.document(compared(comparison())), compared(comparison())),
    "records": (msgspec.json.encode(CHECKED), CHECKED),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_by_the_schema_it_names(kind, tmp_path) -> None:
    data, meant = KINDS[kind]
    (tmp_path / "x.json").write_bytes(data)
    assert handed_in.read(tmp_path / "x.json") == meant


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
def test_a_file_that_is_cut_short_is_named_by_its_kind(kind, tmp_path, data) -> None:
    whole, _ = KINDS[kind]
    named = whole.index(b'"', whole.index(b"nkc.")) + 1
    cut = data.draw(st.integers(0, len(whole.rstrip()) - 1))
    file = tmp_path / "x.json"
    file.write_bytes(whole[:cut])
    with pytest.raises(UsageError) as caught:
        handed_in.read(file)
    said = str(caught.value)
    assert said.startswith(f"{file}: no exported {kind}: " if cut >= named else f"{file}: no evidence: ")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "nkc.verify/1"}', "`nkc.verify/1` is no evidence (nkc verify --export, "),
        ('{"schema": "nkc.contract/1", "x": {"schema": "nkc.performance/1"}}', "`nkc.contract/1` is no evidence"),
        ("\xff", "no evidence: "),
        ('[{"tactic": 1}]', "no evidence: "),
    ],
)
def test_what_is_no_evidence_is_refused_by_name(text, said, tmp_path) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"x\.json: ") as caught:
        handed_in.read(tmp_path / "x.json")
    assert said in str(caught.value)
    assert schema_named(tmp_path / "none.json") is None
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        handed_in.read(tmp_path / "none.json")


def test_a_record_of_another_contract_than_it_names_is_refused(tmp_path) -> None:
    handed_in.check_contracts(tmp_path, MEASURED.records)
    (one,) = MEASURED.records
    other = msgspec.structs.replace(one, request="nk_" + "0" * 24)
    with pytest.raises(UsageError, match=rf"its contract is {one.request}, and it names {other.request} \(make it"):
        handed_in.check_contracts(tmp_path, [one, other])
    with pytest.raises(UsageError, match="missing, and it has no default"):
        handed_in.check_contracts(tmp_path, [comparison()])


RANGED = find("dense", "gfx950.dense.fp8_mfma_16x64x128_s3")


def proven(**fields: object) -> Records:
    """Return passed records of the tactic's proofs, at every row count that is asked for."""
    checks = []
    for proof in RANGED.proofs(RANGED):
        dims = tuple(dims for dims in dim_values(proof) if dims)
        checks.append(check_of(canonical.contract_id(proof), "1" * 64, **{"dims": dims, **fields}))
    return Records(tactic=RANGED.name, checks=tuple(checks))


def test_records_that_ran_what_is_asked_are_taken(tmp_path) -> None:
    assert any(each.dims for each in proven().checks), "the tactic has a proof with a range of rows"
    handed_in.check_proofs(tmp_path, proven(), RANGED)
    handed_in.check_proofs(tmp_path, proven(passed=False, dims=(), worst=9.0), RANGED)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dims": ()}, "passed, but not at m "),
        ({"repeats": 2}, "2 runs compared, and 21 are asked for"),
        ({"worst": 3.0}, "its largest error is 3 of its bound"),
        ({"outside": Answer.NOT_RUN}, "nobody looked"),
    ],
)
def test_records_that_ran_less_than_is_asked_are_refused(fields, said, tmp_path) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        handed_in.check_proofs(tmp_path, proven(**fields), RANGED)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"replays":11', '"replays":3', "a time of 3 replays"),
        ('"launches":100', '"launches":0', "of 0 launches"),
        ('"median_us":10.0', '"median_us":1.0', "a median of 1 us that does not lie between its percentiles"),
        ('"err_ratio":0.0017', '"err_ratio":0.017', "passed with an RMS ratio of 0.017, limit 0.0025"),
        ('"worst":0.5', '"worst":1.5', "1.5 of its bound at worst"),
        ('"err_ratio_limit":0.0025', '"err_ratio_limit":0.1', "a limit of 0.1, beyond any of 0.036"),
    ],
)
def test_a_time_that_its_own_figures_do_not_bear_out_is_not_read(old, new, said, tmp_path) -> None:
    text = records.document(MEASURED).decode()
    assert old in text
    (tmp_path / "x.json").write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=f"no exported measurements: .*{said}"):
        handed_in.read(tmp_path / "x.json")
