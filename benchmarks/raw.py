"""Small CUDA kernels beside those under test: compiled by NVRTC where no GPU is needed, launched through ctypes.

They take their arguments as 8 bytes each and have nothing of the product's launcher in them, so that neither can hide a
mistake of the other.
"""

import ctypes
from pathlib import Path


def build(source: Path, symbols: tuple[str, ...], folder: Path) -> None:
    """Compile the kernels of a file, in the order in which it holds them, into one object each."""
    from nkc.emit.source import Source
    from nkc.emit.toolchains.nvrtc import NvrtcToolchain
    from nkc.ir import targets

    folder.mkdir(parents=True, exist_ok=True)
    head, *parts = source.read_text().split('extern "C"')
    with NvrtcToolchain() as toolchain:
        for symbol, part in zip(symbols, parts, strict=True):
            one = Source(
                language="cuda",
                text=f'{head}extern "C"{part}',
                symbol=symbol,
                digest="",
                closure=(),
                closure_digest="",
                parameters=(),
                options=(("dynamic_lds_bytes", 0), ("fmad", False), ("std", "c++17")),
            )
            (folder / f"{symbol}.cubin").write_bytes(toolchain.compile(one, targets.get("sm_90")).data)


class RawKernel:
    """One kernel, on torch's current stream."""

    def __init__(self, folder: Path, symbol: str, *, dependent: bool = False, shared_bytes: int = 0) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        image = (folder / f"{symbol}.cubin").read_bytes()
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, symbol.encode())
        if shared_bytes:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", self._function, 8, shared_bytes)
        self._shared_bytes = shared_bytes
        self._dependent = dependent
        self._attribute = (ctypes.c_uint64 * 9)(6, 1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

    def launch(self, blocks: int, threads: int, *values: int) -> None:
        """Launch; every parameter is 8 bytes."""
        import torch

        held = (ctypes.c_int64 * len(values))(*values)
        table = (ctypes.c_void_p * len(values))(*(ctypes.addressof(held) + 8 * i for i in range(len(values))))
        config = (ctypes.c_uint64 * 7)()
        shape = (ctypes.c_uint32 * 7).from_buffer(config)
        shape[:] = [blocks, 1, 1, threads, 1, 1, self._shared_bytes]
        config[4] = torch.cuda.current_stream().cuda_stream
        config[5], config[6] = ctypes.addressof(self._attribute), int(self._dependent)
        self._call("cuLaunchKernelEx", config, self._function, table, None)

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed with {status}")
