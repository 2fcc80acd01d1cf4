"""gfx950: AMD Instinct MI350X and MI355X (CDNA4)."""

from nkc.ir.target import Basis, Fact, Target, Vendor

_ISA = "AMD CDNA4 instruction set architecture"
_LLVM = "LLVM AMDGPU backend, gfx950"

TARGET = Target(
    arch="gfx950",
    isa="gfx950",
    vendor=Vendor.AMD,
    title="AMD Instinct MI350X, MI355X (CDNA4)",
    facts={
        "wave": Fact(value=64, unit="lanes", source=_ISA, basis=Basis.DOCUMENTED),
        "lds_bytes": Fact(value=163_840, unit="bytes a workgroup", source=_ISA, basis=Basis.DOCUMENTED),
        "max_threads": Fact(value=1024, unit="threads a workgroup", source=_LLVM, basis=Basis.DOCUMENTED),
        "compute_units": Fact(value=256, unit="compute units", source="Hot Chips 2025", basis=Basis.DOCUMENTED),
        "chiplets": Fact(value=8, unit="XCDs, workgroups round-robin", source="Hot Chips 2025", basis=Basis.DOCUMENTED),
        "simds": Fact(value=4, unit="SIMDs a compute unit", source=_ISA, basis=Basis.DOCUMENTED),
        "registers": Fact(value=512, unit="VGPRs and AGPRs a lane", source=_ISA, basis=Basis.DOCUMENTED),
        "elf_flags": Fact(
            value=0x54F, unit="e_flags: gfx950, xnack and sramecc any", source=_LLVM, basis=Basis.DOCUMENTED
        ),
        "ocp_fp8": Fact(value=True, unit="capability: e4m3fn, e5m2", source=_ISA, basis=Basis.DOCUMENTED),
        "mfma_f8f6f4": Fact(value=True, unit="capability: 16x16x128, 32x32x64", source=_ISA, basis=Basis.DOCUMENTED),
        "mfma_bf16": Fact(value=True, unit="capability: 16x16x32, 32x32x16", source=_ISA, basis=Basis.DOCUMENTED),
        "matrix_fp8_kept_bits": Fact(
            value=23, unit="fraction bits at every addition", source="not public", basis=Basis.ASSUMED
        ),
        "matrix_fp8_truncates": Fact(
            value=True, unit="rounding at an addition", source="not public", basis=Basis.ASSUMED
        ),
        "matrix_bf16_kept_bits": Fact(
            value=23, unit="fraction bits at every addition", source="not public", basis=Basis.ASSUMED
        ),
        "matrix_bf16_truncates": Fact(
            value=True, unit="rounding at an addition", source="not public", basis=Basis.ASSUMED
        ),
    },
)
