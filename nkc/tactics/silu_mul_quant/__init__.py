"""Tactics for silu_mul_quant: the product as one run of groups, in Triton on gfx950 and in CUDA C++ on sm_90."""
