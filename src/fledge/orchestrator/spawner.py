"""Spawning from the outside in: read what was asked, reserve, prepare what lies outside the database, accept.

A child that needs nothing outside is one commit. Any other is reserved in a commit, prepared beside it and accepted in
a second one; whatever goes wrong in between withdraws the reservation, and with it all that was made. Rules are in
`asked` and `spawn`, how things are made is the host's.
"""

import asyncio
from typing import Protocol

from msgspec import Struct

from fledge.config import Config
from fledge.core.prompts import accepted_note
from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.orchestrator import spawn
from fledge.orchestrator.asked import Caller, Host, SpawnParams, read_spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn import Request


class Maker(Host, Protocol):
    """A host that can also make what children need."""

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        """Bind the child to a thread of its requester's channel. Raises Refused if no channel there can."""
        ...


class Spawned(Struct, frozen=True):
    """An accepted run, and the model it was given; empty if none is configured."""

    run: Run
    model: str


class Spawner:
    """Spawns children of any caller, for the tool, the Python API, the command line and the gateway alike."""

    def __init__(self, engine: Engine, config: Config, host: Maker) -> None:
        self._engine, self._config, self._host = engine, config, host

    async def spawn(self, params: SpawnParams, caller: Caller) -> Spawned:
        """A child that was accepted. Raises BadInput or Refused, with nothing left behind, if it was not."""
        read = read_spawn(self._config, params, caller, self._host)
        return Spawned(await self.admit(read.request), read.model)

    async def admit(self, request: Request) -> Run:
        """The same for a request that has been read."""
        if not request.needs_preparing:
            return await self._engine.commit(lambda c: spawn.spawn(c, request))
        run, is_new = await self._engine.commit(lambda c: _reserved(c, request))
        if not is_new:
            return run
        try:
            await self._prepare(run, request)
            return await self._engine.commit(lambda c: spawn.prepared(c, run.key, request.generations))
        except BaseException as error:
            why = str(error) or type(error).__name__
            await asyncio.shield(self._engine.surely(lambda c: spawn.failed(c, run.key, why)))
            raise

    async def _prepare(self, run: Run, request: Request) -> None:
        if request.binds_thread:
            await self._host.bind_thread(self._engine, run)

    async def answer(self, params: SpawnParams, caller: Caller) -> dict[str, object]:
        """What the wire is told: accepted, forbidden or error."""
        try:
            return accepted(await self.spawn(params, caller))
        except (Refused, BadInput) as error:
            return {"status": error.status if isinstance(error, Refused) else "error", "error": str(error)}


def _reserved(c: Commit, request: Request) -> tuple[Run, bool]:
    known = spawn.spawned_before(c, request)
    return (known, False) if known is not None else (spawn.reserve(c, request), True)


def accepted(spawned: Spawned) -> dict[str, object]:
    """The answer to a spawn that was accepted."""
    run = spawned.run
    answer: dict[str, object] = {
        "status": "accepted",
        "childSessionKey": run.key,
        "runId": run.run_id,
        "mode": run.terms.mode,
    }
    if spawned.model:
        answer |= {"modelApplied": True, "resolvedModel": spawned.model}
    note = accepted_note(run.terms.mode, run.terms.parent)
    return answer | ({} if note is None else {"note": note})
