"""The Triton toolchain: sources in Triton become HSACO or cubin in a child process."""

from pathlib import Path
from typing import Literal, cast

from nkc.emit.source import CodeObject, Parameter, Source, Toolchain
from nkc.emit.toolchains.child import (
    TIMEOUT_SECONDS,
    WORKER,
    ChildToolchain,
    Compiler,
    installed_digest,
)
from nkc.emit.toolchains.worker import Request
from nkc.ir.target import Target, Vendor

TRITON = Compiler(title="Triton", file=Path(__file__).with_name("triton_compiler.py"), install="triton>=3.6,<3.10")


def backend_target(target: Target) -> tuple[str, str | int, int]:
    """Return a target as Triton names it: backend, architecture, wave size in lanes."""
    match target.vendor:
        case Vendor.AMD:
            return "hip", target.arch, target.wave
        case Vendor.NVIDIA:
            return "cuda", int(target.arch.removeprefix("sm_")), target.wave


def promises(parameter: Parameter) -> tuple[tuple[str, int], ...]:
    """Return a parameter's promises as Triton's attributes."""
    pairs = []
    if parameter.divisible_by is not None:
        pairs.append(("tt.divisibility", parameter.divisible_by))
    if parameter.range_bits is not None:
        pairs.append(("tt.pointer_range", parameter.range_bits))
    return tuple(pairs)


class TritonToolchain(ChildToolchain):
    """Triton's compiler, waiting in a child."""

    name = "triton"

    def __init__(self, *, timeout_seconds: float = TIMEOUT_SECONDS, worker: Path = WORKER) -> None:
        super().__init__(TRITON, timeout_seconds=timeout_seconds, worker=worker)

    def compile(self, source: Source, target: Target) -> CodeObject:
        """Compile a source for a target and read the object back. Raises ToolError."""
        from nkc.emit.inspect import inspect

        backend, arch, wave = backend_target(target)
        request = Request(
            text=source.text,
            symbol=source.symbol,
            signature=tuple((parameter.name, parameter.type) for parameter in source.parameters),
            attributes=tuple(promises(parameter) for parameter in source.parameters),
            backend=backend,
            arch=arch,
            wave=wave,
            options=dict(source.options),
        )
        reply = self.ask(request, f"{source.symbol} for {target.arch}")
        return CodeObject(
            kind=cast("Literal['hsaco', 'cubin']", reply.kind),
            data=reply.data,
            symbol=reply.symbol,
            waves=reply.waves,
            lds_dynamic_bytes=reply.lds_bytes,
            scratch_bytes=reply.scratch_bytes,
            resources=inspect(reply.data, name=f"{source.symbol}.{reply.kind}"),
            intermediates=tuple(sorted(reply.texts.items())),
            toolchain=Toolchain(
                name=self.name, version=self.version, digest=installed_digest("triton", below="triton")
            ),
        )
