"""Every kind of predicate at its boundary: what it accepts, what it rejects, and what it offers instead."""

import dataclasses
import struct
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.ir import operations
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType, Layout, MultipleOf
from nkc.tactics import addressing, hardware
from nkc.tactics import predicate as p
from nkc.tactics.addressing import INT32_MAX, OffsetUnit, ScaleOffsetsFitInt32, offsets_fit_int32
from nkc.tactics.hardware import TilesAtMost
from nkc.tactics.predicate import Predicate, lookup, show
from nkc.tactics.reason import Reason, StageName

from ..fixtures.contracts import contract
from ..fixtures.values import put

BASE = contract()
M = "$.shape.m"
ELEMENTS, BYTES = OffsetUnit.ELEMENTS, OffsetUnit.BYTES
DENSE = operations.get("dense")


def span(low: int, high: int) -> Bounded:
    return Bounded(min=low, max=high)


def asked(predicate: Predicate, **fields: object) -> Reason | None:
    """Ask a predicate of the base contract with values put at paths, where `__` stands for a dot."""
    changed = BASE
    for path, value in fields.items():
        changed = put(changed, f"$.{path.replace('__', '.')}", value)
    return predicate.check(changed)


# predicate, the field's values that pass, (value, actual, nearest) of those that do not
BOUNDARIES: tuple[tuple[Predicate, str, tuple[object, ...], tuple[tuple[object, str, object], ...]], ...] = (
    (p.equals(M, 16), "16", (16,), ((15, "15", 16), (17, "17", 16), (span(16, 17), "16..17", 16))),
    (
        p.equals("$.layouts.b", Layout.ROW_MAJOR_NK),
        "row_major_nk",
        (Layout.ROW_MAJOR_NK,),
        ((Layout.SHUFFLED_16X16, "shuffled_16x16", "row_major_nk"), (None, "absent", "row_major_nk")),
    ),
    (
        p.equals("$.scales.a.block", (1, 128)),
        "[1, 128]",
        ((1, 128),),
        (((1, 64), "[1, 64]", (1, 128)), ((128, 1), "[128, 1]", (1, 128))),
    ),
    (p.equals("$.properties.deterministic", False), "false", (False,), ((True, "true", False),)),
    (
        p.one_of("$.dtypes.out", DType.BF16, DType.FP32),
        "one of bf16, fp32",
        (DType.BF16, DType.FP32),
        ((DType.INT32, "int32", "bf16"),),
    ),
    (
        p.multiple_of(M, 16, why="tiles"),
        "a multiple of 16 (tiles)",
        (16, 32, 1600),
        (
            *((15, "15", 16), (17, "17", 16), (1, "1", 16), (24, "24", 32), (23, "23", 16), (25, "25", 32)),
            *((span(16, 32), "16..32", 32), (span(0, 17), "0..17", 32)),
        ),
    ),
    (p.multiple_of(M, 1), "a multiple of 1", (1, 7, span(0, 9)), ((None, "absent", None),)),
    (
        p.at_most(M, 64, why="rows"),
        "at most 64 (rows)",
        (1, 64, span(0, 64)),
        (
            *((65, "65", 64), (span(0, 65), "0..65", span(0, 64))),
            *((span(65, 70), "65..70", 64), (span(64, 65), "64..65", 64)),
        ),
    ),
    (
        p.AtLeast("$.shape.k", 1024),
        "at least 1024",
        (1024, 4096),
        ((1023, "1023", 1024), (None, "absent", 1024)),
    ),
    (
        p.AtLeast(M, 8),
        "at least 8",
        (8, span(8, 9)),
        ((span(7, 9), "7..9", span(8, 9)), (span(0, 7), "0..7", 8), (span(0, 8), "0..8", 8)),
    ),
    (
        p.InSteps(M, 48, 480, 48),
        "48 to 480 in steps of 48",
        (48, 96, 480),
        (
            *((47, "47", 48), (49, "49", 48), (481, "481", 480), (528, "528", 480), (72, "72", 96), (71, "71", 48)),
            *((span(48, 96), "48..96", 96), (None, "absent", 48)),
        ),
    ),
    (
        p.InSteps(M, 4, 8, 1),
        "4 to 8 in steps of 1",
        (4, 8, span(4, 8), span(5, 6)),
        ((span(3, 8), "3..8", span(4, 8)), (span(4, 9), "4..9", span(4, 8)), (span(9, 12), "9..12", 8), (3, "3", 4)),
    ),
    (
        p.Serves("$.numerics.accumulate", Accumulate.MATRIX_UNIT_FP32),
        "matrix_unit_fp32 or tensor_core_fp8",
        (Accumulate.MATRIX_UNIT_FP32, Accumulate.TENSOR_CORE_FP8),
        ((Accumulate.FP32_SEQUENTIAL, "fp32_sequential", "matrix_unit_fp32"), (None, "absent", "matrix_unit_fp32")),
    ),
    (
        p.Serves("$.numerics.accumulate", Accumulate.TENSOR_CORE_FP8),
        "tensor_core_fp8",
        (Accumulate.TENSOR_CORE_FP8,),
        ((Accumulate.MATRIX_UNIT_FP32, "matrix_unit_fp32", "tensor_core_fp8"),),
    ),
    (
        p.Serves("$.numerics.combine", Combine.ASCENDING),
        "ascending or fixed_order",
        (Combine.ASCENDING, Combine.FIXED_ORDER),
        ((None, "absent", "ascending"),),
    ),
    (
        p.Serves("$.numerics.combine", Combine.FIXED_ORDER),
        "fixed_order",
        (Combine.FIXED_ORDER,),
        ((Combine.ASCENDING, "ascending", "fixed_order"),),
    ),
    (
        addressing.Aligned("a", 16),
        "at least 16 bytes",
        (16, 32, None),
        ((8, "8", 16), (1, "1", 16)),
    ),
    (hardware.IsTarget("gfx950"), "gfx950", ("gfx950",), (("gfx942", "gfx942", None), ("sm_90", "sm_90", None))),
)  # fmt: skip

_FIELDS = {"aligned": "$.alignment.a", "is_target": "$.target.arch"}


def _field(predicate: Predicate) -> str:
    return getattr(predicate, "field", _FIELDS.get(predicate.name, ""))


@pytest.mark.parametrize(
    ("predicate", "value"),
    [(predicate, value) for predicate, _, passing, _ in BOUNDARIES for value in passing],
    ids=str,
)
def test_it_accepts_up_to_its_boundary(predicate: Predicate, value: object) -> None:
    assert predicate.check(put(BASE, _field(predicate), value)) is None


@pytest.mark.parametrize(
    ("predicate", "wanted", "value", "actual", "nearest"),
    [(predicate, wanted, *failing) for predicate, wanted, _, rejected in BOUNDARIES for failing in rejected],
    ids=str,
)
def test_N33_it_rejects_beyond_with_field_wanted_and_actual(
    predicate: Predicate, wanted: str, value: object, actual: str, nearest: object
) -> None:
    assert predicate.check(put(BASE, _field(predicate), value)) == Reason(
        stage=StageName.PREDICATE,
        predicate=predicate.name,
        field=_field(predicate),
        wanted=wanted,
        actual=actual,
        nearest=nearest,  # type: ignore[arg-type]
    )


def test_N25_an_undeclared_constant_is_never_ignored() -> None:
    predicate = p.Declares(("rows_per_wave",))
    assert asked(predicate) is None
    assert asked(predicate, constants__rows_per_wave=4) is None
    reason = asked(predicate, constants__rows_per_wave=4, constants__hidden=7, constants__x=1)
    assert reason is not None
    assert (reason.field, reason.wanted, reason.actual) == (
        "$.constants.hidden",
        "only declared constants (rows_per_wave)",
        "undeclared: hidden, x",
    )
    none = asked(p.Declares(()), constants__hidden=7)
    assert none is not None
    assert none.wanted == "only declared constants (none)"


# what only the chip decides


@pytest.mark.parametrize(
    ("arch", "limit"),
    [
        ("gfx950", 163_840),
        ("sm_90", 232_448),
        ("gfx942", 65_536),
        ("sm_89", 101_376),
        ("sm_120", 101_376),
        ("sm_100", 232_448),
    ],
)
def test_F25_lds_is_compared_exactly_with_the_chips_limit(arch: str, limit: int) -> None:
    on = put(BASE, "$.target.arch", arch)
    assert hardware.LdsFits(limit).check(on) is None
    for needed in (limit + 1, 147_456):
        reason = hardware.LdsFits(needed).check(on)
        assert (reason is None) == (needed <= limit)
        if reason is not None:
            assert reason.wanted == f"a target with at least {needed} bytes of LDS a workgroup"
            assert reason.actual == f"{arch} with {limit}"
            assert (reason.field, reason.nearest) == ("$.target.arch", None)


@pytest.mark.parametrize(
    ("arch", "has"),
    [("gfx950", True), ("sm_90", True), ("sm_89", True), ("sm_100", True), ("sm_120", True), ("gfx942", False)],
)
def test_a_capability_is_asked_of_the_chip(arch: str, has: bool) -> None:
    reason = hardware.TargetHas("ocp_fp8", "$.dtypes.a").check(put(BASE, "$.target.arch", arch))
    assert (reason is None) == has
    if reason is not None:
        assert (reason.field, reason.wanted) == ("$.dtypes.a", "a target with ocp_fp8")
        assert reason.actual == f"fp8_e4m3 on {arch}, without it"


def test_a_capability_that_is_not_stated_is_not_there() -> None:
    assert asked(hardware.TargetHas("telepathy", "$.dtypes.a")) is not None
    assert asked(hardware.TargetHas("wave", "$.dtypes.a")) is not None  # a number, not a capability


@pytest.mark.parametrize(
    ("m", "n", "tiles", "nearest"),
    [
        (16, 256 * 64, None, None),
        (16, 256 * 64 + 1, "257", 256 * 64),
        (17, 128 * 64, None, None),
        (17, 128 * 64 + 1, "258", 128 * 64),
        (span(0, 17), 128 * 64 + 1, "258", 128 * 64),
        (16 * 256, 64, None, None),
        (16 * 256 + 1, 1, "257", None),
    ],
)
def test_tiles_are_counted_at_the_largest_value(m: object, n: int, tiles: str | None, nearest: int | None) -> None:
    predicate = TilesAtMost("$.shape.n", axes=("m", "n"), tile=(16, 64))
    reason = asked(predicate, shape__m=m, shape__n=n)
    assert (reason.actual if reason else None) == tiles
    assert (reason.nearest if reason else None) == nearest


# F07: 32-bit offsets, by arithmetic


@pytest.mark.parametrize("m", [1 << 20, span(0, 1 << 20)])
def test_F07_elements_the_last_offset_may_be_the_largest_integer(m: object) -> None:
    predicate = offsets_fit_int32(DENSE.operand("a"), ELEMENTS)
    assert asked(predicate, shape__m=m, shape__k=1 << 11) is None  # the last offset is exactly 2^31 - 1
    reason = asked(predicate, shape__m=m, shape__k=(1 << 11) + 1)
    assert reason is not None
    assert reason.actual == f"{(1 << 31) + (1 << 20) - 1} with {1 << 20} rows of {(1 << 11) + 1}"
    assert reason.field == "$.shape.m"


def test_F07_bytes_the_size_may_be_the_largest_integer() -> None:
    out = offsets_fit_int32(DENSE.operand("out"), BYTES)
    a = offsets_fit_int32(DENSE.operand("a"), BYTES)
    assert asked(a, shape__m=1, shape__k=INT32_MAX) is None
    assert asked(a, shape__m=INT32_MAX, shape__k=1) is None
    assert asked(a, shape__m=1, shape__k=INT32_MAX + 1) is not None
    assert asked(out, shape__m=(1 << 30) - 1, shape__n=1) is None  # bf16: 2^31 - 2 bytes
    assert asked(out, shape__m=1 << 30, shape__n=1) is not None
    assert asked(out, shape__m=1 << 29, shape__n=1, dtypes__out=DType.FP32) is not None


def test_F07_the_field_cases_are_rejected_with_the_exact_number() -> None:
    """(a) of the case: 65,536 rows of 36,864 results; and the same count one row short of the limit."""
    predicate = offsets_fit_int32(DENSE.operand("out"), ELEMENTS)
    reason = asked(predicate, shape__m=65_536, shape__n=36_864)
    assert reason is not None
    assert reason.actual == "2415919103 with 65536 rows of 36864"
    assert reason.wanted == "offsets into `out` of at most 2147483647 elements"
    assert reason.nearest == (1 << 31) // 36_864
    assert asked(predicate, shape__m=(1 << 31) // 36_864, shape__n=36_864) is None
    assert asked(predicate, shape__m=(1 << 31) // 36_864 + 1, shape__n=36_864) is not None


def test_F07_weights_count_too() -> None:
    """(b) of the case, 256 experts of 4096 x 7168 weights, as one tensor of 256 * 4096 rows."""
    reason = asked(offsets_fit_int32(DENSE.operand("b"), BYTES), shape__n=256 * 4096, shape__k=7168)
    assert reason is not None
    assert reason.actual == "7516192768 with 1048576 rows of 7168"
    assert (reason.field, reason.nearest) == ("$.shape.n", INT32_MAX // 7168)


def test_F07_the_nearest_number_of_rows_is_exact_where_it_does_not_divide() -> None:
    reason = asked(offsets_fit_int32(DENSE.operand("out"), ELEMENTS), shape__m=1 << 30, shape__n=3)
    assert reason is not None
    assert reason.nearest == 715_827_882  # 3 * 715,827,883 is 2^31 + 1


def test_F08_a_range_is_taken_at_its_largest_and_rows_that_do_not_fit_have_no_nearest() -> None:
    predicate = ScaleOffsetsFitInt32("a", ELEMENTS)
    fields = {"shape__m": span(0, 1 << 30), "shape__k": 3 * 128, "scales__a__layout": Layout.M_MAJOR}
    reason = asked(predicate, **fields, scales__a__leading_dim=MultipleOf(multiple_of=1))
    assert reason is not None
    assert reason.actual == f"{3 * (1 << 30) - 1} with 3 groups of {1 << 30}"
    assert reason.nearest is None
    just = asked(predicate, **{**fields, "shape__m": 715_827_882}, scales__a__leading_dim=1 << 30)
    assert just is not None
    assert just.nearest == 715_827_883
    tight = {**fields, "shape__m": 2, "shape__k": 128 * ((1 << 30) + 1)}
    assert asked(predicate, **{**tight, "shape__k": 128 * (1 << 30)}, scales__a__leading_dim=2) is None
    assert asked(predicate, **tight, scales__a__leading_dim=2) is not None


def test_no_number_of_rows_helps_where_one_row_is_too_long() -> None:
    reason = asked(offsets_fit_int32(DENSE.operand("a"), BYTES), shape__m=2, shape__k=INT32_MAX + 1)
    assert reason is not None
    assert reason.nearest is None


@pytest.mark.parametrize(
    ("unit", "groups", "largest_leading"),
    # elements: (groups - 1) * leading + rows - 1 <= 2^31 - 1; bytes: 4 * ((groups - 1) * leading + rows) <= 2^31 - 1
    [(ELEMENTS, 3, (1 << 30) - 2), (ELEMENTS, 2, (1 << 31) - 4), (BYTES, 3, 268_435_453), (BYTES, 2, 536_870_907)],
)
def test_F08_a_padded_leading_dimension_overflows_through_its_stride(
    unit: OffsetUnit, groups: int, largest_leading: int
) -> None:
    predicate = ScaleOffsetsFitInt32("a", unit)
    fields = {"shape__m": 4, "shape__k": groups * 128, "scales__a__layout": Layout.M_MAJOR}
    assert asked(predicate, **fields, scales__a__leading_dim=largest_leading) is None
    reason = asked(predicate, **fields, scales__a__leading_dim=largest_leading + 1)
    assert reason is not None
    assert (reason.field, reason.nearest) == ("$.scales.a.leading_dim", largest_leading)
    assert asked(predicate, shape__m=4, shape__k=groups * 128) is None  # row-major scales have no leading dimension
    assert asked(predicate, **fields, scales__a__leading_dim=MultipleOf(multiple_of=4)) is None


# what is offered

_dims = st.integers(1, 300) | st.tuples(st.integers(0, 300), st.integers(1, 300)).filter(
    lambda ends: ends[0] < ends[1]
).map(lambda ends: Bounded(min=ends[0], max=ends[1]))
_limits = st.integers(1, 300)
_dim_predicates = st.one_of(
    st.builds(p.equals, st.just(M), _limits),
    st.builds(p.multiple_of, st.just(M), st.integers(1, 64)),
    st.builds(p.at_most, st.just(M), _limits),
    st.builds(p.AtLeast, st.just(M), _limits),
    st.builds(
        lambda low, steps, step: p.InSteps(M, low, low + steps * step, step),
        _limits,
        st.integers(0, 5),
        st.integers(1, 48),
    ),
    st.builds(lambda low, more: p.InSteps(M, low, low + more, 2), _limits, st.integers(0, 5)),
)


@given(_dim_predicates, _dims)
def test_the_nearest_value_passes_and_nothing_nearer_does(predicate: Predicate, dim: int | Bounded) -> None:
    reason = predicate.check(put(BASE, M, dim))
    if reason is None:
        return
    assert reason.nearest is not None
    assert predicate.check(put(BASE, M, reason.nearest)) is None
    if isinstance(dim, int):
        assert isinstance(reason.nearest, int)
        gap = abs(reason.nearest - dim)
        assert not [v for v in range(max(1, dim - gap + 1), dim + gap) if predicate.check(put(BASE, M, v)) is None]
    if isinstance(reason.nearest, Bounded):
        assert isinstance(dim, Bounded)
        assert dim.min <= reason.nearest.min < reason.nearest.max <= dim.max


_offset_predicates = st.builds(offsets_fit_int32, st.sampled_from(DENSE.operands), st.sampled_from([ELEMENTS, BYTES]))
_large = st.integers(1, 1 << 20)


@given(
    _offset_predicates
    | st.builds(
        lambda tile: TilesAtMost("$.shape.n", axes=("m", "n"), tile=tile),
        st.tuples(st.integers(1, 256), st.integers(1, 256)),
    ),
    _large | _large.map(lambda high: Bounded(min=0, max=high)),
    _large,
    _large,
)
def test_the_nearest_extent_passes_and_one_more_does_not(predicate: Predicate, m: object, n: int, k: int) -> None:
    changed = put(put(put(BASE, M, m), "$.shape.n", n), "$.shape.k", k)
    reason = predicate.check(changed)
    if reason is None or reason.nearest is None:
        return
    assert predicate.check(put(changed, reason.field, reason.nearest)) is None
    most = reason.nearest.max if isinstance(reason.nearest, Bounded) else reason.nearest
    assert isinstance(most, int)
    assert predicate.check(put(changed, reason.field, most + 1)) is not None


@given(st.sampled_from([ELEMENTS, BYTES]), st.integers(1, 1 << 22), st.integers(1, 64), st.integers(0, 1 << 40))
def test_the_nearest_leading_dimension_passes_and_one_more_does_not(
    unit: OffsetUnit, m: int, groups: int, pad: int
) -> None:
    predicate = ScaleOffsetsFitInt32("a", unit)
    changed = put(put(put(BASE, M, m), "$.shape.k", groups * 128), "$.scales.a.layout", Layout.M_MAJOR)
    reason = predicate.check(put(changed, "$.scales.a.leading_dim", m + pad))
    if reason is None or reason.nearest is None:
        return
    assert isinstance(reason.nearest, int)
    assert m <= reason.nearest < m + pad
    assert predicate.check(put(changed, reason.field, reason.nearest)) is None
    assert predicate.check(put(changed, reason.field, reason.nearest + 1)) is not None


@pytest.mark.parametrize(
    ("leading", "shown", "nearest"),
    [
        (4, None, None),
        (128, None, None),
        (MultipleOf(multiple_of=4), None, None),
        (MultipleOf(multiple_of=64), None, None),
        (7, "7", 8),
        (MultipleOf(multiple_of=1), "{multiple_of: 1}", None),
        (MultipleOf(multiple_of=6), "{multiple_of: 6}", None),
    ],
)
def test_rows_of_m_major_scales_lie_whole_steps_apart(leading: object, shown: str | None, nearest: int | None) -> None:
    predicate = addressing.ScalesPitch("a", 4, why="TMA")
    assert predicate.check(BASE) is None, "row-major scales have no such rows"
    m_major = put(BASE, "$.scales.a.layout", Layout.M_MAJOR)
    reason = predicate.check(put(m_major, "$.scales.a.leading_dim", leading))
    if shown is None:
        assert reason is None
        return
    assert reason is not None
    assert reason.wanted == "a multiple of 4 (TMA)"
    assert (reason.field, reason.actual, reason.nearest) == ("$.scales.a.leading_dim", shown, nearest)


_words = st.sampled_from(
    [
        p.equals("$.layouts.b", Layout.SHUFFLED_16X16),
        p.equals("$.scales.a.block", (1, 64)),
        p.equals("$.properties.graph_capture", False),
        p.one_of("$.epilogue.kind", "bias", "silu"),
        p.Serves("$.numerics.accumulate", Accumulate.TENSOR_CORE_FP8),
        p.Serves("$.numerics.combine", Combine.FIXED_ORDER),
        addressing.Aligned("out", 64),
        p.ConstantOperands(("b", "b_scales", "bias")),
    ]
)


@given(_words)
def test_the_nearest_word_passes(predicate: Predicate) -> None:
    reason = predicate.check(BASE)
    assert reason is not None
    old = lookup(BASE, reason.field)
    value = type(old)(reason.nearest) if isinstance(old, StrEnum) else reason.nearest
    assert predicate.check(put(BASE, reason.field, value)) is None


# manners

_ALL = (
    *(predicate for predicate, _, _, _ in BOUNDARIES),
    *(
        p.Declares(("x",)),
        p.ConstantOperands(("b", "b_scales", "bias")),
        hardware.LdsFits(1),
        hardware.TargetHas("ocp_fp8", "$.dtypes.a"),
        ScaleOffsetsFitInt32("a", BYTES),
        addressing.ScalesPitch("a", 4),
    ),
    *(
        offsets_fit_int32(DENSE.operand("out"), ELEMENTS),
        TilesAtMost("$.shape.n", axes=("m", "n"), tile=(16, 64)),
    ),
)


def test_every_kind_of_predicate_is_tested_here() -> None:
    kinds = {
        kind
        for module in (p, addressing, hardware)
        for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and hasattr(kind, "check")
    }
    assert {type(predicate) for predicate in _ALL} == kinds


@pytest.mark.parametrize("predicate", _ALL, ids=str)
def test_a_predicate_is_a_value(predicate: Predicate) -> None:
    assert dataclasses.is_dataclass(predicate)
    twin = dataclasses.replace(predicate)  # type: ignore[type-var]
    assert predicate == twin
    assert hash(predicate) == hash(twin)
    assert predicate.name.isidentifier()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(predicate, dataclasses.fields(predicate)[0].name, "other")


def test_a_predicate_asks_only_the_contract() -> None:
    """The same value twice gives the same answer, whatever was asked in between."""
    first = [predicate.check(BASE) for predicate in _ALL]
    other: list[Contract] = [put(BASE, M, 4096), put(BASE, "$.target.arch", "gfx942")]
    for changed in other:
        for predicate in _ALL:
            predicate.check(changed)
    assert [predicate.check(BASE) for predicate in _ALL] == first


@pytest.mark.parametrize("text", ["1e-06", "1e-05", "1e-10", "448", "0.1", "0", "-2.5", "16777216", "3.40282e+38"])
def test_a_real_is_shown_as_it_is_written(text: str) -> None:
    (rounded,) = struct.unpack("<f", struct.pack("<f", float(text)))
    assert show(rounded) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_what_is_shown_of_a_real_is_that_fp32_value_and_no_other(value: float) -> None:
    assert struct.pack("<f", float(show(value))) == struct.pack("<f", value)
