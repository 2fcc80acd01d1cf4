"""The operations around a GEMM as contracts: what must be said, what may be left out, and what makes another id."""

import copy
import json

import pytest

from nkc import ir
from nkc.ir import operations
from nkc.ir.canonical import canonical_bytes, contract_id
from nkc.ir.contract import Access

from ..fixtures.contracts import problems, read

CODES = {"block": [1, 128], "layout": "row_major"}
RULES = {"quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}
GROUP = {
    "schema": "nkc.contract/1",
    "target": {"arch": "gfx950"},
    "operation": "group_quant",
    "shape": {"m": 5, "k": 256},
    "dtypes": {"x": "bf16", "out": "fp8_e4m3"},
    "scales": {"out": CODES},
    "layouts": {"x": "row_major", "out": "row_major"},
    "numerics": RULES,
}
SILU = {
    **GROUP,
    "operation": "silu_mul_quant",
    "epilogue": {"kind": "gated_silu", "gate": "halves"},
    "numerics": {"staging": "fp32", **RULES},
}
NORM_RULES = {"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-6}
NORM = {
    **GROUP,
    "operation": "rms_norm_quant",
    "dtypes": {"x": "bf16", "weight": "bf16", "out": "fp8_e4m3"},
    "layouts": {"x": "row_major", "weight": "row_major", "out": "row_major"},
    "numerics": {**NORM_RULES, **RULES},
}
DENSE = {
    **GROUP,
    "operation": "dense",
    "shape": {"m": 5, "n": 256, "k": 384},
    "dtypes": {"a": "fp8_e4m3", "b": "fp8_e4m3", "acc": "fp32", "out": "fp8_e4m3"},
    "scales": {"a": CODES, "b": {"block": [128, 128], "layout": "row_major"}, "out": CODES},
    "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
    "numerics": {"accumulate": "matrix_unit_fp32", "combine": "ascending", "staging": "bf16", **RULES},
}


def edited(document, **edits):
    """Return a document with values exchanged at paths such as numerics__overflow; None takes one out."""
    made = copy.deepcopy(document)
    for path, value in edits.items():
        *sections, last = path.split("__")
        place = made
        for section in sections:
            place = place[section]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return made


def summed(document):
    """Return a norm with a residual."""
    both = {"residual": "bf16", "residual_out": "bf16"}
    return edited(
        document,
        dtypes={**document["dtypes"], **both},
        layouts={**document["layouts"], **dict.fromkeys(both, "row_major")},
    )


def bare(document):
    """Return a norm whose result is bf16."""
    return edited(document, dtypes__out="bf16", scales=None, numerics=NORM_RULES)


@pytest.mark.parametrize("document", [GROUP, SILU, NORM, summed(NORM), bare(NORM), bare(summed(NORM)), DENSE])
def test_a_contract_reads_back_as_itself(document) -> None:
    contract = read(document)
    again = ir.parse(json.dumps(ir.contract_document(contract)).encode())
    assert again == contract
    assert contract_id(again) == contract_id(contract)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (edited(GROUP, numerics__quantize=None), ("$.numerics.quantize: missing, and it has no default (write it)",)),
        (edited(GROUP, numerics__overflow=None), ("$.numerics.overflow: missing, and it has no default (write it)",)),
        (
            edited(GROUP, numerics__amax_floor=None),
            ("$.numerics.amax_floor: missing, and it has no default (write it)",),
        ),
        (edited(GROUP, numerics__amax_floor=-1.0), ("$.numerics.amax_floor: -1.0 is negative",)),
        (
            edited(GROUP, numerics__quantize="multiply"),
            ("$.numerics.quantize: unknown rule `multiply` (known: divide, reciprocal, ue8m0)",),
        ),
        (
            edited(GROUP, shape__k=200),
            ("$.shape.k: 200 is not a multiple of 128, the scale block of `out` along k (pad k to 256)",),
        ),
        (
            edited(GROUP, scales=None),
            (
                "$.scales.out: missing, `fp8_e4m3` means nothing without its scales "
                '(for example {"block": [1, 128], "layout": "row_major"})',
            ),
        ),
        (
            edited(SILU, epilogue=None),
            ('$.epilogue: missing, `silu_mul_quant` is nothing without one (for example {"kind": "gated_silu"})',),
        ),
        (
            edited(SILU, epilogue__gate=None),
            ("$.epilogue.gate: missing; it says how gate and up columns lie (`halves` or `interleaved`)",),
        ),
        (
            edited(NORM, numerics__epsilon=None),
            ("$.numerics.epsilon: missing, and it has no default (write it)",),
        ),
        (
            edited(NORM, numerics__staging="fp32"),
            (
                "$.numerics.staging: `fp32`, but without a residual there is no sum that waits: x is normalised as it "
                "is (write `bf16`)",
            ),
        ),
        (
            edited(summed(NORM), dtypes__residual_out=None, layouts__residual_out=None),
            ("$.dtypes.residual_out: missing, but there is `residual` (give both or neither)",),
        ),
        (
            edited(bare(NORM), numerics={**NORM_RULES, "quantize": "divide"}),
            ("$.numerics.quantize: `bf16` is not quantised to (leave it out)",),
        ),
        (
            edited(DENSE, shape__n=576),
            ("$.shape.n: 576 is not a multiple of 128, the scale block of `out` along n (pad n to 640)",),
        ),
        (
            edited(DENSE, numerics__staging=None),
            ("$.numerics.staging: missing, and it has no default (write it)",),
        ),
        (
            {**DENSE, "epilogue": {"kind": "gated_silu", "gate": "halves"}},
            (
                "$.epilogue.kind: `gated_silu` leaves n / 2 columns, and the scales of `out` are over n "
                "(use identity with a bf16 result, then silu_mul_quant)",
            ),
        ),
        (
            edited(NORM, layouts__residual="row_major"),
            ("$.layouts.residual: there is no `residual` in $.dtypes (give its dtype, or leave this out)",),
        ),
        (
            edited(summed(NORM), dtypes__residual=None),
            (
                "$.layouts.residual: there is no `residual` in $.dtypes (give its dtype, or leave this out)",
                "$.dtypes.residual: missing, but there is `residual_out` (give both or neither)",
            ),
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(document, said) -> None:
    assert problems(document) == said


def test_every_rule_is_another_id() -> None:
    """F20, F22: neither the two overflow rules nor the flavours of division ever share an entry."""
    variants = [
        *(edited(GROUP, numerics__quantize=flavour) for flavour in ("divide", "reciprocal", "ue8m0")),
        edited(GROUP, numerics__overflow="ieee"),
        edited(GROUP, numerics__amax_floor=0.0),
        edited(GROUP, dtypes__x="fp32"),
        edited(GROUP, scales__out__layout="m_major"),
        SILU,
        edited(SILU, numerics__staging="bf16"),
        edited(SILU, epilogue__gate="interleaved"),
        NORM,
        edited(NORM, numerics__epsilon=1e-5),
        edited(NORM, numerics__weight="one_plus"),
        edited(NORM, numerics__reduce="sequential"),
        summed(NORM),
        edited(summed(NORM), numerics__staging="fp32"),
        bare(NORM),
        DENSE,
        edited(DENSE, numerics__staging="fp32"),
        edited(DENSE, numerics__quantize="ue8m0"),
        edited(DENSE, numerics__amax_floor=0.0),
        edited(DENSE, scales__out__layout="m_major"),
    ]
    assert len({contract_id(read(document)) for document in variants}) == len(variants)


def test_reals_are_fp32_and_written_in_hex_where_they_are_hashed() -> None:
    form = json.loads(canonical_bytes(read(NORM)))
    assert form["numerics"]["epsilon"] == "0x1.0c6f7a0000000p-20"
    assert form["numerics"]["amax_floor"] == "0x1.b7cdfe0000000p-34"
    same = edited(NORM, numerics__epsilon=9.999999974752427e-07)
    assert contract_id(read(same)) == contract_id(read(NORM))


def test_arguments_come_in_the_order_of_the_operands_each_before_its_scales() -> None:
    def names(document):
        contract = read(document)
        return [argument.name for argument in operations.get(contract.operation).arguments(contract)]

    assert names(GROUP) == ["x", "out", "out_scales"]
    assert names(edited(GROUP, shape__m={"min": 0, "max": 8})) == ["x", "out", "out_scales", "m"]
    stored = edited(
        SILU, dtypes={**SILU["dtypes"], "product": "bf16"}, layouts={**SILU["layouts"], "product": "row_major"}
    )
    assert names(stored) == ["x", "product", "out", "out_scales"]
    assert names(summed(NORM)) == ["x", "residual", "weight", "residual_out", "out", "out_scales"]
    assert names(bare(NORM)) == ["x", "weight", "out"]
    operands = ["a", "b", "a_scales", "b_scales"]
    assert names(DENSE) == [*operands, "out", "out_scales"]
    biased = {**edited(DENSE, shape__m={"min": 0, "max": 8}), "epilogue": {"kind": "bias", "dtype": "bf16"}}
    assert names(biased) == [*operands, "bias", "out", "out_scales", "m"]
    listed = operations.get("group_quant").arguments(read(GROUP))
    assert [argument.access for argument in listed] == [Access.READ, Access.WRITE, Access.WRITE]


def test_the_budget_names_every_stage_with_a_number() -> None:
    def stages(document):
        contract = read(document)
        return {stage.name: stage for stage in operations.get(contract.operation).stages(contract)}

    assert list(stages(GROUP)) == ["quant.scale", "quant.code"]
    assert stages(GROUP)["quant.code"].acceptance == "bit-exact"
    assert list(stages(SILU)) == ["smq.act", "quant.scale", "quant.code"]
    assert list(stages(summed(NORM))) == ["rms.add", "rms.norm", "quant.scale", "quant.code"]
    assert list(stages(bare(NORM))) == ["rms.norm", "rms.store"]
    product = ["gemm.dot", "gemm.promote", "gemm.stage", "quant.scale", "quant.code"]
    assert list(stages(DENSE)) == product
    assert float(stages(DENSE)["gemm.stage"].bound.split()[0]) > 0
    unrounded = stages(edited(DENSE, numerics__staging="fp32"))
    assert (unrounded["gemm.stage"].store, unrounded["gemm.stage"].error) == ("fp32 register", "none")
    for document in (GROUP, SILU, summed(NORM), bare(NORM), DENSE):
        assert all(float(stage.bound.split()[0]) > 0 for stage in stages(document).values())
