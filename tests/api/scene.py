"""What tests of the API share: a folder opened in virtual time, act after act, and a model that does as it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import fledge
from fledge.models.base import Model, Request
from fledge.models.scripted import Answer, last_text
from fledge.testing import START, InlineStore, ScriptedModel, SeededIds, VirtualClock, run_virtual

T = TypeVar("T")


async def obedient(request: Request) -> Answer:
    """Echoes what it is told; `wait N` first takes N seconds, `Wait for me` takes for ever."""
    words = last_text(request)
    if "Wait for me" in words:
        await asyncio.Event().wait()
    for line in words.splitlines():
        if line.startswith("wait "):
            await asyncio.sleep(float(line.split()[1]))
    return f"echo: {words}"


class Place:
    """One state folder; each act opens it anew, and virtual time goes on from act to act."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = START
        self.acts = 0

    def act(self, body: Callable[[fledge.Fledge], Awaitable[T]], model: Model | str | None = None, **options: Any) -> T:
        """Open the folder for as long as `body` takes."""

        async def acting() -> T:
            clock = VirtualClock(self.now)
            self.acts += 1
            options.setdefault("config", {})
            options.setdefault("workspace", self.folder)
            options.setdefault("store", InlineStore(self.folder))
            opened = fledge.open(
                self.folder,
                model=model or ScriptedModel(obedient),
                clock=clock,
                ids=SeededIds(self.acts),
                **options,
            )
            try:
                async with opened as fl:
                    return await body(fl)
            finally:
                self.now = clock.now()

        return run_virtual(acting())
