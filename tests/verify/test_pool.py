"""Processes of a verification: they end when it is called off, whatever they are in the middle of."""

import time
from multiprocessing import active_children, get_context

import pytest

from nkc.verify.pool import pool


@pytest.mark.parametrize("leaves", [KeyboardInterrupt, SystemExit])
def test_what_is_called_off_waits_for_no_task_and_leaves_no_process(leaves) -> None:
    began = time.monotonic()
    with pytest.raises(leaves):
        call_off(leaves)
    assert time.monotonic() - began < 30
    assert active_children() == []


def call_off(leaves: type[BaseException]) -> None:
    with pool(2, get_context("spawn")) as executor:
        executor.submit(int).result()  # a process is up
        for _ in range(5):
            executor.submit(time.sleep, 60)
        raise leaves


def test_results_come_back() -> None:
    with pool(1, get_context("spawn")) as executor:
        assert executor.submit(pow, 2, 10).result() == 1024
