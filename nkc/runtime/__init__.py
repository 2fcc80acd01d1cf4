"""The serving side: a bundle becomes launchable kernels, without a compiler.

Holds: reading and packing bundles, loading through CUDA or HIP, launches with their guards, dispatch with fallback,
PyTorch operators. Leaves out: tactics, toolchains, evidence. Guards are data in launch.json, lowered when the kernel
was compiled. Works where Triton is not installed, and imports torch only where the caller already did.
"""

from nkc.runtime.bundle import Bundle, read
from nkc.runtime.errors import BundleError, ContractViolation, DriverError, Violation
from nkc.runtime.launch import Kernel
from nkc.runtime.load import Library, load

_FUNCTIONS = frozenset({"dense_fp8", "dense_fp8_quant", "group_quant", "rms_norm_quant", "silu_mul_quant"})
_DISPATCH = {"dispatch": "dispatch", "explain_call": "dispatch", "use": "bundle_route"}


def __getattr__(name: str) -> object:
    """Load the public functions, which need torch, and the dispatch when they are first used."""
    import importlib

    if name in _FUNCTIONS:
        return getattr(importlib.import_module("nkc.runtime.functions"), name)
    if name in _DISPATCH:
        return getattr(importlib.import_module(f"nkc.runtime.{_DISPATCH[name]}"), name)
    raise AttributeError(f"module `nkc.runtime` has no attribute `{name}`")


__all__ = [
    "Bundle",
    "BundleError",
    "ContractViolation",
    "DriverError",
    "Kernel",
    "Library",
    "Violation",
    "load",
    "read",
]
