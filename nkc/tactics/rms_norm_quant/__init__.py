"""Tactics for rms_norm_quant: whole rows in registers; Triton on both chips, CUDA C++ beside it on sm_90."""
