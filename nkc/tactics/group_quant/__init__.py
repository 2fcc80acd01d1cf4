"""Tactics for group_quant: Triton kernels that take the rows as one run of groups, as one table per target."""
