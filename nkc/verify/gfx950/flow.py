"""Where control can go in a kernel: the instructions that are reached from its entry, and what follows what."""

from collections.abc import Callable, Mapping

from nkc.verify.gfx950.code_object import CodeObject
from nkc.verify.gfx950.decode import decode
from nkc.verify.gfx950.instruction import Instruction

ENDS = frozenset({"s_endpgm"})
JUMP = "s_branch"
PRELOAD_PROLOGUE = 256
"""Bytes before the entry of firmware that preloads kernel arguments: it loads them itself where that did not happen."""


def is_branch(inst: Instruction) -> bool:
    """Return whether control may go to `inst.target`."""
    return inst.mnemonic == JUMP or inst.mnemonic.startswith("s_cbranch")


def reachable(code: CodeObject, at: Callable[[int], Instruction] | None = None) -> dict[int, Instruction]:
    """Return every instruction reachable from the entry, or the entry of a preloading launch, by pc.

    at: gives the instruction of a pc, where something keeps them; decodes by default. Errors: `DecodeError`.
    """
    fetch = at or (lambda pc: decode(code.text, pc))
    seen: dict[int, Instruction] = {}
    todo = [code.entry]
    if code.descriptor.preload_length:
        todo.append(code.entry + PRELOAD_PROLOGUE)
    while todo:
        pc = todo.pop()
        while pc not in seen and pc < len(code.text):
            inst = seen[pc] = fetch(pc)
            if is_branch(inst):
                todo.append(inst.target)
            if inst.mnemonic in ENDS or inst.mnemonic == JUMP:
                break
            pc = inst.next_pc
    return seen


def predecessors(insts: Mapping[int, Instruction]) -> dict[int, list[int]]:
    """Return, by pc, the pcs from which control can come."""
    out: dict[int, list[int]] = {pc: [] for pc in insts}
    for pc, inst in insts.items():
        if is_branch(inst) and inst.target in out:
            out[inst.target].append(pc)
        if inst.mnemonic != JUMP and inst.mnemonic not in ENDS and inst.next_pc in out:
            out[inst.next_pc].append(pc)
    return out
