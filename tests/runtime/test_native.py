"""The launch in C against the one in Python: the same launches byte by byte, and the same refusals word by word."""

import gc
import hashlib
import random
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from nkc.ir.contract import DType
from nkc.ir.launch import DistinctGuard, Extent, Launch, LaunchAttributes, RangeGuard, TensorGuard
from nkc.runtime import DriverError, load, native, read
from nkc.runtime import cuda as cuda_driver
from nkc.runtime import hip as hip_driver
from nkc.runtime.launch import Kernel
from nkc.runtime.tensor_map import Maps

from .support import Standin, dense_launch, mapped, write_bundle

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    native.extension() is None or native.exchange() is None,
    reason="the extension was not built, or this torch has no exchange table",
)
TORCH = {
    DType.BF16: torch.bfloat16,
    DType.FP16: torch.float16,
    DType.FP32: torch.float32,
    DType.FP8_E4M3: torch.float8_e4m3fn,
    DType.INT32: torch.int32,
}
M, N, K = 4, 256, 512


@pytest.fixture(autouse=True)
def _context(request: pytest.FixtureRequest) -> Iterator[None]:
    """A context is current, as torch leaves it; without one every launch would end in Python."""
    if "cuda" not in request.fixturenames:
        yield
        return
    standin = request.getfixturevalue("cuda")
    standin.use_context()
    yield
    standin.lose_context()


def _load(out, launch: tuple[Launch, bytes], path: str = "native", **options) -> Kernel:
    """Return a kernel that takes host tensors for device ones, as torch numbers the host."""
    driver = cuda_driver.open_device(0, path)
    driver.device = -1
    (kernel,) = load(read(write_bundle(out, [launch])), driver=driver, **options)
    assert kernel.is_native == (path == "native")
    return kernel


def tensors(m: int = M) -> list[torch.Tensor]:
    """Return tensors that meet every guard of a dense record."""
    return [
        torch.zeros(m, K).to(torch.float8_e4m3fn),
        torch.zeros(N, K).to(torch.float8_e4m3fn),
        torch.ones(m, K // 128),
        torch.ones(N // 128, K // 128),
        torch.empty(m, N, dtype=torch.bfloat16),
    ]


def _outcome(standin: Standin, launch, *arguments, **options) -> tuple[str, ...]:
    """Return what a launch did, to the last byte, or how it failed, to the last word."""
    standin.reset()
    try:
        launch(*arguments, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return tuple(line for line in standin.log() if "TensorMap" not in line)


# Records of any structure that a compiler may write: ranks 1 to 4, fixed, followed, grouped and padded extents.


@st.composite
def records(draw) -> tuple[Launch, bytes]:
    """Return a launch record of a few tensors, with bounded dims, a workspace and tensor maps now and then."""
    base = dense_launch(m=(0, 9) if draw(st.booleans()) else 4, workspace=draw(st.sampled_from((0, 512))))[0]
    bounded = any(isinstance(guard, RangeGuard) for guard in base.guards)
    guards = []
    for guard in base.guards:
        if isinstance(guard, RangeGuard):
            guards.append(msgspec.structs.replace(guard, min=draw(st.integers(0, 2)), max=draw(st.integers(2, 9))))
        elif isinstance(guard, DistinctGuard):
            others = tuple(name for name in guard.others if draw(st.integers(0, 3)))
            guards.append(msgspec.structs.replace(guard, others=others))
        else:
            guards.append(draw(_tensor_guard(guard.argument, bounded and guard.argument == "a", bounded)))
    arguments = tuple(
        msgspec.structs.replace(each, dtype=next((g.dtype for g in guards if g_name(g) == each.name), each.dtype))
        for each in base.arguments
    )
    attributes = LaunchAttributes(programmatic_dependent_launch=draw(st.booleans()))
    launch = msgspec.structs.replace(base, guards=tuple(guards), arguments=arguments, attributes=attributes)
    image = _image(launch)
    launch = msgspec.structs.replace(launch, sha256=hashlib.sha256(image).hexdigest())
    candidates = [guard for guard in guards if isinstance(guard, TensorGuard) and _can_be_mapped(guard)]
    if candidates and draw(st.booleans()):
        chosen = draw(st.sampled_from(candidates))
        return mapped(launch, chosen.argument, box=(1,) * len(chosen.shape))  # type: ignore[arg-type]
    return launch, image


def g_name(guard: object) -> str | None:
    return guard.argument if isinstance(guard, TensorGuard) else None


def _image(launch: Launch) -> bytes:
    text = f"STANDIN\nsymbol {launch.symbol}\nfixed 0\nthreads 512\n"
    return (text + "".join(f"param {each.offset} {each.size}\n" for each in launch.arguments)).encode() + b"\0"


def _can_be_mapped(guard: TensorGuard) -> bool:
    """The stand-in takes maps of up to three axes; every stride but the contiguous one is whole 16 bytes."""
    return (
        len(guard.shape) <= 3
        and guard.alignment % 16 == 0
        and guard.strides[-1] == Extent(value=1)
        and all(
            stride.dim is None and stride.of({}) * guard.dtype.size_bytes % 16 == 0 for stride in guard.strides[:-1]
        )
    )


@st.composite
def _tensor_guard(draw, name: str, carries_m: bool, bounded: bool) -> TensorGuard:
    rank = draw(st.integers(1, 4))
    shape = [Extent(value=draw(st.integers(1, 6))) for _ in range(rank)]
    if carries_m:
        shape[draw(st.integers(0, rank - 1))] = Extent(dim="m")
    elif bounded and draw(st.booleans()):
        divisor, multiple = draw(st.sampled_from(((1, 1), (4, 1), (1, 4), (3, 2))))
        shape[draw(st.integers(0, rank - 1))] = Extent(dim="m", divisor=divisor, multiple_of=multiple)
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(Extent(value=step))
        step *= 9 if extent.value is None else extent.value
        step = -(-step // 16) * 16 if draw(st.integers(0, 3)) == 0 else step
    if bounded and draw(st.integers(0, 3)) == 0:
        strides[-1] = Extent(dim="m", multiple_of=4)
    return TensorGuard(
        argument=name,
        dtype=draw(st.sampled_from(tuple(DType))),
        shape=tuple(shape),
        strides=tuple(reversed(strides)),
        alignment=draw(st.sampled_from((4, 16, 16, 64))),
    )


@st.composite
def operands(draw, launch: Launch) -> list[torch.Tensor]:
    """Return tensors for a record, mostly right, each in every way wrong now and then."""
    memory = _MEMORY
    m = draw(st.integers(0, 10))
    found, at = [], 0
    wrong = draw(st.sampled_from((1 << 30, 1 << 30, 40, 12)))

    def rarely() -> bool:
        return draw(st.integers(0, wrong)) == 1

    for guard in launch.guards:
        if not isinstance(guard, TensorGuard):
            continue
        dtype = draw(st.sampled_from((*TORCH.values(), torch.float8_e5m2))) if rarely() else TORCH[guard.dtype]
        shape = [extent.of({"m": m}) for extent in guard.shape]
        strides = [extent.of({"m": m}) for extent in guard.strides]
        if rarely():
            shape = [*shape, 1] if draw(st.booleans()) else shape[1:]
            strides = [*strides, 1] if len(shape) > len(strides) else strides[1:]
        for axis in range(len(shape)):
            if rarely():
                shape[axis] = max(shape[axis] + draw(st.integers(-2, 2)), 0)
            if rarely() or shape[axis] == 1:
                strides[axis] = max(strides[axis] + draw(st.integers(-1, 3)), 0)
        start = draw(st.integers(0, 256)) * 4 if rarely() else at
        span = 1 + sum(max(size - 1, 0) * stride for size, stride in zip(shape, strides, strict=True))
        raw = memory[start : start + span * dtype.itemsize].clone() if rarely() else memory[start:]
        raw = raw[: raw.numel() // dtype.itemsize * dtype.itemsize]
        found.append(raw.view(dtype).as_strided(shape, strides))
        at += -(-span * 4 // 64) * 64 + 64
    return found


_MEMORY = torch.zeros(1 << 17, dtype=torch.uint8)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data(), record=records())
def test_c_and_python_do_the_same(cuda: Standin, tmp_path_factory, data, record) -> None:
    folder = tmp_path_factory.mktemp("same")
    ours, reference = _load(folder / "a", record), _load(folder / "b", record, "ex")
    for _ in range(6):
        given_tensors = data.draw(operands(record[0]))
        options = {}
        if data.draw(st.booleans()):
            options["stream"] = data.draw(st.sampled_from((0, 1, 1 << 47, None, True, -1, "main")))
        wanted = _outcome(cuda, reference.launch, *given_tensors, **options)
        event(wanted[0].split()[0] if wanted else "nothing to do")
        got = _outcome(cuda, ours.launch, *given_tensors, **options)
        assert _without_workspace(record[0], got) == _without_workspace(record[0], wanted)
        exact = _outcome(cuda, reference._launch_exact, *given_tensors, **options)
        assert _without_workspace(record[0], exact) == _without_workspace(record[0], wanted)


def _without_workspace(launch: Launch, outcome: tuple[str, ...]) -> tuple[str, ...]:
    """Return an outcome without the address of the workspace, of which each kernel has its own."""
    place = [each.name for each in launch.arguments].index("workspace") if launch.workspace.bytes else None
    if place is None or not outcome or not outcome[-1].startswith("launch "):
        return outcome
    head, _, values = outcome[-1].partition(" args ")
    words = values.split()
    words[place] = "-"
    return (*outcome[:-1], f"{head} args {' '.join(words)}")


def test_legal_calls_never_reach_python(cuda: Standin, out, monkeypatch) -> None:
    """The fallback is the reference, not the way: a record of each kind is launched without it."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Python was asked")

    shapes = ({"m": (0, 64)}, {"workspace": 64}, {"m": 4})
    for index, shape in enumerate(shapes):
        kernel = _load(out / str(index), dense_launch(**shape))
        kernel.launch = kernel._in_c(refuse)
        for options in ({}, {"stream": None}, {"stream": 7}, {"workspace": None}):
            kernel.launch(*tensors(), **options)
        if "m" in shape and shape["m"] != 4:
            kernel.launch(*tensors(0))
    assert len(cuda.launches()) == 12
    kernel = _load(out / "padded", dense_launch(m=(0, 64), scales="m_major"))
    kernel.launch = kernel._in_c(refuse)
    given_tensors = tensors(5)
    given_tensors[2] = torch.ones(K // 128, 8).t()[:5]
    kernel.launch(*given_tensors)
    assert len(cuda.launches()) == 13
    kernel = _load(out / "one row", dense_launch(m=(0, 1)))
    kernel.launch = kernel._in_c(refuse)
    for rows in (0, 1):
        given_tensors = tensors(rows)
        given_tensors[0] = torch.zeros(4096).to(torch.float8_e4m3fn).as_strided((rows, K), (77, 2 - rows))
        kernel.launch(*given_tensors)  # the stride of one row, or of none, does not matter
    assert len(cuda.launches()) == 14


def _wrong_dtypes() -> list[list[torch.Tensor]]:
    dtypes = (*TORCH.values(), torch.float64, torch.uint8, torch.float8_e5m2)
    right = tensors()
    return [
        [*right[:place], torch.zeros(each.shape, dtype=dtype), *right[place + 1 :]]
        for place, each in enumerate(right)
        for dtype in dtypes
        if dtype is not each.dtype
    ]


def test_every_other_type_and_device_is_refused_alike(cuda: Standin, out) -> None:
    kernel, reference = _load(out / "a", dense_launch()), _load(out / "b", dense_launch(), "ex")
    for given_tensors in _wrong_dtypes():
        outcome = _outcome(cuda, kernel.launch, *given_tensors)
        assert outcome[0] == "ContractViolation"
        assert outcome == _outcome(cuda, reference.launch, *given_tensors)
    for each in (kernel, reference):
        each._driver.device = 0  # the tensors are on the host
        each.specialise()
    outcome = _outcome(cuda, kernel.launch, *tensors())
    assert "`a` device: wanted device 0, got host memory" in outcome[1]
    assert outcome == _outcome(cuda, reference.launch, *tensors())


@pytest.mark.parametrize("place", range(5))
def test_a_tensor_whose_memory_was_given_back_is_refused_alike(cuda: Standin, out, place) -> None:
    """Its shape is still there, its address is null."""
    kernel, reference = _load(out / "a", dense_launch()), _load(out / "b", dense_launch(), "ex")
    given_tensors = tensors()
    given_tensors[place].untyped_storage().resize_(0)
    outcome = _outcome(cuda, kernel.launch, *given_tensors)
    assert outcome[0] == "ContractViolation"
    assert "a null pointer" in outcome[1]
    assert outcome == _outcome(cuda, reference.launch, *given_tensors)


@pytest.mark.parametrize("rows", [4, (1, 64)], ids=["fixed", "bounded"])
@pytest.mark.parametrize("place", range(4))
def test_an_output_over_another_argument_is_refused_alike_from_either_side(cuda: Standin, out, place, rows) -> None:
    record = dense_launch(m=rows)
    kernel, reference = _load(out / "a", record), _load(out / "b", record, "ex")
    given_tensors = tensors()
    other, result = given_tensors[place], given_tensors[4]
    size, written = other.nbytes, result.nbytes
    memory = torch.zeros(size + 2 * written + 16, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % 16 :]
    given_tensors[place] = memory[written : written + size].view(other.dtype).view(other.shape)
    for begin, overlaps in ((0, False), (16, True), (written + size - 16, True), (written + size, False)):
        given_tensors[4] = memory[begin : begin + written].view(torch.bfloat16).view(M, N)
        outcome = _outcome(cuda, kernel.launch, *given_tensors)
        assert (outcome[0] == "ContractViolation") == overlaps
        assert outcome == _outcome(cuda, reference.launch, *given_tensors)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 6])
def test_ranges_hold_at_both_ends(cuda: Standin, out, rows) -> None:
    kernel = _load(out / "a", dense_launch(m=(2, 5)))
    given_tensors = tensors(rows)
    outcome = _outcome(cuda, kernel.launch, *given_tensors)
    assert outcome[0].startswith("launch ") == (2 <= rows <= 5)
    assert outcome == _outcome(cuda, _load(out / "b", dense_launch(m=(2, 5)), "ex").launch, *given_tensors)


@pytest.fixture
def made(monkeypatch) -> list[int]:
    """The addresses for which C asked Python for a map."""
    asked: list[int] = []
    answer = Maps.of

    def of(self: Maps, pointer: int, *dims: int) -> bytes:
        asked.append(pointer)
        return answer(self, pointer, *dims)

    monkeypatch.setattr(Maps, "of", of)
    return asked


def test_maps_are_kept_by_address_and_dims(cuda: Standin, out, made) -> None:
    record = mapped(dense_launch(m=(1, 64))[0], "a", "b")
    kernel, reference = _load(out / "a", record), _load(out / "b", record, "ex")
    weights = [tensors()[1] for _ in range(40)]
    rows = {m: tensors(m) for m in range(1, 30)}
    order = [(m, which) for m in rows for which in range(len(weights))]
    random.Random(0).shuffle(order)
    for turn in range(2):
        cuda.reset()
        for m, which in order[:200]:
            kernel.launch(rows[m][0], weights[which], *rows[m][2:])
        mine = cuda.launches()
        assert turn == 0 or not made
        made.clear()
        cuda.reset()
        for m, which in order[:200]:
            reference.launch(rows[m][0], weights[which], *rows[m][2:])
        assert mine == cuda.launches()


def test_one_address_has_a_map_for_every_number_of_rows(cuda: Standin, out, made) -> None:
    """Of 64 keys with one address in a table of 128, some fall on each other's places: dims tell them apart."""
    record = mapped(dense_launch(m=(1, 64))[0], "a")
    kernel, reference = _load(out / "a", record), _load(out / "b", record, "ex")
    a, b, a_scales, b_scales, result = tensors(64)
    order = list(range(1, 65))
    random.Random(0).shuffle(order)
    said = []
    for launch in (kernel.launch, kernel.launch, reference.launch):
        cuda.reset()
        for m in order:
            launch(a[:m], b, a_scales[:m], b_scales, result[:m])
        said.append(cuda.launches())
    assert said[0] == said[1] == said[2]
    assert len(made) == len(order), "C asks once for each; the short launch in Python keeps its own"


def test_more_maps_than_are_kept_are_made_anew(cuda: Standin, out, made) -> None:
    kernel = _load(out, mapped(dense_launch(m=4, n=16, k=128)[0], "a", box=(1, 1)))
    memory = torch.zeros(1 << 20, dtype=torch.uint8)
    fixed = [torch.zeros(16, 128).to(torch.float8_e4m3fn), torch.ones(4, 1), torch.ones(1, 1)]
    out_ = torch.empty(4, 16, dtype=torch.bfloat16)
    for index in range(4200):
        a = memory[index * 16 : index * 16 + 512].view(torch.float8_e4m3fn).view(4, 128)
        if index % 300 == 0:
            cuda.reset()
        kernel.launch(a, *fixed, out_)
        if index % 300 == 299:
            for offset, line in enumerate(cuda.launches()):
                first = bytes.fromhex(line.split(" args ")[1][:16])
                assert int.from_bytes(first, "little") == memory.data_ptr() + (index - 299 + offset) * 16
    assert len(made) == 4200
    for index in (4199, 0):
        a = memory[index * 16 : index * 16 + 512].view(torch.float8_e4m3fn).view(4, 128)
        kernel.launch(a, *fixed, out_)
    assert made[4200:] == [memory.data_ptr()], "the table was emptied once it was full"


def test_each_stream_keeps_its_workspace(cuda: Standin, out) -> None:
    kernel = _load(out, dense_launch(workspace=512), streams=2)
    given_tensors = tensors()
    for stream in (1, 2, 1):
        kernel.launch(*given_tensors, stream=stream)
    first, second, again = (line.split(" args ")[1].split()[5] for line in cuda.launches())
    assert first == again != second
    with pytest.raises(Exception, match="at most 2 streams"):
        kernel.launch(*given_tensors, stream=3)
    own = torch.zeros(256, dtype=torch.int32)
    own = own[(-own.data_ptr() // 4) % 64 :][:128]
    kernel.launch(*given_tensors, stream=1, workspace=own)
    assert own.data_ptr().to_bytes(8, "little").hex() in cuda.launches()[-1]


def test_tensors_by_name_and_tensors_of_others_go_through_python(cuda: Standin, out) -> None:
    class Mine(torch.Tensor):
        """A subclass may mean something else by its data."""

        def data_ptr(self) -> int:
            return super().data_ptr() + 1024

    kernel = _load(out, dense_launch())
    a, *rest = tensors()
    a = a.repeat(2, 1)[: len(a)]  # with room behind it: what lies 1024 bytes on overlaps no other tensor
    kernel.launch(a=a, **dict(zip(kernel.arguments[1:], rest, strict=True)))
    kernel.launch(torch.nn.Parameter(a, requires_grad=False), *rest)
    assert len(set(cuda.launches())) == 1
    kernel.launch(a.as_subclass(Mine), *rest)
    assert len(cuda.launches()) == 3
    assert (a.data_ptr() + 1024).to_bytes(8, "little").hex() in cuda.launches()[-1]
    with pytest.raises(TypeError):
        kernel.launch(a, *rest[:-1])
    with pytest.raises(TypeError):
        kernel.launch(a, *rest, strem=1)


def test_a_thread_without_a_context_launches_all_the_same(cuda: Standin, out) -> None:
    kernel = _load(out, dense_launch())
    failures: list[BaseException] = []

    def run() -> None:
        try:
            cuda.lose_context()
            kernel.launch(*tensors())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures
    assert len(cuda.launches()) == 1


def test_threads_never_mix_their_arguments(cuda: Standin, out) -> None:
    kernel = _load(out, dense_launch())
    sets = {index: tensors() for index in range(1, 5)}

    def run(index: int) -> None:
        for _ in range(100):
            kernel.launch(*sets[index], stream=index)

    threads = [threading.Thread(target=run, args=(index,)) for index in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cuda.launches()) == 400
    for line in cuda.launches():
        stream = int(line.split(" stream ")[1].split()[0], 16)
        wanted = " ".join(each.data_ptr().to_bytes(8, "little").hex() for each in sets[stream])
        assert line.split(" args ")[1].startswith(wanted)


def test_a_driver_error_is_worded_as_in_python(cuda: Standin, out) -> None:
    kernel, reference = _load(out / "a", dense_launch()), _load(out / "b", dense_launch(), "ex")
    outcomes = []
    for each in (kernel, reference):
        cuda.reset()
        cuda.fail("cuLaunchKernel", 719)
        with pytest.raises(DriverError, match=r"launch of .* failed") as caught:
            each.launch(*tensors())
        outcomes.append((str(caught.value), caught.value.code))
    assert outcomes[0] == outcomes[1]


def test_a_closed_kernel_refuses_by_a_function_kept_from_before(cuda: Standin, out) -> None:
    kernel = _load(out, dense_launch())
    launch = kernel.launch
    kernel.close()
    cuda.reset()
    with pytest.raises(DriverError, match="its library was closed, and the code is gone"):
        launch(*tensors())
    assert not cuda.launches()


def test_a_kernel_that_nobody_has_is_collected(cuda: Standin, out) -> None:
    kernel = _load(out, dense_launch())
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None


def test_hip_gets_the_buffer_whole(hip: Standin, out) -> None:
    outcomes = []
    record = dense_launch(arch="gfx950", m=(1, 64))
    for index, hide in enumerate((False, True)):
        driver = hip_driver.open_device(0, str(hip.path))
        driver.device = -1
        if hide:
            driver.native = lambda *_: None  # type: ignore[method-assign]
        (kernel,) = load(read(write_bundle(out / str(index), [record])), driver=driver)
        assert kernel.is_native != hide
        given_tensors = tensors(9)
        kernel.launch(*given_tensors, stream=0xFEDCBA987654)
        pointers = " ".join(each.data_ptr().to_bytes(8, "little").hex() for each in given_tensors)
        outcomes.append(hip.launches()[-1].replace(pointers, "POINTERS"))
    assert outcomes[0] == outcomes[1]
    assert "POINTERS 09000000" in outcomes[0]


@pytest.mark.parametrize(
    "change", [{"alignment": 48}, {"shape": (Extent(value=1),) * 5, "strides": (Extent(value=1),) * 5}]
)
def test_what_its_tables_do_not_hold_is_pythons(cuda: Standin, out, change) -> None:
    launch, image = dense_launch()
    guards = (msgspec.structs.replace(launch.guards[0], **change), *launch.guards[1:])
    driver = cuda_driver.open_device(0)
    (kernel,) = load(read(write_bundle(out, [(msgspec.structs.replace(launch, guards=guards), image)])), driver=driver)
    assert not kernel.is_native


def test_a_range_beyond_32_bits_is_pythons(cuda: Standin, out) -> None:
    driver = cuda_driver.open_device(0)
    (kernel,) = load(read(write_bundle(out, [dense_launch(m=(1, 1 << 31))])), driver=driver)
    assert not kernel.is_native


def test_without_the_extension_python_serves(cuda: Standin, out, monkeypatch) -> None:
    monkeypatch.setattr(native, "extension", lambda: None)
    driver = cuda_driver.open_device(0)
    driver.device = -1
    (kernel,) = load(read(write_bundle(out, [dense_launch()])), driver=driver)
    assert not kernel.is_native
    kernel.launch(*tensors())
    assert len(cuda.launches()) == 1


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_row_that_is_none_is_refused(cuda: Standin, data) -> None:
    """A damaged row raises or makes a plan that is consistent in itself; nothing is launched from it here."""
    kernel = _ROWS.get("kernel") or _ROWS.setdefault("kernel", _kernel_for_rows())
    assert kernel._native is not None
    row = list(native._row(kernel.record, kernel.guards, kernel._plan, kernel._native, -1))
    at = data.draw(st.integers(0, len(row) - 1))
    cut = data.draw(st.booleans())
    row = row[:at] if cut else [*row[:at], data.draw(st.integers(-(1 << 63), (1 << 63) - 1)), *row[at + 1 :]]
    module, (table, types) = native.extension(), native.exchange()
    packed = b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in row)
    none = (None,) * len(kernel.arguments)
    call = (packed, kernel._plan.static, b"", table, types, print, print, print, none, print)
    if cut:
        with pytest.raises(ValueError, match="not a row of integers"):
            module.prepare(*call)
        return
    try:
        launch = module.prepare(*call)
    except ValueError:
        event("refused")
    else:
        event("a plan")
        assert launch.__name__ == "launch"


def _kernel_for_rows() -> Kernel:
    return _load(Path(mkdtemp()), dense_launch(m=(1, 64), workspace=64))


_ROWS: dict[str, Kernel] = {}
