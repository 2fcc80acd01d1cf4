"""Reads what a contract may leave to the compiler: schedule, launch, LDS, workspace, arguments, code."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from nkc.ir.contract import (
    Access,
    Argument,
    Code,
    DType,
    Launch,
    Lds,
    Schedule,
    Triple,
    Workspace,
    WorkspaceInit,
)
from nkc.ir.gather import Gather, Json

MAX_GRID = (1 << 31) - 1
MAX_THREADS = 1024
MAX_LDS = 1 << 20
MAX_WORKSPACE = 1 << 40
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LANGUAGES: dict[str, Literal["triton", "cuda", "amdgcn"]] = {"triton": "triton", "cuda": "cuda", "amdgcn": "amdgcn"}


class OpenFields(NamedTuple):
    """What the author fixed of the open fields; None is left to the compiler."""

    schedule: Schedule | None
    launch: Launch | None
    lds: Lds | None
    workspace: Workspace | None
    arguments: tuple[Argument, ...] | None
    code: Code | None


def read_open_fields(gather: Gather, root: Mapping[str, Json]) -> OpenFields:
    """Read the open sections of a contract's top level."""
    return OpenFields(
        schedule=_schedule(gather, root.get("schedule")),
        launch=_launch(gather, root.get("launch")),
        lds=_lds(gather, root.get("lds")),
        workspace=_workspace(gather, root.get("workspace")),
        arguments=_arguments(gather, root.get("arguments")),
        code=_code(gather, root.get("code")),
    )


def _schedule(gather: Gather, raw: Json) -> Schedule | None:
    section = gather.object(raw, "$.schedule", optional=("tile", "stages", "waves", "split_k"))
    if not section:
        return None
    counts = {
        name: gather.integer(section[name], f"$.schedule.{name}", 1, 1 << 16)
        for name in ("stages", "waves", "split_k")
        if name in section
    }
    tile = _triple(gather, section["tile"], "$.schedule.tile", 1 << 20) if "tile" in section else None
    return Schedule(tile=tile, **counts)


def _launch(gather: Gather, raw: Json) -> Launch | None:
    section = gather.object(raw, "$.launch", optional=("grid", "block", "dependent"))
    if not section:
        return None
    grid = _triple(gather, section["grid"], "$.launch.grid", MAX_GRID) if "grid" in section else None
    block = _triple(gather, section["block"], "$.launch.block", MAX_THREADS) if "block" in section else None
    if block is not None and block[0] * block[1] * block[2] > MAX_THREADS:
        threads = block[0] * block[1] * block[2]
        gather.add("$.launch.block", f"{threads} threads in a workgroup", f"at most {MAX_THREADS}")
    dependent = section.get("dependent")
    if dependent is not None and not isinstance(dependent, bool):
        gather.add("$.launch.dependent", f"{gather.show(dependent)} is neither true nor false")
        dependent = None
    return Launch(grid=grid, block=block, dependent=dependent)


def _lds(gather: Gather, raw: Json) -> Lds | None:
    section = gather.object(raw, "$.lds", optional=("fixed_bytes", "dynamic_bytes"))
    if not section:
        return None
    sizes = {
        name: gather.integer(value, f"$.lds.{name}", 0, MAX_LDS)
        for name, value in section.items()
        if name in Lds.__struct_fields__
    }
    return Lds(**sizes)


def _workspace(gather: Gather, raw: Json) -> Workspace | None:
    section = gather.object(raw, "$.workspace", required=("bytes",), optional=("alignment", "init"))
    if not section or "bytes" not in section:
        return None
    size = gather.integer(section["bytes"], "$.workspace.bytes", 0, MAX_WORKSPACE)
    alignment = gather.integer(section.get("alignment", 256), "$.workspace.alignment", 1, 1 << 20)
    init = gather.choice(
        section.get("init", "none"), "$.workspace.init", WorkspaceInit, tuple(WorkspaceInit), noun="initial state"
    )
    if alignment is not None and alignment & (alignment - 1):
        gather.add("$.workspace.alignment", f"{alignment} is not a power of two", "alignments are in bytes")
    if size is None or alignment is None or init is None:
        return None
    return Workspace(bytes=size, alignment=alignment, init=init)


def _arguments(gather: Gather, raw: Json) -> tuple[Argument, ...] | None:
    if raw is None:
        return None
    listed: list[Argument] = []
    types = {f"ptr<{dtype}>" for dtype in DType} | {"int32"}
    for index, entry in enumerate(gather.array(raw, "$.arguments")):
        path = f"$.arguments[{index}]"
        if entry is None:
            gather.add(path, "`null` is not an object", "write it in braces")
        section = gather.object(entry, path, required=("name", "type"), optional=("access",)) or {}
        name = gather.text(section["name"], f"{path}.name") if "name" in section else None
        access = gather.choice(section.get("access", "read"), f"{path}.access", Access, tuple(Access), noun="access")
        kind = section.get("type")
        if kind is not None and (not isinstance(kind, str) or kind not in types):
            gather.add(
                f"{path}.type", f"unknown argument type {gather.show(kind)}", f"one of {', '.join(sorted(types))}"
            )
        if name is not None and any(name == other.name for other in listed):
            gather.add(f"{path}.name", f"`{name}` names an earlier argument too", "give each its own name")
        if name is not None and access is not None:
            listed.append(Argument(name=name, type=str(kind), access=access))
    return tuple(listed)


def _code(gather: Gather, raw: Json) -> Code | None:
    section = gather.object(raw, "$.code", required=("language", "digest"))
    if not section or len(section) < 2:
        return None
    language, digest = str(section["language"]), section["digest"]
    if language not in _LANGUAGES:
        gather.add("$.code.language", f"unknown language {gather.show(language)}", f"one of {', '.join(_LANGUAGES)}")
        return None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        gather.add("$.code.digest", f"{gather.show(digest)} is no SHA-256", "64 lower-case hex digits")
        return None
    return Code(language=_LANGUAGES[language], digest=digest)


def _triple(gather: Gather, raw: Json, path: str, maximum: int) -> Triple | None:
    values = gather.array(raw, path)
    if len(values) != 3:
        if isinstance(raw, list):
            gather.add(path, f"{len(values)} values where three belong", "for example [16, 64, 128]")
        return None
    found = [gather.integer(value, f"{path}[{index}]", 1, maximum) for index, value in enumerate(values)]
    if any(value is None for value in found):
        return None
    x, y, z = (value or 0 for value in found)
    return x, y, z
