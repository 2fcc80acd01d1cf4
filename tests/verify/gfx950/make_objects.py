"""Build `objects/` with Triton (no GPU): one .hsaco and one .json of facts per entry of `OBJECTS`. Run to rewrite."""

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("objects")

FP8 = {"A": "*fp8e4nv", "B": "*fp8e4nv", "C": "*bf16", "SA": "*fp32", "SB": "*fp32", "M": "i32"}
MX = {"A": "*u8", "B": "*u8", "C": "*fp32", "SA": "*u8", "SB": "*u8", "M": "i32"}
QUANT = {"X": "*bf16", "Q": "*fp8e4nv", "S": "*fp32", "M": "i32"}
SPLIT = {"A": "*fp8e4nv", "B": "*fp8e4nv", "C": "*bf16", "WS": "*fp32", "CNT": "*i32", "M": "i32"}


def _gemm(bm: int, bn: int, stages: int, n: int = 256) -> dict[str, int]:
    return {"N": n, "K": 512, "BM": bm, "BN": bn, "S": stages}


# name -> (kernel, signature, constants, waves, options)
OBJECTS: dict[str, tuple[str, dict[str, str], dict[str, int], int, dict[str, Any]]] = {
    "fp8_16x64": ("gemm_fp8", FP8, _gemm(16, 64, 3), 2, {"matrix_instr_nonkdim": 16}),
    "fp8_64x64": ("gemm_fp8", FP8, _gemm(64, 64, 2), 4, {"matrix_instr_nonkdim": 16}),
    "fp8_64x64_m32": ("gemm_fp8", FP8 | {"C": "*fp32"}, _gemm(64, 64, 2), 4, {"matrix_instr_nonkdim": 32}),
    "fp8_64x64_flat": ("gemm_fp8", FP8, _gemm(64, 64, 2), 4, {"matrix_instr_nonkdim": 16, "flat": True}),
    "fp8_128x128": ("gemm_fp8", FP8, _gemm(128, 128, 2), 4, {"matrix_instr_nonkdim": 16, "waves_per_eu": 1}),
    "fp8_256x128": ("gemm_fp8", FP8, _gemm(256, 128, 3), 8, {"matrix_instr_nonkdim": 16}),
    "fp8_32x32": ("gemm_fp8", FP8, _gemm(32, 32, 2), 4, {"matrix_instr_nonkdim": 32}),
    "mx_16": ("gemm_mx", MX, _gemm(64, 64, 2), 4, {"matrix_instr_nonkdim": 16}),
    "mx_32": ("gemm_mx", MX, _gemm(64, 64, 2), 4, {"matrix_instr_nonkdim": 32}),
    "fp8_kn": (
        "gemm",
        {"A": "*fp8e4nv", "B": "*fp8e4nv", "C": "*fp32", "M": "i32"},
        _gemm(64, 64, 2) | {"BK": 128},
        4,
        {"matrix_instr_nonkdim": 16},
    ),
    "bf16_kn": (
        "gemm",
        {"A": "*bf16", "B": "*bf16", "C": "*fp32", "M": "i32"},
        _gemm(64, 64, 2) | {"BK": 64, "K": 256},
        4,
        {"matrix_instr_nonkdim": 32},
    ),
    "f16_kn": (
        "gemm",
        {"A": "*fp16", "B": "*fp16", "C": "*fp32", "M": "i32"},
        _gemm(64, 64, 2) | {"BK": 64, "K": 256},
        4,
        {"matrix_instr_nonkdim": 16},
    ),
    "quant": ("quant", QUANT, {"D": 512, "ROWS": 16}, 4, {}),
    "quant_flat": ("quant", QUANT, {"D": 512, "ROWS": 16}, 4, {"flat": True}),
    "softmax": ("softmax", {"X": "*bf16", "Y": "*bf16", "M": "i32"}, {"D": 1000, "DP": 1024}, 4, {}),
    "split_k_one": (
        "split_k",
        SPLIT,
        {"N": 256, "K": 512, "BM": 16, "BN": 64, "SK": 4, "ARRIVE": 0, "LANES": 128},
        2,
        {"matrix_instr_nonkdim": 16},
    ),
    "split_k_all": (
        "split_k",
        SPLIT,
        {"N": 256, "K": 512, "BM": 16, "BN": 64, "SK": 4, "ARRIVE": 1, "LANES": 128},
        2,
        {"matrix_instr_nonkdim": 16},
    ),
}


def build(name: str) -> tuple[bytes, str, dict[str, Any]]:
    """Return (code object, assembly, facts) of one entry."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tests.verify.gfx950 import triton_kernels

    kernel_name, signature, constants, waves, options = OBJECTS[name]
    kernel = getattr(triton_kernels, kernel_name)
    options = dict(options)
    flat = options.pop("flat", False)
    promises = [["tt.divisibility", 16]] + ([] if flat else [["tt.pointer_range", 32]])
    types = {item: signature.get(item, "constexpr") for item in kernel.arg_names}
    pointers = [item for item, kind in signature.items() if kind.startswith("*")]
    attributes = {(kernel.arg_names.index(item),): promises for item in pointers}
    source = ASTSource(kernel, types, constexprs=constants, attrs=attributes)
    made = triton.compile(
        source,
        target=GPUTarget("hip", "gfx950", 64),
        options={"num_warps": waves, "num_stages": 2, "enable_fp_fusion": False, **options},
    )
    facts = {
        "symbol": made.metadata.name,
        "dynamic_lds_bytes": made.metadata.shared,
        "waves": waves,
        "signature": {item: signature[item] for item in kernel.arg_names if item in signature},
        "constants": constants,
    }
    return made.asm["hsaco"], made.asm["amdgcn"], facts


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for entry in OBJECTS:
        code, _, described = build(entry)
        (FOLDER / f"{entry}.hsaco").write_bytes(code)
        (FOLDER / f"{entry}.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
        print(entry, len(code))
