"""F40: other tuners' tables as hints: origins kept, duplicates named, unknown kernels reported, sources untouched."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.bench import hints
from nkc.bench.hints import OnDuplicate, first_tries, gather
from nkc.bench.tables import read
from nkc.ir.errors import UsageError

from ..fixtures.contracts import contract

VLLM = "N=2112,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
HEADER = "cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio"


def triton(m: int, n: int, k: int = 128, warps: int = 4, stages: int = 4) -> dict[str, int]:
    return {
        "BLOCK_SIZE_M": m,
        "BLOCK_SIZE_N": n,
        "BLOCK_SIZE_K": k,
        "GROUP_SIZE_M": 32,
        "num_warps": warps,
        "num_stages": stages,
    }


def ck(m: int, us: float, tile: str = "16x64x128", units: int = 256) -> str:
    return f"{units},{m},1536,7168,8,0,{us},a8w8_blockscale_1x128x128_256x{tile}_16x16_16x16_intrawave_v1,1,2,0.0"


@pytest.fixture
def vllm(tmp_path):
    file = tmp_path / VLLM
    file.write_text(json.dumps({"64": triton(64, 64), "4096": triton(128, 128, warps=8, stages=3)}))
    return file


@pytest.fixture
def tuned(tmp_path):
    file = tmp_path / "tuned.csv"
    file.write_text("\n".join([HEADER, ck(16, 10.0), ck(32, 11.0, "64x64x128")]) + "\n")
    return file


def test_a_tile_becomes_the_tactics_that_have_it_nearest_first(vllm) -> None:
    found = gather([vllm])
    few, many = found.hints
    assert (few.target, few.dims, few.m, few.tile) == ("sm_90", {"k": 7168, "n": 2112}, 64, (64, 64, 128))
    assert few.tactics[0] == "sm_90.dense.fp8_wgmma_64x64x128_w4_s4", "the same waves and stages before others"
    assert many.tactics[0] == "sm_90.dense.fp8_wgmma_128x128x128_w8_s3"
    assert few.origin == f"{VLLM}:64"
    assert found.unknown == ()


def test_aiter_s_names_hold_the_tile(tuned) -> None:
    first = gather([tuned]).hints[0]
    assert (first.target, first.m, first.tile, first.waves, first.us) == ("gfx950", 16, (16, 64, 128), 4, 10.0)
    assert first.tactics[0].startswith("gfx950.dense.fp8_mfma_16x64x128")
    assert first.origin == "tuned.csv:2"


def test_sources_keep_their_bytes_and_a_second_run_gives_the_same(vllm, tuned) -> None:
    before = vllm.read_bytes(), tuned.read_bytes()
    found = gather([vllm, tuned])
    assert gather([tuned, vllm, vllm]) == found
    assert (vllm.read_bytes(), tuned.read_bytes()) == before
    assert set(found.sources) == {VLLM, "tuned.csv"}


def test_duplicates_are_an_error_that_lists_both_origins(tmp_path, tuned) -> None:
    other = tmp_path / "more.csv"
    other.write_text("\n".join([HEADER, ck(16, 9.0, "16x128x128")]) + "\n")
    with pytest.raises(UsageError) as raised:
        gather([tuned, other])
    said = str(raised.value)
    assert "gfx950, m 16, n 1536, k 7168: 2 rows: more.csv:2 (" in said
    assert "tuned.csv:2 (" in said
    chosen = gather([tuned, other], on_duplicate=OnDuplicate.FASTEST)
    assert [hint.origin for hint in chosen.hints if hint.m == 16] == ["more.csv:2"]


def test_equal_rows_are_duplicates_too(tmp_path) -> None:
    file = tmp_path / "twice.csv"
    file.write_text("\n".join([HEADER, ck(16, 9.0), ck(16, 9.0)]) + "\n")
    with pytest.raises(UsageError, match=r"twice\.csv:2 .* and twice\.csv:3"):
        gather([file])


def test_equal_times_are_settled_by_the_name(tmp_path) -> None:
    file = tmp_path / "twice.csv"
    file.write_text("\n".join([HEADER, ck(16, 9.0, "64x64x128"), ck(16, 9.0, "16x64x128")]) + "\n")
    (hint,) = gather([file], on_duplicate=OnDuplicate.FASTEST).hints
    assert hint.tile == (16, 64, 128)


def test_a_key_that_stands_twice_in_json_is_named_with_both_lines(tmp_path) -> None:
    file = tmp_path / VLLM
    config = json.dumps(triton(64, 64))
    file.write_text(f'{{\n"64": {config},\n"64": {config}\n}}\n')
    with pytest.raises(UsageError, match=r"`64` stands there twice, at .*json:2 and .*json:3"):
        gather([file])


def test_unknown_kernels_are_reported_once_with_their_first_row(tmp_path) -> None:
    file = tmp_path / "odd.csv"
    rows = [ck(m, 5.0, "16x64x512") for m in (16, 32)] + ["256,64,1536,7168,1,0,5.0,asm_kernel,1,2,0"]
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    found = gather([file])
    assert [(each.kernel[:10], each.rows, each.origin) for each in found.unknown] == [
        ("a8w8_block", 2, "odd.csv:2"),
        ("asm_kernel", 1, "odd.csv:4"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("table.txt", "{}", "neither an AITER"),
        ("N=1,K=128,device_name=NVIDIA_H200.json", "{}", r"named like .* \(N=…,K=…,device_name=…,dtype=…,block_shape="),
        (VLLM.replace("H200", "A100"), "{}", "`NVIDIA_A100` is no chip that is known"),
        (VLLM.replace("fp8_w8a8", "int8_w8a8"), "{}", "tuned for int8_w8a8"),
        (VLLM, "[]", "not a table"),
        (VLLM, "{", "not JSON"),
        (VLLM, '{"x": {}}', "not a number of rows"),
        (VLLM, '{"64": {"BLOCK_SIZE_M": 64}}', "not a number of rows"),
        ("a.csv", "M,N,K\n1,2,3\n", "no column kernelName"),
        ("a.csv", f"{HEADER}\n{ck(16, 9.0, units=77)}\n", "cu_num 77 is no chip"),
        ("a.csv", f"{HEADER}\n256,x,1536,7168,8,0,9.0,k,1,2,0\n", "is no number"),
        ("a.csv", f"{HEADER}\n256,0,1536,7168,8,0,9.0,k,1,2,0\n", "cannot be"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_no_table_says_why(tmp_path, name, text, said) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        gather([file])


def test_a_target_may_be_named_for_a_chip_nobody_knows(tmp_path) -> None:
    file = tmp_path / VLLM.replace("H200", "A100")
    file.write_text(json.dumps({"64": triton(64, 64)}))
    assert gather([file], target="sm_90").hints[0].target == "sm_90"


@given(st.binary(max_size=200), st.sampled_from([VLLM, "a.csv"]))
def test_any_bytes_are_read_or_refused_in_words(tmp_path_factory, data, name) -> None:
    file = tmp_path_factory.mktemp("hints") / name
    file.write_bytes(data)
    said = name
    try:
        read(file, None)
    except UsageError as error:
        said = str(error)
    assert name in said


def test_hints_say_what_to_try_first_for_the_next_larger_m(vllm, tmp_path) -> None:
    found = gather([vllm])
    written = tmp_path / "hints.json"
    from nkc.emit.explain import encode

    written.write_bytes(encode(found))
    assert hints.read_hints(written) == found
    shape = {"$.target.arch": "sm_90", "$.shape.n": 2112, "$.shape.k": 7168}
    assert first_tries(found, contract({**shape, "$.shape.m": 17})) == found.hints[0].tactics
    assert first_tries(found, contract({**shape, "$.shape.m": 65})) == found.hints[1].tactics
    assert first_tries(found, contract({**shape, "$.shape.m": 4097})) == ()
    assert first_tries(found, contract({**shape, "$.shape.n": 64})) == ()
