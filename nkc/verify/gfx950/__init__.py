"""The gfx950 emulator: runs the machine code of a code object on a CPU and reports values and faults.

In: bytes of a code object, a launch with its arguments, buffers. Out: an `EmulationReport`. Values hold under the
named MFMA model; hazards (missing waits and barriers, undefined data, accesses out of bounds, overlapping writers)
do not depend on it. Also here: decoder and listing, static checks, the wait-state linter, the loop model, mutants.
Decoder, listing, static checks and linter need no numpy: every compile runs them. What runs code does, so nothing is
imported here. Left out: oracles and error bounds (their own rooms), and any claim about what a card would print.
"""
