"""`nkc bench --dependent`: the contract that is benched declares constant what dependent kernels read early."""

import pytest

from nkc.bench import gather
from nkc.ir.errors import UsageError
from nkc.tactics.select import select

from ..fixtures.contracts import contract

SM_90 = {
    "$.target.arch": "sm_90",
    "$.numerics.combine": "fixed_order",
    "$.scales.a.layout": "m_major",
}


@pytest.mark.parametrize(
    ("edits", "constant"),
    [
        ({}, ("b", "b_scales")),
        ({"$.epilogue": {"kind": "bias", "dtype": "bf16"}}, ("b", "b_scales", "bias")),
        ({"$.properties.constant": ["a"]}, ("a", "b", "b_scales")),
    ],
)
def test_everything_but_the_activations_is_constant(edits, constant) -> None:
    asked = gather.dependent(contract({**SM_90, **edits}))
    assert asked.properties.constant == constant
    selected = select(asked, gather.ALLOWED).selected
    assert selected is not None
    assert selected.tactic.dependent


def test_where_no_kernel_is_launched_so_it_is_refused() -> None:
    with pytest.raises(UsageError, match="no kernel of `dense` on gfx950 is launched dependent"):
        gather.dependent(contract())
