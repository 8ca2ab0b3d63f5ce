"""SIGTERM and Ctrl-C as an event, for processes that end in order: the gateway and the worker."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def set_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set the event on SIGTERM and SIGINT while the block lasts; never in a thread that gets no signals."""
    loop = asyncio.get_running_loop()
    caught = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, stop.set)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
