"""Whole kernels: outputs byte for byte, no hazard, under every model and both policies of loads into LDS."""

import numpy as np
import pytest

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.emulate import emulate, emulate_both_policies, missing_features
from nkc.verify.gfx950.hazards import HazardKind
from nkc.verify.gfx950.launch import LaunchError
from nkc.verify.gfx950.mfma import MfmaModel
from tests.verify.gfx950.cases import CASES, as_bytes, fp8_gemm, quant, split_k
from tests.verify.gfx950.snippets import encode


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_exact_and_no_detector_fires(name):
    case = CASES[name]()
    report = emulate(case.data, case.launch, case.buffers)
    assert report.hazards == ()
    assert case.wrong(report.outputs) == dict.fromkeys(case.expected, 0)
    assert report.sampled_fraction == 1.0
    assert missing_features(case.data) == ()


@pytest.mark.parametrize("name", ["fp8_16x64", "fp8_64x64", "bf16_kn", "f16_kn", "fp8_64x64_m32"])
@pytest.mark.parametrize("model", MfmaModel)
def test_exact_data_gives_the_same_bits_under_every_model(name, model):
    case = CASES[name]()
    report = emulate(case.data, case.launch, case.buffers, model=model, checked=False, workgroups=(0, 1))
    assert all(
        (as_bytes(report.outputs[key])[report.written[key]] == as_bytes(value)[report.written[key]]).all()
        for key, value in case.expected.items()
    )
    assert report.written["C"].any()


@pytest.mark.parametrize("name", ["fp8_16x64", "fp8_64x64", "fp8_128x128", "quant"])
def test_the_moment_when_loads_into_lds_land_does_not_matter(name):
    case = CASES[name]()
    report = emulate_both_policies(case.data, case.launch, case.buffers)
    assert report.hazards == ()
    assert case.wrong(report.outputs) == dict.fromkeys(case.expected, 0)


@pytest.mark.parametrize("batch_waves", [1, 4, 12])
def test_the_batch_size_does_not_matter(batch_waves):
    case = CASES["fp8_64x64"]()
    report = emulate(case.data, case.launch, case.buffers, batch_waves=batch_waves)
    assert report.hazards == ()
    assert case.wrong(report.outputs) == {"C": 0}


def test_wide_data_differs_between_models():
    case = fp8_gemm("fp8_64x64_m32", 64)
    rng = np.random.default_rng(0)
    buffers = dict(case.buffers)
    for key in ("A", "B"):
        wide = rng.standard_normal(buffers[key].shape) * np.exp(2 * rng.standard_normal(buffers[key].shape))
        buffers[key] = np.clip(wide, -448, 448).astype(buffers[key].dtype)
    reports = [emulate(case.data, case.launch, buffers, model=model, workgroups=(0,)) for model in MfmaModel]
    outputs = [report.outputs["C"][:, :64].astype(np.float32) for report in reports]
    assert (outputs[0] != outputs[1]).any()
    assert np.allclose(outputs[0], outputs[1], rtol=0.05, atol=1.0)
    assert np.allclose(outputs[0], outputs[2], rtol=0.05, atol=1.0)


def test_arrival_behind_a_barrier_that_does_not_wait_for_stores_is_reported():
    case = split_k("split_k_one", 27)
    report = emulate(case.data, case.launch, case.buffers)
    assert case.wrong(report.outputs) == {"C": 0, "CNT": 0}
    assert {hazard.kind for hazard in report.hazards} == {HazardKind.CROSS_WORKGROUP_READ, HazardKind.MEMORY_RACE}
    assert {hazard.mnemonic for hazard in report.hazards} == {"buffer_load_dwordx4"}


def test_both_entries_of_a_preloading_kernel_agree():
    from dataclasses import replace

    case = CASES["quant"]()
    report = emulate(case.data, replace(case.launch, preload=False), case.buffers)
    assert report.hazards == ()
    assert case.wrong(report.outputs) == {"Q": 0, "S": 0}


def test_processes_give_the_same_report():
    case = quant("quant", 200)
    one = emulate(case.data, case.launch, case.buffers)
    two = emulate(case.data, case.launch, case.buffers, jobs=2)
    assert case.wrong(two.outputs) == {"Q": 0, "S": 0}
    assert (two.hazards, two.wave_instructions, two.instructions) == (
        one.hazards,
        one.wave_instructions,
        one.instructions,
    )


def test_a_part_of_a_grid_with_atomics_is_refused():
    case = CASES["split_k_all"]()
    with pytest.raises(LaunchError, match="run the whole grid"):
        emulate(case.data, case.launch, case.buffers, workgroups=(0,))


def test_what_is_not_modelled_is_named_and_ends_the_run():
    case = CASES["quant"]()
    kernel = read_code_object(case.data)
    at = kernel.text_offset + kernel.entry + 256
    spoilt = case.data[:at] + encode("s_getreg_b32", sdst=40, simm16=4) + case.data[at + 4 :]
    report = emulate(spoilt, case.launch, case.buffers)
    assert report.missing == ("pc 0x100: instruction s_getreg_b32",)
    assert not report.clean
    assert missing_features(spoilt) == ("instruction s_getreg_b32",)


def test_inputs_are_not_changed():
    case = CASES["quant"]()
    before = {name: as_bytes(value).copy() for name, value in case.buffers.items()}
    emulate(case.data, case.launch, case.buffers)
    assert all((as_bytes(value) == before[name]).all() for name, value in case.buffers.items())


def test_launch_errors_say_what_is_wrong():
    from dataclasses import replace

    case = CASES["quant"]()
    with pytest.raises(LaunchError, match="no buffer is given for argument X"):
        emulate(case.data, case.launch, {})
    extra = replace(case.launch.arguments[-1], name="extra", offset=400)
    with pytest.raises(LaunchError, match="the object has no such arguments: extra at offset 400"):
        emulate(case.data, replace(case.launch, arguments=(*case.launch.arguments, extra)), case.buffers)
    with pytest.raises(LaunchError, match="512 threads a workgroup, the object allows 256"):
        emulate(case.data, replace(case.launch, block=(512, 1, 1)), case.buffers)
    with pytest.raises(LaunchError, match=r"workgroup ids must lie in 0\.\."):
        emulate(case.data, case.launch, case.buffers, workgroups=(99,))
