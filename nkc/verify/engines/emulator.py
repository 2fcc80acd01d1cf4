"""The emulator engine: the built gfx950 object, instruction by instruction, on the CPU.

Values hold under the named MFMA model; hazards, memory safety and schedule independence do not depend on it. Nobody
has run these kernels on the chip, and nothing this engine says may read as if somebody had.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nkc.ir.contract import Access as ContractAccess
from nkc.ir.contract import WorkspaceInit, dim_max
from nkc.ir.errors import ToolError
from nkc.ir.launch import ArgumentKind, Launch
from nkc.tactics.evidence import LEAST_RUNS
from nkc.verify.engine import Answer, EngineName, Run
from nkc.verify.gfx950.code_object import ObjectError
from nkc.verify.gfx950.emulate import EmulationReport, emulate, emulate_both_policies
from nkc.verify.gfx950.instruction import DecodeError
from nkc.verify.gfx950.launch import Access, LaunchArgument, LaunchError, LaunchSpec
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.operands import MissingFeatureError
from nkc.verify.gfx950.sampling import choose_workgroups
from nkc.verify.memory import POISON, Bits, Tensor
from nkc.verify.oracles.matrix_unit import MatrixUnit
from nkc.verify.subject import Subject, tactic_of

ISA = "gfx950"
EMULATOR_ERRORS = (DecodeError, LaunchError, MissingFeatureError, ObjectError)
"""What says that an object, or its launch, cannot be emulated, and why."""
WHOLE_GRID = 512
"""Workgroups up to which a grid runs whole; larger ones are sampled (unless the kernel has atomics)."""
SAMPLE = 48
LEAST_SAMPLE = 6
SAMPLED_WORK = 1 << 31
"""Product of all dims that a sample covers, where that is fewer workgroups than `SAMPLE`: about a second a 2^28."""
SERIAL_WAVES = 1
SERIAL_WORKGROUPS = 16
SERIAL_SAMPLED = 2
"""Workgroups that run again, one at a time, from the last: of a whole grid, and of a sampled one."""
WHOLE_BLOCK = "v_mfma_f32_16x16x128_f8f6f4"
SAMPLE_SEED = 1
MFMA_ONCE = MatrixUnit(name="mfma_once", group=128, addend_fraction_bits=None)
"""128 products and the accumulator added without loss, rounded to nearest once."""
MFMA_SEQUENTIAL = MatrixUnit(name="mfma_sequential", group=1, addend_fraction_bits=None)
"""One exact product after the other, k ascending, rounded to nearest each time."""
UNITS = {MfmaModel.ONCE: MFMA_ONCE, MfmaModel.SEQUENTIAL: MFMA_SEQUENTIAL}
"""Units that the oracle can follow bit by bit; a tree inside a block it cannot."""

_ACCESS = {
    ContractAccess.READ: Access.IN,
    ContractAccess.WRITE: Access.OUT,
    ContractAccess.READ_WRITE: Access.INOUT,
}


class EmulatorEngine:
    """Runs gfx950 objects under one MFMA model."""

    name = EngineName.EMULATOR
    runs_object = True
    model_decides = True

    def __init__(self, model: MfmaModel = MfmaModel.ONCE, *, jobs: int = 1) -> None:
        self.model = model
        self.jobs = jobs

    def why_not(self, subject: Subject) -> str | None:
        """Return why this engine cannot run the subject, or None."""
        isa = subject.launch.target.isa
        return None if isa == ISA else f"emulates {ISA} objects, not {isa}"

    def device(self) -> str:
        """Return what the kernel runs on."""
        return f"emulator of {ISA}, MFMA model {self.model.value}"

    def unit(self, subject: Subject) -> MatrixUnit | None:
        """Return the unit of the model, for kernels whose every MFMA adds a whole scale block to nothing."""
        one_step = tactic_of(subject).kernel.pattern.matrix == (WHOLE_BLOCK,)
        return UNITS.get(self.model) if one_step else None

    def run(self, subject: Subject, tensors: Sequence[Tensor], dims: Mapping[str, int]) -> Run:
        """Run with loads into LDS landing early and late, then again backwards; all must agree.

        Backwards is a workgroup at a time, from the last: some of them, or the whole grid on the workspace as the
        first run left it, where what depends on who arrives last, or on a counter that is not zero again, shows.
        """
        launch = subject.launch
        spec = launch_spec(launch, dims)
        buffers: dict[str, Bits] = {tensor.name: tensor.storage for tensor in tensors}
        if launch.workspace.bytes:
            buffers["workspace"] = _workspace(launch)
        chosen = self._chosen(subject)
        try:
            report = emulate_both_policies(
                subject.object, spec, buffers, model=self.model, workgroups=chosen, jobs=self.jobs
            )
        except EMULATOR_ERRORS as error:
            raise ToolError(f"{launch.symbol}: the emulator cannot run it: {error}") from error
        if launch.workspace.bytes:
            buffers["workspace"] = _bytes(report.outputs["workspace"])
        serial = emulate(
            subject.object,
            spec,
            buffers,
            model=self.model,
            workgroups=_backwards(launch, chosen),
            batch_waves=SERIAL_WAVES,
            checked=False,
        )
        written = [tensor for tensor in tensors if tensor.written]
        whole = bool(launch.workspace.bytes)
        same = all(_agree(report, serial, tensor.name, whole=whole) for tensor in written)
        covered = {} if chosen is None else {tensor.name: _covered(report, tensor) for tensor in written}
        return Run(
            outputs={tensor.name: _bytes(report.outputs[tensor.name]).view(tensor.storage.dtype) for tensor in written},
            repeats=LEAST_RUNS["emulator"],
            repeated=Answer.PASSED if same else Answer.FAILED,
            replay=Answer.NOT_RUN if subject.contract.properties.graph_capture else Answer.NOT_PROMISED,
            outside=Answer.PASSED if not report.hazards else Answer.FAILED,
            covered=covered,
            hazards=(*map(str, report.hazards), *(f"missing feature: {name}" for name in report.missing)),
            notes={"model": self.model.value, "sampled": f"{report.sampled_fraction:.4g}"},
        )

    def samples(self, subject: Subject) -> bool:
        """Return whether the grid is so large that some of its workgroups stand for all."""
        return self._chosen(subject) is not None

    def _chosen(self, subject: Subject) -> tuple[int, ...] | None:
        """Return the workgroups to run: all, or of a large grid corners, middles and a seeded rest."""
        launch = subject.launch
        total = launch.grid[0] * launch.grid[1] * launch.grid[2]
        if total <= WHOLE_GRID or launch.workspace.bytes:
            return None
        work = math.prod(dim_max(dim) for dim in subject.contract.shape.values()) // total
        count = min(SAMPLE, max(LEAST_SAMPLE, SAMPLED_WORK // max(1, work)))
        return choose_workgroups(launch.grid, count, seed=SAMPLE_SEED)


def _backwards(launch: Launch, chosen: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the workgroups to run one at a time, from the last: all of those that share a workspace."""
    if launch.workspace.bytes:
        return tuple(reversed(range(launch.grid[0] * launch.grid[1] * launch.grid[2])))
    if chosen is not None:
        return (chosen[-1], *chosen[: SERIAL_SAMPLED - 1])
    return tuple(reversed(choose_workgroups(launch.grid, SERIAL_WORKGROUPS, seed=SAMPLE_SEED)))


def _agree(first: EmulationReport, second: EmulationReport, name: str, *, whole: bool) -> bool:
    """Return whether a buffer has the same bytes in both wherever the second stored any.

    whole: both ran the whole grid, so the second must have stored all that the first did: a workspace left in a state
    in which nobody arrives last would store nothing, and agree with everything.
    """
    stored = second.written[name]
    if whole and not np.array_equal(stored, first.written[name]):
        return False
    return bool(np.array_equal(_bytes(first.outputs[name])[stored], _bytes(second.outputs[name])[stored]))


def launch_spec(launch: Launch, dims: Mapping[str, int]) -> LaunchSpec:
    """Return the launch with the values of its scalar arguments."""
    arguments = []
    for argument in launch.arguments:
        value = None
        access = Access.IN
        match argument.kind:
            case ArgumentKind.IMPLICIT:
                continue
            case ArgumentKind.SCRATCH:
                value = 0
            case ArgumentKind.INT32:
                assert argument.dim is not None
                value = dims[argument.dim]
            case ArgumentKind.POINTER:
                assert argument.access is not None
                access = _ACCESS[argument.access]
        arguments.append(
            LaunchArgument(name=argument.name, offset=argument.offset, size=argument.size, access=access, value=value)
        )
    return LaunchSpec(
        symbol=launch.symbol,
        arguments=tuple(arguments),
        grid=launch.grid,
        block=launch.block,
        dynamic_lds_bytes=launch.lds.dynamic_bytes,
    )


def _workspace(launch: Launch) -> Bits:
    fill = 0 if launch.workspace.init is WorkspaceInit.ZERO else POISON
    return np.full(launch.workspace.bytes, fill, np.uint8)


def _bytes(array: Bits) -> Bits:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _covered(report: EmulationReport, tensor: Tensor) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return which elements of an output the sampled workgroups stored, whole elements only."""
    mask = np.asarray(report.written[tensor.name], np.bool_).reshape(-1, tensor.storage.itemsize)
    return np.asarray(mask.all(axis=1), np.bool_)
