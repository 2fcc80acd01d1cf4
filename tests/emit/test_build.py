"""Building, with a toolchain that compiles nothing: sealing, mismatches, what is laid out, and that nothing leaks."""

import dataclasses
import getpass
import hashlib
import json
import re
import socket
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from nkc import ir
from nkc.emit import build as b
from nkc.emit.build import Artifact, OnMismatch, Outcome, gather_requests
from nkc.emit.explain import Explain, encode
from nkc.emit.source import CodeObject, Source
from nkc.ir.contract import Contract, Lds, Maturity
from nkc.ir.launch import Launch
from nkc.ir.manifest import Disposition, Manifest
from nkc.ir.target import Target
from nkc.tactics.reason import StageName
from nkc.tactics.select import Policy, Selection, select

from ..fixtures.contracts import Edits, contract
from ..fixtures.sheets import tactic
from ..fixtures.toolchain import FakeToolchain

EXPERIMENTS = Policy(allow_experimental=True)
SHUFFLED: Edits = {"$.layouts.b": "shuffled_16x16"}


def selection(edits: Edits | None = None, *, only: str | None = None) -> Selection:
    return select(contract(edits), Policy(allow_experimental=True, only_tactic=only))


def built(edits: Edits | None = None, toolchain: FakeToolchain | None = None) -> Artifact:
    outcome = b.build_selection(selection(edits), toolchain or FakeToolchain(), on_mismatch=OnMismatch.FAIL)
    assert outcome.error is None
    assert outcome.artifact is not None
    return outcome.artifact


def build_into(
    out: Path, inputs: Iterable[tuple[str, Contract]], **options: object
) -> tuple[Manifest, tuple[Outcome, ...]]:
    """Build inputs and lay them out; options are `build_all`'s, and `keep`."""
    keep = bool(options.pop("keep", False))
    toolchain = options.pop("toolchain", FakeToolchain())
    requests = gather_requests(inputs)
    outcomes = b.build_all(requests, toolchain, policy=EXPERIMENTS, **options)  # type: ignore[arg-type]
    return b.write_all(out, requests, outcomes, keep=keep), outcomes


def tree(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


# sealing


def test_sealing_adds_what_only_the_object_can_say_and_changes_nothing_else() -> None:
    chosen = selection()
    assert chosen.selected is not None
    lowered = chosen.lower(chosen.selected).contract
    artifact = built()
    assert artifact.contract.lds == Lds(fixed_bytes=0, dynamic_bytes=1024)
    assert artifact.contract.code is not None
    assert artifact.contract.code.digest == artifact.source.digest
    assert msgspec.structs.replace(artifact.contract, lds=None, code=None) == lowered
    assert artifact.id == ir.contract_id(artifact.contract)
    assert artifact.id not in (ir.contract_id(lowered), ir.contract_id(contract()))


def test_the_sealed_contract_is_one_that_can_be_read_and_built_again() -> None:
    artifact = built()
    again = ir.parse(artifact.files(keep=False)["contract.json"])
    assert ir.contract_id(again) == artifact.id
    rebuilt = b.build_selection(select(again, EXPERIMENTS), FakeToolchain(), on_mismatch=OnMismatch.FAIL).artifact
    assert rebuilt is not None
    assert (rebuilt.id, rebuilt.built) == (artifact.id, artifact.built)


def test_the_id_does_not_depend_on_where_the_contract_came_from() -> None:
    assert built({"$.provenance": {"model": "x"}, "$.fallback": "y"}).id == built().id


def test_N21_fixed_and_dynamic_lds_never_mix() -> None:
    artifact = built(toolchain=FakeToolchain(lds={"": 0}))
    assert artifact.launch.lds.dynamic_bytes == 0
    document = json.loads(artifact.files(keep=False)["launch.json"])
    assert document["lds"] == {"fixed_bytes": 0, "dynamic_bytes": 0}
    other = built(toolchain=FakeToolchain(lds={"": 2048}))
    assert json.loads(other.files(keep=False)["launch.json"])["lds"] == {"fixed_bytes": 0, "dynamic_bytes": 2048}
    assert other.id != artifact.id


def test_N21_what_an_object_has_by_itself_is_not_asked_for_at_launch() -> None:
    class Fixed(FakeToolchain):
        def compile(self, source: Source, target: Target) -> CodeObject:
            made = super().compile(source, target)
            said = msgspec.structs.replace(made.resources, lds_fixed_bytes=1024)
            return dataclasses.replace(made, resources=said, lds_dynamic_bytes=0)

    artifact = built(toolchain=Fixed())
    assert json.loads(artifact.files(keep=False)["launch.json"])["lds"] == {"fixed_bytes": 1024, "dynamic_bytes": 0}
    assert artifact.contract.lds == Lds(fixed_bytes=1024, dynamic_bytes=0)
    assert artifact.id != built(toolchain=FakeToolchain(lds={"": 1024})).id


@pytest.mark.parametrize(
    "written", [{"dynamic_bytes": 1024}, {"fixed_bytes": 0}, {"fixed_bytes": 0, "dynamic_bytes": 1024}]
)
def test_lds_that_the_author_wrote_and_the_object_has(written: dict[str, int]) -> None:
    assert built({"$.lds": written}).id == built().id


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"dynamic_bytes": 1025}, "$.lds.dynamic_bytes: wanted 1025, the object has 1024 (object_lds)"),
        ({"fixed_bytes": 16}, "$.lds.fixed_bytes: wanted 16, the object has 0 (object_lds)"),
    ],
)
def test_lds_that_the_author_wrote_and_the_object_has_not(written: dict[str, int], said: str) -> None:
    outcome = b.build_selection(selection({"$.lds": written}), FakeToolchain(), on_mismatch=OnMismatch.FAIL)
    assert outcome.error is not None
    assert outcome.error.exit_code == 4
    assert said in str(outcome.error)
    assert outcome.artifact is None


def test_code_that_the_author_wrote_must_be_the_code() -> None:
    digest = built().source.digest
    assert built({"$.code": {"language": "triton", "digest": digest}}).id == built().id
    wrong = selection({"$.code": {"language": "triton", "digest": "0" * 64}})
    outcome = b.build_selection(wrong, FakeToolchain(), on_mismatch=OnMismatch.FAIL)
    assert f"$.code: wanted triton {'0' * 64}, the object has triton {digest}" in str(outcome.error)


# an object that is not what was asked

ON_SM_90: Edits = {"$.target.arch": "sm_90", "$.shape.m": 512, "$.numerics.accumulate": "tensor_core_fp8"}


def test_F26_an_estimate_below_the_real_allocation_is_an_error_with_both_figures() -> None:
    chosen = selection(ON_SM_90)
    assert chosen.selected is not None
    toolchain = FakeToolchain(lds={"": 241_724})
    outcome = b.build_selection(chosen, toolchain, on_mismatch=OnMismatch.FAIL)
    assert outcome.error is not None
    assert outcome.error.exit_code == 4
    assert str(outcome.error) == (
        f"{chosen.selected.tactic.name}: the object disagrees with its contract: "
        "$.target.arch: wanted at most 232448 bytes, the object has 241724 (object_lds_fits)"
    )
    assert len(toolchain.compiled) == 1
    assert outcome.explain is None


def test_F26_next_records_the_rejection_and_builds_the_next_in_order() -> None:
    chosen = selection(ON_SM_90)
    first, second = chosen.eligible[:2]
    symbol = first.tactic.name.split(".", 1)[1].replace(".", "_")
    outcome = b.build_selection(chosen, FakeToolchain(lds={f"{symbol}_m": 241_724}), on_mismatch=OnMismatch.NEXT)
    assert outcome.error is None
    assert outcome.artifact is not None
    assert outcome.artifact.tactic == second.tactic.name
    assert outcome.explain is not None
    assert outcome.explain.selected == second.tactic.name
    assert outcome.explain.disposition is Disposition.OPTIMIZED
    record = next(one for one in outcome.explain.candidates if one.name == first.tactic.name)
    assert record.state == "rejected"
    (reason,) = record.reasons
    assert (reason.stage, reason.wanted, reason.actual) == (StageName.OBJECT, "at most 232448 bytes", "241724")
    states = [one.state for one in outcome.explain.candidates]
    assert states.count("selected") == 1
    assert states.count("eligible") == len(chosen.eligible) - 2


@pytest.mark.parametrize(
    ("fallback", "disposition"), [("framework", Disposition.FALLBACK), (None, Disposition.UNSUPPORTED)]
)
def test_F26_where_no_object_holds_nothing_is_shipped(fallback: str | None, disposition: Disposition) -> None:
    chosen = selection({**ON_SM_90, "$.fallback": fallback})
    outcome = b.build_selection(chosen, FakeToolchain(lds={"": 241_724}), on_mismatch=OnMismatch.NEXT)
    assert outcome.artifact is None
    assert outcome.explain is not None
    assert (outcome.explain.disposition, outcome.explain.selected, outcome.explain.id) == (disposition, None, None)
    tried = {candidate.tactic.name for candidate in chosen.eligible}
    for record in outcome.explain.candidates:
        assert (StageName.OBJECT in {reason.stage for reason in record.reasons}) == (record.name in tried)


def test_a_compiler_that_fails_is_an_error_or_a_recorded_rejection() -> None:
    chosen = selection()
    assert chosen.selected is not None
    failing = FakeToolchain(failing=("",))
    outcome = b.build_selection(chosen, failing, on_mismatch=OnMismatch.FAIL)
    assert outcome.error is not None
    assert str(outcome.error).endswith(": error: the compiler gave up")
    outcome = b.build_selection(chosen, failing, on_mismatch=OnMismatch.NEXT)
    assert outcome.explain is not None
    assert len(failing.compiled) == 1 + len(chosen.eligible)
    for record in outcome.explain.candidates:
        if record.name in {candidate.tactic.name for candidate in chosen.eligible}:
            (reason,) = record.reasons
            assert (reason.stage, reason.predicate, reason.field) == (StageName.OBJECT, "builds", "$")
            assert "the compiler gave up" in reason.actual


def test_a_forced_tactic_that_does_not_hold_has_no_next() -> None:
    name = "gfx950.dense.fp8_mfma_16x64x128_s3"
    outcome = b.build_selection(selection(only=name), FakeToolchain(lds={"": 200_000}), on_mismatch=OnMismatch.NEXT)
    assert outcome.explain is not None
    assert outcome.explain.disposition is Disposition.UNSUPPORTED


@pytest.mark.parametrize(
    ("edits", "claim", "policy", "predicate", "field"),
    [
        ({"$.target.arch": "gfx942"}, None, EXPERIMENTS, "target_has", "$.dtypes.a"),
        ({}, Maturity.EXPERIMENT, Policy(), "mature", "maturity"),
        ({}, Maturity.REJECTED, EXPERIMENTS, "mature", "maturity"),
    ],
    ids=["e4m3fn on gfx942", "an experiment without consent", "rejected in spite of consent"],
)
def test_K20_what_no_tactic_may_serve_ends_before_anything_is_compiled(
    edits: Edits, claim: Maturity | None, policy: Policy, predicate: str, field: str
) -> None:
    def ended() -> bytes:
        tactics = None if claim is None else [tactic("only", claim=claim)]
        chosen = select(contract(edits), policy, tactics=tactics)
        toolchain = FakeToolchain()
        outcome = b.build_selection(chosen, toolchain, on_mismatch=OnMismatch.NEXT)
        assert (outcome.artifact, outcome.error, toolchain.compiled) == (None, None, [])
        assert outcome.explain is not None
        assert (outcome.explain.disposition, outcome.explain.id) == (Disposition.UNSUPPORTED, None)
        asked = [one for one in outcome.explain.candidates if claim is not None or ".fp8_" in one.name]
        assert asked
        for candidate in asked:
            assert (predicate, field) in [(reason.predicate, reason.field) for reason in candidate.reasons]
        return encode(outcome.explain)

    assert ended() == ended()


@pytest.mark.parametrize(
    "spoken",
    [
        {"$.epilogue": {"kind": "identity"}, "$.target.wave": 64, "$.numerics.round": "rne_once"},
        {"$.properties": {"deterministic": True, "graph_capture": True}, "$.scales.a.dtype": "fp32"},
        {"$.alignment": {"a": 16, "b": 16, "a_scales": 16, "b_scales": 16, "out": 16}, "$.constants": {}},
    ],
    ids=lambda edits: next(iter(edits)),
)
def test_K15_a_default_that_is_spelled_out_gives_the_same_tactic_and_the_same_bytes(spoken: Edits) -> None:
    def written(edits: Edits) -> tuple[str, str, bytes, dict[str, bytes]]:
        outcome = b.build_selection(selection(edits), FakeToolchain(), on_mismatch=OnMismatch.FAIL)
        assert outcome.artifact is not None
        assert outcome.explain is not None
        artifact = outcome.artifact
        return artifact.id, artifact.tactic, encode(outcome.explain), artifact.files(keep=True)

    assert written(spoken) == written({})


# requests


def test_N10_ten_layers_with_one_contract_are_one_object_and_ten_bindings(tmp_path: Path) -> None:
    layers = [(f"layers/{index}.json", contract({"$.provenance": {"layer": index}})) for index in range(10)]
    toolchain = FakeToolchain()
    manifest, _ = build_into(tmp_path, layers[::-1], toolchain=toolchain)
    (entry,) = manifest.entries
    assert len(toolchain.compiled) == 1
    assert [(binding.source, binding.provenance) for binding in entry.bindings] == [
        (f"{index}.json", {"layer": index}) for index in range(10)
    ]
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_inputs_that_say_the_same_are_one_binding_and_provenance_is_kept_whole() -> None:
    said = {"$.provenance": {"evidence": [{"url": "x", "ok": True}], "share": 0.5, "none": None}, "$.fallback": "f"}
    (request,) = gather_requests([("a/c.json", contract(said)), ("b/c.json", contract(said))])
    (binding,) = request.bindings
    assert json.loads(msgspec.json.encode(binding)) == {
        "source": "c.json",
        "fallback": "f",
        "provenance": {"evidence": [{"url": "x", "ok": True}], "share": 0.5, "none": None},
    }


def test_one_request_with_two_fallbacks_is_a_contract_error() -> None:
    with pytest.raises(ir.ContractError) as caught:
        gather_requests([("a.json", contract({"$.fallback": "x"})), ("b.json", contract())])
    assert str(caught.value) == (
        "b.json:$.fallback: no fallback, but the same contract in a.json has the fallback `x` (agree on one route)"
    )
    assert caught.value.exit_code == 2


def test_requests_are_in_the_order_of_their_ids() -> None:
    contracts = [(f"{n}.json", contract({"$.shape.n": n})) for n in (64, 128, 192, 256)]
    ids = [request.id for request in gather_requests(contracts)]
    assert ids == sorted(ids) == [request.id for request in gather_requests(contracts[::-1])]


# what is laid out


def test_the_manifest_speaks_of_every_file_and_no_other(tmp_path: Path) -> None:
    inputs = [
        ("a.json", contract()),
        ("b.json", contract({**SHUFFLED, "$.fallback": "framework"})),
        ("c.json", contract(SHUFFLED | {"$.shape.n": 64})),
    ]
    manifest, _ = build_into(tmp_path, inputs)
    assert msgspec.json.decode((tmp_path / "manifest.json").read_bytes(), type=Manifest) == manifest
    assert [entry.request for entry in manifest.entries] == sorted(entry.request for entry in manifest.entries)
    said = {"manifest.json"}
    for entry in manifest.entries:
        digests = {}
        for path in (entry.object, entry.explain, entry.contract, entry.launch):
            if path is not None:
                said.add(path)
                digests[path.rpartition("/")[2]] = hashlib.sha256((tmp_path / path).read_bytes()).hexdigest()
        assert entry.sha256 == digests
        assert entry.explain == f"{entry.request}/explain.json"
        if entry.disposition is not Disposition.OPTIMIZED:
            assert (entry.id, entry.tactic, entry.object, entry.launch, entry.contract) == (None,) * 5
    assert said == set(tree(tmp_path))
    assert sorted(entry.disposition.value for entry in manifest.entries) == ["fallback", "optimized", "unsupported"]


def test_the_files_of_one_object_agree_with_each_other(tmp_path: Path) -> None:
    manifest, _ = build_into(tmp_path, [("a.json", contract({"$.shape.m": {"min": 0, "max": 16}}))])
    (entry,) = manifest.entries
    assert entry.object is not None
    assert entry.launch is not None
    assert entry.contract is not None
    launch = msgspec.json.decode((tmp_path / entry.launch).read_bytes(), type=Launch)
    sealed = ir.read(tmp_path / entry.contract)
    explained = msgspec.json.decode((tmp_path / entry.explain).read_bytes(), type=Explain)
    assert {entry.id, launch.id, explained.id, ir.contract_id(sealed)} == {entry.id}
    assert entry.request == explained.request == ir.contract_id(contract({"$.shape.m": {"min": 0, "max": 16}}))
    assert launch.sha256 == hashlib.sha256((tmp_path / entry.object).read_bytes()).hexdigest()
    assert launch.object == entry.object.rpartition("/")[2] == "kernel.hsaco"
    assert explained.launch == launch
    assert explained.sealed == json.loads((tmp_path / entry.contract).read_bytes())
    assert explained.artifacts == {name: digest for name, digest in entry.sha256.items() if name != "explain.json"}


def test_keep_adds_the_source_and_what_the_compiler_left(tmp_path: Path) -> None:
    manifest, _ = build_into(tmp_path, [("a.json", contract())], keep=True)
    (entry,) = manifest.entries
    kept = {name for name in tree(tmp_path) if "/keep/" in name}
    assert kept == {f"{entry.id}/keep/source.py", f"{entry.id}/keep/kernel.asm"}
    assert not any("/" in name for name in entry.sha256)


def test_a_build_that_failed_leaves_nothing_and_does_not_stop_the_others(tmp_path: Path) -> None:
    inputs = [("good.json", contract()), ("bad.json", contract({"$.shape.n": 4096}))]
    told: list[str] = []
    manifest, outcomes = build_into(
        tmp_path, inputs, toolchain=FakeToolchain(failing=("_n4096_",)), done=lambda request, _: told.append(request.id)
    )
    assert [entry.bindings[0].source for entry in manifest.entries] == ["good.json"]
    assert sum(outcome.error is not None for outcome in outcomes) == 1
    assert told == [request.id for request in gather_requests(inputs)]
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_two_requests_that_seal_to_one_id_share_one_directory(tmp_path: Path) -> None:
    stages = select(contract(), EXPERIMENTS).eligible[0].tactic.schedule.stages
    manifest, _ = build_into(
        tmp_path, [("open.json", contract()), ("fixed.json", contract({"$.schedule.stages": stages}))]
    )
    first, second = manifest.entries
    assert first.request != second.request
    assert (first.id, first.object, first.sha256["kernel.hsaco"]) == (
        second.id,
        second.object,
        second.sha256["kernel.hsaco"],
    )


def test_a_sealed_contract_as_input_shares_its_directory_with_its_explanation(tmp_path: Path) -> None:
    sealed = built().contract
    manifest, _ = build_into(tmp_path, [("sealed.json", sealed)])
    (entry,) = manifest.entries
    assert entry.request == entry.id
    assert set(tree(tmp_path)) == {
        "manifest.json",
        *(f"{entry.id}/{name}" for name in ("contract.json", "explain.json", "kernel.hsaco", "launch.json")),
    }


def test_N01_two_builds_are_the_same_bytes_and_say_nothing_of_the_machine(tmp_path: Path) -> None:
    inputs = [("a.json", contract()), ("b.json", contract({**SHUFFLED, "$.fallback": "framework"}))]
    first, second = tmp_path / "one", tmp_path / "deeper" / "zwei #$"
    build_into(first, inputs, keep=True)
    build_into(second, inputs[::-1], keep=True)
    assert tree(first) == tree(second)
    for name, data in tree(first).items():
        text = data.decode()
        for secret in (str(tmp_path), socket.gethostname(), f"/{getpass.getuser()}", str(Path.home())):
            assert secret not in text, name
        assert not re.search(r"\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b", text), name


def test_a_second_build_keeps_what_is_equal_and_replaces_what_is_not(tmp_path: Path) -> None:
    build_into(tmp_path, [("a.json", contract())])
    before = {path: path.stat().st_ino for path in tmp_path.rglob("*")}
    build_into(tmp_path, [("a.json", contract())])
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*")} == before
    (object_,) = tmp_path.glob("*/kernel.hsaco")
    object_.write_bytes(b"damaged")
    build_into(tmp_path, [("a.json", contract())])
    assert object_.read_bytes() != b"damaged"
    manifest, _ = build_into(tmp_path, [("b.json", contract({"$.shape.n": 64}))])
    assert [entry.bindings[0].source for entry in manifest.entries] == ["b.json"]
