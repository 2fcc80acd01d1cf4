"""sm_120: NVIDIA RTX PRO 6000, RTX 5090 (Blackwell). Facts only: no tactic yet."""

from nkc.ir.target import Basis, Fact, Target, Vendor

_CUDA = "CUDA C++ programming guide, compute capability 12.0"

TARGET = Target(
    arch="sm_120",
    isa="sm_120a",
    vendor=Vendor.NVIDIA,
    title="NVIDIA RTX PRO 6000, RTX 5090 (Blackwell)",
    facts={
        "wave": Fact(value=32, unit="lanes", source=_CUDA, basis=Basis.DOCUMENTED),
        "lds_bytes": Fact(
            value=101_376, unit="bytes of shared memory a block, opt-in", source=_CUDA, basis=Basis.DOCUMENTED
        ),
        "max_threads": Fact(value=1024, unit="threads a block", source=_CUDA, basis=Basis.DOCUMENTED),
        "compute_units": Fact(
            value=188, unit="multiprocessors (RTX PRO 6000)", source="NVIDIA data sheet", basis=Basis.DOCUMENTED
        ),
        "ocp_fp8": Fact(value=True, unit="capability: e4m3, e5m2", source=_CUDA, basis=Basis.DOCUMENTED),
    },
)
