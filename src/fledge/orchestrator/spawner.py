"""Spawning from the outside in: read what was asked, reserve, prepare what lies outside the database, accept.

A child that needs nothing outside is one commit. Any other is reserved in a commit, prepared beside it and accepted in
a second one; whatever goes wrong in between withdraws the reservation, and with it all that was made. Rules are in
`asked` and `spawn`, how things are made is the host's.
"""

import asyncio
from typing import Protocol

from msgspec import Struct, to_builtins

from fledge.config import Config
from fledge.core.attachments import Receipt
from fledge.core.leaves import ATTACHMENTS, leaf
from fledge.core.prompts import accepted_note
from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.orchestrator import spawn
from fledge.orchestrator.asked import Caller, Host, Read, SpawnParams, read_spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn import Request


class Maker(Host, Protocol):
    """A host that can also make what children need."""

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        """Bind the child to a thread of its requester's channel. Raises Refused if no channel there can."""
        ...

    async def make(self, request: Request) -> None:
        """Make what the run leaves outside the database. Raises if it cannot; what it made by then is removed later."""
        ...


class Spawned(Struct, frozen=True):
    """An accepted run, and the model it was given; empty if none is configured."""

    run: Run
    model: str
    attachments: tuple[Receipt, ...] = ()


class Spawner:
    """Spawns children of any caller, for the tool, the Python API, the command line and the gateway alike."""

    def __init__(self, engine: Engine, config: Config, host: Maker) -> None:
        self._engine, self._config, self._host = engine, config, host

    async def spawn(self, params: SpawnParams, caller: Caller) -> Spawned:
        """A child that was accepted. Raises BadInput or Refused, with nothing left behind, if it was not."""
        read = self.read(params, caller)
        run = await self.admit(read.request)
        return Spawned(run, read.model, read.request.spec.attachments)

    def read(self, params: SpawnParams, caller: Caller) -> Read:
        """What is asked for, as the configuration completes it. Raises BadInput or Refused."""
        return read_spawn(self._config, params, caller, self._host, self._engine.ids.unique())

    def check_model(self, name: str) -> None:
        """Raise BadInput or Refused for a model that cannot be used here."""
        self._host.check_model(name, None)

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
        if request.terms.leaves or request.facts.cwd:
            try:
                await self._host.make(request)
            except OSError as error:
                raise Refused("error", f"its files could not be made: {error.strerror or error}") from error

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
    if spawned.attachments:
        answer["attachments"] = {
            "count": len(spawned.attachments),
            "totalBytes": sum(one.bytes for one in spawned.attachments),
            "files": [to_builtins(one) for one in spawned.attachments],
            "relDir": leaf(ATTACHMENTS, run.key),
        }
    note = accepted_note(run.terms.mode, run.terms.parent)
    return answer | ({} if note is None else {"note": note})
