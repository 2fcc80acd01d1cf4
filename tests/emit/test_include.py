"""Templates and their include graph: order, cycles with their path, what a rename moves and what it does not."""

from pathlib import Path

import pytest

from nkc.emit import include, render, templates
from nkc.emit.source import Parameter, Source
from nkc.ir.errors import ToolError

PARAMETERS = (Parameter(name="a", type="*fp32", divisible_by=16),)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "triton").mkdir()
    return tmp_path


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / "triton" / f"{name}.py.j2").write_text(text)


def rendered(root: Path, name: str = "kernel", **constants: object) -> Source:
    return render.source(
        f"triton/{name}.py.j2",
        {"symbol": "kernel", **constants},
        parameters=PARAMETERS,
        options=(("num_warps", 4),),
        root=root,
    )


def test_closure_lists_includers_first_and_ties_by_name(root: Path) -> None:
    write(
        root,
        kernel='{% include "triton/z.py.j2" %}\n{% include "triton/b.py.j2" %}\n',
        z='{% include "triton/a.py.j2" %}',
        b='{% include "triton/a.py.j2" %}',
        a="x = 1\n",
    )
    assert list(include.gather("triton/kernel.py.j2", root)) == [
        f"triton/{name}.py.j2" for name in ("kernel", "b", "z", "a")
    ]


def test_a_cycle_is_an_error_that_prints_its_path(root: Path) -> None:
    write(
        root, a='{% include "triton/b.py.j2" %}', b='{% include "triton/c.py.j2" %}', c='{% include "triton/b.py.j2" %}'
    )
    with pytest.raises(ToolError) as caught:
        include.gather("triton/a.py.j2", root)
    assert str(caught.value) == (
        "templates/triton/b.py.j2: includes itself: "
        "triton/b.py.j2 -> triton/c.py.j2 -> triton/b.py.j2 (break the cycle)"
    )
    assert caught.value.exit_code == 4


def test_a_template_that_includes_itself(root: Path) -> None:
    write(root, a='{% include "triton/a.py.j2" %}')
    with pytest.raises(ToolError, match=r"triton/a\.py\.j2 -> triton/a\.py\.j2"):
        include.gather("triton/a.py.j2", root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{% include "triton/none.py.j2" %}',
            "templates/triton/a.py.j2: includes `triton/none.py.j2`, which is not there",
        ),
        ('{% include "../secret" %}', "templates/triton/a.py.j2: includes `../secret`, which is not there"),
        ("{% include which %}", "templates/triton/a.py.j2: an include with a computed name"),
        ("x\n{% if %}", "templates/triton/a.py.j2:2: "),
        ("{{ missing }}", "templates/triton/a.py.j2: 'missing' is undefined"),
        ("{{ range(3) }}", "templates/triton/a.py.j2: 'range' is undefined"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_a_one_line_error(root: Path, text: str, said: str) -> None:
    (root.parent / "secret").write_text("x = 1\n")
    write(root, a=text)
    with pytest.raises(ToolError) as caught:
        rendered(root, "a")
    assert str(caught.value).startswith(said)
    assert len(caught.value.lines()) == 1


def test_renaming_an_include_moves_the_byte_hash_and_not_the_digest(root: Path) -> None:
    """N06."""
    write(root, kernel='{% include "triton/part.py.j2" %}', part="x = {{ k }}\n")
    before = rendered(root, k=7)
    write(root, kernel='{% include "triton/other.py.j2" %}', other="x = {{ k }}\n")
    after = rendered(root, k=7)
    assert after.text == before.text
    assert after.digest == before.digest
    assert after.closure_digest != before.closure_digest


def test_renaming_the_template_moves_the_byte_hash_and_not_the_digest(root: Path) -> None:
    """N06."""
    write(root, kernel="x = {{ k }}\n", renamed="x = {{ k }}\n")
    one, other = rendered(root, k=7), rendered(root, "renamed", k=7)
    assert (one.digest, one.closure_digest == other.closure_digest) == (other.digest, False)


def test_comments_and_formatting_move_the_byte_hash_only(root: Path) -> None:
    write(root, kernel="x = {{ k }}\n")
    before = rendered(root, k=7)
    write(root, kernel="{# why #}\n\n# a note on {{ k }}\nx  =  {{ k }}   # seven\n")
    after = rendered(root, k=7)
    assert after.digest == before.digest
    assert after.closure_digest != before.closure_digest


def test_a_constant_or_an_instruction_moves_the_digest(root: Path) -> None:
    write(root, kernel="x = {{ k }} + 1\n")
    before = rendered(root, k=7)
    assert rendered(root, k=8).digest != before.digest
    write(root, kernel="x = {{ k }} - 1\n")
    assert rendered(root, k=7).digest != before.digest


def test_cuda_templates_have_delimiters_that_leave_braces_alone(root: Path) -> None:
    texts = {"cuda/kernel.cu.j2": "int a[] = {{1}, {<$ k $>}}; <% if k %>// {% raw %}<% endif %>\n"}
    assert render.place("cuda/kernel.cu.j2", texts, {"k": 7}) == "int a[] = {{1}, {7}}; // {% raw %}"


def test_templates_are_found_in_the_checkout_or_in_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "nkc"
    package.mkdir()
    monkeypatch.setattr("nkc.ir.package.PACKAGE", package)
    assert templates.root() == tmp_path / "templates"
    (package / "_templates").mkdir()
    assert templates.root() == package / "_templates"
