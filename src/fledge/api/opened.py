"""An open state folder: its parts, and how it is opened and closed. What a program does with it is built upon this.

Closing waits until every driver has let go; whoever still waits for something is told that it is closed.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import Struct

from fledge.api.agents import Agent
from fledge.api.carried import GivenImage, kept
from fledge.api.identity import Identity, limits_of, section_digests
from fledge.cancellation import is_stop
from fledge.clock import Clock
from fledge.config import Config
from fledge.core.images import ImageEntry
from fledge.errors import BadInput, Refused
from fledge.ids import Ids
from fledge.orchestrator import spawn, turns
from fledge.orchestrator.changes import Changes, deadline
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.spawner import Spawner
from fledge.runtime.agent import Agent as Loop
from fledge.runtime.profiles import ConfiguredProfiles
from fledge.store.base import Spec, Store, Tx

T = TypeVar("T")

log = logging.getLogger("fledge.api")


class Parts(Struct, frozen=True, kw_only=True):
    """What a `Fledge` is made of; `fledge.open` puts it together."""

    state: Path
    config: Config
    profiles: ConfiguredProfiles
    agent: Loop
    rules: Rules
    program: str
    """The program's own session key."""
    open_store: Callable[[], Store]
    agents: tuple[Agent[Any], ...] = ()
    """Agents that the program gave as values."""
    identity: Callable[[], Identity]
    """What is brought to the folder, for comparing it with what another process brings."""
    drives: bool = True
    clock: Clock | None = None
    ids: Ids | None = None


class Opened:
    """Owns the folder between `async with` and its end."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._opened_by = 0
        """The process that has it open; a forked child is another one."""
        self._store: Store | None = None
        self._engine: Engine | None = None
        self._changes: Changes | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_asked = False
        """Somebody here answers questions to a person."""

    @property
    def state(self) -> Path:
        """The state folder."""
        return self._parts.state

    @property
    def config(self) -> Config:
        """The settings in effect."""
        return self._parts.config

    @property
    def program(self) -> str:
        """The session key of this program: the requester of the runs it spawns."""
        return self._parts.program

    @property
    def drives(self) -> bool:
        """True if unfinished runs continue in this process."""
        return self._parts.drives

    @property
    def identity(self) -> Identity:
        """The tools, agents, runtimes, hooks and settings of this process. Processes that share a folder compare them.

        >>> fl.identity.program
        'agent:main:program'
        """
        return self._parts.identity()

    @property
    def is_holder(self) -> bool:
        """True if this process holds the folder, so that functions run here; False if another process holds it.

        >>> fl.is_holder
        True
        """
        return self._engine is not None

    async def __aenter__(self) -> Self:
        """Own the folder, and take up what is unfinished in it."""
        parts = self._parts
        if self._store is not None:
            raise Refused("error", "this fledge is open already: call fledge.open again for another")
        self._store = parts.open_store()
        self._opened_by = os.getpid()
        try:
            engine = Engine(
                self._store,
                parts.agent,
                clock=parts.clock,
                ids=parts.ids,
                rules=parts.rules,
                drives=parts.drives,
                settings={} if self._store.cluster is None else section_digests(self.identity),
                limits={} if self._store.cluster is None else limits_of(self.config),
            )
            self._changes = Changes(engine)
            await parts.profiles.use_store(self._store)
            self._engine = await engine.__aenter__() if self._has_loop else engine
            if parts.drives:
                await engine.commit(self._open_program)
                await self._program_came()
        except BaseException:
            await self._let_go()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop driving, wait until every driver has let go, close the folder. What is unfinished goes on later."""
        await self._let_go()

    async def _let_go(self) -> None:
        engine, self._engine = self._engine, None
        if self._changes is not None:
            self._changes.close()
        try:
            if engine is not None and self._has_loop:
                await engine.__aexit__(None, None, None)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._store is not None:
                await self._store.close()
            await self._parts.profiles.close()

    @property
    def _has_loop(self) -> bool:
        """True if the engine is entered: it drives, or hears engines of other processes."""
        return self._parts.drives or (self._store is not None and self._store.cluster is not None)

    async def _program_came(self) -> None:
        """Let runs go on that wait for what this process has brought."""
        after: str | None = ""
        while after is not None:
            seen, brings = after, self._parts.profiles.brings
            after = await self.engine.commit(lambda c: turns.program_came(c, brings, seen))  # noqa: B023 (awaited here)

    def _open_program(self, c: Commit) -> None:
        known = c.tx.sessions.get(self.program)
        if known is not None and known.kind != "program":
            raise BadInput("program", f"{self.program} is a conversation; choose another name for the program")
        spawn.open_program(c, self.program)

    def check(self, agent_id: str = "main", spec: Spec | None = None) -> None:
        """Raise `BadInput` if this agent could not work: no model is set, its name is wrong, or its key is missing.

        With `spec`, check a task that may name its own model.

        >>> fl.check()
        """
        self._parts.profiles.check(agent_id, spec)

    def _check_thinks(self, agent_id: str) -> None:
        """The same of whoever drives; what is decided here for another to do is that one's to check."""
        if self.drives:
            self.check(agent_id)

    def check_model(self, name: str, thinking: str | None = None) -> None:
        """Raise `BadInput` for an unknown model name, a missing key, or a thinking level the model does not have.

        >>> fl.check_model("scripted/echo")
        """
        self._parts.profiles.check_model(name, thinking)

    def keeping_images(self, images: Sequence[GivenImage]) -> AbstractAsyncContextManager[tuple[ImageEntry, ...]]:
        """Store images and keep their files until the block ends, so that a commit can refer to them.

        >>> async with fl.keeping_images([]) as entries:
        ...     print(entries)
        ()
        """
        return kept(self._parts.profiles.images, images)

    async def until(self, look: Callable[[Tx], T | None], *, timeout: float | None = None) -> T | None:
        """Call `look` with a transaction whenever any session changes, until it returns something; return that.

        Returns None after `timeout` seconds. For queries that have no method here.

        >>> run = await fl.spawn("Say hello")
        >>> await fl.until(lambda tx: len(tx.runs.children(fl.program)) or None)
        1
        """
        return await self._watch.until(look, None, deadline(self.engine, timeout))

    @property
    def profiles(self) -> ConfiguredProfiles:
        """The model, prompt and tools of each agent, as configured."""
        return self._parts.profiles

    def watch(self, moved: asyncio.Event) -> None:
        """Set this event whenever any session changes, until `unwatch`. For programs that read rows themselves.

        >>> moved = asyncio.Event()
        >>> fl.watch(moved)
        >>> run = await fl.spawn("Say hello")
        >>> await moved.wait()
        True
        >>> fl.unwatch(moved)
        """
        self._watch.watch(moved)

    def unwatch(self, moved: asyncio.Event) -> None:
        """Stop setting the event. Does nothing if it was not watched.

        >>> fl.unwatch(asyncio.Event())
        """
        if self._changes is not None:
            self._changes.unwatch(moved)

    @property
    def engine(self) -> Engine:
        """The engine, for what has no method here. Raises `Refused` if the folder is not open in this process."""
        if self._engine is None:
            raise Refused("error", "this fledge is not open: use `async with fledge.open(…) as fl:`")
        if self._opened_by != os.getpid():
            raise Refused("error", f"process {self._opened_by} has this fledge open: call fledge.open in this one")
        return self._engine

    @property
    def spawner(self) -> Spawner:
        """Spawns runs on behalf of any session, as the tool `sessions_spawn` does. Raises `Refused` if not open.

        >>> type(fl.spawner).__name__
        'Spawner'
        """
        return self._parts.profiles.spawner(self.engine)

    @property
    def messenger(self) -> Messenger:
        """Sends messages from session to session and waits for answers. Raises `Refused` if not open.

        >>> type(fl.messenger).__name__
        'Messenger'
        """
        return Messenger(self.engine, self.config, self._watch)

    @property
    def _watch(self) -> Changes:
        self.engine  # noqa: B018  (refuses if closed)
        assert self._changes is not None
        return self._changes

    def _start(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside, for as long as this is open; its own trouble is logged."""

        async def doing() -> None:
            try:
                await work
            except BaseException as error:
                if is_stop(error):
                    raise
                if self._engine is not None:  # what waits is told so when this closes; that is no trouble
                    log.exception("background task failed")

        task = asyncio.ensure_future(doing())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
