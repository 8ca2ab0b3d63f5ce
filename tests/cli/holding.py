"""A process that holds a state folder, played by a thread of the test, and commands beside it."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import fledge
from fledge.commands.control_socket import control_socket
from fledge.models.base import Model, Request
from fledge.store.ways import CONTROL_SOCKET
from tests.cli import command

ECHO = "scripted/echo"
PATIENCE_S = 30.0


async def never(request: Request) -> str:
    await asyncio.Event().wait()
    raise AssertionError


Body = Callable[[fledge.Fledge, Callable[[], None]], Awaitable[None]]
"""What a holder does; it calls the function when commands may come."""


class Holder:
    """A process that holds a folder, in a thread of its own, until its body is over."""

    def __init__(self, state: Path, thinks_with: Model, **options: Any) -> None:
        self._state = state
        self._options = {"models": {ECHO: thinks_with}, "model": ECHO, "config": {}, "program": "cli"} | options
        self._ready = threading.Event()
        self._failed: list[BaseException] = []
        self._troubles: list[object] = []
        """What the event loop would have printed to the holder's terminal."""

    @contextlib.contextmanager
    def at_work(self, body: Body) -> Iterator[None]:
        """Hold the folder while `body` is at work; it says when commands may come. It must have left in the end."""

        async def hold() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: self._troubles.append(context))
            async with fledge.open(self._state, **self._options, address=CONTROL_SOCKET) as fl:
                await asyncio.wait_for(body(fl, self._ready.set), PATIENCE_S)

        def run() -> None:
            try:
                asyncio.run(hold())
            except BaseException as error:
                self._failed.append(error)
            finally:
                self._ready.set()

        thread = threading.Thread(target=run, name="holder")
        thread.start()
        try:
            assert self._ready.wait(PATIENCE_S)
            yield
        finally:
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert (self._failed, self._troubles) == ([], [])


Done = tuple[int, str, str]
"""Exit code, output and errors of a command."""


def do(folder: Path, *line: str, given: str = "") -> Done:
    """A command in this folder, on the state folder `state` in it."""
    env = os.environ | {"FLEDGE_STATE": "state", "FLEDGE_CONFIG": "config"}
    done = command.fledge(*line, cwd=folder, env=env, given=given)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def stays(over: threading.Event) -> Body:
    """The body of a holder that stays until it is told to leave."""

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        async with control_socket(fl):
            ready()
            await asyncio.to_thread(over.wait, PATIENCE_S)

    return body
