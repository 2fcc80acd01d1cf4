"""What kernels in CUDA C++ share: their parameters as declared, their epilogue, and how one result is stored."""

from collections.abc import Mapping

from nkc.ir import epilogues
from nkc.ir.contract import Access, Contract, DType
from nkc.tactics.tactic import Tactic

OPTIONS: Mapping[str, int | bool | str] = {"fmad": False, "std": "c++17"}
"""Products and sums fuse only where a kernel says so."""

_ELEMENT = {
    DType.BF16: "u16",
    DType.FP32: "float",
    DType.FP8_E4M3: "unsigned char",
    DType.INT32: "int",
}
_LOAD = {DType.BF16: "bf16_value({})", DType.FP32: "{}"}
_STORE = {DType.BF16: "bf16_bits({})", DType.FP32: "{}", DType.FP8_E4M3: ""}  # codes are stored with their groups


def parameters(contract: Contract, tactic: Tactic) -> str:
    """Return the kernel's parameters as C++ declares them, in the contract's order."""
    declared, maps = [], tactic.kernel.tensor_maps(contract, tactic)
    for argument in contract.arguments or ():
        if argument.name in maps:
            declared.append(f"const __grid_constant__ TensorMap {argument.name}")
        elif argument.type == "int32":
            declared.append(f"int {argument.name}")
        else:
            element = _ELEMENT[DType(argument.type.removeprefix("ptr<").removesuffix(">"))]
            const = "const " if argument.access is Access.READ else ""
            declared.append(f"{const}{element}* __restrict__ {argument.name}")
    return ", ".join(declared)


def finish(contract: Contract, *, column: str, result: str = "result") -> dict[str, str]:
    """Return what turns one fp32 sum `acc` of a column into what is stored: bias_row, result, and its bits."""
    text = epilogues.get(contract.epilogue.kind).cuda
    assert text is not None, "the predicates admit no other epilogue"
    bias = contract.epilogue.dtype
    return {
        "bias": "" if bias is None else _LOAD[bias].format(f"bias[{column}]"),
        "epilogue": text,
        "store": _STORE[contract.dtypes["out"]].format(result),
    }
