"""The Python API: the command line's verbs, with the same outcomes as values and exceptions."""

import json

import pytest

import nkc
from nkc import api
from nkc.ir import ContractError, NkcError, UsageError
from nkc.ir.manifest import Disposition, Manifest
from tests.cli.running import EXAMPLES, GFX950, SHUFFLED, SM_90
from tests.fixtures.contracts import document


def test_every_name_it_promises_is_there() -> None:
    for name in nkc.__all__:
        assert callable(getattr(nkc, name))
        assert name in dir(nkc)
    with pytest.raises(AttributeError, match="frobnicate"):
        _ = nkc.frobnicate


def test_read_identify_and_check(tmp_path) -> None:
    contract = nkc.read(GFX950)
    assert contract.operation == "dense"
    assert nkc.identify(contract) == nkc.identify(str(GFX950)) == nkc.identify(GFX950)
    assert nkc.check(GFX950) == ()
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document({"$.target.arch": "gfx95", "$.dtypes.out": "bf15"})))
    assert [problem.field for problem in nkc.check(bad)] == ["$.target.arch", "$.dtypes.out"]
    with pytest.raises(ContractError, match="bf15"):
        nkc.read(bad)


def test_explain_of_a_contract_or_its_file() -> None:
    record = nkc.explain(GFX950, allow_experimental=True)
    assert record.selected is not None
    assert record == nkc.explain(nkc.read(GFX950), allow_experimental=True)
    assert nkc.explain(GFX950, only_tactic="sm_90.dense.bf16_64x64x64_w4_s5").disposition is Disposition.FALLBACK


def test_catalogue_and_targets() -> None:
    names = [tactic.name for tactic in nkc.list_tactics(operation="dense", target="gfx950")]
    assert names
    assert all(name.startswith("gfx950.dense.") for name in names)
    assert set(names) < {tactic.name for tactic in nkc.list_tactics()}
    (target,) = nkc.list_targets("gfx950")
    assert target.lds_bytes == 163840
    assert target in nkc.list_targets()
    for ask in (lambda: nkc.list_tactics(target="gfx95"), lambda: nkc.list_targets("gfx95")):
        with pytest.raises(UsageError, match="did you mean `gfx950`"):
            ask()


def test_inspect_refuses_what_is_no_object(tmp_path) -> None:
    with pytest.raises(NkcError, match="README"):
        nkc.inspect(EXAMPLES / "README.md")
    with pytest.raises(UsageError, match="cannot be read"):
        nkc.inspect(tmp_path / "nothing.hsaco")


def test_all_unreadable_contracts_are_told_at_once(tmp_path) -> None:
    with pytest.raises(api.UnreadableError) as caught:
        api.read_all([tmp_path / "one.json", GFX950, tmp_path / "two.json"])
    assert [line.endswith("no such file or directory") for line in caught.value.lines()] == [True, True]
    assert caught.value.exit_code == 2


@pytest.mark.toolchain
def test_compile_returns_the_manifest_that_it_wrote(tmp_path) -> None:
    manifest = nkc.compile(SM_90, tmp_path / "k", allow_experimental=True)
    assert isinstance(manifest, Manifest)
    (entry,) = manifest.entries
    assert nkc.inspect(tmp_path / "k" / entry.object).isa == "sm_90a"
    assert nkc.explain(tmp_path / "k").id == entry.id
    both = nkc.compile([SM_90, SHUFFLED], tmp_path / "k", allow_experimental=True)
    assert [found.disposition for found in both.entries].count(Disposition.FALLBACK) == 1
    with pytest.raises(api.BuildError, match=r"\$\.layouts\.b") as caught:
        nkc.compile([SM_90, SHUFFLED], tmp_path / "k", allow_experimental=True, require_optimized=True)
    assert caught.value.exit_code == 3


def test_a_file_that_never_ends_is_no_object() -> None:
    with pytest.raises(UsageError, match="more than 64 MiB"):
        nkc.inspect("/dev/zero")
