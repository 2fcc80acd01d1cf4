"""The code digest: what a kernel means, so that renaming, reformatting and commenting move no id.

Python-like kernels are taken as their token stream without comments, blank lines, line breaks inside brackets and the
text of indentation. What is left is hashed with the options and promises that shape the code, in one canonical form.
"""

import hashlib
import io
import tokenize
from collections.abc import Iterator

from nkc.emit.source import Options, Parameter
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


def code_digest(text: str, *, symbol: str, options: Options, parameters: tuple[Parameter, ...]) -> str:
    """Return the SHA-256 (hex) of a Triton kernel's meaning: tokens, options, and parameters with their promises.

    Every item is written as its length and its text, so that no two different kernels run into the same bytes.
    """
    digest = hashlib.sha256(b"nkc.code/1 triton\n")

    def add(*items: object) -> None:
        for item in items:
            raw = str(item).encode()
            digest.update(b"%d:%s;" % (len(raw), raw))
        digest.update(b"\n")

    for kind, token in tokens(text, symbol=symbol):
        add("token", kind, token)
    for name, value in sorted(options):
        add("option", name, type(value).__name__, value)
    for parameter in parameters:
        add("parameter", parameter.name, parameter.type, parameter.divisible_by, parameter.range_bits)
    return digest.hexdigest()
