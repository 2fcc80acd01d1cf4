"""One toolchain for a whole build: each source goes to the compiler of its language.

Triton's child starts at once, since nearly every build needs it; NVRTC's with the first CUDA source, so that who
selects none of those kernels needs no NVRTC and waits for none.
"""

from typing import Self

from nkc.emit.source import CodeObject, Source
from nkc.emit.toolchains.nvrtc import NvrtcToolchain
from nkc.emit.toolchains.triton import TritonToolchain
from nkc.ir.target import Target


class Toolchains:
    """Every compiler. A context manager: children live as long as it does."""

    def __init__(self) -> None:
        self.triton = TritonToolchain()
        self.nvrtc = NvrtcToolchain()

    def __enter__(self) -> Self:
        self.triton.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.triton.close()
        self.nvrtc.close()

    def compile(self, source: Source, target: Target) -> CodeObject:
        """Return the code object. Raises ToolError."""
        match source.language:
            case "triton":
                return self.triton.compile(source, target)
            case "cuda":
                return self.nvrtc.compile(source, target)
