"""The serving layer: sound contracts, each with a kernel or a named fallback; and it runs where there is no GPU."""

import importlib
import json
import sys
from contextlib import contextmanager

import pytest

from nkc import ir
from nkc.runtime.driver import Frame, FrameLayout
from tests.cli.running import EXAMPLES
from tests.fixtures.layers import SESSION


@pytest.fixture(scope="module")
def example():
    """The example as a module, its neighbours importable as they are for a script."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        yield importlib.import_module("serve_layer")
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
def test_its_contracts_are_sound(example, tmp_path, arch) -> None:
    written = example.contracts(example.Shape(), arch, (1, 64))
    assert len(written) == 14
    for name, contract in written.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(contract))
        read = ir.read(path)
        assert read.fallback == "torch"


def test_it_runs_without_a_gpu_and_everything_agrees(example, capsys) -> None:
    pytest.importorskip("torch")
    command = ["run", "--small", "--device", "cpu", "--rows", "3", "--context", "16", "--rounds", "1"]
    assert example.main(command) == 0
    said = capsys.readouterr().out
    assert "qkv_proj: fallback (there is no route)" in said
    for way in ("nkc", "fallback", "bf16"):
        assert f"{way}: 2 eager steps equal the first step, every operation bit for bit" in said
    assert "nkc and fallback: 0.00e+00 apart" in said
    assert "tokens/s" in said


@pytest.mark.parametrize("command", [["run"], ["run", "a.nkb"], ["compare", "a.nkb"]])
def test_without_a_gpu_it_says_so_in_a_line(example, monkeypatch, capsys, command) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert example.main(command) == 2
    assert capsys.readouterr().err == "serve_layer.py: no GPU is present (`run --small --device cpu` needs none)\n"


@pytest.mark.parametrize("command", [["run", "--device", "cpu"], ["compare", "a.nkb"]])
def test_without_torch_it_says_so_in_a_line(example, monkeypatch, capsys, command) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert example.main(command) == 2
    assert capsys.readouterr().err == "serve_layer.py: torch is not installed (`build` needs none)\n"


def test_what_is_no_bundle_is_said_in_a_line(example, capsys, tmp_path) -> None:
    pytest.importorskip("torch")
    assert example.main(["run", str(tmp_path / "none.nkb"), "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "none.nkb" in line


def test_an_operation_that_varies_is_named_with_its_route(example, monkeypatch, capsys) -> None:
    torch = pytest.importorskip("torch")
    plain = example.Layer.attend
    calls = []

    def varying(layer, qkv):
        calls.append(None)
        attended = plain(layer, qkv)
        return attended if len(calls) % 3 else attended.nextafter(torch.full_like(attended, 9.0))

    monkeypatch.setattr(example.Layer, "attend", varying)
    command = ["run", "--small", "--device", "cpu", "--rows", "3", "--context", "16", "--rounds", "1"]
    assert example.main(command) == 1
    assert "`attention` (torch) is the first to differ, in 1 of 2 eager steps" in capsys.readouterr().out


def test_swapping_one_operation_leaves_the_others(example) -> None:
    torch = pytest.importorskip("torch")
    layer = example.Layer(example.SMALL, "cpu", 16, 2)
    before = layer.functions
    with torch.inference_mode():
        given, named = layer.arguments("qkv_proj")
        assert (tuple(given[1].shape), named) == ((512, 256), {})
        swapped = layer.served("qkv_proj", lambda a, b, *_: a.new_zeros((a.shape[0], b.shape[0]), dtype=torch.bfloat16))
        with_zeros, first = layer.noted(swapped), layer.noted(layer.step)
    assert layer.functions is before
    assert not with_zeros["qkv_proj"][0].any()
    assert first["qkv_proj"][0].any()
    assert torch.equal(with_zeros["input_norm"][1], first["input_norm"][1])
    assert list(first) == [*list(first)[:2], "attention", *list(first)[3:]]
    assert set(first) == {*example.OPERATIONS, "attention"}


class Recorder:
    """A driver that launches nothing and remembers what it was asked to; its device is the host in torch's numbers."""

    kind = "recorder"
    device = -1
    isa = "sm_90"

    def __init__(self) -> None:
        self.launched: list[str] = []

    def load(self, image):
        return len(image)

    def unload(self, module):
        del module

    def symbol(self, module, name):
        return module + len(name)

    def prepare(self, function, launch):
        del function, launch

    def allocate(self, size_bytes, *, zero):
        del size_bytes, zero
        return 1 << 20

    def free(self, pointer):
        del pointer

    def layout(self, launch):
        del launch
        return FrameLayout(kernargs=0, stream=None)

    def native(self, function, launch):
        del function, launch

    def tensor_map(self, dtype, pointer, extents, strides_bytes, box, tensor_map):
        del dtype, pointer, extents, strides_bytes, box, tensor_map
        return bytes(128)

    def frame(self, function, launch, static):
        del function

        def call(stream):
            del stream
            self.launched.append(launch.operation)
            return 0

        return Frame(buffer=bytearray(static), call=call)

    def stream(self):
        return None

    def close(self):
        pass


@pytest.fixture(scope="module")
def built(example, tmp_path_factory):
    """Return the folder of a small layer's bundle, with the plain kernels beside it, and what was said."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("layer")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        command = ["build", "--small", "--rows", "2", "-o", str(folder / "layer"), "--plain", str(folder / "plain")]
        assert example.main(command) == 0
    assert "fallback" not in said.getvalue()
    return folder


@contextmanager
def in_use(library):
    """Make a library the route of its operations for a while."""
    from nkc.runtime.bundle_route import use
    from nkc.runtime.dispatch import REGISTRY

    routes = use(library)
    try:
        yield
    finally:
        for route in routes:
            REGISTRY.remove(route.operation, route.name)


@pytest.mark.toolchain
def test_every_quantised_call_of_a_built_layer_takes_its_kernel(example, built) -> None:
    """From contract to route: names, guards and meaning of what the compiler writes are what the functions ask for."""
    torch = pytest.importorskip("torch")
    from nkc import runtime

    driver = Recorder()
    library = runtime.load(built / "layer", driver=driver)
    with in_use(library), torch.inference_mode():
        layer = example.Layer(example.SMALL, "cpu", 16, 2)
        said = layer.explained()
        assert {explained.selected for explained in said.values()} == {"nkc"}
        assert {explained.kernel for explained in said.values()} == {kernel.id for kernel in library}
        driver.launched.clear()
        layer.step()
    assert driver.launched == [
        "rms_norm_quant",
        "dense",
        "group_quant",
        "dense",
        "rms_norm_quant",
        "dense",
        "silu_mul_quant",
        "dense",
    ]


class Graph:
    """A graph whose replay takes a while, and does nothing."""

    def __init__(self, steps, count) -> None:
        self.taken = 0 * count * len(steps)

    def replay_us(self) -> float:
        self.taken += 1
        return 200.0 + self.taken * 7 % 11 * 0.01


@pytest.mark.toolchain
def test_every_kernel_meets_what_a_server_would_otherwise_run(example, built, monkeypatch, capsys) -> None:
    """The whole of `compare` but for the GPU: what stands beside what, by names and codes, in a record that is read."""
    torch = pytest.importorskip("torch")
    from nkc import runtime
    from nkc.bench import layer, layer_records, machine
    from nkc.runtime.dispatch import REGISTRY

    load = runtime.load
    monkeypatch.setattr(runtime, "load", lambda path: load(path, driver=Recorder()))
    monkeypatch.setattr(machine, "session", lambda *_: SESSION)
    monkeypatch.setattr(layer.timing, "Graph", Graph)
    monkeypatch.setattr(layer, "_replayed", lambda step: (step()[0], 0))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    operations = ("qkv_proj", "attention_quant", "activation")
    try:
        example.compare(
            built / "layer", built / "plain", (2,), 16, operations, built / "record.json", "cpu", example.SMALL
        )
    finally:
        for operation in ("dense", "group_quant", "rms_norm_quant", "silu_mul_quant"):
            REGISTRY.remove(operation, "nkc")
    found = layer_records.read_exported(built / "record.json").comparisons.values()
    beside = {(each.operation, each.theirs.name.split(".")[0]) for each in found}
    assert beside == {("qkv_proj", "sm_90"), ("attention_quant", "torch"), ("activation", "torch")}
    for each in found:
        assert each.selected == each.ours.name != each.theirs.name
        assert (each.theirs.code_digest is None) == (each.operation != "qkv_proj")
        assert (each.layer, each.rows, each.dims["hidden"]) == ("Qwen3-8B-like decoder layer", 2, 256)
    assert "qkv_proj: DeepGEMM: " in capsys.readouterr().out
