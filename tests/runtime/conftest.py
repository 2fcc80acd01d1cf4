"""The stand-in drivers, built once a session and silent about each other."""

import ctypes
import ctypes.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import Standin, build_standin


@pytest.fixture(scope="session")
def _cuda_library(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    if ctypes.util.find_library("cuda") is not None:
        pytest.skip("this machine has a real CUDA driver; the device tests use it")
    pytest.importorskip("cuda.bindings.driver")
    # Loaded first under the real one's soname, so that cuda-bindings finds it already there.
    return Standin(build_standin(tmp_path_factory.mktemp("standin"), "cuda"))


@pytest.fixture(scope="session")
def _hip_library(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    return Standin(build_standin(tmp_path_factory.mktemp("standin"), "hip"))


@pytest.fixture
def cuda(_cuda_library: Standin) -> Iterator[Standin]:
    """The stand-in CUDA driver with an empty log."""
    _cuda_library.reset()
    yield _cuda_library
    _cuda_library.reset()


@pytest.fixture
def hip(_hip_library: Standin) -> Iterator[Standin]:
    """The stand-in HIP driver with an empty log."""
    _hip_library.reset()
    _hip_library.device("gfx950:sramecc+:xnack-")
    yield _hip_library
    _hip_library.reset()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A directory for a bundle, with a name that has blanks and accents (F38)."""
    return tmp_path / "out dir" / "été"
