"""Ids: a pure function of what a contract says, moved by every field of it and by nothing else."""

import json
import os
import pickle
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkc import ir
from nkc.ir.canonical import NOTES, canonical_bytes

from ..fixtures.contracts import BASE, Edits, bf16, contract, document, read

GOLDEN = (
    '{"alignment":{"a":16,"a_scales":16,"b":16,"b_scales":16,"out":16},"constants":{},'
    '"dtypes":{"a":"fp8_e4m3","acc":"fp32","b":"fp8_e4m3","out":"bf16"},"epilogue":{"kind":"identity"},'
    '"layouts":{"a":"row_major","b":"row_major_nk","out":"row_major"},'
    '"numerics":{"accumulate":"matrix_unit_fp32","combine":"ascending","nan":"propagate","round":"rne_once"},'
    '"operation":"dense","properties":{"constant":[],"deterministic":true,"graph_capture":true},'
    '"scales":{"a":{"block":[1,128],"dtype":"fp32","layout":"row_major"},'
    '"b":{"block":[128,128],"dtype":"fp32","layout":"row_major"}},"schema":"nkc.contract/1",'
    '"shape":{"k":4096,"m":1,"n":2048},"target":{"arch":"gfx950","wave":64}}'
)
GOLDEN_ID = "nk_6cb3bf47806e1719449124bc"
"""The first 24 digits of the SHA-256 of that text, taken with sha256sum: no release may ever move it."""


def test_the_canonical_form_is_what_it_always_was() -> None:
    assert canonical_bytes(contract()).decode() == GOLDEN
    assert ir.contract_id(contract()) == GOLDEN_ID


# what moves no id

DEFAULTS: tuple[Edits, ...] = (
    {"$.target.wave": 64},
    {"$.scales.a.dtype": "fp32"},
    {"$.scales.b.dtype": "fp32"},
    {"$.scales.a.shape": [1, 32]},
    {"$.epilogue": {"kind": "identity"}},
    {"$.epilogue": None},
    {"$.numerics.round": "rne_once"},
    {"$.numerics.nan": "propagate"},
    {"$.properties": {}},
    {"$.properties": {"deterministic": True, "graph_capture": True, "constant": []}},
    {"$.alignment": {}},
    {"$.alignment": {"a": 16, "b": 16, "a_scales": 16, "b_scales": 16, "out": 16}},
    {"$.constants": {}},
    {"$.schedule": {}},
    {"$.schedule": {"tile": None}},
    {"$.launch": {}},
    {"$.launch": {"dependent": None}},
    {"$.lds": {"fixed_bytes": None}},
    {"$.workspace": None},
)


@pytest.mark.parametrize("edits", DEFAULTS, ids=str)
def test_K15_an_omitted_field_and_its_default_are_one_contract(edits: Edits) -> None:
    assert contract(edits) == contract()
    assert ir.contract_id(contract(edits)) == GOLDEN_ID


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"$.shape.m": 5, "$.scales.a.layout": "m_major"}, {"$.scales.a.leading_dim": 5}),
        (
            {"$.shape.m": 5, "$.scales.a.layout": "m_major", "$.scales.a.leading_dim": 8},
            {"$.scales.a.leading_dim": {"multiple_of": 4}},
        ),
        ({"$.shape.m": {"min": 3, "max": 3}}, {"$.shape.m": 3}),
        ({"$.properties.constant": ["b", "a"]}, {"$.properties.constant": ["a", "b"]}),
        ({"$.workspace.bytes": 8}, {"$.workspace": {"bytes": 8, "alignment": 256, "init": "none"}}),
        (
            {"$.arguments": [{"name": "a", "type": "int32"}]},
            {"$.arguments": [{"name": "a", "type": "int32", "access": "read"}]},
        ),
        ({"$.epilogue": {"kind": "bias", "dtype": "fp32"}}, {"$.alignment.bias": 16}),
    ],
    ids=str,
)
def test_two_ways_to_say_one_thing_are_one_contract(left: Edits, right: Edits) -> None:
    assert ir.contract_id(contract({**left, **right})) == ir.contract_id(contract(left))


@pytest.mark.parametrize(
    "note",
    [
        {"$.provenance": {"model": "Qwen3.6-35B", "layer": {"index": 3}, "time": 1.5}},
        {"$.fallback": "framework"},
        {"$.maturity": "accepted"},
    ],
    ids=str,
)
def test_N02_notes_move_no_id(note: Edits) -> None:
    assert ir.contract_id(contract(note)) == GOLDEN_ID
    assert contract(note) != contract()


def _shuffled(value: object, order: st.DataObject) -> object:
    if isinstance(value, dict):
        names = order.draw(st.permutations(sorted(value)))
        return {name: _shuffled(value[name], order) for name in names}
    return value


@given(st.data(), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_K15_key_order_and_white_space_move_no_id(
    data: st.DataObject, indent: int | str | None, ascii_only: bool
) -> None:
    value = _shuffled(document({"$.provenance": {"ü": 1, "a": {"z": 1, "b": 2}}}), data)
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert ir.contract_id(ir.parse(f" {text}\r\n".encode())) == GOLDEN_ID


# what moves the id

CHANGES: tuple[Edits, ...] = (
    {},
    {"$.target.arch": "sm_90"},
    {"$.shape.m": 2},
    {"$.shape.n": 2049},
    {"$.shape.k": 4224},
    {"$.shape.m": {"min": 0, "max": 1}},
    {"$.shape.m": {"min": 1, "max": 2}},
    {"$.dtypes.out": "fp32"},
    bf16(),
    {"$.scales.a.block": [2, 128]},
    {"$.scales.a.block": [1, 64]},
    {"$.scales.b.block": [64, 128]},
    {"$.scales.b.block": [128, 64]},
    {"$.scales.a.layout": "m_major"},
    {"$.scales.a.layout": "m_major", "$.scales.a.leading_dim": 4},
    {"$.scales.a.layout": "m_major", "$.shape.m": {"min": 0, "max": 1}},
    {"$.scales.a.layout": "m_major", "$.shape.m": {"min": 0, "max": 1}, "$.scales.a.leading_dim": {"multiple_of": 4}},
    {"$.layouts.b": "shuffled_16x16"},
    {"$.epilogue.kind": "silu"},
    {"$.epilogue.kind": "gelu_tanh"},
    {"$.epilogue.kind": "gelu_erf"},
    {"$.epilogue": {"kind": "bias", "dtype": "bf16"}},
    {"$.epilogue": {"kind": "bias", "dtype": "fp32"}},
    {"$.epilogue": {"kind": "gated_silu", "gate": "halves"}},
    {"$.epilogue": {"kind": "gated_silu", "gate": "interleaved"}},
    {"$.numerics.accumulate": "fp32_sequential"},
    {"$.numerics.accumulate": "tensor_core_fp8"},
    {"$.numerics.combine": "fixed_order"},
    {"$.properties.deterministic": False},
    {"$.properties.graph_capture": False},
    {"$.properties.constant": ["b"]},
    {"$.properties.constant": ["a", "b"]},
    {"$.properties.constant": ["b", "b_scales"]},
    {"$.alignment.a": 8},
    {"$.alignment.b": 8},
    {"$.alignment.a_scales": 32},
    {"$.alignment.out": 2},
    {"$.constants.c": 1},
    {"$.constants.c": 2},
    {"$.constants.d": 1},
    {"$.schedule.tile": [16, 64, 128]},
    {"$.schedule.stages": 2},
    {"$.schedule.waves": 2},
    {"$.schedule.split_k": 2},
    {"$.launch.grid": [32, 1, 1]},
    {"$.launch.block": [32, 1, 1]},
    {"$.launch.dependent": True},
    {"$.launch.dependent": False},
    {"$.lds.fixed_bytes": 1024},
    {"$.lds.dynamic_bytes": 1024},
    {"$.lds": {"fixed_bytes": 1024, "dynamic_bytes": 1024}},
    {"$.workspace.bytes": 0},
    {"$.workspace.bytes": 1024},
    {"$.workspace": {"bytes": 0, "alignment": 512}},
    {"$.workspace": {"bytes": 0, "init": "zero"}},
    {"$.arguments": []},
    {"$.arguments": [{"name": "a", "type": "ptr<bf16>"}]},
    {"$.arguments": [{"name": "b", "type": "ptr<bf16>"}]},
    {"$.arguments": [{"name": "a", "type": "ptr<fp32>"}]},
    {"$.arguments": [{"name": "a", "type": "ptr<bf16>", "access": "write"}]},
    {"$.code": {"language": "triton", "digest": "0" * 64}},
    {"$.code": {"language": "triton", "digest": "1" * 64}},
    {"$.code": {"language": "cuda", "digest": "0" * 64}},
)


def test_N03_every_single_change_is_another_id() -> None:
    ids = [ir.contract_id(contract(edits)) for edits in CHANGES]
    same = [(CHANGES[i], CHANGES[j]) for i, j in combinations(range(len(ids)), 2) if ids[i] == ids[j]]
    assert same == []


def test_N03_every_field_of_a_contract_is_among_the_changes() -> None:
    """A field added to the type without a row above fails here."""
    changed = {path.split(".")[1] for edits in CHANGES for path in edits}
    settled = {"schema", "operation"}  # one value each
    assert set(ir.Contract.__struct_fields__) - set(NOTES) - settled <= changed


# the document that is written


@pytest.mark.parametrize(
    "edits", [*CHANGES, {"$.provenance": {"a": [1, {"b": None}]}, "$.fallback": "x", "$.maturity": "verified"}], ids=str
)
def test_the_written_document_reads_back_as_the_same_contract(edits: Edits) -> None:
    original = contract(edits)
    again = read(ir.contract_document(original))
    assert ir.contract_id(again) == ir.contract_id(original)
    assert read(ir.contract_document(original, notes=True)) == original
    assert not set(NOTES) & set(ir.contract_document(original))


@settings(max_examples=50)
@given(st.lists(st.sampled_from(CHANGES), max_size=4))
def test_any_readable_mixture_of_changes_round_trips(mixture: list[Edits]) -> None:
    mixed = {path: value for edits in mixture for path, value in edits.items() if path != "$.scales"}
    try:
        original = contract(mixed)
    except ir.ContractError:
        return  # the mixture contradicts itself
    assert ir.contract_id(read(ir.contract_document(original))) == ir.contract_id(original)


_PROGRAM = "import sys; from nkc import ir; print(ir.contract_id(ir.parse(sys.stdin.buffer.read())))"


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_the_hash_seed_moves_no_id(seed: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(BASE).encode(),
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    assert result.stdout.decode().strip() == GOLDEN_ID


# reals, on the operation that tests bring along


def _rotation(**numerics: object) -> ir.Contract:
    return read(
        {
            "schema": "nkc.contract/1",
            "target": {"arch": "sm_90"},
            "operation": "rotate_rows",
            "shape": {"rows": 48, "hidden": 2048},
            "dtypes": {"x": "bf16", "out": "bf16"},
            "layouts": {"x": "row_major", "out": "row_major"},
            "numerics": numerics,
        }
    )


@pytest.mark.usefixtures("rotate_rows")
class TestReals:
    def test_they_are_written_as_fp32_in_hex(self) -> None:
        assert b'"numerics":{"eps":"0x1.0c6f7a0000000p-20"}' in canonical_bytes(_rotation(eps=1e-6))

    @pytest.mark.parametrize("same", ["1", "1.0", "1e0", "10e-1", "1.0000000001"])
    def test_K15_one_value_has_one_id_however_it_is_written(self, same: str) -> None:
        assert ir.contract_id(_rotation(eps=json.loads(same))) == ir.contract_id(_rotation(eps=1.0))

    def test_K15_an_omitted_real_is_its_default(self) -> None:
        assert ir.contract_id(_rotation()) == ir.contract_id(_rotation(eps=2.0**-20))
        assert ir.contract_id(_rotation()) != ir.contract_id(_rotation(eps=2.0**-21))

    def test_the_smallest_number_is_one(self) -> None:
        assert _rotation(eps=1.5e-45).numerics["eps"] == 2.0**-149

    def test_zero_has_no_sign(self) -> None:
        assert ir.contract_id(_rotation(eps=-0.0)) == ir.contract_id(_rotation(eps=0))

    @pytest.mark.parametrize(
        ("eps", "line"),
        [
            (-1e-6, "$.numerics.eps: -1e-06 is negative"),
            (1e39, "$.numerics.eps: 1e+39 is beyond the largest fp32 value"),
            (7e-46, "$.numerics.eps: 7e-46 is 0 in fp32 (write 0, or at least 1.5e-45)"),
            ("1e-6", "$.numerics.eps: `1e-6` is not a number"),
            (True, "$.numerics.eps: `true` is not a number"),
        ],
    )
    def test_what_is_no_fp32_is_refused(self, eps: object, line: str) -> None:
        with pytest.raises(ir.ContractError) as caught:
            _rotation(eps=eps)
        assert caught.value.lines() == (f"contract.json:{line}",)

    @given(st.floats(0, 2.0**127, width=32))
    def test_the_written_document_keeps_every_bit(self, eps: float) -> None:
        original = _rotation(eps=eps)
        assert read(ir.contract_document(original)) == original


def test_a_contract_travels_to_another_process() -> None:
    original = contract({"$.provenance": {"model": {"name": "a", "layers": [1, 2]}}})
    assert pickle.loads(pickle.dumps(original)) == original
