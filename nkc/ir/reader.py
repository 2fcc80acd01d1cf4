"""The one door: JSON in, a checked contract with every default resolved out.

Problems are gathered section by section, so that one run shows all that is wrong; a rule across fields is checked
when the sections it needs are sound. Nothing is guessed: what has no documented default must be written.
"""

import os
import struct
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from nkc.ir import epilogues, operations, targets
from nkc.ir.contract import (
    CONTRACT_SCHEMA,
    Access,
    Bounded,
    Contract,
    Dim,
    DType,
    Epilogue,
    Gate,
    Layout,
    Maturity,
    NumericValue,
    Properties,
    TargetRef,
)
from nkc.ir.errors import ContractError, Problem, did_you_mean
from nkc.ir.frozen import FrozenMap, freeze
from nkc.ir.gather import Gather, Json
from nkc.ir.open_fields import read_open_fields
from nkc.ir.operation import Operation
from nkc.ir.read_scales import read_scales
from nkc.ir.scales import argument_name
from nkc.ir.syntax import parse_json

MAX_DIM = 1 << 40
MAX_ALIGNMENT = 4096
DEFAULT_ALIGNMENT = 16

REQUIRED = ("schema", "target", "operation", "shape", "dtypes", "layouts", "numerics")
OPTIONAL = (
    "scales",
    "epilogue",
    "properties",
    "alignment",
    "constants",
    "schedule",
    "launch",
    "lds",
    "workspace",
    "arguments",
    "code",
    "maturity",
    "fallback",
    "provenance",
)


def read(path: str | os.PathLike[str]) -> Contract:
    """Read and check one contract file. Raises ContractError with a line for every problem found."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        mend = f"name its files, {path}/*.json" if isinstance(error, IsADirectoryError) else ""
        raise ContractError(str(path), [Problem(field="$", what=f"cannot be read: {reason}", mend=mend)]) from None
    return parse(data, str(path))


def parse(data: bytes, file: str = "<contract>") -> Contract:
    """Read and check one contract given as bytes; `file` is what error lines call it."""
    return parse_document(parse_json(data, file), file)


def parse_document(document: object, file: str = "<contract>") -> Contract:
    """Check one contract given as plain JSON values, such as `canonical.contract_document` returns."""
    gather = Gather()
    contract = _contract(gather, document)
    if gather.problems or contract is None:
        raise ContractError(file, gather.problems)
    return contract


def _contract(gather: Gather, document: Json) -> Contract | None:
    if document is None:
        gather.add("$", "`null` is not an object", "write it in braces")
    root = gather.object(document, "$", required=REQUIRED, optional=OPTIONAL)
    if root is None:
        return None
    if "schema" in root and root["schema"] != CONTRACT_SCHEMA:
        gather.add("$.schema", f"{gather.show(root['schema'])} is not `{CONTRACT_SCHEMA}`", "this nkc reads that one")
    target = _target(gather, root.get("target"))
    operation = _operation(gather, root.get("operation"))
    fallback, maturity, provenance = _notes(gather, root)
    if operation is None:
        return None
    before = len(gather.problems)
    shape = _shape(gather, root.get("shape"), operation)
    dtypes = _dtypes(gather, root.get("dtypes"), operation)
    scales = read_scales(gather, root.get("scales"), operation, shape, dtypes)
    epilogue = _epilogue(gather, root.get("epilogue"), operation)
    # what rules across fields and the names of pointers rest on; a missing section was reported before
    sound = len(gather.problems) == before and "shape" in root and "dtypes" in root
    layouts = _layouts(gather, root.get("layouts"), operation, dtypes)
    numerics = _numerics(gather, root.get("numerics"), operation, dtypes)
    pointers = _pointer_names(operation, dtypes, scales, epilogue) if sound else _possible_pointer_names(operation)
    properties = _properties(gather, root.get("properties"), _read_only(operation, pointers))
    alignment = _alignment(gather, root.get("alignment"), pointers)
    constants = _constants(gather, root.get("constants"))
    opened = read_open_fields(gather, root)
    if not sound:
        return None
    contract = Contract(
        target=target or TargetRef(arch="unknown", wave=1),  # reported already; no rule across fields asks for it
        operation=operation.name,
        shape=shape,
        dtypes=dtypes,
        scales=scales,
        layouts=layouts,
        epilogue=epilogue,
        numerics=numerics,
        properties=properties,
        alignment=alignment,
        constants=constants,
        schedule=opened.schedule,
        launch=opened.launch,
        lds=opened.lds,
        workspace=opened.workspace,
        arguments=opened.arguments,
        code=opened.code,
        maturity=maturity,
        fallback=fallback,
        provenance=provenance,
    )
    gather.problems.extend(operation.check(contract))
    return contract


def _target(gather: Gather, raw: Json) -> TargetRef | None:
    section = gather.object(raw, "$.target", required=("arch",), optional=("wave",))
    if section is None or "arch" not in section:
        return None
    arch = section["arch"]
    if not isinstance(arch, str) or arch not in targets.names():
        gather.add("$.target.arch", f"unknown target {gather.show(arch)}", did_you_mean(str(arch), targets.names()))
        return None
    wave = targets.get(arch).wave
    written = gather.integer(section.get("wave", wave), "$.target.wave", 1, 1024)
    if written is not None and written != wave:
        gather.add(
            "$.target.wave", f"{written} lanes, but a wave of {arch} has {wave}", f"write {wave} or leave it out"
        )
    return TargetRef(arch=arch, wave=wave)


def _operation(gather: Gather, raw: Json) -> Operation | None:
    if raw is None:
        return None  # reported as missing
    if not isinstance(raw, str) or raw not in operations.names():
        gather.add("$.operation", f"unknown operation {gather.show(raw)}", did_you_mean(str(raw), operations.names()))
        return None
    return operations.get(raw)


def _shape(gather: Gather, raw: Json, operation: Operation) -> FrozenMap[str, Dim]:
    rules = {rule.name: rule for rule in operation.dims}
    section = gather.object(raw, "$.shape", required=rules) or {}
    shape: dict[str, Dim] = {}
    for name, value in section.items():
        if name in rules:
            dim = _dim(gather, value, f"$.shape.{name}", bounded=rules[name].bounded)
            if dim is not None:
                shape[name] = dim
    return FrozenMap(shape)


def _dim(gather: Gather, raw: Json, path: str, *, bounded: bool) -> Dim | None:
    if not isinstance(raw, dict):
        if raw == 0 and bounded and not isinstance(raw, bool):
            gather.add(path, "0 is out of range for a fixed dim", 'a range may begin at 0: {"min": 0, "max": 64}')
            return None
        return gather.integer(raw, path, 1, MAX_DIM)
    if not bounded:
        gather.add(path, "a range, but this dim is fixed for every kernel", "write one number")
        return None
    section = gather.object(raw, path, required=("min", "max"))
    if section is None or len(section) < 2:
        return None
    low = gather.integer(section["min"], f"{path}.min", 0, MAX_DIM)
    high = gather.integer(section["max"], f"{path}.max", 1, MAX_DIM)
    if low is None or high is None:
        return None
    if low > high:
        gather.add(path, f"min {low} is above max {high}", "exchange them")
        return None
    return high if low == high else Bounded(min=low, max=high)


def _dtypes(gather: Gather, raw: Json, operation: Operation) -> FrozenMap[str, DType]:
    allowed = {operand.name: operand.dtypes for operand in operation.operands}
    allowed.update(dict(operation.intermediate_dtypes))
    optional = [operand.name for operand in operation.operands if operand.optional]
    required = [name for name in allowed if name not in optional]
    section = gather.object(raw, "$.dtypes", required=required, optional=optional) or {}
    dtypes = {}
    for name, value in section.items():
        if name in allowed:
            dtype = gather.choice(value, f"$.dtypes.{name}", DType, allowed[name], noun="dtype")
            if dtype is not None:
                dtypes[name] = dtype
    return FrozenMap(dtypes)


def _layouts(gather: Gather, raw: Json, operation: Operation, dtypes: Mapping[str, DType]) -> FrozenMap[str, Layout]:
    allowed = {operand.name: operand.layouts for operand in operation.present(dtypes)}
    absent = [operand.name for operand in operation.operands if operand.name not in allowed]
    section = gather.object(raw, "$.layouts", required=allowed, optional=absent) or {}
    layouts = {}
    for name, value in section.items():
        if name in absent:
            gather.add(f"$.layouts.{name}", f"there is no `{name}` in $.dtypes", "give its dtype, or leave this out")
        else:
            layout = gather.choice(value, f"$.layouts.{name}", Layout, allowed[name], noun="layout")
            if layout is not None:
                layouts[name] = layout
    return FrozenMap(layouts)


def _epilogue(gather: Gather, raw: Json, operation: Operation) -> Epilogue:
    if raw is None and "identity" not in operation.epilogues:
        gather.add(
            "$.epilogue",
            f"missing, `{operation.name}` is nothing without one",
            f'for example {{"kind": "{operation.epilogues[0]}"}}',
        )
        return Epilogue(kind="identity")
    section = gather.object(
        {"kind": "identity"} if raw is None else raw, "$.epilogue", required=("kind",), optional=("dtype", "gate")
    )
    if section is None or "kind" not in section:
        return Epilogue(kind="identity")
    kind = section["kind"]
    if not isinstance(kind, str) or kind not in operation.epilogues:
        gather.add(
            "$.epilogue.kind", f"unknown epilogue {gather.show(kind)}", did_you_mean(str(kind), operation.epilogues)
        )
        return Epilogue(kind="identity")
    rule = epilogues.get(kind)
    dtype = gate = None
    if rule.bias_dtypes:
        if "dtype" not in section:
            gather.add(
                "$.epilogue.dtype", f"missing, `{kind}` reads a vector over n", f"one of {', '.join(rule.bias_dtypes)}"
            )
        else:
            dtype = gather.choice(section["dtype"], "$.epilogue.dtype", DType, rule.bias_dtypes, noun="dtype")
    elif "dtype" in section:
        gather.add("$.epilogue.dtype", f"`{kind}` reads no vector", "leave it out")
    if rule.gated:
        if "gate" not in section:
            gather.add("$.epilogue.gate", "missing; it says how gate and up columns lie", "`halves` or `interleaved`")
        else:
            gate = gather.choice(section["gate"], "$.epilogue.gate", Gate, tuple(Gate), noun="gate order")
    elif "gate" in section:
        gather.add("$.epilogue.gate", f"`{kind}` has no gate", "leave it out")
    return Epilogue(kind=kind, dtype=dtype, gate=gate)


def _numerics(
    gather: Gather, raw: Json, operation: Operation, dtypes: Mapping[str, DType]
) -> FrozenMap[str, NumericValue]:
    rules = operation.rules(dtypes)
    idle = [rule for rule in operation.numerics if rule not in rules]
    required = [rule.name for rule in rules if rule.default is None]
    optional = [rule.name for rule in rules if rule.default is not None] + [rule.name for rule in idle]
    section = gather.object(raw, "$.numerics", required=required, optional=optional) or {}
    for rule in idle:
        # where the dtype itself could not be read, that was reported, and nothing follows from it
        if rule.name in section and rule.quantises is not None and rule.quantises in dtypes:
            gather.add(f"$.numerics.{rule.name}", f"`{dtypes[rule.quantises]}` is not quantised to", "leave it out")
    numerics: dict[str, NumericValue] = {}
    for rule in rules:
        if rule.name not in section:
            if rule.default is not None:
                numerics[rule.name] = rule.default
            continue
        value, path = section[rule.name], f"$.numerics.{rule.name}"
        read_value: NumericValue | None
        if issubclass(rule.type, StrEnum):
            read_value = gather.choice(value, path, rule.type, tuple(rule.type), noun="rule")
        else:
            read_value = _real(gather, value, path)
        if read_value is not None:
            numerics[rule.name] = read_value
    return FrozenMap(numerics)


def _real(gather: Gather, raw: Json, path: str) -> float | None:
    """Read a real: finite, not negative, rounded to fp32."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        gather.add(path, f"{gather.show(raw)} is not a number")
        return None
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", raw))
    except OverflowError:
        gather.add(path, f"{raw} is beyond the largest fp32 value")
        return None
    value: float = rounded + 0.0  # a negative zero is zero
    if raw < 0:
        gather.add(path, f"{raw} is negative")
        return None
    if raw and not value:
        gather.add(path, f"{raw} is 0 in fp32", "write 0, or at least 1.5e-45")
        return None
    return value


def _properties(gather: Gather, raw: Json, readable: tuple[str, ...]) -> Properties:
    section = (
        gather.object(
            {} if raw is None else raw, "$.properties", optional=("deterministic", "graph_capture", "constant")
        )
        or {}
    )
    flags = {}
    for name in ("deterministic", "graph_capture"):
        value = section.get(name, True)
        if isinstance(value, bool):
            flags[name] = value
        else:
            gather.add(f"$.properties.{name}", f"{gather.show(value)} is neither true nor false")
    constant = gather.array(section.get("constant", []), "$.properties.constant")
    for index, operand_name in enumerate(constant):
        if operand_name not in readable:
            gather.add(
                f"$.properties.constant[{index}]",
                f"{gather.show(operand_name)} is no argument that a kernel only reads",
                f"known: {', '.join(readable)}",
            )
        elif operand_name in constant[:index]:
            gather.add(
                f"$.properties.constant[{index}]",
                f"{gather.show(operand_name)} is named at [{constant.index(operand_name)}] already",
                "name each argument once",
            )
    return Properties(constant=tuple(sorted({str(name) for name in constant})), **flags)


def _pointer_names(
    operation: Operation, dtypes: Mapping[str, DType], scales: Mapping[str, object], epilogue: Epilogue
) -> tuple[str, ...]:
    """Return the names of the pointer arguments whose alignment a contract may state."""
    names = [operand.name for operand in operation.present(dtypes)]
    names += [argument_name(name) for name in scales]
    return (*names, "bias") if epilogue.dtype is not None else tuple(names)


def _read_only(operation: Operation, pointers: Iterable[str]) -> tuple[str, ...]:
    """Return which of these pointer arguments a kernel only reads: inputs, their scales, the bias."""
    written = [operand.name for operand in operation.operands if operand.access is not Access.READ]
    return tuple(name for name in pointers if name not in {*written, *map(argument_name, written)})


def _possible_pointer_names(operation: Operation) -> tuple[str, ...]:
    """Return every name that might be one of a pointer argument, where scales or epilogue could not be read."""
    names = [operand.name for operand in operation.operands]
    names += [argument_name(operand.name) for operand in operation.operands if operand.scales is not None]
    return (*names, "bias")


def _alignment(gather: Gather, raw: Json, pointers: Iterable[str]) -> FrozenMap[str, int]:
    section = gather.object({} if raw is None else raw, "$.alignment", optional=tuple(pointers)) or {}
    alignment = dict.fromkeys(pointers, DEFAULT_ALIGNMENT)
    for name, raw_bytes in section.items():
        value = gather.integer(raw_bytes, f"$.alignment.{name}", 1, MAX_ALIGNMENT)
        if value is not None and value & (value - 1):
            gather.add(f"$.alignment.{name}", f"{value} is not a power of two", "alignments are in bytes")
        elif value is not None and name in alignment:
            alignment[name] = value
    return FrozenMap(alignment)


def _constants(gather: Gather, raw: Json) -> FrozenMap[str, int]:
    section = gather.mapping({} if raw is None else raw, "$.constants") or {}
    constants = {}
    for name, value in section.items():
        number = gather.integer(value, f"$.constants.{name}", -(1 << 62), 1 << 62)
        if number is not None:
            constants[name] = number
    return FrozenMap(constants)


def _notes(gather: Gather, root: Mapping[str, Json]) -> tuple[str | None, Maturity | None, FrozenMap[str, object]]:
    fallback = None
    if root.get("fallback") is not None:
        fallback = gather.text(root["fallback"], "$.fallback")
    maturity = None
    if root.get("maturity") is not None:
        maturity = gather.choice(root["maturity"], "$.maturity", Maturity, tuple(Maturity), noun="maturity")
    provenance: dict[str, Json] = gather.mapping(root.get("provenance", {}), "$.provenance") or {}
    return fallback, maturity, FrozenMap({name: freeze(value) for name, value in provenance.items()})
