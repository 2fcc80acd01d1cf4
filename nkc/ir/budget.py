"""The numerical budget of an operation, by leaf stage: what is read, in which type it is computed, what may be lost."""

import msgspec


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One leaf stage in words and formulas; `nkc.verify.bounds` turns the formulas into numbers for given data.

    u is 2^-24 (fp32), u_b is 2^-8 (bf16, half an ulp at 1.0), gamma_n is n u / (1 - n u).
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
