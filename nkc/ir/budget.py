"""The numerical budget of an operation, by leaf stage: what is read, in which type it is computed, what may be lost."""

import msgspec


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One leaf stage in words and formulas; `nkc.verify.bounds` turns the formulas into numbers for given data.

    u is 2^-24 (fp32), u_b is 2^-8 (bf16, half an ulp at 1.0), gamma_n is n u / (1 - n u).

    name: operation and stage, `gemm.dot`.
    source: what the stage reads, and what it may assume of it.
    load: the type in which it is read.
    operand: the type in which it enters the arithmetic.
    accumulate: how it is added up.
    store: the type in which it is left, and how it is rounded.
    range: the largest and smallest values for which the error holds.
    error: the bound, as a formula.
    acceptance: when a result passes.
    """

    name: str
    source: str
    load: str
    operand: str
    accumulate: str
    store: str
    range: str
    error: str
    acceptance: str
