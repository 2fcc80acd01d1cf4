"""The one door: what is wrong is said in one line each, all of it at once, and nothing else ever comes out."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkc import ir
from nkc.ir import operations, targets
from nkc.ir.contract import Bounded, MultipleOf
from nkc.ir.errors import did_you_mean

from ..fixtures.contracts import ABSENT, BASE, bf16, contract, document, problems

_OPERATIONS = ", ".join(operations.names())  # open sets: each member is a file
_TARGETS = ", ".join(targets.names())
_TOP = (
    "alignment, arguments, code, constants, dtypes, epilogue, fallback, launch, layouts, lds, maturity, numerics, "
    "operation, properties, provenance, scales, schedule, schema, shape, target, workspace"
)
_DTYPES = "known: bf16, fp16, fp32, fp8_e4m3, int32"
_LAYOUTS = "known: m_major, row_major, row_major_nk, shuffled_16x16"
_EPILOGUES = "known: bias, gated_silu, gelu_erf, gelu_tanh, identity, silu"

ONE_PROBLEM: tuple[tuple[dict[str, object], str], ...] = (
    # the top level
    ({"$.name": "x"}, f"$.name: unknown key (known: {_TOP})"),
    ({"$.allow_neg_eigvals": True}, f"$.allow_neg_eigvals: unknown key (known: {_TOP})"),
    ({"$.epilog": {"kind": "silu"}}, f"$.epilog: unknown key (did you mean `epilogue`? known: {_TOP})"),
    ({"$.a\nb": 1}, f"$.a\\nb: unknown key (known: {_TOP})"),
    ({"$." + "a" * 61: 1}, f"$.{'a' * 57}...: unknown key (known: {_TOP})"),
    ({"$.": 1}, "$: an empty name (name it, or leave it out)"),
    ({"$.schema": "nkc.contract/2"}, "$.schema: `nkc.contract/2` is not `nkc.contract/1` (this nkc reads that one)"),
    *(
        ({f"$.{name}": ABSENT}, f"$.{name}: missing, and it has no default (write it)")
        for name in ("schema", "target", "operation", "shape", "dtypes", "layouts", "numerics")
    ),
    ({"$.layouts": None}, "$.layouts: missing, and it has no default (write it)"),
    *(
        ({path: ABSENT}, f"{path}: missing, and it has no default (write it)")
        for path in ("$.dtypes.a", "$.layouts.a", "$.layouts.b", "$.layouts.out", "$.numerics.accumulate")
    ),
    # target and operation
    ({"$.target": "gfx950"}, "$.target: `gfx950` is not an object (write it in braces)"),
    ({"$.target": {}}, "$.target.arch: missing, and it has no default (write it)"),
    (
        {"$.target.arch": "gfx951"},
        f"$.target.arch: unknown target `gfx951` (did you mean `gfx950`? known: {_TARGETS})",
    ),
    (
        {"$.target.arch": "sm_121"},
        f"$.target.arch: unknown target `sm_121` (did you mean `sm_120`? known: {_TARGETS})",
    ),
    ({"$.target.arch": 950}, f"$.target.arch: unknown target `950` (did you mean `gfx950`? known: {_TARGETS})"),
    (
        {"$.target.wave": 32},
        "$.target.wave: 32 lanes, but a wave of gfx950 has 64 (write 64 or leave it out)",
    ),
    ({"$.target.wave": 0}, "$.target.wave: 0 is out of range (an integer from 1 to 1024)"),
    (
        {"$.operation": "dens"},
        f"$.operation: unknown operation `dens` (did you mean `dense`? known: {_OPERATIONS})",
    ),
    # shape
    ({"$.shape": [1, 2, 3]}, "$.shape: `[1, 2, 3]` is not an object (write it in braces)"),
    ({"$.shape.k": ABSENT}, "$.shape.k: missing, and it has no default (write it)"),
    ({"$.shape.b": 1}, "$.shape.b: unknown key (known: k, m, n)"),
    (
        {"$.shape.m": 0},
        '$.shape.m: 0 is out of range for a fixed dim (a range may begin at 0: {"min": 0, "max": 64})',
    ),
    ({"$.shape.n": 0}, "$.shape.n: 0 is out of range (an integer from 1 to 1099511627776)"),
    ({"$.shape.n": "64"}, '$.shape.n: `"64"` is not an integer (an integer from 1 to 1099511627776)'),
    ({"$.shape.m": 1.0}, "$.shape.m: `1.0` is not an integer (an integer from 1 to 1099511627776)"),
    ({"$.shape.m": True}, "$.shape.m: `true` is not an integer (an integer from 1 to 1099511627776)"),
    ({"$.shape.m": {"min": 9, "max": 8}}, "$.shape.m: min 9 is above max 8 (exchange them)"),
    ({"$.shape.m": {"min": 0, "max": 0}}, "$.shape.m.max: 0 is out of range (an integer from 1 to 1099511627776)"),
    ({"$.shape.m": {"min": 0}}, "$.shape.m.max: missing, and it has no default (write it)"),
    (
        {"$.shape.n": {"min": 1, "max": 2}},
        "$.shape.n: a range, but this dim is fixed for every kernel (write one number)",
    ),
    (
        {"$.shape.k": 4100},
        "$.shape.k: 4100 is not a multiple of 128, the FP8 scale block of `a` along k "
        "(pad k to 4224, or use a contract without block scales)",
    ),
    (
        {"$.shape.k": 4160},  # 64 beyond a whole number of blocks
        "$.shape.k: 4160 is not a multiple of 128, the FP8 scale block of `a` along k "
        "(pad k to 4224, or use a contract without block scales)",
    ),
    (
        {"$.shape.k": 4160, "$.scales.a.block": [1, 64]},
        "$.shape.k: 4160 is not a multiple of 128, the FP8 scale block of `b` along k "
        "(pad k to 4224, or use a contract without block scales)",
    ),
    # dtypes
    ({"$.dtypes.acc": ABSENT}, "$.dtypes.acc: missing, and it has no default (write it)"),
    (
        {"$.dtypes.a": "fp8_e4m2"},
        f"$.dtypes.a: unknown dtype `fp8_e4m2` (did you mean `fp8_e4m3`? {_DTYPES})",
    ),
    (
        {"$.dtypes.a": "fp8"},
        f"$.dtypes.a: unknown dtype `fp8` ({_DTYPES})",
    ),
    ({"$.dtypes.out": "int32"}, "$.dtypes.out: dtype `int32` cannot be used here (one of fp8_e4m3, bf16, fp32)"),
    (
        {**bf16(), "$.dtypes.b": "fp8_e4m3", "$.scales": {"b": BASE["scales"]["b"]}},  # type: ignore[index]
        "$.dtypes.b: `fp8_e4m3` is not the dtype of a, `bf16` (give both operands one dtype)",
    ),
    # scales
    ({"$.scales": 5}, "$.scales: `5` is not an object (write it in braces)"),
    ({"$.scales.out": {}}, "$.scales.out: `bf16` takes no scales (leave it out)"),
    ({"$.scales.c": {}}, "$.scales.c: unknown key (known: a, b, out)"),
    (
        {"$.scales.a": ABSENT},
        "$.scales.a: missing, `fp8_e4m3` means nothing without its scales "
        '(for example {"block": [1, 128], "layout": "row_major"})',
    ),
    ({"$.scales.a.block": ABSENT}, "$.scales.a.block: missing, and it has no default (write it)"),
    ({"$.scales.a.layout": ABSENT}, "$.scales.a.layout: missing, and it has no default (write it)"),
    ({"$.scales.b.block": 128}, "$.scales.b.block: `128` is not an array (write it in brackets)"),
    ({"$.scales.b.block": [128]}, "$.scales.b.block: 1 extents for a tensor of 2 axes (for example [128, 128])"),
    ({"$.scales.b.block": [128, 0]}, "$.scales.b.block[1]: 0 is out of range (an integer from 1 to 1048576)"),
    (
        {"$.scales.a.layout": "k_major"},
        f"$.scales.a.layout: unknown layout `k_major` (did you mean `m_major`? {_LAYOUTS})",
    ),
    ({"$.scales.b.layout": "m_major"}, "$.scales.b.layout: layout `m_major` cannot be used here (one of row_major)"),
    ({"$.scales.a.dtype": "bf16"}, "$.scales.a.dtype: scale dtype `bf16` cannot be used here (one of fp32)"),
    ({"$.scales.a.dtype": "ue8m0"}, f"$.scales.a.dtype: unknown scale dtype `ue8m0` ({_DTYPES})"),
    ({"$.scales.b.dtype": "ue8m0"}, f"$.scales.b.dtype: unknown scale dtype `ue8m0` ({_DTYPES})"),
    (
        {"$.scales.a.leading_dim": 8},
        "$.scales.a.leading_dim: `row_major` scales are dense in memory (leave it out, or use `m_major`)",
    ),
    (
        {"$.shape.m": 9, "$.scales.a.layout": "m_major", "$.scales.a.leading_dim": 8},
        "$.scales.a.leading_dim: 8 is less than the 9 rows it must span (at least 9)",
    ),
    (
        {"$.shape.m": {"min": 0, "max": 9}, "$.scales.a.layout": "m_major", "$.scales.a.leading_dim": 8},
        "$.scales.a.leading_dim: 8 is less than the 9 rows it must span (at least 9)",
    ),
    (
        {"$.scales.a.layout": "m_major", "$.scales.a.leading_dim": {"multiple_of": 0}},
        "$.scales.a.leading_dim.multiple_of: 0 is out of range (an integer from 1 to 1048576)",
    ),
    (bf16({"$.scales": {"a": BASE["scales"]["a"]}}), "$.scales.a: `bf16` takes no scales (leave it out)"),  # type: ignore[index]
    # layouts, epilogue, numerics, properties
    (
        {"$.layouts.b": "row_major"},
        "$.layouts.b: layout `row_major` cannot be used here (one of row_major_nk, shuffled_16x16)",
    ),
    (
        {"$.layouts.b": "shuffled"},
        f"$.layouts.b: unknown layout `shuffled` (did you mean `shuffled_16x16`? {_LAYOUTS})",
    ),
    ({"$.epilogue": {}}, "$.epilogue.kind: missing, and it has no default (write it)"),
    ({"$.epilogue.kind": "swish"}, f"$.epilogue.kind: unknown epilogue `swish` ({_EPILOGUES})"),
    ({"$.epilogue.kind": "bias"}, "$.epilogue.dtype: missing, `bias` reads a vector over n (one of bf16, fp32)"),
    (
        {"$.epilogue": {"kind": "bias", "dtype": "fp16"}},
        "$.epilogue.dtype: dtype `fp16` cannot be used here (one of bf16, fp32)",
    ),
    ({"$.epilogue": {"kind": "silu", "dtype": "bf16"}}, "$.epilogue.dtype: `silu` reads no vector (leave it out)"),
    ({"$.epilogue": {"kind": "silu", "gate": "halves"}}, "$.epilogue.gate: `silu` has no gate (leave it out)"),
    (
        {"$.epilogue.kind": "gated_silu"},
        "$.epilogue.gate: missing; it says how gate and up columns lie (`halves` or `interleaved`)",
    ),
    (
        {"$.epilogue": {"kind": "gated_silu", "gate": "thirds"}},
        "$.epilogue.gate: unknown gate order `thirds` (known: halves, interleaved)",
    ),
    (
        {"$.epilogue": {"kind": "gated_silu", "gate": "halves"}, "$.shape.n": 577},
        "$.shape.n: 577 is odd, but `gated_silu` needs as many gate as up columns "
        "(n counts gate and up columns together)",
    ),
    ({"$.numerics.combine": ABSENT}, "$.numerics.combine: missing, and it has no default (write it)"),
    (
        {"$.numerics.accumulate": "fp32"},
        "$.numerics.accumulate: unknown rule `fp32` (known: fp32_sequential, matrix_unit_fp32, tensor_core_fp8)",
    ),
    ({"$.numerics.round": "rtz"}, "$.numerics.round: unknown rule `rtz` (known: rne_once)"),
    ({"$.numerics.staging": "fp32"}, "$.numerics.staging: `bf16` is not quantised to (leave it out)"),
    ({"$.properties.deterministic": 1}, "$.properties.deterministic: `1` is neither true nor false"),
    ({"$.properties.constant": "b"}, "$.properties.constant: `b` is not an array (write it in brackets)"),
    (
        {"$.properties.constant": ["b", "out"]},
        "$.properties.constant[1]: `out` is no argument that a kernel only reads (known: a, b, a_scales, b_scales)",
    ),
    (
        {"$.properties.constant": ["b", "a", "b"]},
        "$.properties.constant[2]: `b` is named at [0] already (name each argument once)",
    ),
    # alignment and constants
    ({"$.alignment.a": 24}, "$.alignment.a: 24 is not a power of two (alignments are in bytes)"),
    ({"$.alignment.a": 8192}, "$.alignment.a: 8192 is out of range (an integer from 1 to 4096)"),
    (
        {"$.alignment.bias": 16},
        "$.alignment.bias: unknown key (known: a, a_scales, b, b_scales, out)",
    ),
    ({"$.constants": 1}, "$.constants: `1` is not an object (write it in braces)"),
    ({"$.constants.eps": 0.5}, f"$.constants.eps: `0.5` is not an integer (an integer from {-(1 << 62)} to {1 << 62})"),
    # what may be left open
    ({"$.schedule.tile": [16, 64]}, "$.schedule.tile: 2 values where three belong (for example [16, 64, 128])"),
    ({"$.schedule.tile": [16, 64, 0]}, "$.schedule.tile[2]: 0 is out of range (an integer from 1 to 1048576)"),
    ({"$.schedule.stages": 0}, "$.schedule.stages: 0 is out of range (an integer from 1 to 65536)"),
    ({"$.schedule.depth": 2}, "$.schedule.depth: unknown key (known: split_k, stages, tile, waves)"),
    ({"$.launch.grid": [0, 1, 1]}, "$.launch.grid[0]: 0 is out of range (an integer from 1 to 2147483647)"),
    ({"$.launch.grid": [1, 0, 1]}, "$.launch.grid[1]: 0 is out of range (an integer from 1 to 2147483647)"),
    ({"$.launch.grid": [1, 1, 0]}, "$.launch.grid[2]: 0 is out of range (an integer from 1 to 2147483647)"),
    ({"$.launch.block": [256, 0, 1]}, "$.launch.block[1]: 0 is out of range (an integer from 1 to 1024)"),
    ({"$.launch.block": [1025, 1, 1]}, "$.launch.block[0]: 1025 is out of range (an integer from 1 to 1024)"),
    ({"$.launch.dependent": 1}, "$.launch.dependent: `1` is neither true nor false"),
    (
        {"$.properties.constant": ["bias"]},
        "$.properties.constant[0]: `bias` is no argument that a kernel only reads (known: a, b, a_scales, b_scales)",
    ),
    ({"$.launch.block": [64, 17, 1]}, "$.launch.block: 1088 threads in a workgroup (at most 1024)"),
    ({"$.lds.fixed_bytes": -1}, "$.lds.fixed_bytes: -1 is out of range (an integer from 0 to 1048576)"),
    ({"$.lds.dynamic_bytes": -16}, "$.lds.dynamic_bytes: -16 is out of range (an integer from 0 to 1048576)"),
    ({"$.lds.bytes": 1}, "$.lds.bytes: unknown key (did you mean `fixed_bytes`? known: dynamic_bytes, fixed_bytes)"),
    ({"$.workspace.alignment": 16}, "$.workspace.bytes: missing, and it has no default (write it)"),
    (
        {"$.workspace": {"bytes": 0, "alignment": 3}},
        "$.workspace.alignment: 3 is not a power of two (alignments are in bytes)",
    ),
    (
        {"$.workspace": {"bytes": 0, "init": "ones"}},
        "$.workspace.init: unknown initial state `ones` (did you mean `none`? known: none, zero)",
    ),
    ({"$.arguments": {}}, "$.arguments: `{}` is not an array (write it in brackets)"),
    ({"$.arguments": [{"name": "a"}]}, "$.arguments[0].type: missing, and it has no default (write it)"),
    (
        {"$.arguments": [{"name": "a", "type": "float*"}]},
        "$.arguments[0].type: unknown argument type `float*` "
        "(one of int32, ptr<bf16>, ptr<fp16>, ptr<fp32>, ptr<fp8_e4m3>, ptr<int32>)",
    ),
    (
        {"$.arguments": [{"name": "a", "type": "int32"}, {"name": "a", "type": "int32"}]},
        "$.arguments[1].name: `a` names an earlier argument too (give each its own name)",
    ),
    (
        {"$.arguments": [{"name": "a", "type": "ptr<bf16>", "access": "rw"}]},
        "$.arguments[0].access: unknown access `rw` (known: read, read_write, write)",
    ),
    ({"$.code.language": "triton"}, "$.code.digest: missing, and it has no default (write it)"),
    (
        {"$.code": {"language": "ptx", "digest": "0" * 64}},
        "$.code.language: unknown language `ptx` (one of triton, cuda, amdgcn)",
    ),
    ({"$.code": {"language": "cuda", "digest": "0"}}, "$.code.digest: `0` is no SHA-256 (64 lower-case hex digits)"),
    # notes
    ({"$.fallback": " "}, "$.fallback: ` ` is not a name (a string that is not empty)"),
    ({"$.fallback": 3}, "$.fallback: `3` is not a name (a string that is not empty)"),
    ({"$.maturity": "gold"}, "$.maturity: unknown maturity `gold` (known: accepted, experiment, rejected, verified)"),
    ({"$.provenance": []}, "$.provenance: `[]` is not an object (write it in braces)"),
)


@pytest.mark.parametrize(("edits", "line"), ONE_PROBLEM, ids=[line.split(" ")[0] for _, line in ONE_PROBLEM])
def test_each_problem_is_one_line_that_says_where_what_and_how_to_mend(edits: dict[str, object], line: str) -> None:
    """F16, N12 to N15, N17, N19 and K20 among them.

    Scales other than fp32 (F16), K that is no multiple of a scale block (N12), a chip or wave that is not there (N13),
    an unknown or an empty key (N14), what has no default and was left out (N15), a launch without a dimension, of too
    many threads or of less than no LDS (N17), two arguments of one name (N19); a key, a K, a scale dtype and a dtype
    that other systems take without a word (K20).
    """
    assert problems(document(edits)) == (line,)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "1:1: an empty file (nkc schema says what belongs in it)"),
        (b" \n", "1:1: an empty file (nkc schema says what belongs in it)"),
        (b"PK\x03\x04" + bytes(2 << 20), "1:1: a packed file, not JSON (nkc unpack it first)"),
        (b'{"a": "\x00"}', "1:8: not JSON: invalid control character"),
        (b"[\n 1,\n]", "3:1: not JSON: expecting value"),
        (b'{"a": 1} x', "1:10: not JSON: extra data"),
        (b"\xef\xbb\xbf{}", "1:1: starts with a byte order mark (save it as plain UTF-8)"),
        ('{"é": "'.encode() + b"\xff" + b'"}', "1:8: byte 0xff is not UTF-8 (save it as UTF-8)"),
        (b'{\n "a": 1,\n "a": 2}', '3:2: duplicate key "a" (keep one of the two)'),
        (b'{"a": {"b": 1, "\\u0062": 2}}', '1:16: duplicate key "\\u0062" (keep one of the two)'),
        (b'{"a": NaN}', "1:7: NaN is not a finite number (write a finite one)"),
        (b'{"a": -Infinity}', "1:7: -Infinity is not a finite number (write a finite one)"),
        (b'{"a": 1e999}', "1:7: 1e999 is not a finite number (write a finite one)"),
        (b'{"a": 1e-999}', "1:7: 1e-999 is nearer to 0 than any number that is read (write 0, or a larger one)"),
        (b'{"a": ' + b"9" * 19 + b"}", "1:7: an integer of 19 digits (at most 18)"),
        (b'{"a": -' + b"9" * 5000 + b"}", "1:7: an integer of 5000 digits (at most 18)"),
        (b'"\\ud800"', '1:1: "\\ud800" holds half of a surrogate pair (write the character itself)'),
        (b"[" * 33 + b"]" * 33, "1:33: nested more than 32 deep (a contract is shallow)"),
        (b"[" * 200_000, "1:1: nested more than 32 deep (a contract is shallow)"),
        (b" " * (1 << 20) + b"1", "1:1: 1048577 bytes is no contract, the limit is 1048576"),
        (b"null", "$: `null` is not an object (write it in braces)"),
        (b"7", "$: `7` is not an object (write it in braces)"),
    ],
)
def test_syntax_errors_carry_line_and_column(data: bytes, line: str) -> None:
    assert problems(data) == (line,)


@pytest.mark.parametrize(
    ("edits", "padding"),
    [
        ({"$.constants.c": 10**18 - 1}, 0),  # 18 digits
        ({"$.constants.c": -(10**18) + 1}, 0),
        ({"$.provenance": {"text": "\ud7ff\ue000\U0001f600"}}, 0),  # next to the surrogates, and a pair of them
        ({"$.provenance.deep": json.loads("[" * 29 + "]" * 29)}, 0),
        ({"$.launch.block": [64, 16, 1]}, 0),
        ({}, 1 << 20),
    ],
    ids=["digits", "negative digits", "surrogates", "depth", "threads", "bytes"],
)
def test_what_reaches_a_limit_is_still_within_it(edits: dict[str, object], padding: int) -> None:
    assert problems(json.dumps(document(edits)).encode().ljust(padding)) == ()


@pytest.mark.parametrize("half", ["d800", "dbff", "dc00", "dfff"])
def test_half_of_a_surrogate_pair_is_refused(half: str) -> None:
    (line,) = problems(f'{{"\\u{half}": 1}}'.encode())
    assert line == f'1:2: "\\u{half}" holds half of a surrogate pair (write the character itself)'


def test_all_syntax_problems_are_found_at_once() -> None:
    data = b'{"a": NaN,\n "a": 1e999,\n "b": 1234567890123456789}'
    assert [line.partition(" ")[0] for line in problems(data)] == ["1:7:", "2:2:", "2:7:", "3:7:"]


def test_all_independent_problems_are_found_at_once() -> None:
    found = problems(
        document(
            {
                "$.schema": "x",
                "$.target.arch": "gfx951",
                "$.shape.k": 4100,
                "$.layouts.b": "row_major",
                "$.numerics.accumulate": "fast",
                "$.properties.deterministic": "yes",
                "$.alignment.a_scales": 3,
                "$.constants.c": "1",
                "$.schedule.waves": 0,
                "$.launch.block": [2048, 1, 1],
                "$.lds.fixed_bytes": -1,
                "$.workspace.bytes": -1,
                "$.arguments": [{"name": "", "type": "int32"}],
                "$.code.digest": "0",
                "$.fallback": "",
                "$.maturity": "x",
                "$.extra": None,
            }
        )
    )
    fields = [line.partition(": ")[0] for line in found]
    assert sorted(fields) == sorted(
        [
            *("$.extra", "$.schema", "$.target.arch", "$.fallback", "$.maturity", "$.layouts.b"),
            *("$.numerics.accumulate", "$.properties.deterministic", "$.alignment.a_scales", "$.constants.c"),
            *("$.schedule.waves", "$.launch.block[0]", "$.lds.fixed_bytes", "$.workspace.bytes"),
            *("$.arguments[0].name", "$.code.language", "$.shape.k"),
        ]
    )


def test_a_problem_is_not_repeated_by_what_depends_on_it() -> None:
    found = problems(document({"$.scales.a.block": "x", "$.alignment.a_scales": 16, "$.shape.k": 4100}))
    assert found == ("$.scales.a.block: `x` is not an array (write it in brackets)",)


@pytest.mark.parametrize(
    ("n", "rows"),
    [(576, 5), (2112, 17), (448, 4), (2048, 16), (1, 1)],
)
def test_F01_scale_rows_are_the_ceiling_and_the_block_is_stated(n: int, rows: int) -> None:
    edits = {"$.shape.n": n, "$.shape.k": 7168}
    assert contract({**edits, "$.scales.b.shape": [rows, 56]}) == contract(edits)
    assert problems(document({**edits, "$.scales.b.shape": [rows + 1, 56]})) == (
        f"$.scales.b.shape: `[{rows + 1}, 56]` is not `[{rows}, 56]`, one scale for each block of [128, 128] "
        "(the block is stated, never derived from shapes)",
    )


@pytest.mark.parametrize(
    ("n", "k", "written", "derived"),
    [
        (1000, 256, [8, 2], [8, 2]),
        (5120, 128, [40, 1], [40, 1]),
        (1000, 256, [8, 1], [8, 2]),
        (5120, 128, [40], [40, 1]),
    ],
)
def test_F02_a_scale_shape_is_only_ever_a_cross_check(n: int, k: int, written: object, derived: object) -> None:
    edits = {"$.shape.n": n, "$.shape.k": k, "$.scales.b.shape": written}
    if written == derived:
        assert contract(edits).scales["b"].block == (128, 128)
    else:
        (line,) = problems(document(edits))
        assert line.startswith(
            f"$.scales.b.shape: `{written}` is not `{derived}`, one scale for each block of [128, 128]"
        )


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_N13_every_target_takes_its_own_wave_and_no_other(arch: str) -> None:
    wave = contract({"$.target.arch": arch}).target.wave
    assert contract({"$.target": {"arch": arch, "wave": wave}}) == contract({"$.target.arch": arch})
    (line,) = problems(document({"$.target": {"arch": arch, "wave": 96 - wave}}))
    assert line == (f"$.target.wave: {96 - wave} lanes, but a wave of {arch} has {wave} (write {wave} or leave it out)")


def test_N21_fixed_and_dynamic_lds_are_two_fields() -> None:
    lds = contract({"$.lds": {"fixed_bytes": 1024, "dynamic_bytes": 0}}).lds
    assert lds is not None
    assert (lds.fixed_bytes, lds.dynamic_bytes) == (1024, 0)
    only = contract({"$.lds": {"fixed_bytes": 1024}}).lds
    assert only is not None
    assert (only.fixed_bytes, only.dynamic_bytes) == (1024, None)


def test_a_range_of_one_value_is_that_value() -> None:
    assert contract({"$.shape.m": {"min": 7, "max": 7}}) == contract({"$.shape.m": 7})
    assert contract({"$.shape.m": {"min": 0, "max": 7}}).shape["m"] == Bounded(min=0, max=7)


@pytest.mark.parametrize(
    ("m", "written", "leading"),
    [
        (5, ABSENT, 5),
        (5, {"multiple_of": 4}, 8),
        (5, 8, 8),
        (8, {"multiple_of": 4}, 8),
        ({"min": 0, "max": 5}, ABSENT, MultipleOf(multiple_of=1)),
        ({"min": 0, "max": 5}, {"multiple_of": 4}, MultipleOf(multiple_of=4)),
        ({"min": 0, "max": 5}, 8, 8),
    ],
)
def test_a_leading_dimension_has_one_form(m: object, written: object, leading: object) -> None:
    edits = {"$.shape.m": m, "$.scales.a.layout": "m_major"}
    if written is not ABSENT:
        edits["$.scales.a.leading_dim"] = written
    assert contract(edits).scales["a"].leading_dim == leading


def test_a_contract_cannot_be_changed_and_can_be_hashed() -> None:
    made = contract({"$.provenance": {"layers": [{"name": "q_proj"}], "revision": 3}})
    assert hash(made) == hash(contract({"$.provenance": {"revision": 3, "layers": [{"name": "q_proj"}]}}))
    with pytest.raises(TypeError, match="a contract never changes"):
        made.shape["m"] = 2
    with pytest.raises(TypeError, match="a contract never changes"):
        made.provenance["layers"][0]["name"] = "k_proj"  # type: ignore[index]
    with pytest.raises(AttributeError):
        made.operation = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_a_contract_error(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ir.ContractError) as caught:
        ir.read(tmp_path / name)
    (line,) = caught.value.lines()
    assert line.startswith(f"{tmp_path / name}:$: cannot be read: ")


def test_F38_a_file_is_named_as_it_was_given(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "été #1$: x.json"
    path.write_text(json.dumps(document({"$.shape.n": 0})))
    with pytest.raises(ir.ContractError) as caught:
        ir.read(path)
    assert str(caught.value) == f"{path}:$.shape.n: 0 is out of range (an integer from 1 to 1099511627776)"


# whatever comes in, a contract or error lines come out

_words = st.sampled_from(
    sorted(
        {
            word
            for line in [json.dumps(document()), _TOP, _LAYOUTS, _EPILOGUES, *(line for _, line in ONE_PROBLEM)]
            for word in re.findall(r"[a-z][a-z0-9_<>]*", line)
        }
    )
)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**18 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    | _words
)
_keys = _words | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
_json = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=6), max_leaves=20
)


def _paths(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the path of every value inside a JSON value."""
    if isinstance(value, dict):
        return [path, *(deeper for name, item in value.items() for deeper in _paths(item, (*path, name)))]
    if isinstance(value, list):
        return [path, *(deeper for index, item in enumerate(value) for deeper in _paths(item, (*path, index)))]
    return [path]


_FULL = document(
    {
        "$.epilogue": {"kind": "bias", "dtype": "fp32"},
        "$.properties": {"deterministic": True, "graph_capture": False, "constant": ["b"]},
        "$.scales.a": {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}, "shape": [1, 32]},
        "$.alignment.bias": 4,
        "$.constants.c": 1,
        "$.schedule": {"tile": [16, 64, 128], "stages": 2, "waves": 4, "split_k": 1},
        "$.launch": {"grid": [1, 1, 1], "block": [256, 1, 1]},
        "$.lds": {"fixed_bytes": 0, "dynamic_bytes": 0},
        "$.workspace": {"bytes": 0, "alignment": 16, "init": "zero"},
        "$.arguments": [{"name": "a", "type": "ptr<fp8_e4m3>", "access": "read"}],
        "$.code": {"language": "triton", "digest": "0" * 64},
        "$.maturity": "verified",
        "$.fallback": "framework",
        "$.provenance": {"model": "x"},
    }
)


@st.composite
def _mangled(draw: st.DrawFn) -> object:
    """A document that says everything, with up to three values exchanged for anything at all."""
    value = json.loads(json.dumps(_FULL))
    for path in draw(st.lists(st.sampled_from(_paths(_FULL)[1:]), min_size=1, max_size=3)):
        place = value
        for step in path[:-1]:
            place = place[step] if isinstance(place, dict) and step in place else None
            if place is None:
                break
        if isinstance(place, dict):
            extra = draw(st.none() | _keys)
            place[path[-1] if extra is None else extra] = draw(_json)
    return value


def _read_or_lines(data: bytes) -> None:
    lines: tuple[str, ...] = ()
    try:
        result = ir.parse(data)
    except ir.ContractError as error:
        lines, result = error.lines(), None
    assert (result is None) == bool(lines)
    assert all(line.isprintable() for line in lines)
    assert len(set(lines)) == len(lines)


def test_the_full_document_is_read() -> None:
    assert problems(_FULL) == ()


@settings(max_examples=300)
@given(_json | _mangled())
def test_any_json_is_a_contract_or_error_lines(value: object) -> None:
    _read_or_lines(json.dumps(value).encode())


@settings(max_examples=200)
@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(0, 400), st.binary(max_size=4)).map(
        lambda cut: json.dumps(_FULL).encode()[: cut[0]] + cut[1] + json.dumps(_FULL).encode()[cut[0] :]
    )
)
def test_any_bytes_are_a_contract_or_error_lines(data: bytes) -> None:
    _read_or_lines(data)


_LISTED = st.lists(st.sampled_from(["a", "b", "a_scales", "b_scales", "bias", "out", "c", ""]), max_size=5)


@given(_LISTED)
def test_a_list_of_constant_arguments_names_each_once(names: list[str]) -> None:
    """A name is known and new, or it has a line of its own; what is accepted says the same in any order."""
    readable = ("a", "b", "a_scales", "b_scales")
    wrong = [index for index, name in enumerate(names) if name not in readable or name in names[:index]]
    found = problems(document({"$.properties.constant": names}))
    assert [line.split(": ")[0] for line in found] == [f"$.properties.constant[{index}]" for index in wrong]
    if not wrong:
        read = contract({"$.properties.constant": names})
        assert read.properties.constant == tuple(sorted(names))


@given(st.lists(st.sampled_from(["a", "b", "out", "m"]), max_size=5))
def test_a_list_of_arguments_names_each_once(names: list[str]) -> None:
    listed = [{"name": name, "type": "int32"} for name in names]
    again = [index for index, name in enumerate(names) if name in names[:index]]
    found = problems(document({"$.arguments": listed}))
    assert [line.split(": ")[0] for line in found] == [f"$.arguments[{index}].name" for index in again]


def test_a_hint_names_the_nearest_of_many() -> None:
    few, many = [f"name{index}" for index in range(32)], [f"name{index}" for index in range(40)]
    assert did_you_mean("x", few).startswith("known: name0, name1, ")
    hint = did_you_mean("name3x", many)
    assert hint.startswith("did you mean `name3`? 40 are known, nearest name3")
    assert len(hint.split(", ")) == 5
