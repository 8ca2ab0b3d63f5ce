"""`run_program`: a user's program in virtual time, on a folder of its own; `fledge.testing` exports it.

It is `fledge.run_sync` for tests: no settings of the developer count, nothing waits, nothing stays behind.
"""

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from fledge.api.fledge import Fledge
from fledge.client.opening import open as open_folder
from fledge.errors import BadInput
from fledge.testing.stores import InlineStore
from fledge.testing.time import VirtualClock, run_virtual

T = TypeVar("T")


def run_program(main: Callable[[Fledge], Awaitable[T]], **options: Any) -> T:
    """Run `main(fl)` on a new folder in virtual time, and return its result: hours pass at once.

    `options` are those of `fledge.open`; without them no settings count and the workspace is an empty folder. Use
    `survives_crashes` to test what holds after the program was killed in the middle.

    >>> async def main(fl):
    ...     run = await fl.spawn("Say hello")
    ...     return (await run).text
    >>> run_program(main, model=ScriptedModel(echo))
    'Say hello'
    """
    if not callable(main):
        raise BadInput("main", "must be an async function that takes the opened fledge", main)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workspace = folder / "workspace"
        workspace.mkdir()

        async def opened() -> T:
            given = {"config": {}, "workspace": workspace, "clock": VirtualClock(), **options}
            async with open_folder(folder / "state", store=InlineStore(folder / "state"), **given) as fl:
                return await main(fl)

        return run_virtual(opened())
