"""Where a command builds what it needs: in the folder that was asked for, else in one that goes at its end."""

import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self


class Scratch(ABC):
    """A folder for the length of a block, filled when the block begins; where that fails, nothing is left."""

    def __init__(self, place: Path | None, name: str) -> None:
        self._place = place
        self._name = name
        self._stack = ExitStack()

    @abstractmethod
    def _fill(self, place: Path) -> None:
        """Find or build what the block is about."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = self._place or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"nkc-{self._name}-")))
            self._fill(folder)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
