import os
import signal
import threading

import pytest

from nkc.emit.interrupts import uninterrupted


class CalledOffError(Exception):
    pass


@pytest.fixture(autouse=True)
def handler():
    """Both signals raise; what stood before stands again."""

    def raise_it(number, frame):
        del frame
        raise CalledOffError(number)

    before = {number: signal.signal(number, raise_it) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield raise_it
    for number, old in before.items():
        signal.signal(number, old)


def press(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


@uninterrupted()
def block(done, *numbers):
    press(*numbers)
    done.append("the rest of the block")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_effect_at_the_end_of_the_block(handler, number) -> None:
    done = []
    with pytest.raises(CalledOffError, match=str(int(number))):
        block(done, number)
    assert done
    assert signal.getsignal(number) is handler


def test_of_two_signals_the_first_one_counts() -> None:
    with pytest.raises(CalledOffError, match="15"):
        block([], signal.SIGTERM, signal.SIGINT)


def test_within_another_block_it_waits_for_the_outer_end() -> None:
    @uninterrupted()
    def outer(done):
        block([], signal.SIGINT)
        done.append("after the inner end")

    done = []
    with pytest.raises(CalledOffError):
        outer(done)
    assert done


def test_an_error_of_the_block_is_kept_beside_the_signal() -> None:
    @uninterrupted()
    def failing():
        press(signal.SIGINT)
        raise ValueError("of the block")

    with pytest.raises(CalledOffError) as caught:
        failing()
    assert isinstance(caught.value.__context__, ValueError)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        press(signal.SIGINT)


def test_another_thread_has_nothing_to_hold_back(handler) -> None:
    seen = []

    @uninterrupted()
    def look() -> None:
        seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [handler]
