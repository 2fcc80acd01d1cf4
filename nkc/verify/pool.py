"""Processes that share one verification, and end with it when it is called off."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.context import BaseContext
from typing import NoReturn


@contextmanager
def pool(processes: int, context: BaseContext | None = None) -> Iterator[ProcessPoolExecutor]:
    """Give processes for the length of a block. What leaves the block early ends them, and waits for no result.

    An executor left to itself runs all that it was given before it lets an interrupt through: minutes on the emulator.
    """
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_answer_to_parent) as executor:
        try:
            yield executor
        except BaseException:
            for child in active_children():
                child.terminate()
            executor.shutdown(cancel_futures=True)
            raise


def _answer_to_parent() -> None:
    """Leave the terminal's interrupt to the parent, and end on its word."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: object) -> NoReturn:
    """End at once, and first the processes of a task: an exception would be this task's result, and the next begin."""
    del frame
    for child in active_children():
        child.terminate()
    os._exit(128 + number)
