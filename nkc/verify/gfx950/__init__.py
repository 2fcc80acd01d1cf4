"""The gfx950 emulator: runs the machine code of a code object on a CPU and reports values and faults.

In: bytes of a code object, a launch with its arguments, buffers. Out: an `EmulationReport`. Values hold under the
named MFMA model; hazards (missing waits and barriers, undefined data, accesses out of bounds, overlapping writers)
do not depend on it. Also here: decoder and listing, static checks, the wait-state linter, the loop model, mutants.
Left out: oracles and error bounds (their own rooms), and any claim about what a card would print.
"""

from nkc.verify.gfx950.code_object import CodeObject, ObjectError, read_code_object
from nkc.verify.gfx950.emulate import DmaPolicy, EmulationReport, emulate, emulate_both_policies, missing_features
from nkc.verify.gfx950.hazards import Hazard, HazardKind
from nkc.verify.gfx950.instruction import DecodeError
from nkc.verify.gfx950.launch import Access, LaunchArgument, LaunchError, LaunchSpec
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.operands import MissingFeatureError
from nkc.verify.gfx950.sampling import choose_workgroups
from nkc.verify.gfx950.static_checks import Defect, Expectation, check_object

__all__ = [
    "emulate",
    "emulate_both_policies",
    "EmulationReport",
    "MfmaModel",
    "DmaPolicy",
    "Hazard",
    "HazardKind",
    "missing_features",
    "MissingFeatureError",
    "LaunchSpec",
    "LaunchArgument",
    "LaunchError",
    "Access",
    "choose_workgroups",
    "read_code_object",
    "CodeObject",
    "ObjectError",
    "DecodeError",
    "check_object",
    "Expectation",
    "Defect",
]
