"""The door: run a code object on buffers, whole or on chosen workgroups, and report values and faults."""

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.code_object import CodeObject, read_code_object
from nkc.verify.gfx950.engine import BarrierUse, Engine, Retired
from nkc.verify.gfx950.hazards import Hazard, HazardKind, HazardLog
from nkc.verify.gfx950.launch import Access, LaunchError, LaunchSpec, build_arena, start
from nkc.verify.gfx950.lds import GrainTooCoarse, Lds
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.operands import MissingFeatureError
from nkc.verify.gfx950.program import Program
from nkc.verify.gfx950.sync import Synchronisation
from nkc.verify.gfx950.waves import LANES, Batch, Launch, Waves
from nkc.verify.pool import pool

Array = npt.NDArray[Any]

LDS_LIMIT_BYTES = 160 * 1024
BATCH_WAVES = 128
BUDGET = 4_000_000


class DmaPolicy(enum.Enum):
    """When a load into LDS lands: as early or as late as the program allows."""

    ISSUE = "issue"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationReport:
    """What a run showed. Values hold under `model`; hazards do not depend on it."""

    model: MfmaModel
    dma: DmaPolicy
    outputs: dict[str, Array]  # the buffers that the kernel may write
    written: dict[str, Array]  # per byte of each: whether this run stored it
    hazards: tuple[Hazard, ...]
    workgroups: tuple[int, ...]
    workgroups_total: int
    wave_instructions: int
    instructions: dict[str, int] = field(default_factory=dict)  # mnemonic -> times a wave executed it
    executed: dict[int, int] = field(default_factory=dict)  # pc -> times a wave executed it
    retired: dict[int, Retired] = field(default_factory=dict)  # pc of a wait -> what it completed
    barriers: dict[int, BarrierUse] = field(default_factory=dict)  # pc of a barrier -> LDS accesses around it
    missing: tuple[str, ...] = ()

    @property
    def sampled_fraction(self) -> float:
        """Share of the grid's workgroups that ran."""
        return len(self.workgroups) / self.workgroups_total

    @property
    def clean(self) -> bool:
        """Whether no detector reported anything and every feature is modelled."""
        return not self.hazards and not self.missing


@functools.lru_cache(maxsize=32)
def _program(data: bytes, symbol: str, model: MfmaModel) -> Program:
    return Program(read_code_object(data, symbol), model)


def missing_features(data: bytes, symbol: str | None = None) -> tuple[str, ...]:
    """Return what the object's reachable code uses and the emulator does not model; empty is the good answer."""
    return Program(read_code_object(data, symbol), MfmaModel.ONCE).missing()


def emulate(
    data: bytes,
    launch: LaunchSpec,
    buffers: Mapping[str, Array],
    *,
    model: MfmaModel = MfmaModel.ONCE,
    dma: DmaPolicy = DmaPolicy.ISSUE,
    workgroups: Sequence[int] | None = None,
    checked: bool = True,
    batch_waves: int = BATCH_WAVES,
    jobs: int = 1,
    budget: int = BUDGET,
    trace: Callable[..., None] | None = None,
    program: Program | None = None,
) -> EmulationReport:
    """Run `data` (a gfx950 code object) with the given buffers; they are copied, never changed.

    `workgroups` chooses flat ids (x fastest) of the grid; None is all. `checked` off leaves the hazard detectors for
    registers and LDS out. `jobs` spreads batches over processes; a kernel with atomics always runs in one.
    `trace` is called for every memory access (see `traffic`). `program` spares decoding `data` again.
    What the run reached and the emulator does not model ends it and is named in the report's `missing`.
    Errors: `ObjectError` and `LaunchError`, each naming what is wrong.
    """
    program = program or _program(data, launch.symbol, model)
    chosen = tuple(range(launch.workgroups)) if workgroups is None else tuple(dict.fromkeys(workgroups))
    _check(program.code, launch, chosen)
    atomics = program.has_atomics()
    if atomics and len(chosen) != launch.workgroups:
        raise LaunchError("the kernel has atomics, so its workgroups depend on each other: run the whole grid")
    settings = _Settings(model=model, dma=dma, checked=checked, batch_waves=batch_waves, budget=budget)
    if jobs > 1 and not atomics and trace is None and len(chosen) > 1:
        parts = [part for part in np.array_split(np.asarray(chosen), jobs) if len(part)]
        with pool(len(parts)) as executor:
            futures = [
                executor.submit(_run, data, launch, dict(buffers), tuple(int(i) for i in part), settings)
                for part in parts
            ]
            results = [future.result() for future in futures]
    else:
        results = [_run(data, launch, buffers, chosen, settings, trace, program)]
    return _assemble(launch, buffers, chosen, settings, results)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    model: MfmaModel
    dma: DmaPolicy
    checked: bool
    batch_waves: int
    budget: int


@dataclass(slots=True, kw_only=True)
class _Result:
    content: dict[str, Array]
    owner: dict[str, Array]
    hazards: tuple[Hazard, ...]
    missing: tuple[str, ...]
    executed: dict[int, int]
    retired: dict[int, Retired]
    barriers: dict[int, BarrierUse]
    mnemonics: dict[int, str]


def _check(code: CodeObject, launch: LaunchSpec, chosen: tuple[int, ...]) -> None:
    if any(not 0 <= item < launch.workgroups for item in chosen):
        raise LaunchError(f"workgroup ids must lie in 0..{launch.workgroups - 1}")
    if launch.threads > code.note.max_flat_workgroup_size or launch.threads < 1:
        raise LaunchError(
            f"{launch.threads} threads a workgroup, the object allows {code.note.max_flat_workgroup_size}"
        )
    if code.note.wavefront_size != LANES:
        raise LaunchError(f"wave size {code.note.wavefront_size}, expected {LANES}")


def _run(
    data: bytes,
    launch: LaunchSpec,
    buffers: Mapping[str, Array],
    chosen: tuple[int, ...],
    settings: _Settings,
    trace: Callable[..., None] | None = None,
    program: Program | None = None,
) -> _Result:
    """Run workgroups batch after batch on one arena."""
    program = program or _program(data, launch.symbol, settings.model)
    grain = program.lds_grain()
    while True:
        try:
            return _run_with_grain(program, launch, buffers, chosen, settings, trace, grain)
        except GrainTooCoarse:
            if grain == 1:
                raise
            grain //= 2


def _run_with_grain(
    program: Program,
    launch: LaunchSpec,
    buffers: Mapping[str, Array],
    chosen: tuple[int, ...],
    settings: _Settings,
    trace: Callable[..., None] | None,
    grain: int,
) -> _Result:
    code = program.code
    arena, _, state = build_arena(code, launch, buffers)
    log = HazardLog()
    shared = Launch(
        arena=arena,
        log=log,
        sync=Synchronisation(launch.workgroups),
        late_dma=settings.dma is DmaPolicy.RETIRE,
        checked=settings.checked,
        mnemonics=program.mnemonics,
        trace=trace,
    )
    lds_bytes = code.descriptor.group_segment_fixed_size + launch.dynamic_lds_bytes
    counts: dict[int, int] = {}
    retired: dict[int, Retired] = {}
    barriers: dict[int, BarrierUse] = {}
    missing: list[str] = []
    per_batch = max(1, settings.batch_waves // launch.waves)
    with np.errstate(all="ignore"):
        for first in range(0, len(chosen), per_batch):
            group = np.asarray(chosen[first : first + per_batch])
            shared.sync.new_batch()
            batch, waves = _fresh(program, launch, shared, group, lds_bytes, grain, settings.checked)
            start(waves, launch, state)
            engine = Engine(program, batch, settings.budget)
            try:
                engine.run(waves)
            except MissingFeatureError as error:
                missing.append(str(error))
            _add(counts, engine.counts)
            for pc, seen in engine.retired.items():
                retired.setdefault(pc, Retired()).add(seen)
            for pc, use in engine.barriers.items():
                barriers.setdefault(pc, BarrierUse()).add(use)
            if missing:
                break
    names = [item.name for item in launch.arguments if item.value is None and item.access is not Access.IN]
    owner = {name: arena.owner[slice(*arena.spans[name])] for name in names}
    content = {name: arena.bytes_of(name).copy() for name in names}
    return _Result(
        content=content,
        owner=owner,
        hazards=log.hazards(),
        missing=tuple(missing),
        executed=counts,
        retired=retired,
        barriers=barriers,
        mnemonics=dict(program.mnemonics),
    )


def _add(total: dict[int, int], part: dict[int, int]) -> None:
    for key, count in part.items():
        total[key] = total.get(key, 0) + count


def _fresh(
    program: Program, launch: LaunchSpec, shared: Launch, group: Array, lds_bytes: int, grain: int, checked: bool
) -> tuple[Batch, Waves]:
    """Return a batch of workgroups with poisoned registers, LDS and scratch."""
    descriptor = program.code.descriptor
    count = len(group) * launch.waves
    has_agprs = descriptor.vgprs > descriptor.accum_offset
    registers = 256 + descriptor.vgprs - descriptor.accum_offset if has_agprs else descriptor.accum_offset
    private = descriptor.private_segment_fixed_size
    batch = Batch(
        launch=shared,
        lds=Lds(len(group), lds_bytes, grain, checked=checked),
        scratch=np.full((count, LANES, private), 0xA5, np.uint8),
        scratch_defined=np.zeros((count, LANES, private), bool),
        live=np.full(len(group), launch.waves, np.int64),
    )
    local = np.repeat(np.arange(len(group)), launch.waves)
    waves = Waves(
        batch,
        max(registers, descriptor.vgprs if not has_agprs else registers),
        local=local,
        workgroup=group[local],
        wave_id=np.tile(np.arange(launch.waves), len(group)),
        row=np.arange(count),
    )
    return batch, waves


def _assemble(
    launch: LaunchSpec,
    buffers: Mapping[str, Array],
    chosen: tuple[int, ...],
    settings: _Settings,
    results: list[_Result],
) -> EmulationReport:
    """Join what the processes found; bytes that two of them wrote are a fault like any other overlap."""
    log = HazardLog()
    content, owner = dict(results[0].content), dict(results[0].owner)
    if len(results) > 1:  # the others' parts are written into these
        owner = {name: part.copy() for name, part in owner.items()}
    executed, retired, mnemonics = dict(results[0].executed), dict(results[0].retired), dict(results[0].mnemonics)
    barriers = dict(results[0].barriers)
    log.merge(results[0].hazards)
    for result in results[1:]:
        log.merge(result.hazards)
        _add(executed, result.executed)
        for pc, seen in result.retired.items():
            retired.setdefault(pc, Retired()).add(seen)
        for pc, use in result.barriers.items():
            barriers.setdefault(pc, BarrierUse()).add(use)
        mnemonics |= result.mnemonics
        for name, theirs in result.owner.items():
            mine = theirs >= 0
            clash = mine & (owner[name] >= 0)
            if clash.any():
                at = int(np.argmax(clash))
                detail = f"byte {at} of `{name}` also written by workgroup {int(owner[name][at])}"
                log.add(HazardKind.WORKGROUP_OVERLAP, 0, "(store)", int(theirs[at]), 0, detail, int(clash.sum()))
            content[name][mine] = result.content[name][mine]
            owner[name][mine] = theirs[mine]
    counts: dict[str, int] = {}
    for pc, count in executed.items():
        counts[mnemonics[pc]] = counts.get(mnemonics[pc], 0) + count
    outputs = {name: raw.view(buffers[name].dtype).reshape(buffers[name].shape) for name, raw in content.items()}
    return EmulationReport(
        model=settings.model,
        dma=settings.dma,
        outputs=outputs,
        written={name: part != -1 for name, part in owner.items()},
        hazards=log.hazards(),
        missing=tuple(dict.fromkeys(name for result in results for name in result.missing)),
        workgroups=chosen,
        workgroups_total=launch.workgroups,
        wave_instructions=sum(counts.values()),
        instructions=dict(sorted(counts.items())),
        executed=dict(sorted(executed.items())),
        retired=dict(sorted(retired.items())),
        barriers=dict(sorted(barriers.items())),
    )


def emulate_both_policies(
    data: bytes, launch: LaunchSpec, buffers: Mapping[str, Array], **options: Any
) -> EmulationReport:
    """Run with loads into LDS landing early, then late; report the first run, with a fault if outcomes differ."""
    early = emulate(data, launch, buffers, dma=DmaPolicy.ISSUE, **options)
    late = emulate(data, launch, buffers, dma=DmaPolicy.RETIRE, **options)
    log = HazardLog()
    log.merge(early.hazards)
    known = {(item.kind, item.pc) for item in early.hazards}
    log.merge(tuple(item for item in late.hazards if (item.kind, item.pc) not in known))
    for name, value in early.outputs.items():
        a, b = (np.ascontiguousarray(item).reshape(-1).view(np.uint8) for item in (value, late.outputs[name]))
        if not np.array_equal(a, b):
            at = int(np.argmax(a != b))
            log.add(HazardKind.DMA_ORDER_DEPENDENCE, 0, "(launch)", 0, 0, f"byte {at} of `{name}`", int((a != b).sum()))
    return replace(early, hazards=log.hazards())
