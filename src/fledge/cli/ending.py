"""How a waiting command ends: with the exit code of the first of its parts that has one, or in an orderly way by Ctrl-C
and SIGTERM.

By default, a second Ctrl-C raises an exception in the code that runs at that moment. That would cut short the code that
restores the terminal and releases the folder.
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
"""How long after a signal further ones are ignored: a cancelled command has ended by then."""


async def first_code(parts: Iterable[Awaitable[int | None]]) -> int:
    """Run the parts of a command at the same time; the first one that returns an exit code ends the others. Returns
    that code."""
    tasks = [asyncio.ensure_future(one) for one in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(code for task in done if (code := task.result()) is not None)
    finally:
        await end_tasks(tasks)


async def until_ended(running: Coroutine[Any, Any, int]) -> int:
    """The exit code of the command; 143 if SIGTERM cancelled it. Raises KeyboardInterrupt if Ctrl-C did, once it has
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

    # The loop removes its handlers when it closes: until then no signal becomes an exception.
    with suppress(ValueError, RuntimeError):  # only the main thread can handle signals
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
