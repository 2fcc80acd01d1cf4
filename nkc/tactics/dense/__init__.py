"""Tactics for dense: a table of tiles per target and kernel; Triton on both chips, CUDA C++ beside it on sm_90."""
