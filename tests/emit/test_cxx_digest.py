"""The code digest of kernels in C++: white space, comments and line ends change nothing, every token changes it."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nkc.emit.digest import code_digest, cxx_tokens
from nkc.emit.source import Parameter
from nkc.ir.errors import ToolError

KERNEL = """typedef unsigned int u32;
static __device__ u32 both(u32 a, u32 b) {
  u32 r;
  asm volatile("{.reg .pred p;\\n add.u32 %0, %1, %2; // \\"sum\\"\\n}" : "=r"(r) : "r"(a), "r"(b));
  return r >> 3 ^ a->b ? 'x' : 0x1.8p-3f;
}
extern "C" __global__ void kernel(const float* __restrict__ a, float* out) {
#pragma unroll 4
  for (int i = 0; i < 0x10; ++i) out[i] += 1.5e-3f * a[i];  /* all of them */
}
"""


def digest(text: str = KERNEL, *, language: str = "cuda") -> str:
    parameters = (Parameter(name="a", type="float*"), Parameter(name="out", type="float*"))
    return code_digest(text, symbol="kernel", options=(("fmad", False),), parameters=parameters, language=language)


def pieces() -> list[str]:
    return [text for _, text in cxx_tokens(KERNEL, symbol="kernel")]


def written(gaps: list[str]) -> str:
    """Return the kernel with these gaps between its tokens; a pragma keeps its line."""
    lines = []
    for (kind, text), gap in zip(cxx_tokens(KERNEL, symbol="kernel"), gaps, strict=True):
        lines.append(f"\n#{text}\n" if kind == "directive" else f"{text}{gap}")
    return "".join(lines)


@given(st.lists(st.sampled_from([" ", "\n", "\t \n", ' /* a "b" \' */ ', " // note 'x\n", " \\\n "]), min_size=120))
def test_white_space_comments_and_continuations_change_nothing(gaps: list[str]) -> None:
    count = len(pieces())
    assert digest(written((gaps * (count // len(gaps) + 1))[:count])) == digest()


def test_a_continuation_inside_a_token_changes_nothing() -> None:
    assert digest(KERNEL.replace("return r", "ret\\\nurn r")) == digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0x10", "0x11"),
        ("1.5e-3f", "1.5e+3f"),
        ("+=", "-="),
        (" add.u32", " add.u32 "),
        ("unroll 4", "unroll 8"),
        (">> 3", "> > 3"),
        ("a->b", "a- >b"),
        ("'x'", "'y'"),
        ("u32 r;", "u32 r"),
        ("both", "bothe"),
    ],
)
def test_every_token_changes_it(old: str, new: str) -> None:
    assert old in KERNEL
    assert digest(KERNEL.replace(old, new)) != digest()


@pytest.mark.parametrize(
    "text",
    [
        "/* notes */ a = 1;",
        "/* notes **/ a = 1; /* more */",
        "/* notes // */ a = 1;",
        "// notes /*\na = 1;",
        'char s[] = "/*"; a = 1;',
        'char s[] = "//"; a = 1;',
        "char c = '\"'; a = 1; // \"",
        'asm("/* open" : "=r"(a)); a = 1; /* */',
        "#pragma unroll /* once */\na = 1;",
        "#pragma unroll // once\na = 1;",
        "a = 2 /1;",
    ],
)
def test_N08_what_follows_a_passage_that_is_left_out_counts(text: str) -> None:
    """A passage ends where the language says so, wherever else its end or its beginning might be read."""
    assert digest(text.replace("1;", "3;")) != digest(text)


def test_the_language_is_part_of_it() -> None:
    text = "kernel\n"
    assert digest(text) != digest(text, language="triton")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int a;\n#define B 4\n", "kernel: line 2: `#define B 4` in a kernel (let the template place it)"),
        ('#include "x.h"', "line 1: `#include"),
        ('const char* s = R"(x)";', "line 1: a raw string in a kernel (write it with escapes)"),
        ('int a;\nint b = "open;\n', "line 2: '\"' starts no token of C++ (mend its template)"),
        ("int a = `b`;", "line 1: '`' starts no token"),
        ("int a; /* never closed", "line 1: '/' starts no token"),
    ],
)
def test_what_cannot_be_read_for_certain_is_refused(text: str, said: str) -> None:
    with pytest.raises(ToolError, match=re.escape(said)):
        digest(text)


@given(st.text(max_size=40))
def test_any_text_ends_in_tokens_or_one_error(text: str) -> None:
    try:
        found = list(cxx_tokens(text, symbol="kernel"))
    except ToolError as error:
        found = [("error", str(error))]
    assert all(piece and "\n" not in piece for kind, piece in found if kind in ("error", "name", "number"))


@given(
    st.lists(st.sampled_from([*pieces(), "\n", "\n", " ", "// a line\n", "\\", '"', "'", "/", "*", "\r"]), max_size=40)
)
def test_a_text_is_told_line_by_line_as_it_is_told_whole(chosen) -> None:
    """A comment that spans lines makes it be told whole, and is itself nothing."""
    text = "".join([*chosen, ";"])
    assume("/*" not in text)

    def told(text: str) -> str:
        try:
            return digest(text)
        except ToolError as error:
            return str(error)

    assert told(text) == told(f"{text}\n/* to\nthe end */")
