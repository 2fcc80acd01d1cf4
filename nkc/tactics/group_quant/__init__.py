"""Tactics for group_quant: the rows as one run of groups; Triton on both chips, CUDA C++ beside it on sm_90."""
