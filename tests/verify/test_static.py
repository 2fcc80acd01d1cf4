"""Static checks where a compile meets them: an object with a defect is a mismatch like any other."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nkc.emit import build as b
from nkc.emit.build import ObjectMismatchError, OnMismatch
from nkc.emit.inspect import inspect
from nkc.tactics.reason import StageName
from nkc.tactics.select import Policy, select
from nkc.verify.gfx950.static_checks import CHECKS
from nkc.verify.static import CheckResult, checks_of, static_checks
from tests.fixtures.contracts import contract
from tests.fixtures.toolchain import FakeToolchain
from tests.verify.gfx950.cases import FOLDER, code
from tests.verify.gfx950.snippets import encode


class Spoilt(FakeToolchain):
    """Compiles nothing; of kernels whose symbol holds `part`, the object has these bytes."""

    def __init__(self, part: str, data: bytes) -> None:
        super().__init__()
        self._part, self._data = part, data

    def compile(self, source, target):
        built = super().compile(source, target)
        return replace(built, data=self._data if self._part in source.symbol else code("fp8_16x64"))


def with_clock() -> bytes:
    """Return a real object that reads a clock, which no kernel may."""
    from nkc.verify.gfx950.code_object import read_code_object

    data = code("quant")
    kernel = read_code_object(data)
    at = kernel.text_offset + kernel.entry + 256
    return data[:at] + encode("s_memtime", sdata=4) + data[at + 8 :]


def test_a_defect_is_a_mismatch_with_its_check_and_what_would_hold() -> None:
    selection = select(contract(), Policy(allow_experimental=True))
    assert selection.selected is not None
    lowered = selection.lower(selection.selected)
    assert b.build(lowered, Spoilt("nothing", b""), static_checks).built.data == code("fp8_16x64")
    with pytest.raises(ObjectMismatchError, match=r"s_memtime \(1 times\): clocks.*\(object_forbidden\)") as caught:
        b.build(lowered, Spoilt("", with_clock()), static_checks)
    (reason,) = caught.value.reasons
    assert (reason.stage, reason.predicate, reason.field) == (StageName.OBJECT, "object_forbidden", "$.code")
    assert reason.wanted == CHECKS["forbidden"]
    assert caught.value.exit_code == 4


def test_the_next_tactic_is_built_where_that_is_asked() -> None:
    selection = select(contract(), Policy(allow_experimental=True))
    assert selection.selected is not None
    first = selection.selected.tactic.name
    symbol = first.split(".")[-1]
    spoilt = Spoilt(f"{symbol}_m", with_clock())
    outcome = b.build_selection(selection, spoilt, on_mismatch=OnMismatch.NEXT, checks=static_checks)
    assert outcome.artifact is not None
    assert outcome.artifact.tactic != first
    assert outcome.explain is not None
    rejected = next(candidate for candidate in outcome.explain.candidates if candidate.name == first)
    assert [reason.predicate for reason in rejected.reasons] == ["object_forbidden"]


def test_bytes_that_nobody_knows_are_named() -> None:
    (reason,) = static_checks(replace(Spoilt("", b"not ELF").compile(*_source()), data=b"not ELF"), contract())
    assert reason.predicate == "object_decodes"
    assert "not an ELF file" in reason.actual


def _source():
    from nkc.emit.render import render
    from nkc.ir import targets

    selection = select(contract(), Policy(allow_experimental=True))
    assert selection.selected is not None
    return render(selection.lower(selection.selected)), targets.get("gfx950")


def test_every_check_is_listed_and_told() -> None:
    data = code("quant")
    found = checks_of(data, inspect(data, name="x"))
    assert {result.check for result in found} == set(CHECKS) - {"threads", "mfma", "contraction"}, (
        "nothing was agreed on these"
    )
    assert all(result.held for result in found)
    assert checks_of(b"", replace_isa(data)) == ()
    many = CheckResult(check="a", holds="b", defects=tuple("vwxyz"))
    assert many.told == "v; w; x; and 2 more"


def replace_isa(data: bytes):
    import msgspec

    return msgspec.structs.replace(inspect(data, name="x"), isa="sm_90a")


def test_every_name_that_a_defect_can_carry_is_in_the_table() -> None:
    import ast

    import nkc.verify.gfx950.static_checks as module

    tree = ast.parse(Path(module.__file__).read_text())
    named = {
        keyword.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Defect"
        for keyword in node.keywords
        if keyword.arg == "check" and isinstance(keyword.value, ast.Constant)
    }
    assert named | {"kernarg", "lds", "private"} == set(CHECKS)


def test_neither_checks_nor_listing_load_numpy() -> None:
    """A compile has no numpy: it belongs to what runs and judges."""
    script = (
        "import sys; sys.modules['numpy'] = None\n"
        "from nkc.emit.inspect import inspect; from nkc.verify.static import checks_of\n"
        "from nkc.verify.gfx950.code_object import read_code_object; from nkc.verify.gfx950.listing import listing\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "assert all(result.held for result in checks_of(data, inspect(data, name='x')))\n"
        "assert listing(read_code_object(data))"
    )
    subprocess.run([sys.executable, "-c", script, FOLDER / "fp8_64x64.hsaco"], check=True)
