"""Tactics for dense: Triton kernels that differ in tile, pipeline depth and waves, as one table per target."""
