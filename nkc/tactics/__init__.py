"""Tactics: the ways to implement an operation, the predicates that admit them, and the one order that selects.

Holds: predicates as values, tactics (a folder per operation, loaded on demand), maturity and its evidence, tuning
tables, selection with every candidate and every reason. Leaves out: kernel text (templates), compiling, printing.
A tactic states what it guarantees; it is selected only where the contract licenses exactly that.
"""

from nkc.tactics.catalogue import tactics_of
from nkc.tactics.select import Candidate, Policy, Selection, select
from nkc.tactics.tactic import Guarantees, Lowered, Tactic

__all__ = ["Candidate", "Guarantees", "Lowered", "Policy", "Selection", "Tactic", "select", "tactics_of"]
