"""sm_89: NVIDIA L40S, RTX 4090 (Ada). Facts only: no tactic yet."""

from nkc.ir.target import Basis, Fact, Target, Vendor

_CUDA = "CUDA C++ programming guide, compute capability 8.9"

TARGET = Target(
    arch="sm_89",
    isa="sm_89",
    vendor=Vendor.NVIDIA,
    title="NVIDIA L40S, RTX 4090 (Ada)",
    facts={
        "wave": Fact(value=32, unit="lanes", source=_CUDA, basis=Basis.DOCUMENTED),
        "lds_bytes": Fact(
            value=101_376, unit="bytes of shared memory a block, opt-in", source=_CUDA, basis=Basis.DOCUMENTED
        ),
        "max_threads": Fact(value=1024, unit="threads a block", source=_CUDA, basis=Basis.DOCUMENTED),
        "compute_units": Fact(
            value=142, unit="multiprocessors (L40S)", source="NVIDIA data sheet", basis=Basis.DOCUMENTED
        ),
        "ocp_fp8": Fact(value=True, unit="capability: e4m3, e5m2", source=_CUDA, basis=Basis.DOCUMENTED),
    },
)
