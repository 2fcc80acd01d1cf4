"""Route parity on the device: `python benchmarks/parity.py BUNDLE [--record FILE]`.

Every kernel of a bundle is reached through its public function and compared with the function's plain PyTorch body on
the same arguments. A record names both routes and is refused where they are one. Bounds: results of sums err by at most
2.5e-3 in RMS after the bf16 store; codes may differ in 0.1 % of the places; scales by four units in the last place.
"""

import argparse
from pathlib import Path

from running import exit_with, require_gpu, required
from tensors import machine, operands, record

from nkc import runtime
from nkc.runtime import Kernel, semantics
from nkc.runtime.functions import dense_fp8, group_quant, rms_norm_quant, silu_mul_quant
from nkc.runtime.parity import Parity, parity

torch = required("torch")

SUM_BOUND = 2.5e-3  # RMS error over RMS of a bf16 result: the store alone gives 1.7e-3
CODE_SHARE = 1e-3
SCALE_ULP = 4


def measure(mine: torch.Tensor, its: torch.Tensor) -> float:
    """Return a distance as a fraction of what it may be; at most 1 passes."""
    if mine.dtype is torch.float8_e4m3fn:
        return float((mine.view(torch.uint8) != its.view(torch.uint8)).double().mean()) / CODE_SHARE
    if mine.dtype is torch.float32:
        apart = (mine.contiguous().view(torch.int32).long() - its.contiguous().view(torch.int32).long()).abs().max()
        return float(apart) / SCALE_ULP
    mine, its = mine.double(), its.double()
    return float((mine - its).square().mean().sqrt() / its.square().mean().sqrt().clamp_min(1e-30)) / SUM_BOUND


def compare(library: runtime.Library, kernel: Kernel) -> tuple[Parity, ...] | None:
    """Return the parity of one kernel, None where no public function reaches it."""
    given = operands(kernel)
    entry = next(entry for entry, launch in library.bundle.entries() if launch.id == kernel.id)
    meaning = semantics.read(entry.contract or "", library.bundle.files[entry.contract or ""])
    rules = {name.partition(".")[2]: value for name, value in meaning.items()}
    quantising = {name: rules[name] for name in ("quantize", "overflow", "amax_floor") if name in rules}
    if "out_scales" in given:
        scales = given["out_scales"]
        if scales.stride(0) == 1 and scales.stride(1) != 1:
            quantising |= {"scale_layout": "m_major", "leading_dim": scales.stride(1)}
    match kernel.record.operation:
        case "dense" if given["a"].dtype is torch.float8_e4m3fn:
            options = {"bias": given.get("bias"), "epilogue": rules["kind"], "gate": rules.get("gate")}
            inputs = [given[name] for name in ("a", "b", "a_scales", "b_scales")]
            out_dtype = given["out"].dtype
            return parity(dense_fp8, *inputs, **options, out_dtype=out_dtype, measure=measure, bound=1.0)
        case "group_quant":
            return parity(group_quant, given["x"], **quantising, measure=measure, bound=1.0)
        case "silu_mul_quant":
            options = {"gate": rules["gate"], "staging": rules["staging"], "store_product": "product" in given}
            return parity(silu_mul_quant, given["x"], **options, **quantising, measure=measure, bound=1.0)
        case "rms_norm_quant" if "out_scales" in given:
            options = {
                "eps": rules["epsilon"],
                "residual": given.get("residual"),
                "one_plus_weight": rules["weight"] == "one_plus",
                "staging": rules["staging"],
            }
            inputs = [given["x"], given["weight"]]
            return parity(rms_norm_quant, *inputs, **options, **quantising, measure=measure, bound=1.0)
    return None


def main() -> int:
    """Compare every kernel; 1 where one is out of bound, or where none was compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    require_gpu()
    library = runtime.load(said.bundle)
    runtime.use(library)
    rows = []
    with torch.inference_mode():
        for kernel in library:
            for found in compare(library, kernel) or ():
                words = "within" if found.within else "OUT OF BOUND"
                shares = ", ".join(f"{each:.3f}" for each in found.differences)
                print(f"{kernel.record.symbol}: {found.left} against {found.right}, {words} ({shares} of the bound)")
                rows.append(
                    {
                        "id": kernel.id,
                        "symbol": kernel.record.symbol,
                        "tactic": kernel.record.tactic,
                        "left": found.left,
                        "right": found.right,
                        "share_of_bound": found.differences,
                        "within": found.within,
                    }
                )
    record(said.record, {"benchmark": "parity", "records": rows, **machine()})
    return int(not rows or any(not row["within"] for row in rows))


if __name__ == "__main__":
    exit_with(main)
