"""The numerical budget of an operation, by leaf stage: what is read, in which type it is computed, what may be lost."""

import msgspec

U = 2.0**-24
"""fp32's unit roundoff."""
U_BF16 = 2.0**-8
"""bf16's: half an ulp at 1.0."""


def gamma(n: float, u: float = U) -> float:
    """Return n u / (1 - n u), what n roundings in a row may lose, relative."""
    return n * u / (1 - n * u)


def together(*errors: float) -> float:
    """Return the relative error of stages that follow each other, each losing its part of what it is given."""
    whole = 1.0
    for error in errors:
        whole *= 1 + error
    return whole - 1


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
    bound: the formula's worst case for this contract as a number (`8.64e-06 S`); `-` where it has none of its own.
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
    bound: str = "-"
