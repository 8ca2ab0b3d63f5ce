"""How a command that waits ends: by the first of its parts that has an exit code, or by Ctrl-C and SIGTERM, in order.

Python's own answer to a second Ctrl-C is an exception in whatever runs at that moment, which cuts short the code that
gives the terminal and the folder back.
"""

import asyncio
import signal
from collections.abc import Awaitable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

from fledge.cancellation import end_tasks

FAILED, AWAITS_A_PERSON = 1, 3
"""Exit codes of commands that wait for an answer."""
TERMINATED: Final = 128 + signal.SIGTERM
PATIENCE_S: Final = 5.0
"""How long after the first signal another one changes nothing: a command that is called off has ended by then."""


async def first_code(parts: Iterable[Awaitable[int | None]]) -> int:
    """Run the parts of a command at once; the exit code of the first that has one ends the others."""
    tasks = [asyncio.ensure_future(one) for one in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(code for task in done if (code := task.result()) is not None)
    finally:
        await end_tasks(tasks)


async def until_ended(running: Coroutine[Any, Any, int]) -> int:
    """What the command comes to; 143 if SIGTERM called it off. Raises KeyboardInterrupt if Ctrl-C did, once it has
    ended."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(running)
    heard: list[signal.Signals] = []
    patient_until = 0.0

    def end(number: signal.Signals) -> None:
        nonlocal patient_until
        if loop.time() >= patient_until:
            task.cancel()
            patient_until = loop.time() + PATIENCE_S
        heard.append(number)

    # The loop takes its handlers down when it closes: until then no signal becomes an exception.
    with suppress(ValueError, RuntimeError):  # only the main thread hears signals
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not heard:
            raise
        if heard[0] == signal.SIGINT:
            raise KeyboardInterrupt from None
        return TERMINATED
