"""Writes the contracts of whole models from `shapes.json`: python examples/sets/generate.py

One contract for each layer, number of rows and target. Up to 64 rows a contract licenses partial chains along k in a
fixed order; above that the chain is ascending. On sm_90 it licenses the FP8 tensor core, and activation scales lie as
Hopper's kernels are given them: M-major, rows padded to 16 bytes.
"""

import json
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = ("gfx950", "sm_90")
FEW_ROWS = 64
Json = dict[str, object]


def contracts() -> Iterator[tuple[str, str]]:
    """Yield (path below this folder, text) of every contract of every set."""
    facts = json.loads((HERE / "shapes.json").read_text())
    for model in facts["models"]:
        for layer in model["layers"]:
            for rows in facts["rows"]:
                for arch in TARGETS:
                    m = "-".join(map(str, rows)) if isinstance(rows, list) else str(rows)
                    yield (
                        f"{model['folder']}/{layer['name']}.m{m}.{arch}.json",
                        text(contract(model, layer, rows, arch)),
                    )


def contract(model: Json, layer: Json, rows: int | list[int], arch: str) -> Json:
    """Return one contract. rows: a number, or the two ends of a range."""
    quantised = layer["dtype"] == "fp8_e4m3"
    few = (rows[1] if isinstance(rows, list) else rows) <= FEW_ROWS
    scales = {"a": activation_scales(arch), "b": {"block": [128, 128], "layout": "row_major"}}
    return {
        "schema": "nkc.contract/1",
        "target": {"arch": arch},
        "operation": "dense",
        "shape": {
            "m": {"min": rows[0], "max": rows[1]} if isinstance(rows, list) else rows,
            "n": layer["n"],
            "k": layer["k"],
        },
        "dtypes": {"a": layer["dtype"], "b": layer["dtype"], "acc": "fp32", "out": layer["out"]},
        **({"scales": scales} if quantised else {}),
        "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
        "numerics": {
            "accumulate": "tensor_core_fp8" if quantised and arch == "sm_90" else "matrix_unit_fp32",
            "combine": "fixed_order" if few else "ascending",
        },
        "fallback": "framework",
        "provenance": {
            "model": model["model"],
            "layer": layer["module"],
            "role": layer["role"],
            "tensor_parallel": 1,
            "count": layer["count"],
        },
    }


def activation_scales(arch: str) -> Json:
    """Return 1x128 scales as they are laid out on a target."""
    if arch == "sm_90":
        return {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}}
    return {"block": [1, 128], "layout": "row_major"}


def text(document: Json) -> str:
    """Return a contract with one section a line."""
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write() -> None:
    """Make the folders hold these contracts and no others."""
    wanted = dict(contracts())
    for path in HERE.glob("*/*.json"):
        if path.relative_to(HERE).as_posix() not in wanted:
            path.unlink()
    for name, data in wanted.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(data)


if __name__ == "__main__":
    write()
