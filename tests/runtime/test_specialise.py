"""The short launches for torch tensors, in C and in Python: exactly the exact check, and taken whenever they can be."""

import random
import sys

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from nkc.runtime import ContractViolation, load, native, read
from nkc.runtime import cuda as cuda_driver
from nkc.runtime.launch import Kernel

from .support import Standin, dense_launch, write_bundle

torch = pytest.importorskip("torch")
M, N, K = 4, 256, 512


@pytest.fixture(params=["native", "ex"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch) -> str:
    """The launch in C and the one in Python; without the extension only the latter."""
    if request.param == "native" and native.extension() is None:
        pytest.skip("the extension was not built")
    monkeypatch.setitem(_PATH, "now", request.param)
    return request.param


_PATH = {"now": ""}


@pytest.fixture
def kernel(cuda: Standin, out):
    return _load(out)


def _load(out, **shape) -> Kernel:
    """Return a kernel whose device is the host, as torch numbers it, so that host tensors stand for device ones."""
    driver = cuda_driver.open_device(0, _PATH["now"])
    driver.device = -1
    (kernel,) = load(read(write_bundle(out, [dense_launch(**shape)])), driver=driver)
    assert kernel.is_native == (_PATH["now"] == "native")
    return kernel


def tensors(m: int = M, scales: str = "row_major") -> dict[str, torch.Tensor]:
    """Return tensors that meet every guard; torch aligns host memory to 64 bytes."""
    groups = K // 128
    a_scales = torch.ones(m, groups)
    if scales == "m_major":
        a_scales = torch.ones(groups, -(-m // 4) * 4).t()[:m]
    return {
        "a": torch.zeros(m, K).to(torch.float8_e4m3fn),
        "b": torch.zeros(N, K).to(torch.float8_e4m3fn),
        "a_scales": a_scales,
        "b_scales": torch.ones(2, groups),
        "out": torch.empty(m, N, dtype=torch.bfloat16),
    }


def _forbid_exact(kernel: Kernel, monkeypatch) -> None:
    """Let the exact path fail loudly, and write the launch anew so that it binds this one."""

    def refuse(*_, **__):
        raise AssertionError("the exact path was taken")

    monkeypatch.setattr(kernel, "_launch_exact", refuse)
    kernel.specialise()


def test_legal_torch_tensors_never_take_the_exact_path(cuda: Standin, kernel, monkeypatch) -> None:
    _forbid_exact(kernel, monkeypatch)
    given = tensors()
    kernel.launch(*given.values(), stream=0x77)
    wanted = " ".join(tensor.data_ptr().to_bytes(8, "little").hex() for tensor in given.values())
    assert cuda.launches()[0].split(" args ")[1] == f"{wanted} {'00' * 8} {'00' * 8}"
    assert " stream 0x77 " in cuda.launches()[0]


@pytest.mark.parametrize(("scales", "rows"), [("row_major", 1), ("row_major", 5), ("m_major", 5), ("m_major", 64)])
def test_bounded_dims_take_the_short_path_too(cuda: Standin, out, monkeypatch, scales, rows) -> None:
    kernel = _load(out, m=(1, 64), scales=scales)
    _forbid_exact(kernel, monkeypatch)
    kernel.launch(*tensors(rows, scales).values())
    assert cuda.launches()[0].split(" args ")[1].split()[5] == rows.to_bytes(4, "little").hex()


def test_one_row_of_m_major_scales_takes_the_short_path_in_any_spelling(cuda: Standin, out, monkeypatch) -> None:
    kernel = _load(out, m=1, scales="m_major")
    _forbid_exact(kernel, monkeypatch)
    for stride in ((1, 4), (77, 4)):
        given = tensors(1)
        given["a_scales"] = torch.ones(16).as_strided((1, 4), stride)
        kernel.launch(*given.values())
    assert len(cuda.launches()) == 2


def test_zero_rows_of_torch(cuda: Standin, out) -> None:
    kernel = _load(out, m=(0, 64))
    kernel.launch(*tensors(0).values())
    assert not cuda.launches()


def test_parameters_are_tensors_as_well(cuda: Standin, kernel) -> None:
    given = tensors()
    given["b_scales"] = torch.nn.Parameter(given["b_scales"])
    kernel.launch(*given.values())
    assert len(cuda.launches()) == 1


def _break(given: dict[str, torch.Tensor], name: str, how: str) -> None:
    tensor = given[name]
    match how:
        case "dtype":
            given[name] = torch.zeros(tensor.shape, dtype=torch.float8_e4m3fnuz)
        case "rows":
            given[name] = torch.cat([tensor.float(), tensor.float()]).to(tensor.dtype)
        case "transposed":
            given[name] = tensor.float().t().contiguous().to(tensor.dtype).t()
        case "misaligned":
            flat = torch.zeros(tensor.numel() * tensor.element_size() + 64, dtype=torch.uint8)
            given[name] = flat[8 : 8 + tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape)
        case "aliased":
            other = random.Random(name).choice([each for each in given if each != name])
            written = given["out"] if name != "out" else given[other]
            span = max(each.numel() * each.element_size() for each in (tensor, written))
            memory = torch.zeros(span + 1024, dtype=torch.uint8)
            key = "out" if name != "out" else other
            for which, start in ((name, 16), (key, 0)):
                each = given[which]
                bytes_ = each.numel() * each.element_size()
                given[which] = memory[start : start + bytes_].view(each.dtype).view(each.shape)


@pytest.mark.parametrize("how", ["dtype", "rows", "transposed", "misaligned", "aliased"])
@pytest.mark.parametrize("name", ["a", "b", "a_scales", "b_scales", "out"])
def test_one_broken_promise_is_caught_whichever_it_is(cuda: Standin, kernel, name, how) -> None:
    given = tensors()
    _break(given, name, how)
    with pytest.raises(ContractViolation) as caught:
        kernel.launch(*given.values())
    arguments = {violation.argument for violation in caught.value.violations}
    assert name in arguments or (how == "aliased" and "out" in arguments)
    assert not cuda.launches()


def test_tensors_of_another_device_are_refused(cuda: Standin, kernel) -> None:
    given = tensors()
    kernel._driver.device = 0
    kernel.specialise()
    with pytest.raises(ContractViolation, match="`a` device: wanted device 0, got host memory"):
        kernel.launch(*given.values())


def test_workspace_follows_the_stream(cuda: Standin, out, monkeypatch) -> None:
    kernel = _load(out, workspace=512)
    _forbid_exact(kernel, monkeypatch)
    for stream in (1, 2, 1):
        kernel.launch(*tensors().values(), stream=stream)
    first, second, again = (line.split(" args ")[1].split()[5] for line in cuda.launches())
    assert first == again != second


def test_torch_may_come_after_the_bundle(cuda: Standin, out, path, monkeypatch) -> None:
    with monkeypatch.context() as before:
        before.delitem(sys.modules, "torch")
        before.setitem(_PATH, "now", "ex")
        kernel = _load(out)
    assert kernel.launch == kernel._launch_exact
    kernel.launch(*tensors().values())
    assert kernel.launch.__name__ == "launch"
    kernel.launch(*tensors().values())
    assert len(cuda.launches()) == 2


def test_kernels_of_one_structure_share_their_code(cuda: Standin, tmp_path, path) -> None:
    if path == "native":
        pytest.skip("all kernels are one function in C")
    first, second = _load(tmp_path / "a"), _load(tmp_path / "b", n=512)
    assert first.launch.__code__ is second.launch.__code__


DTYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.bfloat16, torch.float16, torch.float32)


_MEMORY = torch.zeros(1 << 20, dtype=torch.uint8)
_RIGHT = {rows: tuple(tensors(rows).values()) for rows in (1, 4, 6, 8)}


@st.composite
def placements(draw) -> list[torch.Tensor]:
    """Return five tensors anywhere in one small memory: mostly right, now and then wrong in one way or another."""
    memory = _MEMORY
    rows = draw(st.sampled_from((1, 4, 4, 4, 6, 8)))
    placed = []
    at = 0
    for tensor in _RIGHT[rows]:
        dtype = draw(st.sampled_from(DTYPES)) if draw(st.integers(0, 15)) == 0 else tensor.dtype
        shape = list(tensor.shape)
        if draw(st.integers(0, 15)) == 0:
            shape[draw(st.integers(0, 1))] += draw(st.sampled_from((-1, 1)))
        strides = [shape[1], 1]
        if draw(st.integers(0, 15)) == 0:
            strides[draw(st.integers(0, 1))] += draw(st.integers(1, 16))
        start = draw(st.integers(0, 4096)) * 4 if draw(st.integers(0, 7)) == 0 else at
        raw = memory[start : start + (memory.numel() - start) // dtype.itemsize * dtype.itemsize]
        if raw.data_ptr() % dtype.itemsize:
            raw = memory[: memory.numel() // dtype.itemsize * dtype.itemsize]
        placed.append(raw.view(dtype).as_strided(shape, strides))
        at += -(-tensor.numel() * tensor.element_size() // 256) * 256
    return placed


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data(), shape=st.sampled_from(({}, {"m": (1, 6)}, {"m": (1, 6), "scales": "m_major"}, {"m": 1})))
def test_the_short_path_launches_exactly_what_the_exact_check_allows(
    cuda: Standin, tmp_path, path, data, shape
) -> None:
    key = f"{path} {shape}"
    kernel = _KERNELS.get(key) or _KERNELS.setdefault(key, _load(tmp_path / str(len(_KERNELS)), **shape))
    given_tensors = data.draw(placements())
    allowed = not kernel.check(*given_tensors)
    cuda.reset()
    try:
        kernel.launch(*given_tensors)
        launched = True
    except ContractViolation:
        launched = False
    event("launched" if launched else "refused")
    assert launched == allowed == (len(cuda.launches()) == 1)
    if launched:
        pointers = [tensor.data_ptr().to_bytes(8, "little").hex() for tensor in given_tensors]
        assert cuda.launches()[0].split(" args ")[1].split()[:5] == pointers


_KERNELS: dict[str, Kernel] = {}
