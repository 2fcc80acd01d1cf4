"""The CUDA toolchain: C++ with inline PTX becomes a cubin by NVRTC in a child process, without a GPU or a driver.

ptxas is taken at its word: an object that spills, or whose matrix instructions it serialised, is an error here and not
a slow kernel later.
"""

from pathlib import Path

from nkc.emit.source import CodeObject, Source, Toolchain
from nkc.emit.toolchains.child import TIMEOUT_SECONDS, WORKER, ChildToolchain, Compiler, installed_digest
from nkc.emit.toolchains.ptxas import report
from nkc.emit.toolchains.worker import Request
from nkc.ir.errors import ToolError
from nkc.ir.target import Target

PACKAGE = "nvidia-cuda-nvrtc"

NVRTC = Compiler(
    title="NVRTC",
    file=Path(__file__).with_name("nvrtc_compiler.py"),
    install="the extra that brings it: pip install 'nkc[nvrtc]'",
)


class NvrtcToolchain(ChildToolchain):
    """NVRTC, waiting in a child."""

    name = "nvrtc"

    def __init__(self, *, timeout_seconds: float = TIMEOUT_SECONDS, worker: Path = WORKER) -> None:
        super().__init__(NVRTC, timeout_seconds=timeout_seconds, worker=worker)

    def compile(self, source: Source, target: Target) -> CodeObject:
        """Compile a source for a target and read the object back.

        Raises ToolError, also for an object that ptxas reports as spilling or serialised.
        """
        from nkc.emit.inspect import inspect

        where = f"{source.symbol} for {target.arch}"
        request = Request(text=source.text, symbol=source.symbol, arch=target.isa, options=dict(source.options))
        reply = self.ask(request, where)
        try:
            said = report(reply.log)
        except ValueError as error:
            raise ToolError(f"{where}: NVRTC {self.version}: {error}") from None
        if said.faults:
            raise ToolError(f"{where}: ptxas: {' | '.join(said.faults)} (another tile, or fewer stages)")
        resources = inspect(reply.data, name=f"{source.symbol}.cubin")
        dynamic = source.option("dynamic_lds_bytes")
        assert isinstance(dynamic, int)
        return CodeObject(
            kind="cubin",
            data=reply.data,
            symbol=reply.symbol,
            waves=resources.max_threads // resources.wave,  # __launch_bounds__ says exactly the block
            lds_dynamic_bytes=dynamic,
            scratch_bytes=0,
            resources=resources,
            intermediates=(),
            toolchain=Toolchain(
                name=self.name, version=installed_version(), digest=installed_digest(PACKAGE, below="nvidia")
            ),
        )


def installed_version() -> str:
    """Return the wheel's version, which is finer than what the library says of itself."""
    from importlib.metadata import version

    return version(PACKAGE)
