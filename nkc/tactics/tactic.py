"""One way to implement an operation, as a data sheet: what it needs, what it guarantees, how it lowers and renders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from nkc.ir.contract import Accumulate, Combine, Contract, Launch, Maturity, Reduce, Schedule
from nkc.ir.launch import TensorMap
from nkc.tactics.addressing import Aligned
from nkc.tactics.hardware import IsTarget
from nkc.tactics.predicate import ConstantOperands, Declares, Predicate

DEPENDENT = "_dependent"
"""How the name of a tactic with dependent launch ends; before it stands the name of the same one without."""

LAST = 1_000_000_000
"""The rank of a tactic that goes behind all others, by rank or by a rule in nanoseconds, unless a tuning row names it.

A contract that no other serves would still get it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What a kernel promises whenever its predicates hold; read back from the object where it can be."""

    accumulate: Accumulate | None = None
    combine: Combine | None = None
    reduce: Reduce | None = None
    deterministic: bool
    graph_capture: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePattern:
    """What the object's instructions must show for a guarantee to be believed.

    matrix: the only matrix instructions that may occur, each by the start of its mnemonic; none: no matrix unit at all.
    at_least: how many. fp32_fma: as many fused multiply-adds of fp32 vectors at least; 0 does not look for them.
    """

    matrix: tuple[str, ...]
    at_least: int = 1
    fp32_fma: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """How a tactic's kernel is written: a template, what is placed in it, and how it is compiled.

    constants: what the template places, computed for one lowered contract. options: of the toolchain, all explicit.
    decided_by: files, beside those of every kernel, the operation and the tactic's folder, that can move the code.
    tensor_maps: arguments of a contract that the kernel takes as tensor maps by value, and how each is made.
    """

    template: str
    constants: Callable[[Contract, "Tactic"], Mapping[str, object]]
    options: Mapping[str, int | bool | str]
    pattern: CodePattern
    pointer_range_bits: int | None = None
    decided_by: tuple[str, ...] = ()
    tensor_maps: Callable[[Contract, "Tactic"], Mapping[str, TensorMap]] = lambda _contract, _tactic: {}

    @property
    def language(self) -> Literal["triton", "cuda"]:
        """Return what the template is written in, which its folder says, and so which compiler reads it."""
        return "cuda" if self.template.startswith("cuda/") else "triton"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long a kernel is thought to take, with what that was told from, in words."""

    ns: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tactic:
    """One tactic.

    rank: lower is tried first; a committed tuning row goes before any rank. estimate: the time of a contract that the
    predicates admit, by a rule; where it says something it takes the rank's place. claim: the maturity it claims,
    capped by evidence. requires: every condition beside target and declared constants, which are asked of every tactic.
    lower: fills in schedule, grid, block, workspace and arguments of a contract that the predicates admit.
    proofs: the small contracts on which the tactic is proven. geometry: how the name ends where it spells no tile out.
    crowds: of one that is launched dependent, whether its workgroups, begun while the grid ahead leaves units empty,
    come to share units that each would have to itself otherwise; then it goes behind its plain form.
    """

    name: str
    operation: str
    target: str
    rank: int
    claim: Maturity = Maturity.EXPERIMENT
    requires: tuple[Predicate, ...]
    guarantees: Guarantees
    schedule: Schedule
    lower: Callable[[Contract, "Tactic"], Contract]
    kernel: Kernel
    geometry: str = ""
    declares: tuple[str, ...] = ()
    estimate: Callable[[Contract, "Tactic"], Estimate | None] = lambda _contract, _tactic: None
    crowds: Callable[[Contract, "Tactic"], bool] = lambda _contract, _tactic: False
    proofs: Callable[["Tactic"], tuple[Contract, ...]] = field(default=lambda _: ())
    note: str = ""

    def __post_init__(self) -> None:
        if not self.requires:
            raise ValueError(f"{self.name}: a tactic without predicates would accept everything")
        if not self.name.startswith(f"{self.target}.{self.operation}."):
            raise ValueError(f"{self.name}: a name goes from target to operation to detail")
        if self.dependent is not self.name.endswith(DEPENDENT):
            raise ValueError(f"{self.name}: what is launched dependent, and only that, is named `…{DEPENDENT}`")

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """Every predicate asked of a contract, in the order in which reasons are listed."""
        return (IsTarget(self.target), *self.requires, Declares(self.declares))

    @property
    def before_the_wait(self) -> ConstantOperands | None:
        """What the kernel reads before the kernels ahead have ended; None where it is launched after their end."""
        return next((one for one in self.requires if isinstance(one, ConstantOperands)), None)

    @property
    def dependent(self) -> bool:
        """Whether the kernel may begin before the kernels ahead have ended, and waits for their end by itself."""
        return self.before_the_wait is not None

    @property
    def independent_name(self) -> str:
        """The name of the same tactic without dependent launch, with which it shares its rank."""
        return self.name.removesuffix(DEPENDENT)

    @property
    def family(self) -> str:
        """The name without its tile and what follows it: `gfx950.dense.fp8_mfma`."""
        tile = self.schedule.tile
        if tile is None or self.geometry:
            return self.name.removesuffix(f"_{self.geometry}")
        return self.name.partition(f"_{'x'.join(map(str, tile))}")[0]

    def promised_alignment(self, argument: str) -> int | None:
        """Return the alignment (bytes) of a pointer argument that the code is compiled on; None where it assumes none.

        A predicate asks it of the contract, a launch guard of the caller.
        """
        return next((p.bytes for p in self.requires if isinstance(p, Aligned) and p.argument == argument), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A contract whose schedule, grid, block, workspace and arguments a tactic has filled in, and that tactic."""

    contract: Contract
    tactic: Tactic

    @classmethod
    def of(cls, contract: Contract, tactic: Tactic) -> "Lowered":
        """Return a contract that the predicates admit as the tactic lowers it, with how it is to be launched."""
        lowered = tactic.lower(contract, tactic)
        written = contract.launch.dependent if contract.launch is not None else None
        dependent = True if tactic.dependent else False if written is False else None
        launch = msgspec.structs.replace(lowered.launch or Launch(), dependent=dependent)
        return cls(contract=msgspec.structs.replace(lowered, launch=launch), tactic=tactic)
