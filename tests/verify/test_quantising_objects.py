"""The numerical and field cases on the built gfx950 objects, run by the emulator between red zones."""

import functools

import numpy as np
import pytest

from nkc.emit import build
from nkc.emit.toolchains.triton import TritonToolchain
from nkc.ir.launch import RangeGuard
from nkc.ir.reader import parse_document
from nkc.tactics.select import Policy, select
from nkc.verify import quant_bounds
from nkc.verify.engines.emulator import launch_spec
from nkc.verify.gfx950.emulate import emulate
from nkc.verify.memory import POISON
from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.oracles.epilogues import Halves
from nkc.verify.oracles.group_quant import Flavour, group_quant
from nkc.verify.oracles.rms_norm_quant import rms_norm, rms_norm_quant
from nkc.verify.oracles.silu_mul_quant import Intermediate, silu_mul_quant

from .recipes import grid, sha

pytestmark = pytest.mark.toolchain

SCALES = {"block": [1, 128], "layout": "row_major"}
EXPERIMENTS = Policy(allow_experimental=True)
TIES = [448, 1.0625, 1.1875, 2**-10, 3 * 2**-10, 17, 19, 432, -17, -0.0, 447, 5 * 2**-10]


@pytest.fixture(scope="module")
def toolchain():
    with TritonToolchain() as made:
        yield made


@pytest.fixture(scope="module")
def run(toolchain):
    """Return what builds a contract (once) and runs its object: outputs by name, and no fault of any kind."""

    @functools.cache
    def built(operation, m, k, dtypes, numerics, gate, codes):
        document = {
            "schema": "nkc.contract/1",
            "target": {"arch": "gfx950"},
            "operation": operation,
            "shape": {"m": m if isinstance(m, int) else {"min": m[0], "max": m[1]}, "k": k},
            "dtypes": dict(dtypes),
            "scales": {"out": SCALES} if codes else {},
            "layouts": dict.fromkeys(dict(dtypes), "row_major"),
            "epilogue": {"kind": "gated_silu", "gate": gate} if gate else None,
            "numerics": dict(numerics),
        }
        selection = select(parse_document(document), EXPERIMENTS)
        assert selection.selected is not None
        return build.build(selection.lower(selection.selected), toolchain)

    def launch(operation, inputs, outputs, *, m, k, numerics, gate=None, dims=None):
        tensors = {**inputs, **outputs}
        dtypes = {name: dtype for name, (dtype, _) in tensors.items() if name != "out_scales"}
        artifact = built(operation, m, k, tuple(dtypes.items()), tuple(numerics.items()), gate, "out_scales" in outputs)
        buffers = {name: np.ascontiguousarray(data).reshape(-1) for name, (_, data) in inputs.items()}
        buffers |= {name: np.full(data.size, POISON, np.uint8).view(data.dtype) for name, (_, data) in _flat(outputs)}
        report = emulate(artifact.built.data, launch_spec(artifact.launch, dims or {}), buffers)
        assert report.hazards == ()
        assert report.missing == ()
        left = {name: report.outputs[name].view(data.dtype) for name, (_, data) in _flat(outputs)}
        return {name: left[name].reshape(outputs[name][1].shape) for name in outputs} | {"artifact": artifact}

    return launch


def _flat(outputs):
    """Yield outputs as byte counts that stand for their own storage."""
    for name, (dtype, data) in outputs.items():
        yield name, (dtype, _Sized(data))


class _Sized:
    """An array's size in bytes and its dtype."""

    def __init__(self, data):
        self.size, self.dtype = data.nbytes, data.dtype


def rules(quantize="divide", overflow="saturate", amax_floor=1e-10):
    return {"quantize": quantize, "overflow": overflow, "amax_floor": amax_floor}


def codes(m, k):
    return {
        "out": ("fp8_e4m3", np.zeros((m, k), np.uint8)),
        "out_scales": ("fp32", np.zeros((m, k // 128), np.float32)),
    }


def quantised(run, x, numerics, dtype="bf16", bounded=None):
    """Return codes and scales of group_quant's object for x."""
    m, k = x.shape
    stored = bf16.encode(x) if dtype == "bf16" else x.astype(np.float32)
    shape, dims = (m, None) if bounded is None else ((0, bounded), {"m": m})
    outputs = codes(m if bounded is None else bounded, k)
    left = run("group_quant", {"x": (dtype, stored)}, outputs, m=shape, k=k, numerics=numerics, dims=dims)
    return left["out"], left["out_scales"]


def padded(*values):
    """Return one group that starts with these values."""
    return np.array([[*values, *[0.0] * (128 - len(values))]], np.float32)


def same(codes_left, scales_left, expected):
    """Say whether codes and scales have the oracle's bits, NaN as NaN."""
    code = (codes_left == expected.codes) | (fp8.is_nan(codes_left) & fp8.is_nan(expected.codes))
    scale = fp32.ulp_distance(scales_left, expected.scales) == 0
    return bool(code.all() and scale.all())


def hexes(array):
    return " ".join(f"{value:02x}" for value in array)


@pytest.mark.parametrize("flavour", ["divide", "reciprocal"])
def test_K02_group_quant(run, flavour) -> None:
    left, scales = quantised(run, grid((2, 256), 73, 257, 128, 16), rules(flavour))
    assert [f"{v:08x}" for v in fp32.bits(scales).ravel()] == ["3c924925", "3c912492", "3c924925", "3c912492"]
    assert hexes(left[0, :8]) == "fe f4 68 7a fa e9 74 7e"
    assert sha(left) == "e2f8ed1437ece66b"


def test_K03_silu_mul_quant_in_both_stagings(run) -> None:
    x = grid((1, 256), 61, 253, 126, 32)
    left = {
        staging: run(
            "silu_mul_quant",
            {"x": ("bf16", bf16.encode(x))},
            codes(1, 128),
            m=1,
            k=128,
            numerics={"staging": staging, **rules()},
            gate="halves",
        )
        for staging in ("fp32", "bf16")
    }
    expected = silu_mul_quant(x, order=Halves.HALVES, intermediate=Intermediate.FP32)
    verdict = quant_bounds.judge_quantised(
        left["fp32"]["out"],
        left["fp32"]["out_scales"],
        expected.quantised,
        quant_bounds.SILU_MUL,
        overflow=Overflow.SATURATE,
    )
    assert verdict.passed
    assert sha(left["fp32"]["out"]) != "e904a95236533ede"
    assert sha(left["bf16"]["out"]) == "e904a95236533ede"
    assert f"{fp32.bits(left['bf16']['out_scales'])[0, 0]:08x}" == "3cc49249"


def test_K04_rms_norm_quant(run) -> None:
    x, r = grid((2, 256), 67, 251, 125, 32), grid((2, 256), 43, 241, 120, 64)
    w = bf16.rounded(1 + grid((256,), 19, 63, 31, 256))
    left = run(
        "rms_norm_quant",
        {
            "x": ("bf16", bf16.encode(x)),
            "residual": ("bf16", bf16.encode(r)),
            "weight": ("bf16", bf16.encode(w)),
        },
        {"residual_out": ("bf16", np.zeros((2, 256), np.uint16)), **codes(2, 256)},
        m=2,
        k=256,
        numerics={"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-6, **rules()},
    )
    assert sha(left["residual_out"]) == "0ccd9a319c0a488a"
    expected = rms_norm_quant(x, w, residual=r, eps=1e-6).quantised
    verdict = quant_bounds.judge_quantised(
        left["out"], left["out_scales"], expected, quant_bounds.RMS_NORM, overflow=Overflow.SATURATE
    )
    assert verdict.passed
    stated = fp32.from_bits([[0x3BA917D9, 0x3B9D5DBE], [0x3B9D7D18, 0x3BA71257]])
    assert fp32.ulp_distance(left["out_scales"], stated).max() <= 4


@pytest.mark.parametrize("flavour", ["divide", "reciprocal", "ue8m0"])
def test_K10_ties_subnormals_and_signed_zero(run, flavour) -> None:
    left, scales = quantised(run, padded(*TIES), rules(flavour))
    assert f"{fp32.bits(scales)[0, 0]:08x}" == "3f800000"
    assert hexes(left[0, :12]) == "7e 38 3a 00 02 58 5a 7e d8 80 7e 02"
    assert not left[0, 12:].any()


@pytest.mark.parametrize("operation", ["group_quant", "silu_mul_quant", "rms_norm_quant"])
def test_F05_no_rows_is_no_launch_and_the_object_itself_would_write_nothing(run, operation) -> None:
    inputs = {"x": ("bf16", np.zeros((3, 512 if operation == "silu_mul_quant" else 256), np.uint16))}
    numerics, gate = rules(), None
    if operation == "silu_mul_quant":
        numerics, gate = {"staging": "fp32", **numerics}, "interleaved"
    if operation == "rms_norm_quant":
        inputs["weight"] = ("bf16", np.zeros(256, np.uint16))
        numerics = {"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-6, **numerics}
    for m in (0, 1):
        left = run(operation, inputs, codes(3, 256), m=(0, 3), k=256, numerics=numerics, gate=gate, dims={"m": m})
        assert (left["out"][m:] == POISON).all()
        assert (left["out_scales"][m:].view(np.uint32) == 0xFFFFFFFF).all()
        assert not left["out"][:m].any()
    ranges = [guard for guard in left["artifact"].launch.guards if isinstance(guard, RangeGuard)]
    assert [(guard.dim, guard.min, guard.max) for guard in ranges] == [("m", 0, 3)]
    assert 0 not in left["artifact"].launch.grid


def test_F13_F14_codes_are_those_of_e4m3fn_where_negative_zero_is_no_nan(run) -> None:
    left, scales = quantised(run, padded(448.0, -1e-8, -0.0, 0.0, np.float32(-(2.0**-11)), 1e-8), rules(), "fp32")
    assert left[0, :6].tolist() == [0x7E, 0x80, 0x80, 0x00, 0x80, 0x00]
    decoded = fp8.decode(left)
    assert np.isfinite(decoded).all()
    assert (decoded[0, 1:] == 0).all()
    assert np.signbit(decoded[0, 1:5]).tolist() == [True, True, False, True]
    # the signature of the wrong format: the same bytes read as e4m3fnuz hold NaN, and half of every value
    assert fp8.is_nan(left, fp8.E4M3FNUZ)[0, :6].tolist() == [False, True, True, False, True, False]
    assert scales[0, 0] == 1


@pytest.mark.parametrize("quantize", ["divide", "reciprocal", "ue8m0"])
@pytest.mark.parametrize("floor", [1e-10, 0.0])
def test_F17_a_group_of_zeros(run, quantize, floor) -> None:
    x = np.concatenate([np.zeros((3, 128)), grid((3, 128), 73, 257, 128, 16)], axis=1).astype(np.float32)
    x[2] = 0
    left, scales = quantised(run, x, rules(quantize, amax_floor=floor))
    expected = group_quant(x, flavour=Flavour(quantize), amax_floor=floor)
    assert same(left, scales, expected)
    assert not left[:, :128].any()
    assert (scales > 0).all()
    if floor == 0:
        assert scales[0, 0] == 1
    elif quantize != "ue8m0":
        assert fp32.bits(scales)[0, 0] == 0x2A7B5123


@pytest.mark.parametrize("overflow", ["saturate", "ieee"])
def test_F19_F20_beyond_the_largest_code_saturates_or_is_nan(run, overflow) -> None:
    """Past 448 lies an infinity under a power-of-two scale, or a quotient by a scale that underflowed to zero."""
    x = padded(np.inf, -np.inf, 448.0, -1.0)
    left, scales = quantised(run, x, rules("ue8m0", overflow), "fp32")
    assert scales[0, 0] == np.float32(2.0**127)
    assert same(left, scales, group_quant(x, flavour=Flavour.UE8M0, overflow=Overflow(overflow)))
    assert (left[0, :2].tolist() == [0x7E, 0xFE]) is (overflow == "saturate")
    assert fp8.is_nan(left[0, :2]).all() == (overflow == "ieee")
    tiny = padded(100 * 2.0**-149, -(2.0**-149))
    left, scales = quantised(run, tiny, rules("divide", overflow, 0.0), "fp32")
    assert scales[0, 0] == 0
    assert same(left, scales, group_quant(tiny, overflow=Overflow(overflow), amax_floor=0.0))
    within = padded(448.0, 449.0, 464.0, 465.0, 1000.0, -1000.0)
    left, scales = quantised(run, within, rules("divide", overflow), "fp32")
    assert same(left, scales, group_quant(within, overflow=Overflow(overflow)))
    assert left[0, 4:6].tolist() == [0x7E, 0xFE]


def test_F22_division_and_reciprocal_round_a_tie_each_by_its_own_rule(run) -> None:
    """Among amax whose 0.375 lies on 168 exactly: the quotient is the tie, the reciprocal may stand beside it."""
    amax = np.arange(128, 256, dtype=np.float32)
    x = np.zeros((128, 128), np.float32)
    x[:, 0], x[:, 1] = amax, 0.375 * amax
    x = bf16.rounded(x)
    exact = x[:, 1] * 448 == 168 * amax
    found = {flavour: quantised(run, x, rules(flavour)) for flavour in ("divide", "reciprocal")}
    for flavour, (left, scales) in found.items():
        assert same(left, scales, group_quant(x, flavour=Flavour(flavour)))
    assert exact.sum() > 8
    near = {fp8.encode(168.0 * (1 + side), Overflow.IEEE).item() for side in (-1e-6, 1e-6)}
    assert near == {0x72, 0x73}
    assert set(found["divide"][0][exact, 1].tolist()) <= near
    moved = found["divide"][0] != found["reciprocal"][0]
    assert moved.any()
    assert np.abs(fp8.order(found["divide"][0]) - fp8.order(found["reciprocal"][0])).max() == 1


def test_F23_ties_of_bf16_go_to_even(run) -> None:
    """The sum with a residual: 1 + 2^-8 -> 1, 1 + 3 2^-8 -> 1.015625, 1 + 2^-8 + 2^-15 -> 1.0078125, and mirrored."""
    x = np.array([1.0, 1 + 2.0**-7, 1.0] * 2, np.float32) * [1, 1, 1, -1, -1, -1]
    r = np.array([2.0**-8, 2.0**-8, 2.0**-8 * (1 + 2.0**-7)] * 2, np.float32) * [1, 1, 1, -1, -1, -1]
    rows = {"x": padded(*x), "residual": padded(*r)}
    rows["x"][0, 100] = np.nan
    inputs = {name: ("bf16", bf16.encode(row)) for name, row in rows.items()}
    left = run(
        "rms_norm_quant",
        inputs | {"weight": ("bf16", bf16.encode(np.ones(128)))},
        {"residual_out": ("bf16", np.zeros((1, 128), np.uint16)), "out": ("bf16", np.zeros((1, 128), np.uint16))},
        m=1,
        k=128,
        numerics={"reduce": "tree", "staging": "fp32", "weight": "plain", "epsilon": 1e-6},
    )
    stored = bf16.decode(left["residual_out"])[0]
    assert stored[:6].tolist() == [1.0, 1.015625, 1.0078125, -1.0, -1.015625, -1.0078125]
    assert np.isnan(stored[100])
    assert np.isnan(stored).sum() == 1
    assert np.isnan(bf16.decode(left["out"])).all(), "a NaN in a row reaches all of it"


@pytest.mark.parametrize(("m", "k"), [(7, 769), (2, 3584), (3, 1152)])
def test_F28_a_row_tail_reaches_no_other_row_and_nothing_past_the_last(run, m, k) -> None:
    """769: no 16-byte access to an odd row; 1152: a workgroup wider than the row. Red zones lie around every buffer."""
    x, w = grid((m, k), 67, 251, 125, 32), bf16.rounded(1 + grid((k,), 19, 63, 31, 256))
    base = {"reduce": "tree", "staging": "bf16", "weight": "one_plus", "epsilon": 1e-5}
    inputs = {"x": ("bf16", bf16.encode(x)), "weight": ("bf16", bf16.encode(w))}
    plain = run("rms_norm_quant", inputs, {"out": ("bf16", np.zeros((m, k), np.uint16))}, m=m, k=k, numerics=base)
    wanted = rms_norm(x, w, eps=1e-5, one_plus_weight=True)
    apart = np.abs(bf16.order(plain["out"]) - bf16.order(wanted.normed))
    assert apart.max() <= 1
    assert (apart != 0).mean() < 0.01
    if k % 128 == 0:
        left = run("rms_norm_quant", inputs, codes(m, k), m=m, k=k, numerics=base | rules())
        verdict = quant_bounds.judge_quantised(
            left["out"],
            left["out_scales"],
            rms_norm_quant(x, w, eps=1e-5, one_plus_weight=True).quantised,
            quant_bounds.RMS_NORM,
            overflow=Overflow.SATURATE,
        )
        assert verdict.passed


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_K20_nan_and_infinity_stay_in_their_group_and_are_never_silent(run, dtype) -> None:
    x = np.ones((2, 256), np.float32)
    x[0, 3], x[1, 130] = np.inf, np.nan
    left, scales = quantised(run, x, rules(), dtype)
    assert same(left, scales, group_quant(x))
    assert fp8.is_nan(left[0]).nonzero()[0].tolist() == [3]
    assert fp8.is_nan(left[1]).nonzero()[0].tolist() == list(range(128, 256))
    assert np.isnan(scales).tolist() == [[False, False], [False, True]]
