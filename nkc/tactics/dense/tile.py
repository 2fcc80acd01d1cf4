"""A tile of a dense kernel, and the tactic that it makes: what differs between rows is data, the rest is said once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from nkc.ir.contract import Accumulate, Combine, Contract, Triple
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.dense import wave
from nkc.tactics.dense.codes import CODES, DECIDING_FILES, stored
from nkc.tactics.dense.codes_proofs import codes_proofs
from nkc.tactics.dense.kernel import bf16_constants, fp8_constants
from nkc.tactics.dense.plan import lower, schedule
from nkc.tactics.dense.proofs import bf16_proofs, fp8_proofs
from nkc.tactics.dense.requirements import bf16, fp8_block_scaled
from nkc.tactics.predicate import Predicate
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One row of a tile table. kind: what is multiplied and how, the first part of the name's detail.

    size: elements (m, n, k) of one step. max_m: the most rows it serves, min_k: the least k; None is any. lds_bytes:
    the least LDS that the kernel can need. offsets: what its 32-bit offsets count. codes: it quantises.
    """

    target: str
    kind: str
    detail: str
    rank: int
    size: Triple
    waves: int
    stages: int
    accumulate: Accumulate
    lds_bytes: int
    offsets: OffsetUnit
    options: Mapping[str, int | bool | str]
    matrix: str
    max_m: int | None = None
    min_k: int | None = None
    split_k: int = 1
    pointer_range_bits: int | None = None
    note: str = ""
    codes: bool = False

    @property
    def name(self) -> str:
        """The tactic's name, from target to operation to tile."""
        split = f"_k{self.split_k}" if self.split_k > 1 else ""
        return (
            f"{self.target}.dense.{self.kind}{CODES * self.codes}_{'x'.join(map(str, self.size))}_{self.detail}{split}"
        )

    @property
    def combine(self) -> Combine:
        """How block sums become the result: a split along k adds partial chains."""
        return Combine.ASCENDING if self.split_k == 1 else Combine.FIXED_ORDER


def fp8_tactic(tile: Tile, *, convert: str = "") -> Tactic:
    """Return the tactic of a block-scaled tile. convert: what turns a loaded block into what the matrix unit takes."""
    kernel = Kernel(
        template="triton/dense_fp8_block.py.j2",
        constants=partial(fp8_constants, convert=convert),
        options=tile.options,
        pattern=CodePattern(matrix=(tile.matrix,)),
        pointer_range_bits=tile.pointer_range_bits,
        decided_by=DECIDING_FILES if tile.codes else (),
    )
    requires = fp8_block_scaled(
        tile=tile.size,
        max_m=tile.max_m,
        lds_bytes=tile.lds_bytes,
        accumulate=tile.accumulate,
        offsets=tile.offsets,
        split_k=tile.split_k,
        min_k=tile.min_k,
        result=stored(tile.offsets, codes=tile.codes),
    )
    return _tactic(tile, requires, kernel, proofs=codes_proofs if tile.codes else fp8_proofs)


def bf16_tactic(tile: Tile) -> Tactic:
    """Return the tactic of an unscaled bf16 tile."""
    kernel = Kernel(
        template="triton/dense_bf16.py.j2",
        constants=bf16_constants,
        options=tile.options,
        pattern=CodePattern(matrix=(tile.matrix,)),
        pointer_range_bits=tile.pointer_range_bits,
        decided_by=DECIDING_FILES if tile.codes else (),
    )
    requires = bf16(
        tile=tile.size,
        max_m=tile.max_m,
        lds_bytes=tile.lds_bytes,
        offsets=tile.offsets,
        split_k=tile.split_k,
        result=stored(tile.offsets, codes=tile.codes, fp8_operands=False),
    )
    return _tactic(tile, requires, kernel, proofs=partial(codes_proofs, fp8=False) if tile.codes else bf16_proofs)


def _tactic(
    tile: Tile,
    requires: tuple[Predicate, ...],
    kernel: Kernel,
    *,
    proofs: Callable[[Tactic], tuple[Contract, ...]],
) -> Tactic:
    return Tactic(
        name=tile.name,
        operation="dense",
        target=tile.target,
        rank=tile.rank,
        requires=requires,
        guarantees=Guarantees(accumulate=tile.accumulate, combine=tile.combine, deterministic=True, graph_capture=True),
        schedule=schedule(tile.size, waves=tile.waves, stages=tile.stages, split_k=tile.split_k),
        lower=lower,
        kernel=kernel,
        estimate=wave.estimate,
        proofs=proofs,
        note=tile.note,
    )
