"""Proof that a kernel computes what its contract says.

Holds number formats, oracles (one per operation, independent of templates), error bounds derived from the data in
use, input regimes, and the engines that run a kernel. Leaves out how kernels are written, chosen and built. Nothing
here is imported by the rooms below it, and an oracle never imports a tactic or a template.
"""
