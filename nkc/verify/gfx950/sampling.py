"""Which workgroups of a large grid to run: corners, edges and a seeded random rest. The same seed, the same choice."""

import hashlib
from itertools import product


def choose_workgroups(grid: tuple[int, int, int], count: int, *, seed: int = 0) -> tuple[int, ...]:
    """Return about `count` flat workgroup ids (x fastest), ascending; all of them when the grid is not larger.

    Corners come first (they hold the tails of every axis), then the middle of each edge, then a pseudo-random order
    that depends on nothing but grid and seed.
    """
    x, y, z = grid
    total = x * y * z
    if total <= count:
        return tuple(range(total))

    def flat(i: int, j: int, k: int) -> int:
        return i + x * (j + y * k)

    ends = [sorted({0, extent - 1}) for extent in grid]
    chosen = dict.fromkeys(flat(i, j, k) for i, j, k in product(*ends))
    middles = [sorted({0, extent // 2, extent - 1}) for extent in grid]
    for i, j, k in product(*middles):
        if len(chosen) >= count:
            break
        chosen.setdefault(flat(i, j, k))
    draw = 0
    while len(chosen) < count:
        digest = hashlib.sha256(f"{grid} {seed} {draw}".encode()).digest()
        chosen.setdefault(int.from_bytes(digest[:8], "little") % total)
        draw += 1
    return tuple(sorted(chosen))
