"""Same contract, same toolchain, same bytes: whatever the folder, the environment, and how the file is written."""

import json
import os
import re
import socket
import time

import pytest

from tests.cli.running import EXAMPLES, nkc, tree

pytestmark = pytest.mark.toolchain

NAMES = (
    "deepseek-v3.kv_a_proj.m7.gfx950.json",
    "deepseek-v3.shared_expert.gate_up_proj.m0-64.sm_90.json",
    "qwen3.6-27b.mlp.down_proj.m16.gfx950.json",
    "qwen3.6-27b.qkv_proj.m16.shuffled.gfx950.json",
)


def build(place, environment, *, rewrite):
    """Build copies of the examples in a place of their own, with a home and a cache of their own."""
    for name in ("home", "cache", "tmp"):
        (place / name).mkdir(parents=True)
    for name in NAMES:
        (place / name).write_text(rewrite((EXAMPLES / name).read_text()))
        os.utime(place / name, (time.time() - 3600 * len(environment),) * 2)
    own = {
        "HOME": str(place / "home"),
        "XDG_CACHE_HOME": str(place / "cache"),
        "TRITON_CACHE_DIR": str(place / "cache"),
        "TMPDIR": str(place / "tmp"),
    }
    done = nkc(
        "compile", "--allow-experimental", "--keep", *NAMES, "-o", place / "k", cwd=place, env={**own, **environment}
    )
    assert done.code == 0, done.err
    assert not [left for name in ("home", "cache", "tmp") for left in (place / name).iterdir()]
    return tree(place / "k")


def test_two_builds_have_the_same_bytes_in_every_file(tmp_path) -> None:
    """F41, N01: other folder, HOME, time zone, locale, hash seed, user name, mtime, key order and white space."""

    def reorder(text: str) -> str:
        return json.dumps(dict(reversed(json.loads(text).items())), indent=1)

    one = build(
        tmp_path / "one",
        {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0", "USER": "alice"},
        rewrite=str,
    )
    two = build(
        tmp_path / "a longer name" / "two é",
        {
            "TZ": "Asia/Kathmandu",
            "LC_ALL": "C.UTF-8",
            "PYTHONHASHSEED": "4242",
            "USER": "bob",
            "COLUMNS": "40",
            "FORCE_COLOR": "1",
            "TRITON_PRINT_AUTOTUNING": "1",
            "MLIR_ENABLE_DUMP": "1",
            "LLVM_IR_ENABLE_DUMP": "1",
            "TRITON_DEBUG": "1",
            "AMDGCN_USE_BUFFER_OPS": "0",
        },
        rewrite=reorder,
    )
    assert sorted(one) == sorted(two)
    assert [name for name in one if one[name] != two[name]] == []
    assert sum(name.endswith((".hsaco", ".cubin")) for name in one) == 3
    for name, data in one.items():
        for word in (str(tmp_path), "alice", os.path.dirname(os.__file__)):
            assert word.encode() not in data, (name, word)
        if name.endswith(".json"):
            assert not re.search(rf"\b{re.escape(socket.gethostname())}\b".encode(), data), name


def test_provenance_moves_nothing_but_the_manifest(tmp_path) -> None:
    """N02."""

    def rename(text: str) -> str:
        return json.dumps({**json.loads(text), "provenance": {"model": "another", "built": "today"}})

    plain, renamed = build(tmp_path / "a", {}, rewrite=str), build(tmp_path / "b", {}, rewrite=rename)
    assert [name for name in plain if plain[name] != renamed[name]] == ["manifest.json"]
