"""Tactics for rms_norm_quant: Triton kernels that hold whole rows in registers, as one table per target."""
