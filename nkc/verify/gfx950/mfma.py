"""Matrix instructions: operand layouts, and three models of how the products are added.

How CDNA4 rounds inside an MFMA is not public. `once` adds all products of the instruction and C exactly and rounds
once; `sequential` rounds after every product, k ascending; `tree` rounds at every node of a binary tree over k and
once more when C is added. Claims that hold under all three do not depend on the unknown order.

Layouts (g = lane // M, r = lane % M): the fp8 forms of f8f6f4 hold k = 16g + j in bytes 0..15 and K/2 + 16g + j
in bytes 16..31; all other forms hold k = (K / groups) g + j. D: 16x16 has row 4g + register, 32x32 row
8 (register // 4) + 4g + register % 4, column r. A is src0. Consistent with Triton's lowering; not checked on a card.
"""

import enum
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950 import numeric as n
from nkc.verify.gfx950.instruction import Instruction, Kind, Operand
from nkc.verify.gfx950.operands import MissingFeatureError, Step, constant, reader
from nkc.verify.gfx950.waves import Waves

Array = npt.NDArray[Any]


class MfmaModel(enum.Enum):
    """How one MFMA adds its products."""

    ONCE = "once"
    SEQUENTIAL = "sequential"
    TREE = "tree"


class Shape(NamedTuple):
    """An MFMA of one block: D[m, n] += sum over k of A[m, k] B[n, k]."""

    m: int
    n: int
    k: int
    a: str
    b: str
    scaled: bool = False
    f8f6f4: bool = False


_NAME = re.compile(r"v_mfma_(scale_)?f32_(\d+)x(\d+)x(\d+)_(f8f6f4|bf16|f16|f32|(?:fp8|bf8)_(?:fp8|bf8))$")
_FORMATS = {0: "fp8", 1: "bf8"}
_BYTES = {"fp8": 1, "bf8": 1, "f16": 2, "bf16": 2, "f32": 4}


def shape_of(inst: Instruction) -> Shape:
    """Return the shape and formats of an MFMA. Errors: `MissingFeatureError` for forms that are not modelled."""
    match = _NAME.match(inst.mnemonic)
    if match is None:
        raise MissingFeatureError(inst.mnemonic)
    scale, m, columns, k, kind = match.groups()
    fields = inst.fields
    if kind == "f8f6f4":
        forms = fields["cbsz"], fields["blgp"]
        if not set(forms) <= set(_FORMATS):
            raise MissingFeatureError(
                f"{inst.mnemonic}: 6-bit and 4-bit matrix formats (cbsz {forms[0]}, blgp {forms[1]})"
            )
        if fields["abid"] and not scale:
            raise MissingFeatureError(f"{inst.mnemonic}: abid {fields['abid']}")
        return Shape(int(m), int(columns), int(k), _FORMATS[forms[0]], _FORMATS[forms[1]], bool(scale), True)
    if fields["cbsz"] or fields["abid"] or fields["blgp"]:
        raise MissingFeatureError(f"{inst.mnemonic}: broadcast or negation (cbsz, abid, blgp)")
    a, _, b = kind.partition("_")
    return Shape(int(m), int(columns), int(k), a, b or a)


def element_order(shape: Shape) -> Array:
    """Return k for each (group, element of the lane's registers): int [groups, k // groups]."""
    groups = 64 // shape.m
    per = shape.k // groups
    j = np.arange(per)
    g = np.arange(groups)[:, None]
    if shape.f8f6f4:
        half = per // 2
        return np.where(j < half, half * g + j, shape.k // 2 + half * g + j - half)
    return per * g + j


def _decode(raw: Array, kind: str) -> Array:
    """Return register bytes [..., n] as float64 values."""
    if kind in ("fp8", "bf8"):
        return np.asarray((n.E4M3 if kind == "fp8" else n.E5M2).take(raw))
    if kind == "bf16":
        return n.from_bf16(raw.view(np.uint16)).astype(np.float64)
    if kind == "f16":
        return raw.view(np.float16).astype(np.float64)
    return raw.view(np.float32).astype(np.float64)


def gather(w: Waves, operand: Operand, kind: str, rows: int, registers: int) -> Array:
    """Return an A or B operand as float64 [W, rows, groups, elements], elements in register order."""
    raw = np.ascontiguousarray(w.V[operand.index : operand.index + registers].transpose(1, 2, 0))
    values = _decode(raw.view(np.uint8).reshape(w.count, 64, 4 * registers), kind)
    return values.reshape(w.count, 64 // rows, rows, -1).transpose(0, 2, 1, 3)


def accumulate(a: Array, b: Array, c: Array, model: MfmaModel) -> Array:
    """Return float32 D[W, m, n] from float64 A[W, m, k], B[W, n, k] (k ascending) and float32 C[W, m, n]."""
    if model is MfmaModel.ONCE:
        return n.round_sum(np.matmul(a, b.transpose(0, 2, 1)), c)
    if model is MfmaModel.SEQUENTIAL:
        out = c
        for k in range(a.shape[2]):
            product = a[:, :, k, None] * b[:, None, :, k]
            out = n.round_sum(product, out)
        return out
    terms = [(a[:, :, k, None] * b[:, None, :, k]).astype(np.float32) for k in range(a.shape[2])]
    while len(terms) > 1:
        terms = [terms[i] + terms[i + 1] for i in range(0, len(terms), 2)]
    return np.asarray(terms[0] + c)


def scatter(w: Waves, index: int, d: Array, m: int) -> None:
    """Write D[W, m, n] to its registers. EXEC is ignored, as MFMA does."""
    if m == 16:
        w.F[index : index + 4] = d.reshape(w.count, 4, 4, 16).transpose(2, 0, 1, 3).reshape(4, w.count, 64)
    else:
        parts = d.reshape(w.count, 4, 2, 4, 32).transpose(1, 3, 0, 2, 4)
        w.F[index : index + 16] = parts.reshape(16, w.count, 64)


def collect(w: Waves, index: int, m: int) -> Array:
    """Return C[W, m, n] from its registers: the inverse of `scatter`."""
    if m == 16:
        return w.F[index : index + 4].reshape(4, w.count, 4, 16).transpose(1, 2, 0, 3).reshape(w.count, 16, 16)
    parts = w.F[index : index + 16].reshape(4, 4, w.count, 2, 32).transpose(2, 0, 3, 1, 4)
    return parts.reshape(w.count, 32, 32)


def _exact_in_once(shape: Shape) -> bool:
    """Whether float64 sums of all products of the instruction are exact: true for 8-bit floats without scales."""
    return shape.a == "fp8" and shape.b == "fp8" and not shape.scaled


def exact_dot(a: Array, b: Array, c: Array) -> Array:
    """Return round-once results for operands whose products may span more bits than float64 holds.

    Splits the sum into float64 products (exact for f16, bf16 and scaled fp8) and adds them with a compensated,
    error-free transformation; the error term is folded in before the one rounding. Exact unless cancellation
    passes 100 bits, which float32 results cannot show.
    """
    high = np.zeros(np.broadcast_shapes(c.shape))
    low = np.zeros_like(high)
    terms: list[Array] = [c.astype(np.float64)]
    terms += [a[:, :, k, None] * b[:, None, :, k] for k in range(a.shape[2])]
    for term in terms:
        total = high + term
        back = total - high
        low = low + ((high - (total - back)) + (term - back))
        high = total
    return np.asarray(n.add_odd(high, low).astype(np.float32))


def bind_mfma(inst: Instruction, model: MfmaModel) -> Step:
    """Return the step of an MFMA under `model`."""
    shape = shape_of(inst)
    a_op, b_op, c_op = (inst.operands[key] for key in ("src0", "src1", "src2"))
    order = element_order(shape).reshape(-1)
    ascending = np.argsort(order)
    plain_once = model is MfmaModel.ONCE and _exact_in_once(shape)
    destination = inst.operands["vdst"].index
    groups = 64 // shape.m
    a_regs, b_regs = (shape.k // groups * _BYTES[kind] // 4 for kind in (shape.a, shape.b))
    scales = _scale_readers(inst) if shape.scaled else None
    start: Callable[[Waves], Array]
    if c_op.kind is Kind.CONSTANT:
        fixed = constant(c_op, "f32")
        start = lambda w: np.broadcast_to(fixed, (w.count, shape.m, shape.n))  # noqa: E731
    else:
        start = lambda w: collect(w, c_op.index, shape.m)  # noqa: E731

    def step(w: Waves) -> None:
        a = gather(w, a_op, shape.a, shape.m, a_regs)
        b = gather(w, b_op, shape.b, shape.n, b_regs)
        a, b = a.reshape(w.count, shape.m, -1), b.reshape(w.count, shape.n, -1)
        if scales is not None or not plain_once:
            a, b = a[:, :, ascending], b[:, :, ascending]
        if scales is not None:
            a = a * np.repeat(scales[0](w).reshape(w.count, groups, shape.m).transpose(0, 2, 1), 32, axis=2)
            b = b * np.repeat(scales[1](w).reshape(w.count, groups, shape.n).transpose(0, 2, 1), 32, axis=2)
        c = start(w)
        if plain_once:
            d = n.round_sum(np.matmul(a, b.transpose(0, 2, 1)), c)
        elif model is MfmaModel.ONCE:
            d = exact_dot(a, b, c)
        else:
            d = accumulate(a, b, c, model)
        scatter(w, destination, d, shape.m)

    return step


def _scale_readers(inst: Instruction) -> tuple[Callable[[Waves], Array], Callable[[Waves], Array]]:
    """Return readers of the E8M0 scales [W, 64]; the byte is {op_sel_hi[i], op_sel[i]}, i = 0 for A, 1 for B."""
    out = []
    for position in (0, 1):
        bits = reader(inst.operands[f"scale_src{position}"], "u32")
        byte = (inst.fields["opsel_hi"] >> position & 1) << 1 | inst.fields["opsel"] >> position & 1
        shift = np.uint32(8 * byte)

        def read(w: Waves, bits: Callable[[Waves], Array] = bits, shift: Any = shift) -> Array:
            code = np.broadcast_to(bits(w), w.mask.shape) >> shift & np.uint32(0xFF)
            value = np.ldexp(1.0, code.astype(np.int32) - 127)
            return np.where(code == 0xFF, np.nan, value)

        out.append(read)
    return out[0], out[1]
