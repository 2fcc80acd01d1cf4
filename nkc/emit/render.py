"""Rendering: a lowered contract and its tactic's template become one self-contained source with its digests."""

import keyword
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from nkc.emit import templates
from nkc.emit.digest import code_digest
from nkc.emit.source import Language, Options, Parameter, Source
from nkc.ir.contract import Argument, DType
from nkc.ir.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from jinja2 import Environment

    from nkc.tactics.tactic import Lowered, Tactic

TRITON_TYPES = {
    DType.BF16: "bf16",
    DType.FP16: "fp16",
    DType.FP32: "fp32",
    DType.FP8_E4M3: "fp8e4nv",
    DType.INT32: "i32",
}
"""Element types as Triton spells them. fp8e4nv is OCP e4m3fn."""

CUDA_TYPES = {
    DType.BF16: "unsigned short",
    DType.FP16: "unsigned short",
    DType.FP32: "float",
    DType.FP8_E4M3: "unsigned char",
    DType.INT32: "int",
}
"""Element types as a kernel in C++ without headers holds them: the bits of what it has no type for."""


def parameter(argument: Argument, tactic: "Tactic", maps: "Collection[str]" = ()) -> Parameter:
    """Return one visible argument as the kernel's parameter, with the promises that the code is compiled on.

    maps: the arguments that are passed as tensor maps.
    """
    kernel = tactic.kernel
    cuda = kernel.language == "cuda"
    if argument.type == "int32":
        return Parameter(name=argument.name, type="int" if cuda else "i32")
    dtype = DType(argument.type.removeprefix("ptr<").removesuffix(">"))
    kind = f"{CUDA_TYPES[dtype]}*" if cuda else f"*{TRITON_TYPES[dtype]}"
    return Parameter(
        name=argument.name,
        type="tensor_map" if argument.name in maps else kind,
        divisible_by=tactic.promised_alignment(argument.name),
        range_bits=kernel.pointer_range_bits,
    )


@lru_cache(maxsize=64)
def _loaded(folder: str, texts: tuple[tuple[str, str], ...]) -> "Environment":
    """Return an environment that holds one closure, whose templates it compiles once."""
    from jinja2 import DictLoader

    return templates.environment(folder).overlay(loader=DictLoader(dict(texts)))


def place(name: str, texts: "Mapping[str, str]", constants: "Mapping[str, object]") -> str:
    """Return a template with its constants placed; texts: of it and of all that it includes, by name.

    Raises ToolError for a constant that is not given.
    """
    from jinja2 import UndefinedError

    try:
        return _loaded(name.partition("/")[0], tuple(texts.items())).get_template(name).render(constants)
    except UndefinedError as error:
        raise ToolError(f"templates/{name}: {error.message} (the tactic has to give it)") from None


def source(
    name: str,
    constants: "Mapping[str, object]",
    *,
    parameters: tuple[Parameter, ...],
    options: Options,
    language: Language = "triton",
    root: Path | None = None,
) -> Source:
    """Return the source made from a template: its text, what it means, and the files it is made of.

    constants: what the template places; `symbol` names the kernel.
    """
    from nkc.emit.include import closure, closure_digest, gather

    symbol = str(constants["symbol"])
    assert symbol.isidentifier(), symbol
    assert not keyword.iskeyword(symbol), symbol
    texts = gather(name, root or templates.root())
    files = closure(texts)
    text = place(name, texts, constants)
    return Source(
        language=language,
        text=text,
        symbol=symbol,
        digest=code_digest(text, symbol=symbol, options=options, parameters=parameters, language=language),
        closure=files,
        closure_digest=closure_digest(files),
        parameters=parameters,
        options=options,
    )


def render(lowered: "Lowered") -> Source:
    """Render the kernel of a lowered contract. Raises ToolError for a template that cannot be rendered."""
    contract, tactic = lowered.contract, lowered.tactic
    assert contract.arguments is not None, "a lowered contract has its arguments"
    maps = tactic.kernel.tensor_maps(contract, tactic)
    return source(
        tactic.kernel.template,
        tactic.kernel.constants(contract, tactic),
        parameters=tuple(parameter(argument, tactic, maps) for argument in contract.arguments),
        options=tuple(sorted(tactic.kernel.options.items())),
        language=tactic.kernel.language,
    )
