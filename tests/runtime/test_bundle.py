"""Bundles: deterministic packing, and a reader that refuses by name whatever is damaged, foreign or hostile."""

import io
import json
import os
import random
import re
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nkc.ir.errors import UsageError
from nkc.runtime import BundleError, archive, bundle, read
from nkc.runtime.errors import NoBundleError

from .support import dense_launch, write_bundle

QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def build(root: Path) -> Path:
    return write_bundle(root, [dense_launch(), dense_launch(arch="gfx950", m=(0, 64))], fallback="framework")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A good packed bundle's bytes."""
    folder = tmp_path_factory.mktemp("packed")
    bundle.pack(build(folder / "b"), folder / "b.nkb")
    return (folder / "b.nkb").read_bytes()


def entry_file(root: Path, name: str) -> Path:
    return sorted(root.glob(f"*/{name}"))[0]


def test_packing_is_deterministic_and_unpacking_gives_the_same_files(tmp_path, out) -> None:
    first, second = build(out), build(tmp_path / "other")
    for path in second.rglob("*"):
        os.utime(path, (1, 1))
    (second / "notes.txt").write_text("not part of the bundle")
    bundle.pack(first, tmp_path / "1.nkb")
    bundle.pack(second, tmp_path / "2.nkb")
    assert (tmp_path / "1.nkb").read_bytes() == (tmp_path / "2.nkb").read_bytes()
    bundle.unpack(tmp_path / "1.nkb", tmp_path / "back")
    files = {path.relative_to(first): path.read_bytes() for path in first.rglob("*") if path.is_file()}
    back = {path.relative_to(tmp_path / "back"): path.read_bytes() for path in (tmp_path / "back").rglob("*.*")}
    assert back == files
    assert read(tmp_path / "1.nkb").plan_digest() == read(first).plan_digest() == read(tmp_path / "back").plan_digest()


def test_unpacking_never_overwrites(tmp_path, packed) -> None:
    (tmp_path / "b.nkb").write_bytes(packed)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        bundle.unpack(tmp_path / "b.nkb", tmp_path / "full")


def test_the_plan_digest_sees_decisions_and_no_bindings(out, tmp_path) -> None:
    first = read(build(out)).plan_digest()
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["entries"][0]["bindings"] = []
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert read(out).plan_digest() == first
    other = write_bundle(tmp_path / "other", [dense_launch(n=512)])
    assert read(other).plan_digest() != first


@pytest.mark.parametrize("name", ["kernel.cubin", "kernel.hsaco", "launch.json", "contract.json", "explain.json"])
def test_every_file_is_held_against_its_digest(out, name) -> None:
    """N39: an object whose bytes differ from the recorded hash is refused."""
    build(out)
    file = entry_file(out, name)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(BundleError, match=rf"{file.parent.name}/{name}: SHA-256 is"):
        read(out)


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda m: m.update(schema="nkc.manifest/2"), "schema `nkc.manifest/2`, this runtime reads `nkc.manifest/1`"),
        (lambda m: m.update(extra=1), "unknown field `extra`"),
        (lambda m: m["entries"][0].update(object="../evil"), "leads out of the bundle"),
        (lambda m: m["entries"][0].update(launch="/etc/passwd"), "leads out of the bundle"),
        (lambda m: m["entries"][0].update(contract="a\\..\\b"), "leads out of the bundle"),
        (lambda m: m["entries"][0].update(launch=None), "half of an object"),
        (lambda m: m["entries"][0].update(disposition="fallback"), "half of an object"),
        (lambda m: m["entries"][0]["sha256"].pop("launch.json"), "no SHA-256 for"),
        (lambda m: m["entries"][0].update(tactic="other"), "tactic `sm_90.dense.test`, the manifest says `other`"),
        (lambda m: m["entries"][0].update(target="sm_100"), "target `sm_90`, the manifest says `sm_100`"),
        (lambda m: m["entries"][0].update(id="nk_0"), "id `nk_"),
    ],
)
def test_a_planted_manifest_is_refused_by_name(out, plant, message) -> None:
    write_bundle(out, [dense_launch()])
    manifest = json.loads((out / "manifest.json").read_text())
    plant(manifest)
    (out / "manifest.json").write_text(json.dumps(manifest))
    found, problems = bundle.examine(out)
    assert found is None
    assert message in "\n".join(problems)


@pytest.mark.parametrize("second", ["fallback", "another kernel", "the same again"])
def test_K20_one_request_has_one_disposition(out, second) -> None:
    entries = json.loads((build(out) / "manifest.json").read_text())["entries"]
    first, other = (entry for entry in entries if entry["id"] is not None)
    fallback = next(entry for entry in entries if entry["id"] is None)
    added = {"fallback": fallback, "another kernel": other, "the same again": first}[second]
    manifest = {"schema": "nkc.manifest/1", "entries": [first, {**added, "request": first["request"]}]}
    (out / "manifest.json").write_text(json.dumps(manifest))
    found, problems = bundle.examine(out)
    assert found is None
    assert problems == (
        f"{out.name}: manifest.json: {first['request']}: two entries, where a request ends in one disposition",
    )


def test_another_launch_version_is_named_even_with_a_right_digest(out) -> None:
    import hashlib

    write_bundle(out, [dense_launch()])
    file = entry_file(out, "launch.json")
    data = file.read_bytes().replace(b"nkc.launch/1", b"nkc.launch/9")
    file.write_bytes(data)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["entries"][0]["sha256"]["launch.json"] = hashlib.sha256(data).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"schema `nkc\.launch/9`, this runtime reads `nkc\.launch/1`"):
        read(out)


def test_all_problems_are_reported_at_once(out) -> None:
    build(out)
    entry_file(out, "kernel.cubin").write_bytes(b"x")
    entry_file(out, "kernel.hsaco").unlink()
    _, problems = bundle.examine(out)
    assert len(problems) == 2
    assert any("kernel.hsaco: missing" in problem for problem in problems)


def test_a_link_out_of_the_bundle_is_refused(out, tmp_path) -> None:
    build(out)
    file = entry_file(out, "kernel.cubin")
    (tmp_path / "outside").write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(tmp_path / "outside")
    with pytest.raises(BundleError, match="a link leads out of the bundle"):
        read(out)


def test_an_oversized_file_is_refused_unread(out, monkeypatch) -> None:
    build(out)
    monkeypatch.setattr(bundle, "MAX_FILE_BYTES", 4000)
    entry_file(out, "kernel.cubin").write_bytes(b"x" * 5000)
    with pytest.raises(BundleError, match=r"kernel\.cubin: 5000 bytes, more than the 4000"):
        read(out)


def rezip(data: bytes, change) -> bytes:
    """Return a zip with each (info, bytes) replaced by what `change` returns."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(result, "w") as target:
        for info in source.infolist():
            for each_info, each in change(info, source.read(info)):
                target.writestr(each_info, each)
    return result.getvalue()


def _escape(info, data):
    return [(info, data), ("../../evil.txt", b"x")] if info.filename == "manifest.json" else [(info, data)]


def _absolute(info, data):
    return [(info, data), ("/evil.txt", b"x")] if info.filename == "manifest.json" else [(info, data)]


def _link(info, data):
    if info.filename.endswith("kernel.cubin"):
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return [(info, data)]


def _stranger(info, data):
    return [(info, data), ("stranger.so", b"x")] if info.filename == "manifest.json" else [(info, data)]


def _no_manifest(info, data):
    return [] if info.filename == "manifest.json" else [(info, data)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_escape, "leads out of the bundle"),
        (_absolute, "leads out of the bundle"),
        (_link, "kernel.cubin: a link"),
        (_stranger, "stranger.so: not in the manifest"),
        (_no_manifest, "manifest.json: missing"),
    ],
)
def test_a_hostile_archive_is_refused_by_name(tmp_path, packed, change, message) -> None:
    (tmp_path / "b.nkb").write_bytes(rezip(packed, change))
    with pytest.raises(BundleError, match=message):
        read(tmp_path / "b.nkb")
    with pytest.raises(BundleError, match=message):
        bundle.unpack(tmp_path / "b.nkb", tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()


def _deflate(info, data):
    info.compress_type = zipfile.ZIP_DEFLATED
    return [(info, data)]


def _time(info, data):
    info.date_time = (2026, 1, 1, 0, 0, 0)
    return [(info, data)]


def _mode(info, data):
    info.external_attr = (stat.S_IFREG | 0o755) << 16
    return [(info, data)]


def _comment(info, data):
    info.comment = b"hello"
    return [(info, data)]


def _extra(info, data):
    info.extra = b"\x99\x99\x02\x00hi"
    return [(info, data)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_deflate, "manifest.json: encrypted or compressed, and a packed bundle holds its files as they are"),
        (_time, "byte 13: the date in the header of manifest.json: not what `nkc pack` writes"),
        (_extra, "byte 28: the length of an extra field in the header of manifest.json: not what `nkc pack` writes"),
        (_mode, "the external attributes in the directory entry of manifest.json: not what `nkc pack` writes"),
        (_comment, "the length of a comment in the directory entry of manifest.json: not what `nkc pack` writes"),
    ],
)
def test_what_pack_did_not_write_is_refused_and_located(tmp_path, packed, change, message) -> None:
    (tmp_path / "b.nkb").write_bytes(rezip(packed, change))
    with pytest.raises(BundleError, match=f"^{re.escape('b.nkb: ')}.*{re.escape(message)}"):
        read(tmp_path / "b.nkb")


def test_another_order_of_the_files_is_refused(tmp_path, packed) -> None:
    with zipfile.ZipFile(io.BytesIO(packed)) as source:
        infos = source.infolist()
        turned = io.BytesIO()
        with zipfile.ZipFile(turned, "w") as target:
            for info in (infos[0], *reversed(infos[1:])):
                target.writestr(info, source.read(info))
    (tmp_path / "b.nkb").write_bytes(turned.getvalue())
    with pytest.raises(BundleError, match="not what `nkc pack` writes"):
        read(tmp_path / "b.nkb")


@pytest.mark.parametrize("tail", [b"\0", b"x" * 40])
def test_bytes_in_front_and_behind_are_refused(tmp_path, packed, tail) -> None:
    (tmp_path / "b.nkb").write_bytes(packed + tail)
    with pytest.raises(
        BundleError, match=f"byte {len(packed)}: {len(tail)} bytes after its end|not a bundle|not whole"
    ):
        read(tmp_path / "b.nkb")
    (tmp_path / "b.nkb").write_bytes(tail + packed)
    with pytest.raises(BundleError, match=r"byte 0: the signature in the header of manifest\.json"):
        read(tmp_path / "b.nkb")
    said = packed[:-2] + len(tail).to_bytes(2, "little") + tail  # an archive's comment
    (tmp_path / "b.nkb").write_bytes(said)
    with pytest.raises(BundleError, match="the length of a comment in the end record"):
        read(tmp_path / "b.nkb")


def test_any_zip_tool_reads_a_packed_bundle(packed) -> None:
    """What is written is what the standard library's writer makes of the same files."""
    with zipfile.ZipFile(io.BytesIO(packed)) as source:
        assert source.testzip() is None
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as target:
            for info in source.infolist():
                plain = zipfile.ZipInfo(info.filename)
                plain.create_system, plain.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                target.writestr(plain, source.read(info))
    assert result.getvalue() == packed


def test_more_than_a_plain_zip_file_holds_is_not_packed(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    with pytest.raises(BundleError, match="b: cannot be packed: more than 3 files"):
        bundle.pack(build(tmp_path / "b"), tmp_path / "b.nkb")


def test_a_file_that_announces_too_much_is_refused_unread(tmp_path, packed, monkeypatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", 100_000)
    blown = bytearray(packed)
    at = packed.rindex(b"PK\1\2")  # the last entry of the directory
    blown[at + 20 : at + 28] = (1 << 20).to_bytes(4, "little") * 2
    (tmp_path / "b.nkb").write_bytes(blown)
    with pytest.raises(BundleError, match="once unpacked"):
        read(tmp_path / "b.nkb")


@QUICK
@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_truncated_bundle_is_refused(tmp_path, packed, cut) -> None:
    (tmp_path / "b.nkb").write_bytes(packed[: int(len(packed) * cut)])
    with pytest.raises(BundleError):
        read(tmp_path / "b.nkb")


def test_every_byte_counts(tmp_path) -> None:
    """A bit of each byte in turn is flipped, another one each time, in headers as well as in files."""
    file = tmp_path / "b.nkb"
    bundle.pack(write_bundle(tmp_path / "b", [dense_launch()]), file)
    packed = file.read_bytes()
    bits = random.Random(0)
    for place in range(len(packed)):
        flipped = bytearray(packed)
        flipped[place] ^= 1 << bits.randrange(8)
        file.write_bytes(flipped)
        found, problems = bundle.examine(file)
        assert found is None, f"byte {place} of {len(packed)}"
        assert all(problem.startswith("b.nkb: ") for problem in problems)


@QUICK
@given(junk=st.binary(max_size=300), front=st.booleans())
def test_junk_is_refused(tmp_path, packed, junk, front) -> None:
    (tmp_path / "junk.nkb").write_bytes(junk)
    with pytest.raises(BundleError):
        read(tmp_path / "junk.nkb")
    (tmp_path / "b.nkb").write_bytes(junk + packed if front else packed + junk)
    found, problems = bundle.examine(tmp_path / "b.nkb")
    assert (found is None) == bool(problems) == bool(junk)


@QUICK
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    field=st.sampled_from(
        ["id", "request", "target", "object", "launch", "contract", "explain", "sha256", "bindings", "disposition"]
    ),
)
def test_any_value_in_any_field_of_the_manifest_is_refused_or_read(tmp_path, value, field) -> None:
    root = tmp_path / "b"
    if not root.exists():
        write_bundle(root, [dense_launch()])
        (tmp_path / "good.json").write_bytes((root / "manifest.json").read_bytes())
    manifest = json.loads((tmp_path / "good.json").read_bytes())
    manifest["entries"][0][field] = value
    (root / "manifest.json").write_text(json.dumps(manifest))
    found, problems = bundle.examine(root)
    assert (found is None) == bool(problems)


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("nk_0/kernel.cubin", True),
        ("a b/é", True),
        ("", False),
        ("/a", False),
        ("a/../b", False),
        ("./a", False),
        ("a//b", False),
        ("a\\b", False),
        ("c:/a", False),
        ("a\0", False),
    ],
)
def test_safe_paths(path, safe) -> None:
    assert bundle.safe_path(path) is safe


def test_missing_things_are_named(tmp_path) -> None:
    with pytest.raises(NoBundleError, match=r"none\.nkb: cannot be read: no such file or directory"):
        read(tmp_path / "none.nkb")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoBundleError, match=r"empty: manifest\.json: missing \(is this the output directory"):
        read(tmp_path / "empty")
