"""Oracles: what each operation computes, one file per operation, as plain numpy functions of arrays.

Holds the float64 value of every operation and, where a numerical rule fixes every bit, those bits. Independent of
kernels, templates, tactics and contracts: no formula is shared with what it judges. Leaves out tolerances
(`nkc.verify.bounds`) and inputs (`nkc.verify.regimes`).
"""
