"""The public functions: their plain PyTorch bodies against the independent oracles, and the bundle route in front."""

import hashlib
import json
import subprocess
import sys

import pytest

from nkc.ir.errors import UsageError, VerificationError
from nkc.runtime import ContractViolation, load, read
from nkc.runtime import cuda as cuda_driver
from nkc.runtime.bundle_route import use
from nkc.runtime.dispatch import REGISTRY, State, explain_call
from nkc.runtime.errors import BundleError, Violation
from nkc.runtime.parity import Parity, parity

from .support import Standin, dense_launch, dependent, write_bundle

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
from nkc import runtime  # noqa: E402
from nkc.runtime.functions import operators, quantise  # noqa: E402
from nkc.verify.numbers.fp8 import Overflow  # noqa: E402
from nkc.verify.oracles.epilogues import Halves  # noqa: E402
from nkc.verify.oracles.group_quant import Flavour  # noqa: E402
from nkc.verify.oracles.group_quant import group_quant as oracle_group_quant  # noqa: E402
from nkc.verify.oracles.rms_norm_quant import rms_norm_quant as oracle_rms  # noqa: E402
from nkc.verify.oracles.silu_mul_quant import Intermediate  # noqa: E402
from nkc.verify.oracles.silu_mul_quant import silu_mul_quant as oracle_silu  # noqa: E402

IDENTITY = {
    "epilogue": {"kind": "identity"},
    "numerics": {"accumulate": "tensor_core_fp8", "combine": "ascending", "round": "rne_once", "nan": "propagate"},
}


def operands(m: int = 4, n: int = 256, k: int = 512, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return quantised operands of a dense layer."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=generator).to(torch.float8_e4m3fn)
    b = torch.randn(n, k, generator=generator).to(torch.float8_e4m3fn)
    a_scales = torch.rand(m, k // 128, generator=generator) + 0.5
    b_scales = torch.rand(-(-n // 128), k // 128, generator=generator) + 0.5
    return {"a": a, "b": b, "a_scales": a_scales, "b_scales": b_scales}


@pytest.fixture
def hosted(cuda: Standin, out):
    """Use a bundle on the stand-in driver as the route of dense, on host tensors, and take it out again."""
    added = []

    def start(*launches, meaning: dict = IDENTITY, constant: tuple[str, ...] = ()):
        write_bundle(out, list(launches) or [dense_launch()])
        _rewrite_contracts(out, meaning)
        driver = cuda_driver.open_device(0)
        driver.device = -1
        library = load(read(out), driver=driver)
        added.extend(use(library, constant=constant))
        return library

    yield start
    for route in added:
        REGISTRY.remove(route.operation, route.name)


def _rewrite_contracts(out, sections: dict) -> None:
    """Put sections into every contract.json of a bundle, digests included."""
    manifest = json.loads((out / "manifest.json").read_text())
    for entry in manifest["entries"]:
        data = json.dumps({"schema": "nkc.contract/1", "operation": "dense", **sections}).encode()
        (out / entry["contract"]).write_bytes(data)
        entry["sha256"]["contract.json"] = hashlib.sha256(data).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))


def test_dense_fallback_agrees_with_float64() -> None:
    given = operands(m=5, n=200)
    exact = given["a"].double() * given["a_scales"].double().repeat_interleave(128, 1)
    weights = given["b"].double() * given["b_scales"].double().repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)
    wanted = exact @ weights.T
    got = runtime.dense_fp8(**given, out_dtype=torch.float32).double()
    assert (got - wanted).abs().max() <= 1e-5 * (exact.abs() @ weights.abs().T).max()
    assert torch.equal(runtime.dense_fp8(**given), got.to(torch.bfloat16))
    bias = torch.randn(200)
    with_bias = runtime.dense_fp8(**given, bias=bias, out_dtype=torch.float32)
    assert torch.allclose(with_bias.double(), wanted + bias, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("silu", torch.nn.functional.silu),
        ("gelu_tanh", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
        ("gelu_erf", torch.nn.functional.gelu),
    ],
)
def test_epilogues_against_torchs_own_in_float64(kind, reference) -> None:
    given = operands()
    plain = runtime.dense_fp8(**given, out_dtype=torch.float32)
    got = runtime.dense_fp8(**given, out_dtype=torch.float32, epilogue=kind)
    assert torch.allclose(got.double(), reference(plain.double()), rtol=1e-5, atol=1e-6)


def rows(m: int = 2, k: int = 256) -> torch.Tensor:
    return torch.ones(m, k, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [
        ("dense_fp8", operands(), {}),
        ("dense_fp8", operands(), {"bias": torch.ones(256)}),
        ("dense_fp8", operands(), {"epilogue": "gated_silu"}),
        ("dense_fp8_quant", operands(), {}),
        ("dense_fp8_quant", operands(), {"bias": torch.ones(256), "scale_layout": "m_major"}),
        ("group_quant", {"x": rows()}, {}),
        ("silu_mul_quant", {"x": rows()}, {"store_product": True}),
        ("rms_norm_quant", {"x": rows(), "weight": rows()[0]}, {"eps": 1e-6, "residual": rows()}),
    ],
)
def test_a_call_speaks_of_what_the_operation_declares_and_of_nothing_else(function, args, options) -> None:
    """The names of arguments and rules are the compiler's; a rule that a call forgot would refuse every kernel."""
    from nkc.ir import operations
    from nkc.ir.contract import DType
    from nkc.ir.scales import argument_name

    call = getattr(runtime, function).resolve(**args, **options)
    operation = operations.get(call.operation)
    operand_names = {operand.name for operand in operation.operands}
    known = operand_names | {argument_name(name) for name in operand_names} | {"bias"}
    given = {**call.tensors, **call.outputs}
    assert set(given) <= known
    assert {operand.name for operand in operation.operands if not operand.optional} <= set(given)
    wanted = {field for field in call.wanted if field.startswith("numerics.")}
    dtypes = {"out": DType.FP8_E4M3 if "out_scales" in given else DType.BF16}
    assert wanted == {f"numerics.{rule.name}" for rule in operation.rules(dtypes)}
    assert set(call.wanted["epilogue.kind"]) <= set(operation.epilogues or ("identity",))


@pytest.mark.parametrize("gate", ["halves", "interleaved"])
def test_the_gated_epilogue_halves_the_columns(gate) -> None:
    given = operands()
    plain = runtime.dense_fp8(**given, out_dtype=torch.float32).double()
    gates, ups = (plain[:, :128], plain[:, 128:]) if gate == "halves" else (plain[:, 0::2], plain[:, 1::2])
    got = runtime.dense_fp8(**given, out_dtype=torch.float32, epilogue="gated_silu", gate=gate)
    assert torch.allclose(got.double(), torch.nn.functional.silu(gates) * ups, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("flavour", ["divide", "reciprocal", "ue8m0"])
@pytest.mark.parametrize("floor", [1e-10, 0.0])
def test_group_quant_fallback_is_the_oracle_byte_for_byte(flavour, floor) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 512, generator=generator) * 10.0 ** torch.randint(-6, 6, (16, 512), generator=generator)
    x[0, :128] = 0.0
    x[1, 5], x[2, 200], x[3, :128] = float("nan"), float("inf"), 1e-12
    x[4, 0:3] = torch.tensor([448.0, -448.0, 464.5])
    wanted = oracle_group_quant(x.numpy(), flavour=Flavour(flavour), amax_floor=floor)
    codes, scales = runtime.group_quant(x, quantize=flavour, amax_floor=floor)
    got = codes.view(torch.uint8).numpy()
    nan = (wanted.codes & 0x7F) == 0x7F  # a NaN's sign is nobody's promise
    assert np.array_equal((got & 0x7F) == 0x7F, nan)
    assert np.array_equal(got[~nan], wanted.codes[~nan])
    assert np.array_equal(scales.numpy(), wanted.scales, equal_nan=True)


def test_ieee_overflow_is_another_rule() -> None:
    x = torch.zeros(1, 128)
    x[0, 0], x[0, 1] = 3.4e38, float("inf")
    wanted = oracle_group_quant(x.numpy(), flavour=Flavour.UE8M0, overflow=Overflow.IEEE)
    codes, _ = runtime.group_quant(x, quantize="ue8m0", overflow="ieee")
    assert np.array_equal(codes.view(torch.uint8).numpy() & 0x7F == 0x7F, (wanted.codes & 0x7F) == 0x7F)


def test_row_12_the_largest_code_is_that_of_e4m3fn_and_fnuz_is_refused() -> None:
    """An e4m3fnuz constant, 240, once stood for every part; and its 0x80 is NaN."""
    assert torch.finfo(quantise.FP8).max == quantise.FP8_MAX == 448.0
    codes, scales = runtime.group_quant(torch.full((1, 128), 3.0))
    assert codes.view(torch.uint8).unique().tolist() == [0x7E]
    assert scales.item() == np.float32(3.0) / np.float32(448.0)
    given = operands()
    given["a"] = given["a"].float().to(torch.float8_e4m3fnuz)
    with pytest.raises(UsageError, match=r"`a` is torch\.float8_e4m3fnuz, not torch\.float8_e4m3fn"):
        runtime.dense_fp8(**given)


@pytest.mark.parametrize("gate", ["halves", "interleaved"])
@pytest.mark.parametrize("staging", ["fp32", "bf16"])
def test_silu_mul_quant_fallback_agrees_with_the_oracle(gate, staging) -> None:
    x = torch.randn(8, 512, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    wanted = oracle_silu(x.float().numpy(), order=Halves(gate), intermediate=Intermediate(staging))
    codes, scales, product = runtime.silu_mul_quant(x, gate=gate, staging=staging, store_product=True)
    bits = product.view(torch.uint16).numpy().astype(np.int32)
    assert np.abs(bits - wanted.product.astype(np.int32)).max() <= 1
    assert runtime.silu_mul_quant(x)[2] is None
    differ = codes.view(torch.uint8).numpy() != wanted.quantised.codes
    assert differ.mean() <= 1e-3
    assert np.allclose(scales.numpy(), wanted.quantised.scales, rtol=5e-7 if staging == "fp32" else 1e-2)


@pytest.mark.parametrize(("residual", "staging"), [(True, "bf16"), (True, "fp32"), (False, "bf16")])
@pytest.mark.parametrize("one_plus", [True, False])
def test_rms_norm_quant_fallback_agrees_with_the_oracle(residual, one_plus, staging) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(8, 256, generator=generator).to(torch.bfloat16)
    r = torch.randn(8, 256, generator=generator).to(torch.bfloat16) if residual else None
    w = torch.rand(256, generator=generator).to(torch.bfloat16)
    wanted = oracle_rms(
        x.float().numpy(),
        w.float().numpy(),
        eps=1e-6,
        residual=None if r is None else r.float().numpy(),
        h=Intermediate(staging),
        one_plus_weight=one_plus,
    )
    codes, scales, total = runtime.rms_norm_quant(x, w, eps=1e-6, residual=r, one_plus_weight=one_plus, staging=staging)
    assert (codes.view(torch.uint8).numpy() != wanted.quantised.codes).mean() <= 1e-3
    assert np.allclose(scales.numpy(), wanted.quantised.scales, rtol=1e-6)
    assert (total is None) == (r is None)
    if total is not None:
        assert np.array_equal(total.view(torch.uint16).numpy(), wanted.residual_out)


def test_m_major_scales_are_padded_as_asked() -> None:
    x = torch.randn(5, 256)
    codes, scales = runtime.group_quant(x, scale_layout="m_major", leading_dim=8)
    plain_codes, plain = runtime.group_quant(x)
    assert scales.stride() == (1, 8)
    assert torch.equal(scales, plain)
    assert torch.equal(codes.view(torch.uint8), plain_codes.view(torch.uint8))


@pytest.mark.parametrize("staging", ["bf16", "fp32"])
@pytest.mark.parametrize("bias", [None, torch.linspace(-8, 8, 256)], ids=["identity", "bias"])
def test_dense_fp8_quant_is_dense_and_group_quant_in_turn(staging, bias) -> None:
    given = operands(m=5)
    rule = {"quantize": "reciprocal", "overflow": "ieee", "scale_layout": "m_major", "leading_dim": 8}
    codes, scales = runtime.dense_fp8_quant(**given, bias=bias, staging=staging, **rule)
    waits_in = {"bf16": torch.bfloat16, "fp32": torch.float32}[staging]
    value = runtime.dense_fp8(**given, bias=bias, out_dtype=waits_in)
    wanted, wanted_scales = runtime.group_quant(value, **rule)
    assert torch.equal(codes.view(torch.uint8), wanted.view(torch.uint8))
    assert torch.equal(scales, wanted_scales)
    assert scales.stride() == (1, 8)
    if staging == "bf16" and bias is None:
        default, _ = runtime.dense_fp8_quant(**given, **rule)
        assert torch.equal(default.view(torch.uint8), codes.view(torch.uint8))


CODES_MEANING = {
    "epilogue": {"kind": "identity"},
    "numerics": {
        **IDENTITY["numerics"],
        "staging": "bf16",
        "quantize": "divide",
        "overflow": "saturate",
        "amax_floor": float.hex(float(np.float32(1e-10))),
    },
}


def test_a_kernel_of_codes_serves_dense_fp8_quant_and_never_dense_fp8(cuda: Standin, hosted) -> None:
    hosted(dense_launch(codes=True), meaning=CODES_MEANING)
    given = operands()
    codes, scales = runtime.dense_fp8_quant(**given)
    assert (codes.shape, scales.shape) == ((4, 256), (4, 2))
    assert len(cuda.launches()) == 1
    assert scales.data_ptr().to_bytes(8, "little").hex() in cuda.launches()[0]
    assert explain_call(runtime.dense_fp8_quant, **given).selected == "nkc"
    for other in ({"staging": "fp32"}, {"quantize": "ue8m0"}, {"overflow": "ieee"}, {"amax_floor": 0.0}):
        assert explain_call(runtime.dense_fp8_quant, **given, **other).selected == "fallback"
    (decision,) = explain_call(runtime.dense_fp8, **given).routes
    assert decision.state is State.REJECTED
    assert "numerics.staging: the kernel has `bf16`, the call does not know this field" in decision.reason


def test_without_a_kernel_of_codes_the_product_alone_takes_its_kernel(cuda: Standin, hosted) -> None:
    hosted()
    assert explain_call(runtime.dense_fp8_quant, **operands()).selected == "fallback"
    runtime.dense_fp8_quant(**operands())
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize("name", ["group_quant", "silu_mul_quant"])
def test_zero_rows_are_legal(name) -> None:
    codes, scales, *_ = getattr(runtime, name)(torch.empty(0, 512, dtype=torch.bfloat16))
    assert codes.shape[0] == scales.shape[0] == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: runtime.group_quant(torch.ones(2, 100)), "a row of 100 is not a multiple of the group of 128"),
        (lambda: runtime.group_quant(torch.ones(2, 128), quantize="divde"), "did you mean `divide`"),
        (lambda: runtime.group_quant(torch.ones(128)), "`x` has 1 axes, not 2"),
        (lambda: runtime.group_quant(torch.ones(2, 128), amax_floor=-1.0), "amax_floor -1.0 is not"),
        (lambda: runtime.group_quant(torch.ones(2, 128), leading_dim=1), "leading_dim 1 is below m 2"),
        (lambda: runtime.group_quant(torch.ones(2, 128, requires_grad=True)), "`x` requires grad"),
        (lambda: runtime.dense_fp8(**operands(), epilogue="bias"), "a bias is given exactly where"),
        (lambda: runtime.dense_fp8(**operands(), gate="halves"), "gate is for the epilogue `gated_silu`"),
        (lambda: runtime.dense_fp8(**operands(), out_dtype=torch.float16), "out_dtype torch.float16 is not"),
        (lambda: runtime.dense_fp8_quant(**operands(), staging="fp16"), "dense_fp8_quant: staging `fp16` is unknown"),
        (lambda: runtime.dense_fp8_quant(**operands(n=200)), "dense_fp8_quant: a row of 200 is not a multiple of"),
        (lambda: runtime.dense_fp8_quant(**operands(), bias=torch.ones(3)), r"dense_fp8_quant: `bias` is \[3\]"),
        (lambda: runtime.group_quant([1.0] * 128), "group_quant: `x` is list, not a torch tensor"),
        (lambda: runtime.dense_fp8(**{**operands(), "a": None}), "dense_fp8: `a` is NoneType, not a torch tensor"),
        (lambda: runtime.dense_fp8(**operands(), bias=[1.0] * 256), "dense_fp8: `bias` is list, not a torch tensor"),
        (lambda: runtime.group_quant(torch.ones(2, 128), amax_floor=1e39), "amax_floor 1e[+]39 is not a number from 0"),
        (lambda: runtime.group_quant(torch.ones(2, 128), amax_floor="0"), "amax_floor '0' is not a number from 0"),
        (lambda: runtime.group_quant(torch.ones(2, 128), leading_dim=4.0), "leading_dim 4.0 is not an integer"),
        (lambda: runtime.rms_norm_quant(torch.ones(2, 128).bfloat16(), torch.ones(128), eps="1"), "eps '1' is not a"),
        (
            lambda: runtime.rms_norm_quant(torch.ones(2, 128).bfloat16(), torch.ones(128), eps=-1e-6),
            "eps -1e-06 is not",
        ),
        (
            lambda: runtime.rms_norm_quant(torch.ones(2, 128).bfloat16(), torch.ones(128), eps=1e39),
            "from 0 to the largest",
        ),
    ],
)
def test_bad_arguments_fail_in_one_line_before_any_route(call, message) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        call()


@pytest.mark.parametrize("eps", [0.0, 1.0, 4.0])
def test_any_epsilon_that_a_contract_may_say_is_served(eps) -> None:
    x, weight = torch.full((2, 256), 2.0).bfloat16(), torch.ones(256)
    codes, scales = runtime.rms_norm_quant(x, weight, eps=eps)[:2]
    expected = torch.full((2, 256), 2.0 / (4.0 + eps) ** 0.5).bfloat16().float()
    torch.testing.assert_close(codes.float() * scales.repeat_interleave(128, dim=1), expected, rtol=2**-8, atol=0)


@pytest.mark.parametrize("name", ["b", "a_scales", "b_scales"])
def test_operands_of_two_devices_are_refused(name) -> None:
    given = operands()
    given[name] = given[name].to("meta")
    with pytest.raises(UsageError, match=f"dense_fp8: `{name}` is on meta, and `a` on cpu"):
        runtime.dense_fp8(**given)  # torch would multiply them, and store nothing


def test_a_weight_on_another_device_is_refused() -> None:
    with pytest.raises(UsageError, match="rms_norm_quant: `weight` is on meta, and `x` on cpu"):
        runtime.rms_norm_quant(torch.ones(2, 128).bfloat16(), torch.ones(128, device="meta"), eps=1e-6)


def test_the_bundle_serves_what_its_guards_and_meaning_allow(cuda: Standin, hosted) -> None:
    hosted()
    given = operands()
    result = runtime.dense_fp8(**given)
    assert result.shape == (4, 256)
    assert len(cuda.launches()) == 1
    assert result.data_ptr().to_bytes(8, "little").hex() in cuda.launches()[0]
    assert explain_call(runtime.dense_fp8, **given).selected == "nkc"
    assert torch.isfinite(runtime.dense_fp8(**operands(m=3))).all()  # no kernel for three rows: the fallback
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize(
    ("constant", "said"),
    [
        (("b", "b_scale"), r"has an argument `b_scale` \(did you mean `b_scales`\?"),
        ("b", r'got one text \(say constant=\("b",\)\)'),
        ("weights", "has an argument `weights`"),
    ],
)
def test_a_constant_that_no_kernel_has_is_refused_and_nothing_is_added(cuda: Standin, hosted, constant, said) -> None:
    launch, image = dense_launch()
    with pytest.raises(UsageError, match=said):
        hosted((dependent(launch, "b", "b_scales"), image), constant=constant)
    hosted((launch, image), constant=("bias",))  # an epilogue's, of another bundle


@pytest.mark.parametrize("given", ["kernels.nkb", None])
def test_what_is_no_loaded_library_is_refused(given) -> None:
    with pytest.raises(UsageError, match=rf"use: wanted a loaded library, got {type(given).__name__} \(say use\(load"):
        runtime.use(given)


@pytest.mark.parametrize("constant", [(), ("b",), ("b", "b_scales")])
def test_a_dependent_kernel_serves_a_caller_who_says_what_is_constant(cuda: Standin, hosted, constant) -> None:
    """A call's `b` may have been written right before it; nobody but the caller knows that it is a weight."""
    launch, image = dense_launch()
    hosted((dependent(launch, "b", "b_scales"), image), constant=constant)
    given = operands()
    (decision,) = explain_call(runtime.dense_fp8, *given.values()).routes
    cuda.reset()
    runtime.dense_fp8(*given.values())
    served = constant == ("b", "b_scales")
    assert len(cuda.launches()) == served
    for name in ("b", "b_scales"):
        refused = f"the kernel may read `{name}` while it is written, unless use() is told that it is constant"
        assert (refused in (decision.reason or "")) == (name not in constant)


def test_of_two_kernels_that_serve_a_call_the_dependent_one_does(cuda: Standin, hosted) -> None:
    plain, waiting = dense_launch(identity="plain"), dense_launch(identity="waiting")
    hosted(plain, (dependent(waiting[0], "b"), waiting[1]), constant=("b",))
    cuda.use_context()
    cuda.reset()
    runtime.dense_fp8(*operands().values())
    cuda.lose_context()
    assert [call.split()[0] for call in cuda.log()] == ["attribute", "launch"]


def test_a_kernel_that_means_something_else_is_refused_though_its_guards_fit(cuda: Standin, hosted) -> None:
    hosted(meaning={"epilogue": {"kind": "silu"}, "numerics": {"accumulate": "matrix_unit_fp32", "surprise": "x"}})
    (decision,) = explain_call(runtime.dense_fp8, **operands()).routes
    assert decision.state is State.REJECTED
    assert "epilogue.kind: wanted `identity`, the kernel has `silu`" in decision.reason
    assert "numerics.surprise: the kernel has `x`, the call does not know this field" in decision.reason
    assert not cuda.launches()


@pytest.mark.parametrize(("asked", "served"), [("tensor_core_fp8", True), ("matrix_unit_fp32", False)])
def test_a_looser_accumulation_never_serves_a_stricter_call(cuda: Standin, hosted, asked, served) -> None:
    hosted()
    explained = explain_call(runtime.dense_fp8, **operands(), accumulate=asked)
    assert (explained.selected == "nkc") is served


def test_a_bias_that_a_kernel_does_not_take_is_never_dropped(cuda: Standin, hosted) -> None:
    """Row 7: a verifier that never looks at an argument, and a kernel that drops it."""
    hosted(meaning={"epilogue": {"kind": "bias"}})
    (decision,) = explain_call(runtime.dense_fp8, **operands(), bias=torch.ones(256)).routes
    assert "the kernel does not take `bias`" in decision.reason


def test_the_closest_kernel_gives_the_reason(cuda: Standin, hosted) -> None:
    hosted(dense_launch(), dense_launch(m=4, n=512))
    (decision,) = explain_call(runtime.dense_fp8, **operands(m=5)).routes
    assert "`a` shape: wanted [4, 512], got [5, 512]" in decision.reason
    assert "closest of 2 kernels" in decision.reason


def test_a_closed_library_is_unavailable_and_the_fallback_serves(cuda: Standin, hosted) -> None:
    library = hosted()
    library.close()
    assert torch.isfinite(runtime.dense_fp8(**operands())).all()
    assert explain_call(runtime.dense_fp8, **operands()).routes[0].state is State.UNAVAILABLE


def test_row_15_parity_never_compares_a_route_with_itself(cuda: Standin, hosted) -> None:
    def distance(mine, its) -> float:
        return 0.0 if mine.shape == its.shape else 1.0  # the stand-in computes nothing

    with pytest.raises(VerificationError, match="no route accepts the call"):
        parity(runtime.dense_fp8, **operands(), measure=distance, bound=0.0)
    hosted()
    (record,) = parity(runtime.dense_fp8, **operands(), measure=distance, bound=0.0)
    assert (record.left, record.right, record.within) == ("nkc", "fallback", True)
    with pytest.raises(VerificationError, match="parity of `nkc` with itself proves nothing"):
        Parity(function="dense_fp8", left="nkc", right="nkc", differences=(0.0,), within=True)


@pytest.mark.parametrize(
    ("block", "wave", "message"),
    [((2048, 1, 1), 64, "2048 threads, more than the 1024"), ((96, 1, 1), 64, "not whole waves of 64")],
)
def test_row_11_threads_are_whole_waves_and_at_most_1024(cuda: Standin, out, block, wave, message) -> None:
    """32 warps are 2048 threads on wave64."""
    import msgspec

    launch, image = dense_launch()
    target = msgspec.structs.replace(launch.target, wave=wave)
    changed = msgspec.structs.replace(launch, block=block, target=target)
    with pytest.raises(BundleError, match=message):
        load(write_bundle(out, [(changed, image)]))


def test_operators_have_schemas_and_fakes_that_agree() -> None:
    checks = ("test_faketensor",)  # torch's schema test multiplies fp8 results, which no CPU can
    x = torch.randn(5, 512).to(torch.bfloat16)
    weight, residual = torch.ones(512, dtype=torch.bfloat16), torch.zeros_like(x)
    with torch.no_grad():
        torch.library.opcheck(operators.dense_fp8, tuple(operands().values()), test_utils=checks)
        scales = {"scale_layout": "m_major", "leading_dim": 8}
        torch.library.opcheck(operators.dense_fp8_quant, tuple(operands().values()), scales, test_utils=checks)
        torch.library.opcheck(
            operators.group_quant, (x,), {"scale_layout": "m_major", "leading_dim": 8}, test_utils=checks
        )
        torch.library.opcheck(operators.silu_mul_quant, (x,), test_utils=checks)
        torch.library.opcheck(operators.rms_norm_quant, (x, weight, 1e-6), test_utils=checks)
        torch.library.opcheck(operators.add_rms_norm_quant, (x, residual, weight, 1e-6), test_utils=checks)
    assert "Tensor a, Tensor b" in str(torch.ops.nkc.dense_fp8.default._schema)


def test_operators_stay_whole_under_compile() -> None:
    given = operands()

    @torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
    def layer(x, b, b_scales):
        codes, scales = torch.ops.nkc.group_quant(x)
        return torch.ops.nkc.dense_fp8(codes, b, scales, b_scales) + 1

    with torch.no_grad():
        for m in (3, 7):
            x = torch.randn(m, 512)
            codes, scales = runtime.group_quant(x)
            wanted = runtime.dense_fp8(codes, given["b"], scales, given["b_scales"]) + 1
            assert torch.equal(layer(x, given["b"], given["b_scales"]), wanted)


def test_public_functions_break_the_graph_and_decide_outside() -> None:
    @torch.compile(backend="eager")
    def layer(x):
        return runtime.group_quant(x * 2)[1] + 1

    x = torch.randn(3, 128)
    with torch.no_grad():
        assert torch.equal(layer(x), runtime.group_quant(x * 2)[1] + 1)


def test_operators_refuse_a_backward_at_the_forward() -> None:
    with pytest.raises(UsageError, match="requires grad"):
        torch.ops.nkc.group_quant(torch.randn(2, 128, requires_grad=True))


def test_violations_at_launch_fall_back_with_a_reason(cuda: Standin, hosted, caplog) -> None:
    """Aliasing is in no signature: a decided call whose launch is refused still gets its answer."""
    library = hosted()
    given = operands()
    (kernel,) = library
    launch, calls = kernel.launch, []

    def refuse_the_second(*tensors):
        calls.append(tensors)
        if len(calls) > 1:
            raise ContractViolation(kernel.id, (Violation(guard="aliasing", argument="out", wanted="x", actual="y"),))
        launch(*tensors)

    kernel.launch = refuse_the_second
    runtime.dense_fp8(**given)
    assert torch.equal(runtime.dense_fp8(**given), runtime.dense_fp8.fallback(**given))
    assert "`out` aliasing" in caplog.text


def test_a_call_that_looks_like_an_earlier_one_goes_straight_to_its_kernel(cuda: Standin, hosted, monkeypatch) -> None:
    hosted()
    given = operands()
    first = runtime.dense_fp8(**given)
    monkeypatch.setattr(runtime.dense_fp8, "resolve", None)  # nothing is resolved again
    second = runtime.dense_fp8(**given)
    assert second.shape == first.shape
    assert second.data_ptr() != first.data_ptr()
    assert len(cuda.launches()) == 2
    monkeypatch.undo()
    runtime.dense_fp8(given["a"], given["b"], given["a_scales"], b_scales=given["b_scales"])  # mixed
    runtime.dense_fp8(given["a"], given["b"], given["a_scales"], b_scales=given["b_scales"])
    inputs = [line.split(" args ")[1].split()[:4] for line in cuda.launches()]
    assert len(inputs) == 4
    assert all(each == inputs[0] for each in inputs)


def test_what_looks_alike_is_no_more_than_that(cuda: Standin, hosted) -> None:
    """Another alignment, dtype, stride or wish for a gradient is another call, whatever was decided before."""
    hosted()
    given = operands()
    runtime.dense_fp8(**given)
    shifted = torch.zeros(4 * 4 + 1)[1:].view(4, 4).copy_(given["a_scales"])
    runtime.dense_fp8(**{**given, "a_scales": shifted})
    transposed = given["b_scales"].t().contiguous().t()
    runtime.dense_fp8(**{**given, "b_scales": transposed})
    assert len(cuda.launches()) == 1
    wishing = given["a_scales"].clone().requires_grad_()
    with torch.no_grad():
        runtime.dense_fp8(**{**given, "a_scales": wishing})
    with pytest.raises(UsageError, match="`a_scales` requires grad"):
        runtime.dense_fp8(**{**given, "a_scales": wishing})


def test_a_prepared_call_keeps_no_tensor_alive(cuda: Standin, hosted) -> None:
    import gc
    import weakref

    hosted()
    given = operands()
    runtime.dense_fp8(**given)
    watched = [weakref.ref(tensor) for tensor in given.values()]
    del given
    gc.collect()
    assert [each() for each in watched] == [None] * 4


RANKS = """
import sys, torch, torch.distributed as dist
from nkc.runtime.ranks import TorchRanks, compare_plans, RankError
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
ranks = TorchRanks()
assert ranks.all_accept((True, rank == 0, False)) == (True, False, False)
compare_plans(ranks, "same")
try:
    compare_plans(ranks, "plan%d" % rank)
except RankError as error:
    print(error)
dist.barrier()
dist.destroy_process_group()
"""


def test_row_17_two_real_ranks(tmp_path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("torch without distributed")
    command = [sys.executable, "-W", "ignore", "-c", RANKS]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        said, complained = rank.communicate(timeout=120)
        assert rank.returncode == 0, complained.decode()
        assert "ranks loaded different bundles: rank 0 plan0, rank 1 plan1" in said.decode()
