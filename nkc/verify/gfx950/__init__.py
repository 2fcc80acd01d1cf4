"""The gfx950 emulator: runs the machine code of a code object on a CPU and reports values and faults.

In: bytes of a code object, a launch with its arguments, buffers. Out: an `EmulationReport`. Values hold under the
named MFMA model; hazards (missing waits and barriers, undefined data, accesses out of bounds, overlapping writers)
do not depend on it. Also here: decoder and listing, static checks, the wait-state linter, the loop model, mutants.
Left out: oracles and error bounds (their own rooms), and any claim about what a card would print.
"""

from nkc.verify.gfx950.code_object import ObjectError, read_code_object
from nkc.verify.gfx950.decode import DecodeError
from nkc.verify.gfx950.emulate import DmaPolicy, EmulationReport, emulate, emulate_both_policies, missing_features
from nkc.verify.gfx950.hazards import Hazard, HazardKind
from nkc.verify.gfx950.launch import Access, LaunchArgument, LaunchError, LaunchSpec
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.operands import MissingFeatureError

__all__ = [
    "Access",
    "DecodeError",
    "DmaPolicy",
    "EmulationReport",
    "Hazard",
    "HazardKind",
    "LaunchArgument",
    "LaunchError",
    "LaunchSpec",
    "MfmaModel",
    "MissingFeatureError",
    "ObjectError",
    "emulate",
    "emulate_both_policies",
    "missing_features",
    "read_code_object",
]
