"""From a bundle to launchable kernels: everything that may take time happens here, before a graph is captured."""

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Literal, get_args

from nkc.ir.errors import UsageError, did_you_mean
from nkc.runtime import bundle as bundles
from nkc.runtime import kernargs
from nkc.runtime.bundle import Bundle
from nkc.runtime.driver import Driver
from nkc.runtime.errors import BundleError, DriverError
from nkc.runtime.launch import Kernel

LaunchPath = Literal["native", "ex", "plain", "bindings"]
DEFAULT_STREAMS = 4


class Library:
    """The kernels of a bundle on one device, by id or by request id. Close it, or use it as a context, to unload."""

    def __init__(self, bundle: Bundle, driver: Driver, streams: int, *, owns_driver: bool) -> None:
        self.bundle = bundle
        self.driver = driver
        self._owns_driver = owns_driver
        self._modules: list[int] = []
        self._kernels: dict[str, Kernel] = {}
        try:
            for entry, record in bundle.entries():
                if not runs_on(record.target.arch, driver.isa):
                    continue
                kernargs.check(record)
                module = driver.load(bundle.image(entry))
                self._modules.append(module)
                function = driver.symbol(module, record.symbol)
                driver.prepare(function, record)
                self._kernels[record.id] = Kernel(record, driver, function, streams=streams)
        except Exception:
            self.close()
            raise
        self._requests = {
            entry.request: entry.id
            for entry in bundle.manifest.entries
            if entry.id is not None and entry.id in self._kernels
        }

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return every kernel, in the manifest's order."""
        return tuple(self._kernels.values())

    def of(self, operation: str) -> tuple[Kernel, ...]:
        """Return the kernels of one operation, in the manifest's order."""
        return tuple(kernel for kernel in self._kernels.values() if kernel.record.operation == operation)

    def __getitem__(self, name: str) -> Kernel:
        found = self._kernels.get(self._requests.get(name, name))
        if found is None:
            known = did_you_mean(name, (*self._kernels, *self._requests))
            raise KeyError(f"{self.bundle.name} has no kernel `{name}` for {self.driver.isa} ({known})")
        return found

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __len__(self) -> int:
        return len(self._kernels)

    def close(self) -> None:
        """Free workspaces and unload modules. No launch may be under way."""
        for kernel in self._kernels.values():
            kernel.close()
        self._kernels = {}
        while self._modules:
            self.driver.unload(self._modules.pop())
        if self._owns_driver:
            self.driver.close()
            self._owns_driver = False

    def __enter__(self) -> "Library":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(
    source: str | os.PathLike[str] | Bundle,
    device: int = 0,
    *,
    streams: int = DEFAULT_STREAMS,
    driver: Driver | None = None,
    launch_path: LaunchPath = "native",
) -> Library:
    """Return the kernels of a bundle (a directory, a packed file, or one already read) for a device.

    streams: how many streams may launch a kernel that needs workspace. driver: one that is open already, and stays so.
    launch_path: how CUDA launches are made; `native` is in C where the extension was built and in Python elsewhere, the
    others are in Python, for comparison. Errors: UsageError for an argument that means nothing; BundleError where the
    bundle is damaged or has nothing for the device; DriverError where the driver refuses.
    """
    _hold_arguments(device, streams, launch_path)
    bundle = source if isinstance(source, Bundle) else bundles.read(source)
    if not bundle.targets:
        raise BundleError(f"{bundle.name}: no entry has an object (all are fallback or unsupported)")
    owns_driver = driver is None
    driver = open_driver(bundle, device, launch_path) if driver is None else driver
    if not any(runs_on(target, driver.isa) for target in bundle.targets):
        if owns_driver:
            driver.close()
        raise BundleError(
            f"{bundle.name}: nothing for {driver.isa}, which device {device} is; it has {', '.join(bundle.targets)}"
        )
    return Library(bundle, driver, streams, owns_driver=owns_driver)


def _hold_arguments(device: object, streams: object, launch_path: object) -> None:
    """Raise UsageError for what is no index of a device, number of streams or way to launch."""
    for name, value, least in (("device", device, 0), ("streams", streams, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"load({name}=…): wanted an integer from {least} on, got {value!r}")
    if launch_path not in (known := get_args(LaunchPath)):
        raise UsageError(f"load(launch_path=…): unknown way {launch_path!r} ({did_you_mean(str(launch_path), known)})")


def open_driver(bundle: Bundle, device: int, launch_path: LaunchPath = "native") -> Driver:
    """Return the driver of the first vendor in the bundle that this machine has. Errors: DriverError."""
    from nkc.runtime import cuda, hip

    failures: list[str] = []
    try:
        if any(target.startswith("sm_") for target in bundle.targets):
            return cuda.open_device(device, launch_path)
    except DriverError as error:
        failures.append(str(error))
    try:
        if any(target.startswith("gfx") for target in bundle.targets):
            return hip.open_device(device)
    except DriverError as error:
        failures.append(str(error))
    targets = ", ".join(bundle.targets)
    raise DriverError(f"{bundle.name} has {targets}: " + ("; ".join(failures) or "no driver is known for these"))


def runs_on(arch: str, isa: str) -> bool:
    """Return whether an object for `arch` may be loaded on a device that runs `isa`; only its own kind may."""
    return arch == isa
