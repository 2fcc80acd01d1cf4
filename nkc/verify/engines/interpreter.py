"""The interpreter engine: the kernel's algorithm, in Triton's interpreter on the CPU. It never proves an object.

The interpreter truncates fp32 to bf16, decodes the fp8 code 0x7f to 480 and encodes fp8 2 % wrong. So the child mends
its casts of bf16, the kernel is rendered with an fp32 output, gets its operands decoded to fp32 (exact), and what it
leaves is rounded here. What that leaves unjudged (the store, repeats on hardware, replay, memory) is `not_run` when
nothing is wrong, never passed.
"""

import atexit
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.emit import render
from nkc.emit.interrupts import uninterrupted
from nkc.emit.toolchains.child import module_path, remove, useful_lines
from nkc.ir.contract import Access, Contract, DType, WorkspaceInit
from nkc.ir.errors import ToolError
from nkc.ir.frozen import FrozenMap
from nkc.ir.launch import ArgumentKind
from nkc.tactics.tactic import Lowered, Tactic
from nkc.verify.engine import Answer, EngineName, Run
from nkc.verify.engines import interpreter_worker as worker
from nkc.verify.memory import POISON, STORAGE, Bits, Tensor
from nkc.verify.numbers import bf16, fp8
from nkc.verify.oracles.matrix_unit import MatrixUnit
from nkc.verify.subject import Subject, tactic_of

WHOLE_GRID = 256
"""Programs up to which a grid runs whole; larger ones are sampled (unless pieces meet in a workspace)."""
SAMPLE = 32
RUNS_ON_WORKSPACE = 2  # the second finds a workspace that the first did not leave as it found it
_STORED = (DType.BF16, DType.FP32)


class InterpreterEngine:
    """Runs the rendered kernel of a subject, not its object."""

    name = EngineName.INTERPRETER
    runs_object = False
    model_decides = False

    def why_not(self, subject: Subject) -> str | None:
        """Return why this engine cannot run the subject, or None."""
        missing = [name for name in ("triton", "torch") if importlib.util.find_spec(name) is None]
        if missing:
            return f"{' and '.join(missing)} is not installed"
        if not tactic_of(subject).kernel.template.startswith("triton/"):
            return "the kernel is not Triton's"
        for argument in subject.launch.arguments:
            coded = argument.dtype is not None and argument.dtype not in _STORED
            if argument.access is Access.WRITE and coded:
                return f"Triton's interpreter encodes {argument.dtype} wrongly, so `{argument.name}` cannot be judged"
        return None

    def device(self) -> str:
        """Return what the kernel runs on."""
        from importlib.metadata import version

        return f"Triton {version('triton')}, interpreter on the CPU"

    def text(self, subject: Subject) -> str:
        """Return the kernel that is run: the subject's, with an fp32 output."""
        return kernel_text(subject.contract, tactic_of(subject))

    def unit(self, subject: Subject) -> MatrixUnit | None:
        """Return None: numpy multiplies tiles in an order of its own."""
        del subject
        return None

    def samples(self, subject: Subject) -> bool:
        """Return False: every workgroup runs."""
        del subject
        return False

    def run(self, subject: Subject, tensors: Sequence[Tensor], dims: Mapping[str, int]) -> Run:
        """Run the algorithm on decoded operands, twice where it keeps a workspace, and round what it leaves."""
        programs = _programs(subject)
        request = request_of(subject, self.text(subject), tensors, dims, programs)
        reply = _child().ask(request, subject.launch.symbol)
        outputs: dict[str, Bits] = {}
        covered: dict[str, NDArray[np.bool_]] = {}
        total = int(np.prod(subject.launch.grid))
        for tensor in tensors:
            if tensor.written:
                left = np.frombuffer(reply.outputs[tensor.name], np.float32)
                outputs[tensor.name] = _encode(left, tensor.dtype)
                if len(programs) < total:
                    covered[tensor.name] = left.view(np.uint32) != 0xFFFFFFFF
        graph = subject.contract.properties.graph_capture
        return Run(
            outputs=outputs,
            repeats=RUNS_ON_WORKSPACE if subject.launch.workspace.bytes else 1,
            repeated=Answer.NOT_RUN if reply.repeated else Answer.FAILED,
            replay=Answer.NOT_RUN if graph else Answer.NOT_PROMISED,
            outside=Answer.FAILED if reply.outside else Answer.NOT_RUN,
            covered=covered,
            hazards=reply.outside,
            bits_judged=False,
            notes={"sampled": f"{len(programs) / total:.4g}", "store": "not checked"},
        )


def kernel_text(contract: Contract, tactic: Tactic) -> str:
    """Return the kernel of a lowered contract with fp32 in place of every narrower output."""
    wide = {name: DType.FP32 if name == "out" else dtype for name, dtype in contract.dtypes.items()}
    widened = msgspec.structs.replace(contract, dtypes=FrozenMap(wide))
    return render.render(Lowered(contract=widened, tactic=tactic)).text


def request_of(
    subject: Subject, text: str, tensors: Sequence[Tensor], dims: Mapping[str, int], programs: tuple[int, ...]
) -> worker.Request:
    """Return the request for one run of a kernel: its text, decoded buffers, the workspace, and bounded dims."""
    launch = subject.launch
    buffers = [_buffer(tensor) for tensor in tensors]
    if launch.workspace.bytes:
        fill = 0 if launch.workspace.init is WorkspaceInit.ZERO else POISON
        data = bytes([fill]) * launch.workspace.bytes
        buffers.append(worker.Buffer(name="workspace", dtype="int32", data=data))
    visible = [argument for argument in launch.arguments if not argument.hidden]
    return worker.Request(
        text=text,
        symbol=launch.symbol,
        arguments=tuple(argument.name for argument in visible),
        buffers=tuple(buffers),
        scalars={a.name: dims[cast("str", a.dim)] for a in visible if a.kind is ArgumentKind.INT32},
        returned=tuple(a.name for a in visible if a.access in (Access.WRITE, Access.READ_WRITE)),
        grid=launch.grid,
        programs=programs,
        runs=RUNS_ON_WORKSPACE if launch.workspace.bytes else 1,
    )


def _buffer(tensor: Tensor) -> worker.Buffer:
    if tensor.written:
        data = np.full(tensor.storage.size * 4, POISON, np.uint8)
        return worker.Buffer(name=tensor.name, dtype="float32", data=data.tobytes(), poison=True)
    decoded = _decode(tensor.storage, tensor.dtype)
    return worker.Buffer(name=tensor.name, dtype=decoded.dtype.name, data=decoded.tobytes())


def _decode(storage: Bits, dtype: DType) -> Bits:
    match dtype:
        case DType.FP8_E4M3:
            return fp8.decode(storage.astype(np.uint8))
        case DType.BF16:
            return bf16.decode(storage.astype(np.uint16))
        case DType.FP16:
            return storage.view(np.float16).astype(np.float32)
        case _:
            return storage


def _encode(left: NDArray[np.float32], dtype: DType) -> Bits:
    """Round what the kernel left. Poison stays NaN, so an element that nothing stored is still found."""
    return bf16.encode(left) if dtype is DType.BF16 else left.astype(STORAGE[dtype])


def _programs(subject: Subject) -> tuple[int, ...]:
    """Return the programs to run: all, or the first, the last, the middle and a seeded sample of a large grid."""
    total = int(np.prod(subject.launch.grid))
    if total <= WHOLE_GRID or subject.launch.workspace.bytes:
        return tuple(range(total))
    from nkc.verify.regimes.stream import Stream

    drawn = Stream(total, "programs").integers((SAMPLE,), 0, total)
    return tuple(sorted({0, 1, total // 2, total - 2, total - 1, *map(int, drawn)}))


class _Child:
    """The child process, started when it is first asked and kept for the life of this one."""

    def __init__(self) -> None:
        self._scratch = tempfile.mkdtemp(prefix="nkc-")
        self._log = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", worker.__file__, self._scratch, *module_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={
                "TRITON_INTERPRET": "1",
                "HOME": self._scratch,
                "TRITON_HOME": self._scratch,
                "TRITON_CACHE_DIR": str(Path(self._scratch) / "cache"),
                "OMP_NUM_THREADS": "1",  # tiles are small: threads cost more than they save
                "OPENBLAS_NUM_THREADS": "1",
            },
            cwd=self._scratch,
            start_new_session=True,
        )

    def ask(self, request: worker.Request, where: str) -> worker.Reply:
        """Return what a run left. Raises ToolError where the interpreter failed or died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        reply = None
        with suppress(BrokenPipeError):
            worker.write_frame(self._process.stdin, request)
            reply = worker.read_frame(self._process.stdout, worker.Reply)
        if reply is None:
            self._log.seek(0)
            words = useful_lines(self._log.read().decode(errors="replace"))
            _child.cache_clear()
            raise ToolError(f"{where}: Triton's interpreter died: {words or 'it said nothing'}")
        if reply.error:
            raise ToolError(f"{where}: Triton's interpreter failed: {useful_lines(reply.error)}")
        return reply

    @uninterrupted()
    def close(self) -> None:
        """End the child and remove its files."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with suppress(OSError):
                if stream is not None:
                    stream.close()
        remove(self._scratch)


@lru_cache(maxsize=1)
@uninterrupted()
def _child() -> _Child:
    child = _Child()
    atexit.register(child.close)
    return child


__all__ = ["InterpreterEngine", "kernel_text", "request_of"]
