"""Tactics for silu_mul_quant: Triton kernels that take the product as one run of groups, as one table per target."""
