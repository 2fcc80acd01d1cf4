"""launch.json: arguments at their offsets, and every promise that the code makes unchecked as a guard."""

import json

import msgspec
import pytest

from nkc.emit import build as b
from nkc.emit.explain import encode
from nkc.ir.contract import Access, DType
from nkc.ir.launch import ArgumentKind, DistinctGuard, Extent, Launch, RangeGuard, TensorGuard
from nkc.tactics.select import Policy, select

from ..fixtures.contracts import Edits, bf16, contract
from ..fixtures.toolchain import FakeToolchain


def launch_of(edits: Edits | None = None, only: str | None = None) -> Launch:
    chosen = select(contract(edits), Policy(allow_experimental=True, only_tactic=only))
    outcome = b.build_selection(chosen, FakeToolchain(), on_mismatch=b.OnMismatch.FAIL)
    assert outcome.artifact is not None, outcome
    return outcome.artifact.launch


def tensors(launch: Launch) -> dict[str, TensorGuard]:
    return {guard.argument: guard for guard in launch.guards if isinstance(guard, TensorGuard)}


def test_arguments_stand_at_their_offsets_the_hidden_ones_last() -> None:
    launch = launch_of({"$.shape.m": {"min": 0, "max": 16}})
    assert [(one.name, one.kind, one.offset, one.size, one.hidden) for one in launch.arguments] == [
        ("a", ArgumentKind.POINTER, 0, 8, False),
        ("b", ArgumentKind.POINTER, 8, 8, False),
        ("a_scales", ArgumentKind.POINTER, 16, 8, False),
        ("b_scales", ArgumentKind.POINTER, 24, 8, False),
        ("out", ArgumentKind.POINTER, 32, 8, False),
        ("m", ArgumentKind.INT32, 40, 4, False),
        ("scratch_0", ArgumentKind.SCRATCH, 48, 8, True),
        ("scratch_1", ArgumentKind.SCRATCH, 56, 8, True),
    ]
    assert launch.kernarg_bytes == 64
    assert launch.arguments[0].dtype is DType.FP8_E4M3
    assert [one.access for one in launch.arguments[:6]] == [*[Access.READ] * 4, Access.WRITE, None]
    assert launch.arguments[5].dim == "m"


@pytest.mark.parametrize(
    ("edits", "names"),
    [
        ({}, ["a", "b", "a_scales", "b_scales", "out"]),
        ({"$.epilogue": {"kind": "bias", "dtype": "fp32"}}, ["a", "b", "a_scales", "b_scales", "bias", "out"]),
        (bf16(), ["a", "b", "out"]),
        ({"$.numerics.combine": "fixed_order"}, ["a", "b", "a_scales", "b_scales", "out", "workspace"]),
        (
            {"$.numerics.combine": "fixed_order", "$.shape.m": {"min": 0, "max": 3}},
            ["a", "b", "a_scales", "b_scales", "out", "workspace", "m"],
        ),
    ],
    ids=str,
)
def test_the_visible_arguments_are_the_contracts_in_its_order(edits: Edits, names: list[str]) -> None:
    launch = launch_of(edits)
    assert [one.name for one in launch.arguments if not one.hidden] == names
    assert (launch.workspace.bytes > 0) == ("workspace" in names)


def test_exact_tensors_are_guarded_by_numbers() -> None:
    guards = tensors(launch_of({"$.shape": {"m": 5, "n": 576, "k": 7168}}))
    shapes = {name: tuple(extent.value for extent in guard.shape) for name, guard in guards.items()}
    strides = {name: tuple(extent.value for extent in guard.strides) for name, guard in guards.items()}
    assert shapes == {"a": (5, 7168), "b": (576, 7168), "a_scales": (5, 56), "b_scales": (5, 56), "out": (5, 576)}
    assert strides == {"a": (7168, 1), "b": (7168, 1), "a_scales": (56, 1), "b_scales": (56, 1), "out": (576, 1)}


def test_F10_padded_m_major_scales_are_guarded_by_their_stride() -> None:
    guards = tensors(launch_of({"$.shape.m": 5, "$.scales.a.layout": "m_major", "$.scales.a.leading_dim": 8}))
    assert guards["a_scales"].shape == (Extent(value=5), Extent(value=32))
    assert guards["a_scales"].strides == (Extent(value=1), Extent(value=8))


def test_F05_a_bounded_dim_is_an_argument_with_a_guard_and_extents_that_follow_it() -> None:
    launch = launch_of(
        {
            "$.shape.m": {"min": 0, "max": 16},
            "$.scales.a.layout": "m_major",
            "$.scales.a.leading_dim": {"multiple_of": 4},
        }
    )
    assert launch.guards[0] == RangeGuard(dim="m", min=0, max=16)
    guards = tensors(launch)
    assert guards["a"].shape == (Extent(dim="m"), Extent(value=4096))
    stride = guards["a_scales"].strides[1]
    assert [stride.of({"m": m}) for m in (0, 1, 4, 5, 16)] == [0, 4, 4, 8, 16]
    assert launch.grid[0] > 0


def test_F29_the_alignment_that_the_code_is_compiled_on_is_a_guard() -> None:
    launch = launch_of({"$.alignment": {"a": 64, "out": 32}})
    assert {name: guard.alignment for name, guard in tensors(launch).items()} == dict.fromkeys(
        ("a", "b", "a_scales", "b_scales", "out"), 16
    )


@pytest.mark.parametrize(
    ("edits", "guards"),
    [
        ({}, [("out", ("a", "b", "a_scales", "b_scales"))]),
        (
            {"$.numerics.combine": "fixed_order"},
            [("out", ("a", "b", "a_scales", "b_scales")), ("workspace", ("a", "b", "a_scales", "b_scales", "out"))],
        ),
    ],
    ids=str,
)
def test_what_is_written_overlaps_nothing(edits: Edits, guards: list[tuple[str, tuple[str, ...]]]) -> None:
    found = [guard for guard in launch_of(edits).guards if isinstance(guard, DistinctGuard)]
    assert [(guard.argument, guard.others) for guard in found] == guards


def test_every_pointer_of_the_caller_has_a_guard() -> None:
    launch = launch_of({"$.epilogue": {"kind": "bias", "dtype": "bf16"}, "$.numerics.combine": "fixed_order"})
    pointers = {one.name for one in launch.arguments if one.kind is ArgumentKind.POINTER}
    assert pointers - {"workspace"} == set(tensors(launch))
    assert (launch.workspace.init.value, launch.workspace.alignment) == ("zero", 256)


def test_the_record_reads_back_strictly() -> None:
    for edits in ({}, {"$.shape.m": {"min": 0, "max": 16}}, {"$.numerics.combine": "fixed_order"}):
        launch = launch_of(edits)
        assert msgspec.json.decode(encode(launch), type=Launch) == launch
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(encode(launch)[:-3] + b', "more": 1}\n', type=Launch)
    assert json.loads(encode(launch_of()))["target"] == {"arch": "gfx950", "isa": "gfx950", "wave": 64}
    assert launch_of({"$.target.arch": "sm_90"}).target.isa == "sm_90a"
