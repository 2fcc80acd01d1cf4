"""A real bundle on a real GPU: launched, captured, guarded and dispatched. Skipped where there is none."""

import pytest

from nkc import runtime
from nkc.runtime import ContractViolation
from nkc.runtime.bundle_route import use
from nkc.runtime.dispatch import REGISTRY, explain_call
from tests.cli.running import EXAMPLES

pytestmark = [pytest.mark.device, pytest.mark.toolchain]
CONTRACTS = ("qwen3.6-35b.o_proj.m1", "deepseek-v3.shared_expert.gate_up_proj.m0-64")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory):
    """The kernels of two example contracts, compiled here and loaded."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    import nkc

    major, minor = torch.cuda.get_device_capability()
    files = [EXAMPLES / f"{name}.sm_{major}{minor}.json" for name in CONTRACTS]
    if not all(file.exists() for file in files):
        pytest.skip(f"no example is for sm_{major}{minor}")
    out = tmp_path_factory.mktemp("bundle")
    nkc.compile(files, out, allow_experimental=True)
    with runtime.load(out) as loaded:
        yield loaded


def operands(kernel, m: int):
    """Return random tensors for a kernel with so many rows, scales near one."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(m)
    made = {}
    for guard in kernel.guards.tensors:
        shape = [extent.of({"m": m}) for extent in guard.shape]
        values = torch.randn(shape, generator=generator, device="cuda")
        made[guard.argument] = values if guard.dtype == "fp32" else values.to(runtime.tensor.torch_dtype(guard.dtype))
        if guard.dtype == "fp32":
            made[guard.argument].abs_().add_(0.5)
    return made


@pytest.mark.parametrize("index", [0, 1])
def test_eager_captured_and_fallback_agree(library, index) -> None:
    import torch

    kernel = library.kernels[index]
    for m in (1, 64) if kernel.guards.ranges else (1,):
        given = operands(kernel, m)
        out = given["out"].fill_(float("nan"))
        kernel.launch(*given.values())
        torch.cuda.synchronize()
        eager = out.clone()
        inputs = [given[name] for name in ("a", "b", "a_scales", "b_scales")]
        reference = runtime.dense_fp8.fallback(*inputs).double()
        apart = (eager.double() - reference).square().mean().sqrt() / reference.square().mean().sqrt()
        assert apart < 5e-3  # the bf16 store on both sides gives up to 2.5e-3
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel.launch(*given.values())
        for _ in range(20):
            out.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(out, eager)


def test_guards_hold_on_the_device(library) -> None:
    import torch

    kernel = next(kernel for kernel in library if not kernel.guards.ranges)
    given = operands(kernel, 1)
    with pytest.raises(ContractViolation, match="`a` device: wanted device 0, got host memory"):
        kernel.launch(*[given["a"].cpu(), *list(given.values())[1:]])
    shifted = torch.empty(given["a"].numel() + 8, dtype=torch.float8_e4m3fn, device="cuda")[8:].view(given["a"].shape)
    with pytest.raises(ContractViolation, match="`a` alignment"):
        kernel.launch(shifted, *list(given.values())[1:])


def test_no_rows_and_other_threads(library) -> None:
    import threading

    import torch

    kernel = next(kernel for kernel in library if kernel.guards.ranges)
    kernel.launch(*operands(kernel, 0).values())
    given = operands(kernel, 3)
    failures = []

    def run() -> None:
        try:
            kernel.launch(*given.values(), stream=torch.cuda.default_stream())
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)  # a fresh thread has no context of its own
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failures


def test_the_public_function_takes_the_bundle(library) -> None:
    import torch

    routes = use(library)
    try:
        kernel = next(kernel for kernel in library if not kernel.guards.ranges)
        given = operands(kernel, 1)
        inputs = [given[name] for name in ("a", "b", "a_scales", "b_scales")]
        with torch.inference_mode():
            assert explain_call(runtime.dense_fp8, *inputs).selected == "nkc"
            kernel.launch(*given.values())
            assert torch.equal(runtime.dense_fp8(*inputs), given["out"])
    finally:
        for route in routes:
            REGISTRY.remove(route.operation, route.name)
