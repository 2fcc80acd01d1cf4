"""The device engine: the built object on the GPU that is present, through the product's own launcher."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nkc.ir import targets
from nkc.ir.contract import Accumulate
from nkc.ir.errors import ToolError
from nkc.ir.target import Vendor
from nkc.tactics.evidence import LEAST_REPLAYS, LEAST_RUNS
from nkc.verify.engine import Answer, EngineName, Run
from nkc.verify.memory import POISON, Bits, Tensor
from nkc.verify.oracles.matrix_unit import HOPPER_FP8, MatrixUnit
from nkc.verify.subject import Subject, tactic_of

if TYPE_CHECKING:
    from pathlib import Path

    from nkc.runtime import Kernel, Library

RED_ZONE = 4096  # bytes on both sides of every buffer
RED = 0xA5
REPEATS = LEAST_RUNS["device"] - 1  # of the first run


class DeviceEngine:
    """Runs objects on one device. Kernels of a bundle are loaded once."""

    name = EngineName.DEVICE
    runs_object = True
    model_decides = False

    def __init__(self, *, repeats: int = REPEATS, replays: int = LEAST_REPLAYS) -> None:
        self.repeats = repeats
        self.replays = replays
        self._libraries: dict[Path, Library] = {}

    def why_not(self, subject: Subject) -> str | None:
        """Return why this engine cannot run the subject here, or None."""
        try:
            import torch
        except ImportError:
            return "torch is not installed (it holds the device's memory)"
        if not torch.cuda.is_available():
            return "no GPU is present"
        vendor = targets.get(subject.launch.target.arch).vendor
        if (torch.version.hip is not None) != (vendor is Vendor.AMD):
            return f"the GPU here is not for {subject.launch.target.arch} objects"
        major, minor = torch.cuda.get_device_capability()
        if vendor is Vendor.NVIDIA and subject.launch.target.arch != f"sm_{major}{minor}":
            return f"the GPU here is sm_{major}{minor}, not {subject.launch.target.arch}"
        return None

    def device(self) -> str:
        """Return the GPU's name and its driver."""
        import torch

        from nkc.verify.engines.driver import driver_version

        return f"{torch.cuda.get_device_name()}, driver {driver_version()}"

    def unit(self, subject: Subject) -> MatrixUnit | None:
        """Return Hopper's FP8 unit for a kernel that uses it; of others the order inside a block is not known."""
        return HOPPER_FP8 if tactic_of(subject).guarantees.accumulate is Accumulate.TENSOR_CORE_FP8 else None

    def samples(self, subject: Subject) -> bool:
        """Return False: every workgroup runs."""
        del subject
        return False

    def run(self, subject: Subject, tensors: Sequence[Tensor], dims: Mapping[str, int]) -> Run:
        """Run once on poisoned outputs between red zones, repeat, then capture a graph and replay it."""
        import torch

        del dims  # the launcher reads them off the tensors
        kernel = self._kernel(subject)
        placed = {tensor.name: _Placed(tensor) for tensor in tensors}
        arguments = [placed[name].view for name in kernel.arguments]
        written = [each for each in placed.values() if each.tensor.written]

        def launch() -> str:
            for each in written:
                each.poison()
            kernel.launch(*arguments)
            torch.cuda.synchronize()
            return _digest(each.bytes() for each in written)

        first = launch()
        outputs = {each.tensor.name: each.bytes().view(each.tensor.storage.dtype) for each in written}
        repeated = all(launch() == first for _ in range(self.repeats))
        replay = Answer.NOT_PROMISED
        if subject.contract.properties.graph_capture:
            replay = Answer.PASSED if self._replays(kernel, arguments, written, first) else Answer.FAILED
        outside = all(each.untouched() for each in placed.values())
        return Run(
            outputs=outputs,
            repeats=self.repeats + 1,
            repeated=Answer.PASSED if repeated else Answer.FAILED,
            replay=replay,
            outside=Answer.PASSED if outside else Answer.FAILED,
            notes={"replays": str(self.replays)} if replay is not Answer.NOT_PROMISED else {},
        )

    def _replays(self, kernel: "Kernel", arguments: list[Any], written: list["_Placed"], first: str) -> bool:
        """Capture one launch and return whether every replay gives the bits of the eager one."""
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel.launch(*arguments)
        for _ in range(self.replays):
            for each in written:
                each.poison()
            graph.replay()
            torch.cuda.synchronize()
            if _digest(each.bytes() for each in written) != first:
                return False
        return True

    def _kernel(self, subject: Subject) -> "Kernel":
        from nkc import runtime

        if subject.directory not in self._libraries:
            self._libraries[subject.directory] = runtime.load(subject.directory)
        try:
            return self._libraries[subject.directory][subject.launch.id]
        except KeyError as error:
            raise ToolError(f"{subject.directory}: {error.args[0]}") from None


class _Placed:
    """One tensor in device memory, between red zones."""

    def __init__(self, tensor: Tensor) -> None:
        import torch

        from nkc.runtime.tensor import torch_dtype

        self.tensor = tensor
        raw = np.ascontiguousarray(tensor.storage).view(np.uint8).reshape(-1)
        self._size = raw.size
        whole = np.full(raw.size + 2 * RED_ZONE, RED, np.uint8)
        whole[RED_ZONE : RED_ZONE + raw.size] = raw
        self._whole = torch.from_numpy(whole).cuda()
        self._before = whole
        inner = self._whole[RED_ZONE : RED_ZONE + raw.size]
        self._inner = inner
        self.view = inner.view(torch_dtype(tensor.dtype)).as_strided(tensor.shape, tensor.strides)

    def poison(self) -> None:
        """Fill the tensor's own bytes with poison."""
        self._inner.fill_(POISON)

    def bytes(self) -> Bits:
        """Return the tensor's own bytes."""
        copied: Bits = self._inner.cpu().numpy()
        return copied

    def untouched(self) -> bool:
        """Return whether nothing changed that the kernel may not write: red zones, and inputs."""
        now = self._whole.cpu().numpy()
        if self.tensor.written:
            now[RED_ZONE : RED_ZONE + self._size] = self._before[RED_ZONE : RED_ZONE + self._size]
        return bool(np.array_equal(now, self._before))


def _digest(parts: Any) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part.tobytes())
    return total.hexdigest()
