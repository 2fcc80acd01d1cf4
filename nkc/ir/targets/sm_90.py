"""sm_90: NVIDIA H100, H200 (Hopper); code objects are for sm_90a, which has wgmma and setmaxnreg."""

from nkc.ir.target import Basis, Fact, Target, Vendor

_CUDA = "CUDA C++ programming guide, compute capability 9.0"
_H200 = "one NVIDIA H200, driver 580.159.04: a model with this value gave every bit of 532,480 sums"

TARGET = Target(
    arch="sm_90",
    isa="sm_90a",
    vendor=Vendor.NVIDIA,
    title="NVIDIA H100, H200 (Hopper)",
    facts={
        "wave": Fact(value=32, unit="lanes", source=_CUDA, basis=Basis.DOCUMENTED),
        "lds_bytes": Fact(
            value=232_448, unit="bytes of shared memory a block, opt-in", source=_CUDA, basis=Basis.DOCUMENTED
        ),
        "max_threads": Fact(value=1024, unit="threads a block", source=_CUDA, basis=Basis.DOCUMENTED),
        "compute_units": Fact(value=132, unit="multiprocessors (SXM)", source="one NVIDIA H200", basis=Basis.MEASURED),
        "registers": Fact(value=65_536, unit="32-bit registers a multiprocessor", source=_CUDA, basis=Basis.DOCUMENTED),
        "ocp_fp8": Fact(value=True, unit="capability: e4m3, e5m2", source=_CUDA, basis=Basis.DOCUMENTED),
        "wgmma": Fact(value=True, unit="capability: fp8, f16, bf16", source=_CUDA, basis=Basis.DOCUMENTED),
        "matrix_fp8_group": Fact(
            value=32, unit="products that one step adds, with the accumulator", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_fp8_kept_bits": Fact(
            value=13, unit="bits of an addend below the step's largest", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_fp8_register_bits": Fact(
            value=13, unit="fraction bits of the accumulator", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_fp8_truncates": Fact(value=True, unit="toward zero at an addition", source=_H200, basis=Basis.MEASURED),
        "matrix_f16_group": Fact(
            value=16, unit="products that one step adds, with the accumulator", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_f16_kept_bits": Fact(
            value=25, unit="bits of an addend below the step's largest", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_f16_register_bits": Fact(
            value=23, unit="fraction bits of the accumulator", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_f16_truncates": Fact(value=True, unit="toward zero at an addition", source=_H200, basis=Basis.MEASURED),
        "matrix_bf16_group": Fact(
            value=16, unit="products that one step adds, with the accumulator", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_bf16_kept_bits": Fact(
            value=25, unit="bits of an addend below the step's largest", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_bf16_register_bits": Fact(
            value=23, unit="fraction bits of the accumulator", source=_H200, basis=Basis.MEASURED
        ),
        "matrix_bf16_truncates": Fact(
            value=True, unit="toward zero at an addition", source=_H200, basis=Basis.MEASURED
        ),
    },
)
