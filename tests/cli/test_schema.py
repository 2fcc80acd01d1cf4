"""The published schemas, held by an independent validator against the reader and against what a build writes."""

import copy
import json
from collections.abc import Iterator

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nkc import api, ir
from nkc.emit.explain import encode
from nkc.emit.schemas import SCHEMAS
from nkc.ir import operations
from nkc.ir.schema import DIALECT
from nkc.tactics import tactics_of
from nkc.tactics.probe import probes, variants
from tests.cli.running import EXAMPLES, GFX950, SM_90, nkc
from tests.fixtures.contracts import ABSENT, bf16, document, problems

VALIDATORS = {name: Draft202012Validator(make()) for name, make in SCHEMAS.items()}
CONTRACT = VALIDATORS["contract"]

FULL = document(
    {
        "$.target.wave": 64,
        "$.shape.m": {"min": 0, "max": 64},
        "$.scales.a.dtype": "fp32",
        "$.scales.a.layout": "m_major",
        "$.scales.a.leading_dim": {"multiple_of": 4},
        "$.scales.b.shape": [16, 32],
        "$.epilogue": {"kind": "bias", "dtype": "bf16"},
        "$.numerics.round": "rne_once",
        "$.numerics.nan": "propagate",
        "$.properties": {"deterministic": True, "graph_capture": False, "constant": ["b"]},
        "$.alignment": {"a": 16, "a_scales": 4, "bias": 2, "out": 128},
        "$.constants": {"hidden": 2048},
        "$.schedule": {"tile": [64, 64, 128], "stages": 2, "waves": 4, "split_k": 1},
        "$.launch": {"grid": [32, 1, 1], "block": [256, 1, 1]},
        "$.lds": {"fixed_bytes": 1024, "dynamic_bytes": 0},
        "$.workspace": {"bytes": 0, "alignment": 256, "init": "none"},
        "$.arguments": [{"name": "a", "type": "ptr<fp8_e4m3>", "access": "read"}, {"name": "m", "type": "int32"}],
        "$.code": {"language": "triton", "digest": "0" * 64},
        "$.maturity": "experiment",
        "$.fallback": "framework",
        "$.provenance": {"model": "any", "layers": [1, 2, {"x": None}]},
    }
)
"""A contract that writes every field there is."""

SEEDS = (
    document(),
    document(bf16({"$.epilogue": {"kind": "gated_silu", "gate": "halves"}})),
    FULL,
    *(json.loads(path.read_text()) for path in sorted(EXAMPLES.glob("*.json"))),
    *(
        ir.contract_document(contract)
        for name in operations.names()
        for variant in list(variants(operations.get(name)))[::5]
        for contract in list(probes(operations.get(name), "gfx950", variant))[:1]
    ),
)


def test_the_seeds_are_contracts() -> None:
    assert all(problems(seed) == () for seed in SEEDS)
    assert set(FULL) == set(ir.Contract.__struct_fields__), "the full contract leaves a field out"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name) -> None:
    schema = SCHEMAS[name]()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT
    assert schema["$id"] == f"urn:nkc:schema:{name}:1"
    assert schema["title"] == f"nkc {name}"
    done = nkc("schema", name)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == json.loads(json.dumps(schema))


def closed_objects(value: object, path: str = "$") -> Iterator[tuple[str, dict]]:
    """Yield every object of a schema that lists all its properties."""
    if isinstance(value, dict):
        if value.get("additionalProperties") is False:
            yield path, value
        for key, item in value.items():
            yield from closed_objects(item, f"{path}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from closed_objects(item, f"{path}/{index}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_property_has_a_description(name) -> None:
    bare = [
        f"{path}: {key}"
        for path, schema in closed_objects(SCHEMAS[name]())
        for key, item in schema["properties"].items()
        if len(item.get("description", "")) < 8
    ]
    assert bare == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_sizes_name_their_unit(name) -> None:
    units = {
        "bytes": "byte",
        "size": "byte",
        "offset": "byte",
        "alignment": "byte",
        "grid": "workgroups",
        "tile": "elem",
    }
    units |= {"block": "", "wave": "lanes", "waves": "workgroup", "stride": "elements", "strides": "elements"}
    for path, schema in closed_objects(SCHEMAS[name]()):
        for key, item in schema["properties"].items():
            said = item["description"].lower()
            if key in units and item.get("type") != "string":
                assert units[key] in said or "size" in said, f"{path}: {key}: {said}"


@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_what_is_a_contract_is_valid(seed) -> None:
    CONTRACT.validate(seed)
    contract = ir.parse(json.dumps(seed).encode())
    CONTRACT.validate(ir.contract_document(contract))
    CONTRACT.validate(ir.contract_document(contract, notes=True))


def test_every_contract_that_a_tactic_lowers_is_valid() -> None:
    for name in operations.names():
        for tactic in tactics_of(name):
            for proof in tactic.proofs(tactic):
                CONTRACT.validate(ir.contract_document(tactic.lower(proof, tactic)))


REFUSED = {
    "no shape": {"$.shape": ABSENT},
    "shape is null": {"$.shape": None},
    "unknown section": {"$.shapes": {}},
    "another schema": {"$.schema": "nkc.contract/2"},
    "unknown chip": {"$.target.arch": "gfx951"},
    "another chip's wave": {"$.target.wave": 32},
    "unknown operation": {"$.operation": "dance"},
    "no k": {"$.shape.k": ABSENT},
    "a dim of another operation": {"$.shape.heads": 4},
    "a dim of zero": {"$.shape.m": 0},
    "a dim that is a word": {"$.shape.m": "64"},
    "a range of a fixed dim": {"$.shape.n": {"min": 1, "max": 2}},
    "a range without an end": {"$.shape.m": {"min": 1}},
    "unknown dtype": {"$.dtypes.a": "fp8_e5m2"},
    "a dtype that cannot be used here": {"$.dtypes.out": "int32"},
    "no scales": {"$.scales": ABSENT},
    "scales of one operand": {"$.scales.a": ABSENT},
    "scales for bf16": {"$.dtypes.a": "bf16", "$.dtypes.b": "bf16"},
    "a block of three axes": {"$.scales.a.block": [1, 1, 128]},
    "a block of zero": {"$.scales.b.block": [0, 128]},
    "scales without a layout": {"$.scales.a.layout": ABSENT},
    "M-major scales of weights": {"$.scales.b.layout": "m_major"},
    "a leading dimension of row-major scales": {"$.scales.a.leading_dim": 32},
    "bf16 scales": {"$.scales.a.dtype": "bf16"},
    "a layout that cannot be used here": {"$.layouts.a": "shuffled_16x16"},
    "no layout of the result": {"$.layouts.out": ABSENT},
    "unknown epilogue": {"$.epilogue": {"kind": "relu"}},
    "a bias without a dtype": {"$.epilogue": {"kind": "bias"}},
    "a dtype without a bias": {"$.epilogue": {"kind": "silu", "dtype": "bf16"}},
    "a bias of fp8": {"$.epilogue": {"kind": "bias", "dtype": "fp8_e4m3"}},
    "a gated epilogue without a gate": {"$.epilogue": {"kind": "gated_silu"}},
    "a gate without a gated epilogue": {"$.epilogue": {"kind": "identity", "gate": "halves"}},
    "no numerical rule": {"$.numerics.combine": ABSENT},
    "unknown numerical rule": {"$.numerics.accumulate": "fp64"},
    "a numerical field of another operation": {"$.numerics.epsilon": 1e-6},
    "a property that is a word": {"$.properties": {"deterministic": "yes"}},
    "the result as a constant": {"$.properties": {"constant": ["out"]}},
    "an alignment of three": {"$.alignment": {"a": 3}},
    "alignment of a bias that is not read": {"$.alignment": {"bias": 16}},
    "alignment beyond a page": {"$.alignment": {"a": 8192}},
    "a constant without a name": {"$.constants": {"": 1}},
    "a constant that is a real": {"$.constants": {"hidden": 1.5}},
    "a tile of two": {"$.schedule": {"tile": [64, 64]}},
    "no stages": {"$.schedule": {"stages": 0}},
    "a block along no axis": {"$.launch": {"block": [256, 0, 1]}},
    "negative LDS": {"$.lds": {"dynamic_bytes": -1}},
    "a workspace without a size": {"$.workspace": {"alignment": 256}},
    "an unknown argument type": {"$.arguments": [{"name": "a", "type": "ptr<fp64>"}]},
    "an argument that is null": {"$.arguments": [None]},
    "a digest that is too short": {"$.code": {"language": "triton", "digest": "00"}},
    "an empty fallback": {"$.fallback": " "},
    "unknown maturity": {"$.maturity": "good"},
    "provenance without a name": {"$.provenance": {"": 1}},
}


@pytest.mark.parametrize("edits", REFUSED.values(), ids=REFUSED)
def test_what_is_structurally_wrong_is_refused_by_schema_and_reader(edits) -> None:
    wrong = document(edits)
    assert problems(wrong)
    assert not CONTRACT.is_valid(wrong)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 1 << 41),
    st.sampled_from([0, 1, 2, 3, 16, 64, 128, 1.0, 16.0, 0.5, -0.0, 1 << 62, [], {}, [1, 128], [True, 32], "", " "]),
    st.sampled_from([{"min": 0, "max": 4}, {"min": 4, "max": 4}, {"multiple_of": 4}, [None], [[]], {"": 0}]),
    st.sampled_from(["bf16", "fp32", "fp8_e4m3", "row_major", "m_major", "shuffled_16x16", "bias", "silu", "halves"]),
    st.sampled_from(["gated_silu", "identity", "ascending", "fixed_order", "read", "a", "int32", "triton", "gfx942"]),
)
KEYS = st.sampled_from(
    [
        *("a", "b", "bias", "a_scales", "dtype", "gate", "leading_dim", "shape", "wave", "init", "min", "max", "", "x"),
        *sorted(ir.Contract.__struct_fields__),
    ]
)


@st.composite
def mutants(draw: st.DrawFn) -> object:
    """Return a contract with a few values replaced, taken out or added, anywhere."""
    root = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        place: object = root
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))  # type: ignore[arg-type, call-overload]
            step = draw(st.sampled_from(keys)) if keys else None
            inner = place[step] if step is not None else None  # type: ignore[index]
            if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
                place = inner
                continue
            break
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace" if step is not None:
                place[step] = copy.deepcopy(draw(ODD))  # type: ignore[index]
            case "remove" if step is not None:
                del place[step]  # type: ignore[attr-defined]
            case _ if isinstance(place, dict):
                place[draw(KEYS)] = copy.deepcopy(draw(ODD))
    return root


@settings(max_examples=400)
@given(mutants())
def test_what_the_schema_refuses_the_reader_refuses_too(mutant) -> None:
    valid, readable = CONTRACT.is_valid(mutant), problems(mutant) == ()
    event(f"schema {'accepts' if valid else 'refuses'}, reader {'accepts' if readable else 'refuses'}")
    assert valid or not readable


def test_explanations_of_the_examples_are_valid() -> None:
    for path in sorted(EXAMPLES.glob("*.json")):
        for allowed in (False, True):
            record = json.loads(encode(api.explain(path, allow_experimental=allowed)))
            VALIDATORS["explain"].validate(record)
            CONTRACT.validate(record["contract"])


def test_a_record_with_a_field_too_many_or_of_another_type_is_refused() -> None:
    record = json.loads(encode(api.explain(GFX950)))
    for path, value in (("more", 1), ("request", 5), ("disposition", "lost"), ("candidates", None)):
        assert not VALIDATORS["explain"].is_valid({**record, path: value})
    del record["policy"]
    assert not VALIDATORS["explain"].is_valid(record)


@pytest.mark.toolchain
def test_what_a_build_writes_is_valid(tmp_path) -> None:
    assert nkc("compile", GFX950, SM_90, "-o", tmp_path, "--allow-experimental").code == 0
    checked = set()
    for path in sorted(tmp_path.rglob("*.json")):
        VALIDATORS[path.stem].validate(json.loads(path.read_text()))
        checked.add(path.stem)
    assert checked == set(SCHEMAS)
    for explained in tmp_path.glob("*/explain.json"):
        sealed = json.loads(explained.read_text())["sealed"]
        CONTRACT.validate(sealed)


def test_an_unknown_document_is_refused() -> None:
    done = nkc("schema", "kontract")
    assert (done.code, done.out) == (2, "")


def test_a_contract_schema_lists_what_the_reader_knows() -> None:
    schema = SCHEMAS["contract"]()
    assert set(schema["properties"]) == set(ir.Contract.__struct_fields__)
    assert set(schema["$defs"]) == set(operations.names())
