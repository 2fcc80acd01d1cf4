"""The code digest: what a kernel means moves it, how it is written does not."""

import io
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.emit.digest import code_digest, tokens
from nkc.emit.source import Options, Parameter
from nkc.ir.errors import ToolError

KERNEL = """import triton
import triton.language as tl


@triton.jit
def kernel(a, out):
    rows = tl.arange(0, 64)
    for step in tl.range(0, 8, num_stages=2):
        if step:
            rows = rows + 1
    tl.store(out + rows, tl.load(a + rows) * 2.0)
"""
OPTIONS: Options = (("enable_fp_fusion", False), ("num_warps", 4))
PARAMETERS = (
    Parameter(name="a", type="*fp32", divisible_by=16, range_bits=32),
    Parameter(name="out", type="*fp32", divisible_by=16),
)


def digest(text: str = KERNEL, options: Options = OPTIONS, parameters: tuple[Parameter, ...] = PARAMETERS) -> str:
    return code_digest(text, symbol="kernel", options=options, parameters=parameters)


@given(st.lists(st.tuples(st.integers(0, 11), st.text("abc {}#'\"\\é", max_size=12)), max_size=6))
def test_comments_and_blank_lines_change_nothing(notes: list[tuple[int, str]]) -> None:
    lines = KERNEL.splitlines()
    for at, note in notes:
        lines.insert(at, f"   # {note}")
        lines.insert(at, "")
    assert digest("\n".join(lines) + "\n") == digest()


@given(st.integers(1, 9))
def test_indentation_text_changes_nothing(width: int) -> None:
    indented = [line.replace("    ", " " * width) for line in KERNEL.splitlines()]
    assert digest("\n".join(indented)) == digest()


@given(st.data())
def test_white_space_between_tokens_and_breaks_inside_brackets_change_nothing(data: st.DataObject) -> None:
    text = KERNEL
    inside = [
        index
        for index, letter in enumerate(text)
        if letter == "," and text[:index].count("(") > text[:index].count(")")
    ]
    for at in sorted(data.draw(st.sets(st.sampled_from(inside))), reverse=True):
        text = text[: at + 1] + data.draw(st.sampled_from(["   ", "\n  ", " \\\n ", "  # why\n\n "])) + text[at + 1 :]
    assert digest(text) == digest()


def changeable() -> list[tuple[int, int, str]]:
    """Return where a number or an operator stands, and what to put there instead."""
    places = []
    offsets = [0]
    for line in KERNEL.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(KERNEL).readline):
        start, end = (offsets[row - 1] + column for row, column in (token.start, token.end))
        if token.type == tokenize.NUMBER:
            places.append((start, end, token.string + "1"))
        if token.type == tokenize.OP and token.string in "+*":
            places.append((start, end, "-"))
        if token.type == tokenize.NAME and token.string in {"rows", "step"}:
            places.append((start, end, token.string + "_"))
    return places


@pytest.mark.parametrize("place", changeable(), ids=str)
def test_every_constant_operator_and_name_changes_it(place: tuple[int, int, str]) -> None:
    start, end, other = place
    assert digest(KERNEL[:start] + other + KERNEL[end:]) != digest()


@pytest.mark.parametrize(
    "text",
    [
        "# notes\na = 1\n",
        "x = '#'; a = 1\n",
        'x = """\n#"""; a = 1\n',
        "x = (2,  # notes '\n     1)\n",
        "x = 2  # notes \\\na = 1\n",
        '"""notes"""\na = 1\n',
    ],
)
def test_N08_what_follows_a_passage_that_is_left_out_counts(text: str) -> None:
    assert digest(text.replace("1", "3")) != digest(text)


def test_moving_a_statement_out_of_its_block_changes_it() -> None:
    assert (
        digest(KERNEL.replace("            rows = rows + 1", "            pass\n        rows = rows + 1")) != digest()
    )
    assert digest(KERNEL.replace("    tl.store", "        tl.store")) != digest()


@pytest.mark.parametrize(
    "options",
    [
        (("enable_fp_fusion", True), ("num_warps", 4)),
        (("enable_fp_fusion", 0), ("num_warps", 4)),
        (("enable_fp_fusion", False), ("num_warps", 8)),
        (("enable_fp_fusion", False),),
        (("enable_fp_fusion", False), ("num_warps", 4), ("waves_per_eu", 1)),
    ],
    ids=str,
)
def test_every_option_changes_it(options: Options) -> None:
    """F34: the same text with fast math and without is two kernels, in an id as in every key made of it."""
    assert digest(options=options) != digest()


def test_the_order_of_options_does_not() -> None:
    assert digest(options=tuple(reversed(OPTIONS))) == digest()


@pytest.mark.parametrize(
    "first",
    [
        Parameter(name="a", type="*bf16", divisible_by=16, range_bits=32),
        Parameter(name="a", type="*fp32", divisible_by=8, range_bits=32),
        Parameter(name="a", type="*fp32", divisible_by=16),
        Parameter(name="a", type="*fp32", range_bits=32),
    ],
    ids=str,
)
def test_every_promise_changes_it(first: Parameter) -> None:
    assert digest(parameters=(first, PARAMETERS[1])) != digest()


def test_items_do_not_run_into_each_other() -> None:
    one = (Parameter(name="ab", type="c"),)
    other = (Parameter(name="a", type="bc"),)
    assert digest(parameters=one) != digest(parameters=other)


@pytest.mark.parametrize("text", ["x = (1,\n", "if x:\n        y\n    z\n", 'x = \'open\n"""never closed\n'])
def test_text_that_is_no_python_is_a_one_line_error(text: str) -> None:
    with pytest.raises(ToolError) as caught:
        list(tokens(text, symbol="kernel"))
    assert caught.value.exit_code == 4
    assert len(caught.value.lines()) == 1
    assert str(caught.value).startswith("kernel: the rendered kernel is not Python: ")


@pytest.mark.parametrize("text", ["x = f'{y}'\n", "x = Rf'y'\n", 'x = F"""{y}"""\n'])
def test_f_strings_are_refused(text: str) -> None:
    with pytest.raises(ToolError, match=r"kernel: line 1: an f-string in a kernel \(write the text out\)"):
        list(tokens(text, symbol="kernel"))
    assert list(tokens("x = rb'fff'\n", symbol="kernel"))
