"""Dependent launch from the sealed contract to the object: what launch.json says, and what the machine code does."""

import re
from pathlib import Path

import msgspec
import pytest

from nkc.emit import build
from nkc.emit.agree import disagreements
from nkc.emit.inspect import inspect
from nkc.emit.source import Source
from nkc.emit.toolchains.nvrtc import NvrtcToolchain
from nkc.ir import targets
from nkc.ir.contract import Layout
from nkc.ir.launch import DistinctGuard, LaunchAttributes
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.tactic import Lowered

from ..fixtures.listing import listed
from ..fixtures.toolchain import FakeToolchain, nvrtc_is_installed

BY_NAME = {tactic.name: tactic for tactic in tactics_of("dense")}
DEPENDENT = [tactic for tactic in BY_NAME.values() if tactic.dependent]
SM_90 = targets.get("sm_90")
needs_nvrtc = pytest.mark.skipif(not nvrtc_is_installed(), reason="nvidia-cuda-nvrtc is not installed")


def built(name: str, proof: int = 0) -> build.Artifact:
    tactic = BY_NAME[name]
    return build.build(Lowered.of(tactic.proofs(tactic)[proof], tactic), FakeToolchain())


@pytest.mark.parametrize("tactic", DEPENDENT, ids=lambda tactic: tactic.name)
def test_the_record_says_how_it_is_launched_and_what_it_rests_on(tactic) -> None:
    for proof in range(len(tactic.proofs(tactic))):
        launch = built(tactic.name, proof).launch
        assert launch.attributes.programmatic_dependent_launch
        early = {argument.name for argument in launch.arguments if argument.constant}
        assert early == set(tactic.proofs(tactic)[proof].properties.constant)
        scales = ["b_scales"] if tactic.proofs(tactic)[proof].scales else []
        assert {"b", *scales} <= early
        assert "a" not in early
        (distinct,) = [guard for guard in launch.guards if isinstance(guard, DistinctGuard) and guard.argument == "out"]
        assert early <= set(distinct.others), "a result never overlaps what is constant"


def test_the_same_kernel_without_it_is_another_object_of_another_id() -> None:
    waiting, plain = built("sm_90.dense.fp8_gemv_r4_w8_dependent"), built("sm_90.dense.fp8_gemv_r4_w8")
    assert plain.launch.attributes == LaunchAttributes()
    assert not any(argument.constant for argument in plain.launch.arguments)
    assert waiting.id != plain.id
    assert waiting.source.digest != plain.source.digest
    assert waiting.contract.launch is not None
    assert waiting.contract.launch.dependent is True


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        (
            LaunchAttributes(),
            "$.attributes.programmatic_dependent_launch: launch.json says False, the object True",
        ),
        (
            LaunchAttributes(cluster=(2, 1, 1), programmatic_dependent_launch=True),
            "$.attributes.cluster: launch.json says (2, 1, 1), the object (1, 1, 1)",
        ),
    ],
)
def test_an_object_that_says_otherwise_than_its_record_is_found(tmp_path: Path, attributes, line: str) -> None:
    made = built("sm_90.dense.fp8_gemv_r4_w8_dependent")
    place = tmp_path / "launch.json"
    place.write_bytes(msgspec.json.encode(made.launch))
    assert disagreements(made.built.data, made.built.resources, place) == ()
    place.write_bytes(msgspec.json.encode(msgspec.structs.replace(made.launch, attributes=attributes)))
    assert disagreements(made.built.data, made.built.resources, place) == (line,)


# the compiler

NEIGHBOURLY = """extern "C" __global__ void {cluster} __launch_bounds__(128) step(unsigned* out, const unsigned* in) {{
  {trigger}
  {wait}
  out[threadIdx.x] = in[threadIdx.x];
}}
"""
WAIT = 'asm volatile("griddepcontrol.wait;" : : : "memory");'
TRIGGER = 'asm volatile("griddepcontrol.launch_dependents;" : : : "memory");'


def compiled(toolchain: NvrtcToolchain, **text: str):
    source = Source(
        language="cuda",
        text=NEIGHBOURLY.format(**{"cluster": "", "trigger": "", "wait": "", **text}),
        symbol="step",
        digest="",
        closure=(),
        closure_digest="",
        parameters=(),
        options=(("dynamic_lds_bytes", 0), ("fmad", False), ("std", "c++17")),
    )
    return toolchain.compile(source, SM_90)


@needs_nvrtc
@pytest.mark.toolchain
def test_waits_triggers_and_clusters_are_read_from_the_object() -> None:
    with NvrtcToolchain() as toolchain:
        plain, whole = compiled(toolchain), compiled(toolchain, wait=WAIT, trigger=TRIGGER)
        paired = compiled(toolchain, cluster="__cluster_dims__(2, 1, 1)", wait=WAIT)
    found = [inspect(each.data, name="x") for each in (plain, whole, paired)]
    assert [(each.cluster, each.grid_waits, each.grid_triggers) for each in found] == [
        ((1, 1, 1), 0, 0),
        ((1, 1, 1), 1, 1),
        ((2, 1, 1), 1, 0),
    ]
    assert [each.starts_alone for each in found] == [True, False, False]
    listing = listed(whole.data)
    assert re.findall(r"\b(PREEXIT|ACQBULK|STG)\b", listing) == ["PREEXIT", "ACQBULK", "STG"]


@needs_nvrtc
@pytest.mark.toolchain
@pytest.mark.parametrize("geometry", ["r4_w8", "r2_w4", "r8_w1"])
def test_weights_are_asked_for_before_the_wait_and_nothing_is_written(geometry: str) -> None:
    """ptxas may move a load behind the wait, as it did with those of the read-only path; then nothing is gained."""
    tactic = BY_NAME[f"sm_90.dense.fp8_gemv_{geometry}_dependent"]
    rows, depth = int(geometry[1]), tactic.schedule.stages
    assert depth is not None
    with NvrtcToolchain() as toolchain:
        for proof in tactic.proofs(tactic):
            made = build.build(Lowered.of(proof, tactic), toolchain)
            before, after = listed(made.built.data).split("ACQBULK")
            assert len(re.findall(r"\bLDG\.E\.NA\S*\.128\b", before)) >= rows
            assert not re.findall(r"\b(STG|ST\.E|RED|ATOM)", before)
            assert re.search(r"\bSTG\b", after)
            read_only = len(re.findall(r"\bLDG\S*\.CONSTANT\b", after))
            assert read_only == (proof.epilogue.dtype is not None), "of the bias alone, which is constant"


@needs_nvrtc
@pytest.mark.toolchain
@pytest.mark.parametrize("family", ["fp8_tma_128x192", "fp8_tma_256x128", "fp8_f16_256x64", "fp8_f16_few_64x64"])
def test_tiles_of_weights_alone_are_asked_for_before_the_wait(family: str) -> None:
    """Activations come behind it, and so do scales that the kernel ahead may write: not by the read-only path."""
    tactic = next(each for each in DEPENDENT if family in each.name)
    rows = next(proof for proof in tactic.proofs(tactic) if proof.scales["a"].layout is Layout.ROW_MAJOR)
    with NvrtcToolchain() as toolchain:
        made = build.build(Lowered.of(rows, tactic), toolchain)
    listing = listed(made.built.data)
    copies = re.findall(r"\b(UTMALDG|ACQBULK)\b", listing)
    assert "UTMALDG ACQBULK UTMALDG" in " ".join(copies)
    before, _, after = listing.partition("ACQBULK")
    assert not re.findall(r"\b(LDG|STG|ST\.E|UTMASTG|RED|ATOM)\b", before)
    assert re.search(r"\bLDG\.E\.CONSTANT\b", after), "scales of weights"
    assert re.search(r"\bLDG\.E (?!\.)", after), "scales of activations"
