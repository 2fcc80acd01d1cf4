"""What the bench knows of an operation whose result is quantised, told by what tells it from the others."""

from collections.abc import Callable
from functools import partial

from nkc.bench.baseline import Baseline
from nkc.bench.cell import Cell
from nkc.bench.quantised.gate import ORACLE, Oracle, Reference, Value
from nkc.bench.quantised.operands import RECIPE, make
from nkc.bench.quantised.peers import peers
from nkc.bench.quantised.words import words
from nkc.bench.subjects import Benched
from nkc.ir.contract import Contract


def benched(oracle: Oracle, value: Value, *, compiled_same_rule: Callable[[Contract], bool]) -> Benched:
    """Return an operation held against copy bandwidth, with torch and a copy of as many bytes beside it.

    oracle: what rows of the operands must be. value: what is quantised, in torch. compiled_same_rule: whether what
    torch.compile makes of a contract follows its rule to every bit that the rule promises.
    """

    def baselines(cell: Cell) -> tuple[Baseline, ...]:
        return peers(cell, value, compiled_same_rule=compiled_same_rule(cell.contract))

    return Benched(
        oracle=ORACLE,
        recipe=RECIPE,
        bandwidth="copy",
        flops=lambda _: 0,
        products=None,
        make=make,
        baselines=baselines,
        reference=partial(Reference, oracle=oracle, value=value),
        words=words,
    )
