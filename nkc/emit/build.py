"""Building: render a lowered contract, compile it, hold the object against it, and seal it with what only that says."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from nkc.emit.hold import hold
from nkc.emit.render import render
from nkc.emit.source import CodeObject, Source
from nkc.ir import targets
from nkc.ir.canonical import contract_id
from nkc.ir.contract import Code, Contract, Lds
from nkc.ir.errors import ToolError

if TYPE_CHECKING:
    from nkc.ir.target import Target
    from nkc.tactics.reason import Reason
    from nkc.tactics.tactic import Lowered, Tactic


class Compiler(Protocol):
    """What `build` needs of a toolchain; a test's fake stands behind the same call."""

    def compile(self, source: Source, target: "Target") -> CodeObject:
        """Compile a source for a target. Raises ToolError."""


class ObjectMismatchError(ToolError):
    """An object that disagrees with its contract; `reasons` say in what."""

    def __init__(self, symbol: str, reasons: "tuple[Reason, ...]") -> None:
        self.symbol = symbol
        self.reasons = reasons
        super().__init__("\n".join(self.lines()))

    def lines(self) -> tuple[str, ...]:
        """Return one line per disagreement."""
        return tuple(
            f"{self.symbol}:{reason.field}: the object has {reason.actual}, wanted {reason.wanted} ({reason.predicate})"
            for reason in self.reasons
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A kernel that was built and holds: the sealed contract with its id, the tactic, the source, the object."""

    id: str
    contract: Contract
    tactic: "Tactic"
    source: Source
    object: CodeObject


def seal(contract: Contract, source: Source, built: CodeObject) -> Contract:
    """Return the contract with what only the object can say: LDS read back, and the code digest."""
    return msgspec.structs.replace(
        contract,
        lds=Lds(fixed_bytes=built.resources.lds_fixed_bytes, dynamic_bytes=built.lds_dynamic_bytes),
        code=Code(language=source.language, digest=source.digest),
    )


def build(lowered: "Lowered", compiler: Compiler) -> Artifact:
    """Build one kernel.

    Raises ToolError when the toolchain fails, and ObjectMismatchError when its object is not what was asked for.
    """
    source = render(lowered)
    built = compiler.compile(source, targets.get(lowered.contract.target.arch))
    reasons = hold(built, source, lowered.contract, lowered.tactic)
    if reasons:
        raise ObjectMismatchError(source.symbol, reasons)
    sealed = seal(lowered.contract, source, built)
    return Artifact(id=contract_id(sealed), contract=sealed, tactic=lowered.tactic, source=source, object=built)
