"""The code digest: what a kernel means, so that renaming, reformatting and commenting move no id.

Python-like kernels are taken as their token stream without comments, blank lines, line breaks inside brackets and the
text of indentation; C++ as its preprocessing tokens without comments, white space and line continuations. What is left
is hashed with the options and promises that shape the code, in one canonical form.
"""

import hashlib
import io
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache

from nkc.emit.source import Language, Options, Parameter
from nkc.ir.errors import ToolError

_SILENT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})
_TEXTLESS = {tokenize.NEWLINE: "line", tokenize.INDENT: "indent", tokenize.DEDENT: "dedent"}


def tokens(text: str, *, symbol: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of every token that means something. Raises ToolError for text that is no Python.

    f-strings are refused: Python 3.12 cuts them into other tokens than 3.11, and a kernel has no use for them.
    """
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _SILENT:
                continue
            kind = _TEXTLESS.get(token.type)
            if kind is not None:
                yield kind, ""
                continue
            name = tokenize.tok_name[token.type]
            if name.startswith("FSTRING") or (
                name == "STRING" and "f" in token.string.partition(token.string[-1])[0].lower()
            ):
                raise ToolError(f"{symbol}: line {token.start[0]}: an f-string in a kernel (write the text out)")
            yield name, token.string
    except (tokenize.TokenError, SyntaxError) as error:
        raise ToolError(f"{symbol}: the rendered kernel is not Python: {error} (mend its template)") from None


_CONTINUATION = re.compile(r"\\[ \t]*\r?\n")
_CXX = re.compile(
    r"""
    (?P<silent>(?:\s+ | //[^\n]* | /\*.*?\*/)+)
  | (?P<directive>\#[^\n]*)
  | (?P<raw>(?:u8|[uUL])?R")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*" | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<operator><<=|>>=|<=>|->\*|\.\.\.|\#\#|::|->|\.\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%^&|]=|
      [-+*%^&|~!=<>?:;,.(){}\[\]] | /(?!\*))
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVES = ("pragma",)


def cxx_tokens(text: str, *, symbol: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of every preprocessing token of a CUDA kernel. Raises ToolError for text that is no C++.

    Of directives only pragmas: what a macro would define is placed by the template, and a macro's meaning hangs on
    white space. Raw strings are refused, since comments and line ends mean something in them.
    """
    spliced, at = _CONTINUATION.sub("", text), 0
    for found in _CXX.finditer(spliced):
        start, kind = found.start(), found.lastgroup
        if start != at:
            break
        at = found.end()
        match kind:
            case "silent":
                continue
            case "raw":
                raise ToolError(f"{_line(symbol, spliced, start)}: a raw string in a kernel (write it with escapes)")
            case "directive":
                words = re.sub(r"//.*|/\*.*?\*/", " ", found.group()[1:]).split()
                if not words or words[0] not in _DIRECTIVES:
                    said, where = found.group().strip(), _line(symbol, spliced, start)
                    raise ToolError(f"{where}: `{said}` in a kernel (let the template place it)")
                yield kind, " ".join(words)
            case str():
                yield kind, found.group()
    if at != len(spliced):
        raise ToolError(f"{_line(symbol, spliced, at)}: {spliced[at]!r} starts no token of C++ (mend its template)")


def _line(symbol: str, text: str, at: int) -> str:
    """Return where something is wrong, for an error's beginning."""
    return f"{symbol}: line {text.count(chr(10), 0, at) + 1}"


def code_digest(
    text: str, *, symbol: str, options: Options, parameters: tuple[Parameter, ...], language: Language = "triton"
) -> str:
    """Return the SHA-256 (hex) of a kernel's meaning: tokens, options, and parameters with their promises.

    Every item is written as its length and its text, so that no two different kernels run into the same bytes.
    """
    told = [b"nkc.code/1 %s\n" % language.encode()]
    told += _lines(text, symbol=symbol) if language == "cuda" else map(_token, tokens(text, symbol=symbol))
    told += [_written("option", name, type(value).__name__, value) for name, value in sorted(options)]
    told += [
        _written("parameter", parameter.name, parameter.type, parameter.divisible_by, parameter.range_bits)
        for parameter in parameters
    ]
    return hashlib.sha256(b"".join(told)).hexdigest()


def _lines(text: str, *, symbol: str) -> list[bytes]:
    """Return what is hashed of a kernel in C++, line by line: kernels of one template share most of their lines."""
    if "/*" not in text and _CONTINUATION.search(text) is None:  # nothing leads from one line to the next
        try:
            return [_line_told(line) for line in text.split("\n")]
        except ToolError:
            pass  # said below, of its place in the whole
    return [_token(token) for token in cxx_tokens(text, symbol=symbol)]


@lru_cache(maxsize=16384)
def _line_told(line: str) -> bytes:
    return b"".join(map(_token, cxx_tokens(line, symbol="")))


@lru_cache(maxsize=4096)
def _token(token: tuple[str, str]) -> bytes:
    return _written("token", *token)


def _written(*items: object) -> bytes:
    """Return one line of what is hashed: every item's length and text."""
    texts = [str(item).encode() for item in items]
    return b"".join(b"%d:%s;" % (len(text), text) for text in texts) + b"\n"
