"""Quantising kernels as compiled: nothing spilled at the longest row, wide accesses, divisions as they are stated."""

import re

import pytest

from nkc import ir
from nkc.emit import build
from nkc.emit.toolchains.by_language import Toolchains
from nkc.ir.contract import Bounded
from nkc.ir.reader import parse_document
from nkc.tactics import predicate as p
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.tactic import Lowered, Tactic

pytestmark = pytest.mark.toolchain

OPERATIONS = ("group_quant", "silu_mul_quant", "rms_norm_quant")
TACTICS = tuple(tactic for name in OPERATIONS for tactic in tactics_of(name))
LONGEST = 17408
LOADS = re.compile(r"^\s*(buffer_load_\w+|global_load_\w+)", re.M)
STORES = re.compile(r"^\s*(buffer_store_\w+|global_store_\w+)", re.M)


@pytest.fixture(scope="module")
def toolchain():
    with Toolchains() as made:
        yield made


def compiled(toolchain, tactic: Tactic, proof: ir.Contract, k: int) -> build.Artifact:
    """Return a proof's kernel for rows of another length; held against its contract, so without spills."""
    document = ir.contract_document(proof)
    m = proof.shape["m"]
    document["shape"] = {"m": {"min": m.min, "max": m.max} if isinstance(m, Bounded) else m, "k": k}
    contract = parse_document(document)
    assert all(predicate.check(contract) is None for predicate in tactic.predicates)
    return build.build(Lowered(contract=tactic.lower(contract, tactic), tactic=tactic), toolchain)


def longest(tactic: Tactic) -> int:
    """Return the longest row that a tactic serves, or that deployments have."""
    limits = [one.limit for one in tactic.requires if isinstance(one, p.AtMost) and one.field == "$.shape.k"]
    return min(limits, default=LONGEST)


def intermediates(artifact: build.Artifact) -> dict[str, str]:
    return dict(artifact.built.intermediates)


@pytest.mark.parametrize("tactic", TACTICS, ids=lambda tactic: tactic.name)
def test_the_longest_row_spills_nothing_and_is_read_in_16_byte_accesses(toolchain, tactic) -> None:
    # the most that is held: a residual, an fp32 weight, a power of two; or a product beside the codes
    proof = tactic.proofs(tactic)[1 if "bf16_" in tactic.name else 2]
    artifact = compiled(toolchain, tactic, proof, longest(tactic))
    assert not artifact.built.resources.scratch_bytes
    assert artifact.built.resources.matrix == ()
    if tactic.kernel.language == "cuda":
        return  # accesses are written out, and ptxas says what spills
    if tactic.target == "gfx950":
        loads = set(LOADS.findall(intermediates(artifact)["amdgcn"]))
        assert loads == {"buffer_load_dwordx4"}
        stores = set(STORES.findall(intermediates(artifact)["amdgcn"]))
        wide = {"buffer_store_dwordx4"} if tactic.operation != "rms_norm_quant" else {"buffer_store_dwordx2"}
        assert stores >= wide or "bf16_" in tactic.name
        assert stores <= {"buffer_store_dwordx4", "buffer_store_dwordx2", "buffer_store_dword"}
    else:
        loads = re.findall(r"ld\.global\S*", intermediates(artifact)["ptx"])
        assert loads
        assert all(load.endswith(".v4.b32") for load in loads), loads


@pytest.mark.parametrize(
    ("operation", "target"),
    sorted({(one.operation, one.target) for one in TACTICS if one.kernel.language == "triton"}),
)
def test_divisions_and_roots_are_ieee(toolchain, operation, target) -> None:
    """No approximate division is left in a Triton kernel: `/` would be 2.44 u off on sm_90."""
    ours = (one for one in tactics_of(operation) if one.target == target and one.kernel.language == "triton")
    tactic = next(one for one in ours if ".bf16_" not in one.name)
    for proof in tactic.proofs(tactic)[:1]:
        texts = intermediates(compiled(toolchain, tactic, proof, 512))
        if target == "sm_90":
            divisions = set(re.findall(r"\b(?:div|rcp|sqrt|rsqrt)\.[a-z.]*f32", texts["ptx"]))
            assert {name.removeprefix("sqrt").removeprefix("div").removeprefix("rcp") for name in divisions} == {
                ".rn.f32"
            }
            assert "max.f32" not in texts["ptx"], "max.f32 drops a NaN"
            assert "satfinite" in texts["ptx"]
        else:
            listing = texts["amdgcn"]
            assert listing.count("v_div_fixup_f32") == listing.count("v_div_fmas_f32") > 0
            assert listing.count("v_rcp_f32") == listing.count("v_div_fmas_f32"), "a reciprocal that nothing corrects"
            assert "v_max_f32" not in listing
            assert re.search(r"v_cvt_(scalef32_)?pk_fp8_f32", listing)
