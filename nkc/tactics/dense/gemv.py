"""What kernels for one row of activations share: the warps of a CTA part k, each in rounds of chunks under way."""

from collections.abc import Mapping

from nkc.ir.contract import Contract
from nkc.tactics import cuda
from nkc.tactics.dense.kernel import symbol
from nkc.tactics.dense.plan import tile_of
from nkc.tactics.tactic import Tactic


def constants(contract: Contract, tactic: Tactic, chunk: int) -> Mapping[str, object]:
    """Return the constants of every such template: rounds of `depth` chunks a warp, then what is left of k.

    chunk: elements of k that a warp takes at once.
    """
    _, rows, _ = tile_of(tactic)
    warps, depth = tactic.schedule.waves, tactic.schedule.stages
    assert warps is not None
    assert depth is not None
    n, k = contract.exact("n"), contract.exact("k")
    step = chunk * warps
    rounds, left = divmod(k, step * depth)
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "dependent": tactic.dependent,
        "first_round": int(tactic.dependent),
        "rows": rows,
        "warps": warps,
        "threads": 32 * warps,
        "ctas_per_unit": tactic.kernel.options["ctas_per_unit"],
        "chunk": chunk,
        "n": n,
        "k": k,
        "n_tail": n % rows != 0,
        "rounds": rounds,
        "round_chunks": warps * depth,
        "round_steps": [at * warps for at in range(depth)],
        "rest_first": rounds * warps * depth,
        "rest_steps": [at * warps for at in range(-(-left // step))],
        "rest_guarded": left % step != 0,
        **cuda.finish(contract, column="n_out"),
    }
