"""Operands in memory: where each element lies, and what lies in the lanes that belong to nobody."""

import numpy as np
import pytest

from nkc.ir import operations
from nkc.ir.contract import DType, Layout, dim_max
from nkc.ir.scales import leading_extent
from nkc.tactics.catalogue import tactics_of
from nkc.verify.memory import POISON, dense_tensor, m_major_output, m_major_tensor, output_tensor
from nkc.verify.subject import dim_values

from .recipes import grid


@pytest.mark.parametrize("leading", [5, 8, 64])
def test_F10_lanes_beyond_the_rows_of_m_major_scales_hold_nan(leading: int) -> None:
    scales = grid((5, 4), 3, 23, 0, 1)
    tensor = m_major_tensor("a_scales", DType.FP32, scales, leading)
    assert (tensor.shape, tensor.strides, tensor.storage.size) == ((5, 4), (1, leading), 4 * leading)
    assert np.array_equal(tensor.view(), scales)
    lanes = tensor.storage.reshape(4, leading)
    assert np.isnan(lanes[:, 5:]).all()
    assert not np.isnan(lanes[:, :5]).any()


def test_F10_every_kernel_for_m_major_scales_is_proven_beside_such_lanes() -> None:
    a = operations.get("dense").operand("a")
    unproven, seen = [], 0
    for tactic in tactics_of("dense"):
        m_major = [
            proof
            for proof in tactic.proofs(tactic)
            if "a" in proof.scales and proof.scales["a"].layout is Layout.M_MAJOR
        ]
        seen += bool(m_major)
        runs = [
            (dims.get("m", dim_max(proof.shape["m"])), leading_extent(proof, a, "m"))
            for proof in m_major
            for dims in dim_values(proof)
        ]
        if m_major and not any(leading.of({"m": m}) > m > 0 for m, leading in runs):
            unproven.append(tactic.name)
    assert seen > 100
    assert unproven == []


def test_what_a_kernel_writes_is_poisoned_and_what_it_reads_is_not() -> None:
    values = grid((3, 4), 5, 11, 2, 1)
    given = dense_tensor("a", DType.FP32, values)
    assert (given.written, given.strides) == (False, (4, 1))
    assert np.array_equal(given.view(), values)
    for tensor in (output_tensor("out", DType.BF16, (3, 4)), m_major_output("s", DType.FP32, (3, 2), 8)):
        assert tensor.written
        assert (tensor.storage.view(np.uint8) == POISON).all()
