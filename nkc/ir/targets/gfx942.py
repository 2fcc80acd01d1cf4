"""gfx942: AMD Instinct MI300X, MI325X (CDNA3). Facts only: its fp8 is fnuz, so no OCP contract runs there."""

from nkc.ir.target import Basis, Fact, Target, Vendor

_ISA = "AMD CDNA3 instruction set architecture"

TARGET = Target(
    arch="gfx942",
    isa="gfx942",
    vendor=Vendor.AMD,
    title="AMD Instinct MI300X, MI325X (CDNA3)",
    facts={
        "wave": Fact(value=64, unit="lanes", source=_ISA, basis=Basis.DOCUMENTED),
        "lds_bytes": Fact(value=65_536, unit="bytes a workgroup", source=_ISA, basis=Basis.DOCUMENTED),
        "max_threads": Fact(value=1024, unit="threads a workgroup", source=_ISA, basis=Basis.DOCUMENTED),
        "compute_units": Fact(value=304, unit="compute units", source="AMD data sheet", basis=Basis.DOCUMENTED),
        "fnuz_fp8": Fact(
            value=True, unit="capability: e4m3fnuz (largest 240), e5m2fnuz", source=_ISA, basis=Basis.DOCUMENTED
        ),
        "mfma_bf16": Fact(value=True, unit="capability", source=_ISA, basis=Basis.DOCUMENTED),
    },
)
