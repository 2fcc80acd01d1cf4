"""The serving side: a bundle becomes launchable kernels, without a compiler.

Holds: reading and packing bundles, loading through CUDA or HIP, launches with their guards, dispatch with fallback,
PyTorch operators. Leaves out: tactics, toolchains, evidence. Guards are data in launch.json, lowered when the kernel
was compiled. Works where Triton is not installed, and imports torch only where the caller already did.
"""

from nkc.runtime.bundle import Bundle, read
from nkc.runtime.errors import BundleError, ContractViolation, DriverError, Violation
from nkc.runtime.launch import Kernel
from nkc.runtime.load import Library, load

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
