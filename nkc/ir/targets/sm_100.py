"""sm_100: NVIDIA B200, GB200 (Blackwell). Facts only: no tactic yet."""

from nkc.ir.target import Basis, Fact, Target, Vendor

_CUDA = "CUDA C++ programming guide, compute capability 10.0"

TARGET = Target(
    arch="sm_100",
    isa="sm_100a",
    vendor=Vendor.NVIDIA,
    title="NVIDIA B200, GB200 (Blackwell)",
    facts={
        "wave": Fact(value=32, unit="lanes", source=_CUDA, basis=Basis.DOCUMENTED),
        "lds_bytes": Fact(
            value=232_448, unit="bytes of shared memory a block, opt-in", source=_CUDA, basis=Basis.DOCUMENTED
        ),
        "max_threads": Fact(value=1024, unit="threads a block", source=_CUDA, basis=Basis.DOCUMENTED),
        "compute_units": Fact(
            value=148, unit="multiprocessors (B200)", source="NVIDIA data sheet", basis=Basis.DOCUMENTED
        ),
        "ocp_fp8": Fact(value=True, unit="capability: e4m3, e5m2", source=_CUDA, basis=Basis.DOCUMENTED),
    },
)
