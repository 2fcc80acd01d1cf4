"""Holds back what calls a program off, for the moments in which it would lose track of a child or of a folder."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_CALLS_OFF = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let an interrupt or a termination that comes during the block take effect at its end. Keep the block short.

    Python runs handlers in its main thread alone, so that elsewhere nothing has to be held back. The handlers are
    replaced, not the signals blocked: a child that is started in the block would be born with them blocked.
    """
    came: list[tuple[int, FrameType | None]] = []
    held = {}
    if threading.current_thread() is threading.main_thread():
        held = {number: handler for number in _CALLS_OFF if callable(handler := signal.getsignal(number))}
    for number in held:
        signal.signal(number, lambda *call: came.append(call))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for first, frame in came[:1]:
            held[signal.Signals(first)](first, frame)
