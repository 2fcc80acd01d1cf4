"""What an object must satisfy by itself: the checks that every compile makes and `nkc inspect` shows.

Here are the machine codes that nkc reads instruction by instruction, gfx950 for now; what a cubin can say of itself is
held in `nkc.emit.hold`. Needs no numpy, because a compile has none.
"""

from typing import TYPE_CHECKING

import msgspec

from nkc.emit.inspect import Resources
from nkc.emit.source import CodeObject
from nkc.ir.contract import Contract
from nkc.ir.launch import Launch
from nkc.tactics.reason import Reason, StageName

if TYPE_CHECKING:
    from nkc.verify.gfx950.static_checks import Defect, Expectation

ISA = "gfx950"
SHOWN = 3
"""Defects of one check that are told in full; the rest are counted."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check of an object. holds: what is true where it found nothing. defects: a line for each, none if held."""

    check: str
    holds: str
    defects: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether it found nothing."""
        return not self.defects

    @property
    def told(self) -> str:
        """The first defects in one line, and how many more there are."""
        rest = len(self.defects) - SHOWN
        return "; ".join((*self.defects[:SHOWN], *([f"and {rest} more"] if rest > 0 else [])))


def checks_of(data: bytes, resources: Resources, launch: Launch | None = None) -> tuple[CheckResult, ...]:
    """Return every check of an object with what it found; none for machine code that is not read here.

    launch: where it is known, for the LDS that it adds; what else it says is held in `nkc.emit.agree`.
    """
    if resources.isa != ISA:
        return ()
    from nkc.verify.gfx950.static_checks import Expectation

    return _checked(data, Expectation(dynamic_lds_bytes=0 if launch is None else launch.lds.dynamic_bytes))


def static_checks(built: CodeObject, contract: Contract) -> tuple[Reason, ...]:
    """Return a reason for every check that a freshly built object does not pass (`nkc.emit.build.Checks`).

    Registers, LDS, threads and spills against the contract are `nkc.emit.hold`'s, and are not told twice.
    """
    del contract
    if built.resources.isa != ISA:
        return ()
    from nkc.verify.gfx950.static_checks import Expectation

    return tuple(
        Reason(
            stage=StageName.OBJECT,
            predicate=f"object_{result.check}",
            field="$.code",
            wanted=result.holds,
            actual=result.told,
        )
        for result in _checked(built.data, Expectation(scratch=True))
        if not result.held
    )


def _checked(data: bytes, expect: "Expectation") -> tuple[CheckResult, ...]:
    from nkc.verify.gfx950.code_object import ObjectError
    from nkc.verify.gfx950.instruction import DecodeError
    from nkc.verify.gfx950.static_checks import CHECKS, check_object

    try:
        found = check_object(data, expect=expect)
    except (ObjectError, DecodeError) as error:
        return (CheckResult(check="decodes", holds="every instruction is known", defects=(str(error),)),)
    unasked = {name for name in ("threads", "mfma", "contraction") if getattr(expect, name) is None}
    return tuple(
        CheckResult(check=name, holds=holds, defects=_of(name, found))
        for name, holds in CHECKS.items()
        if name not in unasked
    )


def _of(name: str, found: "tuple[Defect, ...]") -> tuple[str, ...]:
    return tuple(defect.message for defect in found if defect.check == name)
