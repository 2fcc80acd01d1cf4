"""Holding an object against its contract: one disagreement at a time, each found and named."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from nkc.emit.hold import hold, parameter_layout
from nkc.emit.inspect import MatrixUse, inspect
from nkc.emit.render import render
from nkc.emit.source import CodeObject, Parameter, Source, Toolchain
from nkc.ir import targets
from nkc.ir.contract import Code, Contract, Launch, Lds
from nkc.tactics import Tactic, tactics_of
from nkc.tactics.reason import StageName
from nkc.tactics.tactic import Lowered
from tests.fixtures.toolchain import FakeToolchain

OBJECTS = Path(__file__).parent / "objects"


def tactic(name: str) -> Tactic:
    return next(tactic for tactic in tactics_of("dense") if tactic.name == name)


@dataclasses.dataclass(frozen=True)
class Case:
    """An object that holds, with everything it is held against."""

    built: CodeObject
    source: Source
    contract: Contract
    tactic: Tactic

    def reasons(self, **changed: object) -> list[tuple[str, str, str, str]]:
        case = dataclasses.replace(self, **changed)
        found = hold(case.built, case.source, case.contract, case.tactic)
        assert all(reason.stage is StageName.OBJECT for reason in found)
        return [(reason.predicate, reason.field, reason.wanted, reason.actual) for reason in found]

    def saying(self, **resources: object) -> list[tuple[str, str, str, str]]:
        said = msgspec.structs.replace(self.built.resources, **resources)
        return self.reasons(built=dataclasses.replace(self.built, resources=said))


def case(name: str, file: str, *, waves: int, lds: int) -> Case:
    chosen = tactic(name)
    open_contract = chosen.proofs(chosen)[2]
    contract = chosen.lower(open_contract, chosen)
    source = render(Lowered(contract=contract, tactic=chosen))
    resources = inspect((OBJECTS / file).read_bytes(), name=file)
    built = CodeObject(
        kind="hsaco" if file.endswith("hsaco") else "cubin",
        data=b"",
        symbol=source.symbol,
        waves=waves,
        lds_dynamic_bytes=lds,
        scratch_bytes=0,
        resources=msgspec.structs.replace(resources, symbol=source.symbol),
        intermediates=(),
        toolchain=Toolchain(name="triton", version="3.9.0", digest="0"),
    )
    return Case(built=built, source=source, contract=contract, tactic=chosen)


MFMA = case("gfx950.dense.fp8_mfma_16x64x128_s3", "mfma.hsaco", waves=2, lds=31_456)
QGMMA = case("sm_90.dense.fp8_wgmma_64x32x128_w4_s6", "qgmma.cubin", waves=4, lds=75_028)


@pytest.mark.parametrize("held", [MFMA, QGMMA], ids=["gfx950", "sm_90"])
def test_an_object_that_is_what_was_asked_for_holds(held: Case) -> None:
    assert held.reasons() == []


def test_parameters_are_naturally_aligned_and_end_in_two_hidden_pointers() -> None:
    parameters = (Parameter(name="a", type="*fp32"), Parameter(name="m", type="i32"), Parameter(name="n", type="i32"))
    assert parameter_layout(parameters) == (
        ("a", 0, 8),
        ("m", 8, 4),
        ("n", 12, 4),
        ("global_scratch", 16, 8),
        ("profile_scratch", 24, 8),
    )
    assert parameter_layout(parameters[:2])[2] == ("global_scratch", 16, 8)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"isa": "gfx942"}, ("object_isa", "$.target.arch", "gfx950", "gfx942")),
        ({"elf_flags": 0x14C}, ("object_elf_flags", "$.target.arch", "0x54f", "0x14c")),
        ({"wave": 32}, ("object_wave", "$.target.wave", "64", "32")),
        ({"max_threads": 64}, ("object_max_threads", "$.launch.block", "at least 128", "64")),
        (
            {"spilled_registers": 7},
            ("object_spills", "$.schedule", "no spill, no scratch", "7 spills, 0 bytes of scratch a lane"),
        ),
        (
            {"scratch_bytes": 32},
            ("object_spills", "$.schedule", "no spill, no scratch", "0 spills, 32 bytes of scratch a lane"),
        ),
        ({"lds_fixed_bytes": 132_385}, ("object_lds_fits", "$.target.arch", "at most 163840 bytes", "163841")),
        (
            {"denormals": False},
            ("object_float_mode", "$.numerics.round", "to nearest even, denormals kept", "another mode"),
        ),
        ({"kernarg_bytes": 56}, ("object_kernarg_bytes", "$.arguments", "at least 64", "56")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_disagreement_is_found_alone(said: dict[str, object], expected: tuple[str, str, str, str]) -> None:
    """N19 among them: an argument buffer that is smaller than its arguments."""
    found = MFMA.saying(**said)
    assert expected in found
    others = {reason[0] for reason in found} - {expected[0]}
    assert others <= ({"object_waves"} if "wave" in said else set())


def test_lds_at_the_limit_holds() -> None:
    """F25: the comparison is exact, the limit included."""
    assert MFMA.saying(lds_fixed_bytes=163_840 - 31_456) == []


def test_real_use_above_the_limit_is_found_with_both_figures() -> None:
    """F26."""
    found = QGMMA.reasons(built=dataclasses.replace(QGMMA.built, lds_dynamic_bytes=241_724))
    assert found == [("object_lds_fits", "$.target.arch", "at most 232448 bytes", "241724")]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (Lds(dynamic_bytes=31_456), None),
        (Lds(fixed_bytes=0), None),
        (Lds(dynamic_bytes=31_457), ("object_lds", "$.lds.dynamic_bytes", "31457", "31456")),
        (Lds(fixed_bytes=31_456), ("object_lds", "$.lds.fixed_bytes", "31456", "0")),
    ],
)
def test_lds_that_the_author_wrote_is_exact(written: Lds, expected: tuple[str, str, str, str] | None) -> None:
    found = MFMA.reasons(contract=msgspec.structs.replace(MFMA.contract, lds=written))
    assert found == ([expected] if expected else [])


def test_an_argument_at_another_place_is_found() -> None:
    arguments = list(MFMA.built.resources.arguments)
    arguments[5] = msgspec.structs.replace(arguments[5], offset=44)
    ((predicate, field, wanted, actual),) = MFMA.saying(arguments=tuple(arguments))
    assert (predicate, field) == ("object_kernarg_layout", "$.arguments")
    assert "m at 40+4, global_scratch at 48+8" in wanted
    assert "44+4, 48+8" in actual


@pytest.mark.parametrize(
    ("held", "matrix", "actual"),
    [
        (MFMA, (), "0"),
        (MFMA, (MatrixUse(mnemonic="v_mfma_f32_32x32x64_f8f6f4", count=4),), "v_mfma_f32_32x32x64_f8f6f4"),
        (QGMMA, (MatrixUse(mnemonic="HMMA", count=8), MatrixUse(mnemonic="QGMMA", count=8)), "HMMA"),
    ],
)
def test_a_guarantee_is_read_from_the_instructions(held: Case, matrix: tuple[MatrixUse, ...], actual: str) -> None:
    ((predicate, field, _, said),) = held.saying(matrix=matrix)
    assert (predicate, field, said) == ("object_matrix_instructions", "$.numerics.accumulate", actual)


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.reasons(built=dataclasses.replace(held.built, waves=4)),
        lambda held: held.reasons(
            contract=msgspec.structs.replace(held.contract, launch=Launch(grid=(3, 1, 1), block=(64, 1, 1)))
        ),
    ],
)
def test_waves_are_those_of_the_launch(change: Callable[[Case], list[tuple[str, str, str, str]]]) -> None:
    assert [reason[0] for reason in change(MFMA)] == ["object_waves"]


def test_global_scratch_and_another_code_are_found() -> None:
    scratch = MFMA.reasons(built=dataclasses.replace(MFMA.built, scratch_bytes=64))
    assert scratch == [("object_global_scratch", "$.workspace", "0", "64")]
    code = Code(language="triton", digest="0" * 64)
    ((predicate, field, wanted, actual),) = MFMA.reasons(contract=msgspec.structs.replace(MFMA.contract, code=code))
    assert (predicate, field, wanted) == ("object_code", "$.code", f"triton {'0' * 64}")
    assert actual == f"triton {MFMA.source.digest}"
    same = Code(language="triton", digest=MFMA.source.digest)
    assert MFMA.reasons(contract=msgspec.structs.replace(MFMA.contract, code=same)) == []


def test_kernels_in_cxx_have_no_hidden_pointers_and_maps_lie_at_multiples_of_64_of_the_bank() -> None:
    """sm_90's parameters begin at 0x210 of their constant bank, so the first map has offset 48."""
    parameters = (
        Parameter(name="a", type="tensor_map"),
        Parameter(name="b_scales", type="float*"),
        Parameter(name="out", type="tensor_map"),
        Parameter(name="m", type="int"),
    )
    assert parameter_layout(parameters, "cuda") == (
        ("a", 48, 128),
        ("b_scales", 176, 8),
        ("out", 240, 128),
        ("m", 368, 4),
    )


def gemv(name: str) -> Case:
    chosen = tactic(name)
    lowered = Lowered.of(chosen.proofs(chosen)[0], chosen)
    source = render(lowered)
    built = FakeToolchain().compile(source, targets.get("sm_90"))
    return Case(built=built, source=source, contract=lowered.contract, tactic=chosen)


def test_a_dependent_kernel_shows_its_wait_and_trigger_and_another_shows_neither() -> None:
    waiting, plain = gemv("sm_90.dense.fp8_gemv_r4_w8_dependent"), gemv("sm_90.dense.fp8_gemv_r4_w8")
    assert waiting.reasons() == plain.reasons() == []
    wanted = "a wait for the kernels ahead and a trigger for the one behind"
    for said in ({"grid_waits": 0}, {"grid_triggers": 0}):
        counts = {"grid_waits": 1, "grid_triggers": 1, **said}
        actual = f"{counts['grid_waits']} waits, {counts['grid_triggers']} triggers"
        assert waiting.saying(**said) == [("object_dependent", "$.launch.dependent", wanted, actual)]
    assert plain.saying(grid_waits=1) == [
        ("object_dependent", "$.launch.dependent", "neither wait nor trigger", "1 waits, 0 triggers")
    ]


def test_the_grid_is_whole_clusters() -> None:
    held = gemv("sm_90.dense.fp8_gemv_r4_w8")
    assert held.contract.launch is not None
    assert held.contract.launch.grid == (32, 1, 1)
    assert held.saying(cluster=(2, 1, 1)) == []
    assert held.saying(cluster=(3, 1, 1)) == [
        ("object_cluster", "$.launch.grid", "whole clusters of 3x1x1", "32x1x1"),
    ]


def test_a_kernel_without_a_matrix_unit_shows_its_fused_multiply_adds_and_nothing_else() -> None:
    chosen = tactic("sm_90.dense.fp8_gemv_r4_w8")
    contract = chosen.lower(chosen.proofs(chosen)[0], chosen)
    source = render(Lowered(contract=contract, tactic=chosen))
    built = FakeToolchain().compile(source, targets.get("sm_90"))
    held = Case(built=built, source=source, contract=contract, tactic=chosen)
    assert held.reasons() == []
    assert held.saying(fp32_fma=63) == [("object_fp32_fma", "$.numerics.accumulate", "at least 64 FFMA", "63")]
    assert held.saying(matrix=(MatrixUse(mnemonic="HMMA", count=1),)) == [
        ("object_matrix_instructions", "$.numerics.accumulate", "only none", "HMMA")
    ]
