"""`nkc bench`, `nkc tune`, `nkc split` and `nkc import-tuning` as a user runs them, on a machine without a GPU."""

import json
from pathlib import Path

import msgspec
import pytest

from nkc import ir
from nkc.ir.contract import Bounded
from nkc.tactics import performance
from tests.cli.running import EXAMPLES, nkc

SPLIT_K = EXAMPLES / "qwen3.6-35b.o_proj.m1.split_k.gfx950.json"
RANGE = EXAMPLES / "deepseek-v3.shared_expert.gate_up_proj.m0-64.sm_90.json"


def test_nothing_to_bench_says_what_to_name() -> None:
    done = nkc("bench")
    assert (done.code, done.errors) == (
        2,
        ["nkc: nothing to bench (name contracts, a folder of them, or a built directory)"],
    )


def test_a_folder_without_contracts_is_named(tmp_path) -> None:
    done = nkc("bench", tmp_path)
    assert done.code == 2
    assert "holds no contract (*.json) and nothing that was built" in done.err


def test_a_picture_is_drawn_from_committed_records_without_a_gpu(tmp_path) -> None:
    done = nkc("bench", "--plot", tmp_path / "a.svg")
    assert done.code == 0
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn.count("<title>") >= 2 * len(performance.read_all().records)
    nkc("bench", "--plot", tmp_path / "b.svg", env={"PYTHONHASHSEED": "7"})
    assert (tmp_path / "b.svg").read_text() == drawn


def test_committed_records_are_shown_with_their_means_without_a_gpu() -> None:
    done = nkc("bench", "--show")
    assert done.code == 0, done.err
    assert "over the best peer" in done.out
    assert "published: not timed here but scaled" in done.out
    said = json.loads(nkc("bench", "--show", "--format", "json").out)["summary"]
    rows = {line["rows"] for line in said["rows"] if line["rule"] == "fp8_e4m3, tensor_core_fp8"}
    assert {1, 16, 64, 128, 512, 4096, None} <= rows
    peers = [peer for line in said["cells"] for peer in line["peers"] if peer["name"] == "DeepGEMM"]
    assert len(peers) >= 66
    assert {peer["scaled_by"] is None for peer in peers} == {False, True}, "timed in some runs, published for others"


def test_records_of_named_contracts_alone_are_shown(tmp_path) -> None:
    one = performance.read_all().records[0]
    file = tmp_path / "one.json"
    file.write_text(json.dumps(one.contract))
    done = nkc("bench", "--show", file, "--format", "json")
    assert done.code == 0, done.err
    assert {each["request"] for each in json.loads(done.out)["records"]} == {one.request}


def test_a_contract_that_nobody_timed_is_named_instead_of_an_empty_table(tmp_path) -> None:
    done = nkc("bench", "--show", SPLIT_K)
    assert (done.code, done.out) == (0, "")
    assert done.errors == [
        f"{SPLIT_K.name}: no record of it (nkc bench --record times them on a machine with their GPU, "
        "nkc bench --show alone prints every record)"
    ]
    told = nkc("bench", "--show", SPLIT_K, "--format", "json")
    assert json.loads(told.out)["records"] == []
    assert told.errors == done.errors
    for number, record in enumerate(performance.read_all().records[:2]):
        (tmp_path / f"{number}.json").write_text(json.dumps(record.contract))
    for number in range(4):
        (tmp_path / f"none{number}.json").write_bytes(SPLIT_K.read_bytes())
    some = nkc("bench", "--show", tmp_path)
    assert (some.code, len(some.errors)) == (0, 1)
    assert some.err.startswith("none0.json, none1.json, none2.json and 1 more: no record of 4 of 6 contracts (")
    assert "of floor" in some.out


def test_records_of_kernels_that_have_changed_are_named(tmp_path) -> None:
    from nkc.bench import records
    from nkc.bench.standing import fresh
    from nkc.emit.measured import tuning

    found = performance.read_all()
    kept = fresh(found.records, tuning())[0][:3]

    def shown(*some) -> list[str]:
        file = tmp_path / "exported.json"
        file.write_bytes(records.document(msgspec.structs.replace(found, records=tuple(some))))
        done = nkc("bench", "--show", file)
        assert done.code == 0, done.err
        return done.errors

    changed = [
        msgspec.structs.replace(
            each, routes=tuple(msgspec.structs.replace(route, code_digest="0" * 64) for route in each.routes)
        )
        for each in kept
    ]
    mend = "have changed since (nkc bench --record times them again)"
    assert shown(*kept) == []
    assert shown(changed[0]) == [f"{kept[0].cell}: its record is of kernels that {mend}"]
    assert shown(*changed[:2], kept[2]) == [f"{kept[0].cell} and 1 more: 2 of 3 records are of kernels that {mend}"]


@pytest.mark.toolchain
def test_kernels_are_built_for_another_machine_tactic_by_tactic(tmp_path) -> None:
    out = tmp_path / "out"
    done = nkc("bench", SPLIT_K, "--build-only", out)
    assert done.code == 0, done.err
    assert "2 kernels for 1 contract\n" in done.err
    folders = sorted(path.name for path in out.iterdir())
    assert len(folders) == 2
    assert all((out / name / "manifest.json").is_file() for name in folders)


def test_tune_proposes_the_committed_rows_again() -> None:
    done = nkc("tune", "--format", "json")
    assert done.code == 0, done.err
    proposed = json.loads(done.out)
    from nkc.tactics.tuning import table_path

    if "timed other kernels" not in done.err:  # records of kernels that have changed since propose nothing
        assert proposed == json.loads(table_path("dense").read_text())


def test_tune_without_a_contract_shows_only_what_would_change() -> None:
    done = nkc("tune")
    assert done.code == 0, done.err
    if "timed other kernels" not in done.err:
        assert done.out == ""
        assert done.errors[-1].endswith("as it is (--format json prints them whole)")


def test_tune_names_a_contract_without_a_record(tmp_path) -> None:
    hints = tmp_path / "hints.json"
    name = "N=4096,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    config = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "num_warps": 4, "num_stages": 6}
    (tmp_path / name).write_text(json.dumps({"64": config}))
    done = nkc("import-tuning", tmp_path / name, "-o", hints)
    assert (done.code, done.errors) == (0, ["1 hints, 1 with tactics of their tile"])
    done = nkc("tune", RANGE, "--hints", hints)
    assert done.code == 0
    assert f"{RANGE.name}: no fresh record; hints name sm_90.dense.fp8_wgmma_64x64x128_w4_s6, " in done.err


def test_check_names_every_contract_that_no_row_holds_whole() -> None:
    done = nkc("tune", "--check", RANGE)
    assert done.code == 5
    assert done.out.startswith(f"{RANGE.name}: m 0..64: ")
    assert "0 of 1 contracts lie whole in one fresh row" in done.err


def test_check_of_nothing_is_a_mistake() -> None:
    assert nkc("tune", "--check").code == 2


def test_split_writes_contracts_that_cover_the_range(tmp_path) -> None:
    done = nkc("split", RANGE, "--at", "1,16", "-o", tmp_path)
    assert done.code == 0, done.err
    paths = done.out.splitlines()
    parts = [ir.read(path) for path in paths]
    assert [part.shape["m"] for part in parts] == [
        Bounded(min=0, max=1),
        Bounded(min=2, max=16),
        Bounded(min=17, max=64),
    ]
    names = [f"deepseek-v3.shared_expert.gate_up_proj.{rows}.sm_90.json" for rows in ("m0-1", "m2-16", "m17-64")]
    assert [Path(path).name for path in paths] == names  # the range's own name, so that `*.sm_90.json` finds them
    whole = ir.read(RANGE)
    assert {(part.fallback, part.provenance["layer"]) for part in parts} == {
        (whole.fallback, whole.provenance["layer"])
    }
    assert nkc("check", *paths).code == 0


def test_parts_of_a_contract_whose_name_says_no_rows_are_named_behind_it(tmp_path) -> None:
    (tmp_path / "mine.json").write_bytes(RANGE.read_bytes())
    done = nkc("split", tmp_path / "mine.json", "--at", "1")
    assert [Path(path).name for path in done.out.splitlines()] == ["mine.m0-1.json", "mine.m2-64.json"]


@pytest.mark.parametrize(
    ("cuts", "said"),
    [("64", "outside $.shape.m"), ("16,8", "not ascending numbers"), ("x", "is not numbers with commas")],
)
def test_cuts_that_cut_nothing_say_why(tmp_path, cuts, said) -> None:
    done = nkc("split", RANGE, "--at", cuts, "-o", tmp_path)
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_duplicates_stop_an_import_with_both_origins(tmp_path) -> None:
    table = tmp_path / "tuned.csv"
    row = "256,16,1536,7168,8,0,{},a8w8_blockscale_1x128x128_256x16x64x128_16x16_x,1,2,0.0"
    table.write_text("\n".join(["cu_num,M,N,K,kernelId,splitK,us,kernelName", row.format(9.0), row.format(8.0)]) + "\n")
    done = nkc("import-tuning", table)
    assert (done.code, done.out) == (2, "")
    assert "tuned.csv:3" in done.err
    assert "tuned.csv:2" in done.err
    done = nkc("import-tuning", table, "--on-duplicate", "fastest")
    assert json.loads(done.out)["hints"][0]["origin"] == "tuned.csv:3"
