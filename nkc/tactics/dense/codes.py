"""What dense kernels share whose result becomes fp8 codes and their scales, in the launch that multiplies.

A group is 128 columns of one row, so a workgroup whose tile is 128 columns wide has whole groups, and nothing passes
between workgroups. Rules, templates and constants are those of `group_quant`.
"""

from collections.abc import Mapping

from nkc.ir.contract import Contract
from nkc.ir.quantising import QUANTISED
from nkc.ir.scales import argument_name
from nkc.tactics.addressing import Aligned, OffsetUnit
from nkc.tactics.dense.requirements import ALIGNMENT, values
from nkc.tactics.hardware import TargetHas
from nkc.tactics.predicate import Predicate
from nkc.tactics.quantising import constants, requirements

CODES = "_codes"
"""How the family of a kernel is named whose result becomes codes; before it stands that of one that stores values."""

ROW_LANES = 4
"""Lanes of a warp that have columns of the same rows, where rows are those of wgmma's sums."""

DECIDING_FILES = (*constants.DECIDING_FILES, "nkc/tactics/quantising/requirements.py")
"""What decides such a kernel's text beside its own operation and folder."""


def stored(offsets: OffsetUnit, *, codes: bool, fp8_operands: bool = True) -> tuple[Predicate, ...]:
    """Return what is asked of the result: values, or codes in whole groups with scales that the offsets reach.

    fp8_operands: then it is asked of those already that the chip has fp8.
    """
    if not codes:
        return values()
    return (
        *([] if fp8_operands else [TargetHas("ocp_fp8", f"$.dtypes.{QUANTISED}")]),
        *requirements.in_groups(offsets, columns="n"),
        Aligned(argument_name(QUANTISED), ALIGNMENT),
    )


def placed(contract: Contract, *, row: str, group: str, in_c: bool = True) -> Mapping[str, object]:
    """Return what a template places to quantise rows: the rules, and where the scale of a row and its group lies.

    row, group: of the result, as expressions of the template. A contract whose result is values has no rules, and
    nothing but that is placed.
    """
    if QUANTISED not in contract.scales:
        return {"codes": False}
    place = constants.scale_place(contract, row, group)
    return {
        "codes": True,
        **constants.rules(contract),
        "staging": str(contract.numerics["staging"]),
        "scale_place": place.replace("//", "/") if in_c else place,
    }
