"""The schemas that nkc publishes, by the name of the document."""

from collections.abc import Callable, Mapping

from nkc.ir.schema import Schema


def _contract() -> Schema:
    from nkc.ir.schema.contract import contract_schema

    return contract_schema()


def _explain() -> Schema:
    from nkc.emit.explain import Explain
    from nkc.ir.schema.record import record_schema

    return record_schema(Explain, "explain")


def _launch() -> Schema:
    from nkc.ir.launch import Launch
    from nkc.ir.schema.record import record_schema

    return record_schema(Launch, "launch")


def _manifest() -> Schema:
    from nkc.ir.manifest import Manifest
    from nkc.ir.schema.record import record_schema

    return record_schema(Manifest, "manifest")


SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "contract": _contract,
    "explain": _explain,
    "launch": _launch,
    "manifest": _manifest,
}
