"""Rendering: a lowered contract and its tactic's template become one self-contained source with its digests."""

import keyword
import re
from pathlib import Path
from typing import TYPE_CHECKING

from nkc.emit import templates
from nkc.emit.digest import code_digest
from nkc.emit.source import Options, OptionValue, Parameter, Source, TemplateFile
from nkc.ir import operations
from nkc.ir.contract import Argument, Bounded, Contract, DType
from nkc.ir.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nkc.tactics.tactic import Lowered, Tactic

TRITON_TYPES = {
    DType.BF16: "bf16",
    DType.FP16: "fp16",
    DType.FP32: "fp32",
    DType.FP8_E4M3: "fp8e4nv",
    DType.INT32: "i32",
}
"""Element types as Triton spells them. fp8e4nv is OCP e4m3fn."""

_PROMISED_ALIGNMENT = 16  # bytes; Triton vectorises loads by it, so launchers check it


def symbol(contract: Contract, tactic: "Tactic") -> str:
    """Return a kernel's readable name: the tactic, then the dims in the operation's order (`m0to64` where bounded)."""
    dims = []
    for rule in operations.get(contract.operation).dims:
        value = contract.shape[rule.name]
        size = f"{value.min}to{value.max}" if isinstance(value, Bounded) else f"{value}"
        dims.append(f"{rule.name}{size}")
    return re.sub(r"\W", "_", "_".join([tactic.name, *dims]))


def parameter(argument: Argument, tactic: "Tactic") -> Parameter:
    """Return one visible argument as the kernel's parameter, with the promises that the code is compiled on."""
    if argument.type == "int32":
        return Parameter(name=argument.name, type="i32")
    dtype = DType(argument.type.removeprefix("ptr<").removesuffix(">"))
    return Parameter(
        name=argument.name,
        type=f"*{TRITON_TYPES[dtype]}",
        divisible_by=_PROMISED_ALIGNMENT,
        range_bits=tactic.kernel.pointer_range_bits,
    )


def options(contract: Contract, tactic: "Tactic") -> Options:
    """Return the compile options, sorted: the tactic's, and the waves of the lowered schedule.

    Fusing a product into a sum where the source says neither fma nor mul_add would change bits with the tile; a tactic
    cannot ask for it.
    """
    assert contract.schedule is not None
    assert contract.schedule.waves is not None
    chosen: dict[str, OptionValue] = {**tactic.kernel.options, "num_warps": contract.schedule.waves}
    chosen["enable_fp_fusion"] = False
    return tuple(sorted(chosen.items()))


def place(name: str, constants: "Mapping[str, object]", root: Path) -> str:
    """Return a template with its constants placed. Raises ToolError for one it lacks, with the template's line."""
    from jinja2 import TemplateSyntaxError, UndefinedError

    environment = templates.environment(name.partition("/")[0], root)
    try:
        return environment.get_template(name).render(constants)
    except UndefinedError as error:
        raise ToolError(f"templates/{name}: {error.message} (the tactic has to give it)") from None
    except TemplateSyntaxError as error:
        raise ToolError(f"templates/{error.name or name}:{error.lineno}: {error.message}") from None


def source(
    name: str,
    constants: "Mapping[str, object]",
    *,
    symbol: str,
    parameters: tuple[Parameter, ...],
    options: Options,
    root: Path | None = None,
) -> Source:
    """Return the source made from a template: its text, what it means, and the files it is made of."""
    from nkc.emit.include import closure, closure_digest

    assert symbol.isidentifier(), symbol
    assert not keyword.iskeyword(symbol), symbol
    root = root or templates.root()
    files: tuple[TemplateFile, ...] = closure(name, root)
    names = ", ".join(item.name for item in parameters)
    text = place(name, {**constants, "symbol": symbol, "arguments": names}, root)
    return Source(
        language="triton",
        text=text,
        symbol=symbol,
        digest=code_digest(text, symbol=symbol, options=options, parameters=parameters),
        closure=files,
        closure_digest=closure_digest(files),
        parameters=parameters,
        options=options,
    )


def render(lowered: "Lowered") -> Source:
    """Render the kernel of a lowered contract. Raises ToolError for a template that cannot be rendered."""
    contract, tactic = lowered.contract, lowered.tactic
    assert contract.arguments is not None, "a lowered contract has its arguments"
    return source(
        tactic.kernel.template,
        tactic.kernel.constants(contract, tactic),
        symbol=symbol(contract, tactic),
        parameters=tuple(parameter(argument, tactic) for argument in contract.arguments),
        options=options(contract, tactic),
    )
