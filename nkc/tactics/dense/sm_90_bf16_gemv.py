"""dense on sm_90 in bf16 for one row of activations: fp32 fused multiply-adds, no matrix unit.

One row needs the bandwidth of the weights and nothing else. A bf16 value is the upper half of an fp32 one, so that
decoding is a shift, and every product of two is exact in fp32.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nkc.ir.contract import Accumulate, Combine, Contract, DType
from nkc.tactics import cuda
from nkc.tactics.dense import gemv, wave
from nkc.tactics.dense.plan import lower, schedule
from nkc.tactics.dense.proofs import bf16_gemv_proofs
from nkc.tactics.dense.sm_90_bf16 import requirements
from nkc.tactics.predicate import Predicate, at_most
from nkc.tactics.tactic import DEPENDENT, CodePattern, Guarantees, Kernel, Tactic

LANE_K = 8
"""Elements of k that a lane takes at once: 16 bytes."""

CHUNK = 32 * LANE_K


class Row(NamedTuple):
    """One shape of CTA. depth: chunks whose loads a warp has under way. ctas: of a multiprocessor, for registers."""

    rows: int
    warps: int
    depth: int
    ctas: int

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"r{self.rows}_w{self.warps}{f'_d{self.depth}' if self.depth > 1 else ''}"


ROWS = (
    Row(1, 8, 2, 8),
    Row(2, 4, 2, 8),
    Row(2, 8, 2, 4),
    Row(2, 10, 2, 3),
    Row(4, 3, 1, 8),
    Row(4, 8, 1, 3),
)


def constants(contract: Contract, tactic: Tactic) -> Mapping[str, object]:
    """Return the template's constants."""
    return gemv.constants(contract, tactic, CHUNK)


def _requires(row: Row, *, dependent: bool) -> tuple[Predicate, ...]:
    return (
        at_most("$.shape.m", 1, why="it multiplies one row of activations"),
        *requirements(
            step=LANE_K,
            why="a lane loads 16 bytes of a row",
            combine=Combine.FIXED_ORDER,
            lds_bytes=row.rows * row.warps * DType.FP32.size_bytes,
            dependent=dependent,
            addressed=("a", "out"),
            aligned=("a", "b"),
        ),
    )


def _tactic(row: Row, *, dependent: bool) -> Tactic:
    geometry = f"{row.name}{DEPENDENT if dependent else ''}"
    return Tactic(
        name=f"sm_90.dense.bf16_gemv_{geometry}",
        operation="dense",
        target="sm_90",
        rank=2,
        requires=_requires(row, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.MATRIX_UNIT_FP32,
            combine=Combine.FIXED_ORDER,
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule((1, row.rows, LANE_K), waves=row.warps, stages=row.depth),
        lower=lower,
        kernel=Kernel(
            template="cuda/dense_bf16_gemv.cu.j2",
            constants=constants,
            options={**cuda.OPTIONS, "ctas_per_unit": row.ctas, "dynamic_lds_bytes": 0},
            pattern=CodePattern(matrix=(), at_least=0, fp32_fma=LANE_K * row.rows),
        ),
        geometry=geometry,
        estimate=wave.estimate,
        proofs=bf16_gemv_proofs,
        note=f"{row.rows} weight rows a CTA, {row.warps} warps share k, fp32 FMA",
    )


TACTICS = tuple(_tactic(row, dependent=False) for row in ROWS)
