"""What travels between rendering and the toolchain: a kernel's text on the way in, its code object on the way out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from nkc.emit.inspect.resources import Resources

Language: TypeAlias = Literal["triton", "cuda"]
OptionValue: TypeAlias = bool | int | str
Options: TypeAlias = tuple[tuple[str, OptionValue], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One visible kernel parameter and the promises compiled into the code, which a launcher has to check.

    type: the language's own (`*fp8e4nv`, `i32`; `float*`, `int`), or `tensor_map` for one that is passed by value.
    divisible_by: bytes for a pointer, the value itself for an integer.
    range_bits: the tensor's bytes are addressed with that many bits; None where the code assumes nothing.
    """

    name: str
    type: str
    divisible_by: int | None = None
    range_bits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFile:
    """One file of a kernel's include closure: its name below the template root, and the SHA-256 of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A rendered, self-contained kernel, ready to compile.

    digest: of what the kernel means (tokens, options, promises). closure: of the bytes it was made from.
    options: those that shape the code, by name, sorted.
    """

    language: Language
    text: str
    symbol: str
    digest: str
    closure: tuple[TemplateFile, ...]
    closure_digest: str
    parameters: tuple[Parameter, ...]
    options: Options

    def option(self, name: str) -> OptionValue:
        """Return one option. Raises KeyError for one the source does not set."""
        return dict(self.options)[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Which compiler made an object. digest: SHA-256 over the hashes of the files its package installed."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObject:
    """What a toolchain made of a source.

    lds_dynamic_bytes: what a launch must ask for. scratch_bytes: global scratch and profile memory that the code
    wants behind its hidden pointers; null pointers are right while it is 0. intermediates: name to text, sorted.
    """

    kind: Literal["hsaco", "cubin"]
    data: bytes
    symbol: str
    waves: int
    lds_dynamic_bytes: int
    scratch_bytes: int
    resources: "Resources"
    intermediates: tuple[tuple[str, str], ...]
    toolchain: Toolchain
