"""The canonical form of a contract, and the id that is a pure function of it.

UTF-8 JSON with every default resolved, keys sorted, no insignificant white space; integers stay integers, the few
reals are fp32 values written as `float.hex()`. Notes (provenance, maturity, fallback) are left out: they never move
an id.
"""

import hashlib

import msgspec

from nkc.ir.contract import Contract

NOTES = ("maturity", "fallback", "provenance")
ID_PREFIX = "nk_"
ID_DIGITS = 24


def contract_document(contract: Contract, *, notes: bool = False) -> dict[str, object]:
    """Return a contract as plain JSON values with defaults resolved and open fields left out.

    Reading the document again gives the same contract; notes come along only when asked for.
    """
    document: dict[str, object] = {}
    for name in contract.__struct_fields__:
        if name in NOTES and not notes:
            continue
        value = _plain(getattr(contract, name), hex_reals=False)
        if value is not None and (value != {} or name in ("shape", "numerics")):
            document[name] = value
    return document


def canonical_bytes(contract: Contract) -> bytes:
    """Return the canonical form."""
    import orjson  # loaded only where something is written

    document = {
        name: _plain(getattr(contract, name), hex_reals=True)
        for name in contract.__struct_fields__
        if name not in NOTES
    }
    return orjson.dumps(
        {name: value for name, value in document.items() if value is not None}, option=orjson.OPT_SORT_KEYS
    )


def contract_id(contract: Contract) -> str:
    """Return `nk_` and the first 24 hex digits of the SHA-256 of the canonical form.

    Of a contract as written this is the request id; of a sealed contract it is the id of the object.
    """
    return ID_PREFIX + hashlib.sha256(canonical_bytes(contract)).hexdigest()[:ID_DIGITS]


def _plain(value: object, *, hex_reals: bool) -> object:
    """Return a value as plain JSON types; None where it is open."""
    if isinstance(value, msgspec.Struct):
        fields = ((name, _plain(getattr(value, name), hex_reals=hex_reals)) for name in value.__struct_fields__)
        return {name: plain for name, plain in fields if plain is not None}
    if isinstance(value, dict):
        return {str(name): _plain(item, hex_reals=hex_reals) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item, hex_reals=hex_reals) for item in value]
    if isinstance(value, float):
        return value.hex() if hex_reals else value
    return getattr(value, "value", value)  # an enum's word, or the value itself
