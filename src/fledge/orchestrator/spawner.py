"""Spawning from the outside in: read the parameters, reserve, prepare what lies outside the database, accept.

A child that needs nothing outside is one commit. Any other is reserved in a commit, prepared beside it and accepted in
a second one; an error in between withdraws the reservation, with everything that was made. Rules are in `spawn_params`
and `spawn`, how things are made is the host's.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from fledge.cancellation import error_message
from fledge.config import Config, budget_for
from fledge.core.attachments import Receipt
from fledge.core.child_files import ATTACHMENTS, child_file
from fledge.core.keys import agent_of
from fledge.core.policy import STEER_CHARS, refuse_resume
from fledge.core.prompts import accepted_note
from fledge.core.redact import error_words
from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.orchestrator import spawn, views
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.spawn_params import (
    Caller,
    Host,
    SpawnBudget,
    SpawnParams,
    allowed_budget,
    attachment_limits,
    limits_in,
    params_of,
    read_spawn,
    tools_needed,
)
from fledge.store.base import Session, SessionFacts, Tx

Open = Callable[[Commit], None]
"""Makes sure of a session in a commit; raises to refuse it."""


class Maker(Host, Protocol):
    """A host that can also make what children need."""

    def person_in(self, engine: Engine, session: Session, run: Run | None) -> Caller:
        """A person who spawns in this session (of this run): a child gets no more than a turn of it has.

        Raises Refused if its commands must run in a sandbox, and there is none.
        """
        ...

    def check_folder(self, agent_id: str, project: str) -> None:
        """Raise `Refused` if a conversation that begins in this project folder would work in a folder that needs a
        person's confirmation."""
        ...

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        """Bind the child to a thread of its requester's channel. Raises Refused if no channel there can."""
        ...

    async def make(self, request: SpawnRequest) -> None:
        """Make the run's files and folders. Raises if it cannot; those that it made by then are removed later."""
        ...


class Spawned(Struct, frozen=True):
    """An accepted run, and the model it was given; empty if none is configured."""

    run: Run
    model: str
    attachments: tuple[Receipt, ...] = ()
    warning: str = ""
    """A hint to the caller about a parameter that is accepted but outdated; empty if there is none."""


class Spawner:
    """Spawns children of any caller, for the tool, the Python API, the command line and the gateway alike."""

    def __init__(self, engine: Engine, config: Config, host: Maker) -> None:
        self._engine, self._config, self._host = engine, config, host
        self.attachment_limits = attachment_limits(config)

    def workspace_of(self, session: Session) -> Path:
        """The folder that a session works in."""
        facts = session.facts
        return self._host.workspace_of(facts.agent_id, facts.workspace, facts.project)

    def check_folder(self, agent_id: str, project: str) -> None:
        """Raise `Refused` if a conversation of this agent that begins in this project folder would work in a folder
        that needs a person's confirmation."""
        self._host.check_folder(agent_id, project)

    async def spawn(self, params: SpawnParams, caller: Caller, open_caller: Open | None = None) -> Spawned:
        """A child that was accepted. Raises BadInput or Refused, with nothing left behind, if it was not.

        `open_caller` makes the caller's session, or refuses to, in the commit that admits the child.
        """
        request = self.read(params, caller)
        run = await self.admit(request, open_caller)
        return Spawned(run, request.model, request.spec.attachments, request.warning)

    async def resume(self, key: str, words: str = "", budget: SpawnBudget | None = None) -> Run:
        """Let a run that was killed, failed or timed out go on, with these words to it, and a new budget if one is
        given. Raises Refused, with nothing changed, if it cannot.

        Raises BadInput if the words are too long.
        """
        if len(words) > STEER_CHARS:
            raise BadInput("words", f"must be at most {STEER_CHARS} characters", len(words))

        def look(tx: Tx) -> tuple[Run, Session | None, str]:
            return tx.runs.load(key), tx.sessions.get(key), views.name_of(tx, key)

        run, session, name = await self._engine.store.read(look)
        folder = "" if session is None else session.facts.workspace
        is_gone = folder and refuse_resume(run, name) is None and not await asyncio.to_thread(os.path.isdir, folder)
        if is_gone:
            raise Refused("done", f"{name} worked in {folder}, which is gone: run it again")
        limits = limits_in(self._config, agent_of(run.terms.parent), run.terms.program)

        def cap_of(agent_id: str) -> int:
            return limits_in(self._config, agent_id).max_children

        allowed = None if budget is None else allowed_budget(budget, budget_for(self._config, agent_of(key)))
        return await self._engine.commit(spawn.resume, key, words, limits, cap_of, allowed)

    async def again(self, key: str, idempotency_key: str = "", default_model: str = "") -> Spawned:
        """A new run with the task and the parameters of an earlier one, whatever its outcome, for the same requester,
        or for the nearest session above where that one is gone. Raises as `spawn` does."""

        def look(tx: Tx) -> tuple[SpawnParams, str, tuple[str, ...]]:
            requester, spec = spawn.present_requester(tx, key), tx.runs.spec(key)
            return params_of(spec, requester), requester, tools_needed(spec)

        params, requester, brings = await self._engine.store.read(look)
        caller = replace(await self.caller_for(requester), default_model=default_model, brings=brings)
        return await self.spawn(replace(params, idempotency_key=idempotency_key), caller)

    async def caller_for(self, session: str) -> Caller:
        """The caller when a person spawns in a session: its ceiling (tools, sandbox, folder) holds. Raises Refused.

        A session that is not there counts as a conversation that begins now. A program's session has no ceiling.
        """
        known, run = await self._engine.store.read(lambda tx: (tx.sessions.get(session), tx.runs.find(session)))
        if known is None:
            known = Session(session, "named", None, 0, SessionFacts(agent_of(session)), False, 0, 0, 0.0)
        if known.kind == "program":
            return self.program_in(session, "")
        return self._host.person_in(self._engine, known, run)

    def program_in(self, session: str, folder: str) -> Caller:
        """A program that spawns on behalf of a person in this project folder; empty: of none."""
        workspace = str(self._host.workspace_of(agent_of(session), "", folder)) if folder else ""
        return Caller(session=session, workspace=workspace, is_program=True)

    def read(self, params: SpawnParams, caller: Caller) -> SpawnRequest:
        """The request for a spawn, completed by the configuration. Raises BadInput or Refused."""
        return read_spawn(self._config, params, caller, self._host, self._engine.ids.unique())

    async def admit(self, request: SpawnRequest, open_caller: Open | None = None) -> Run:
        """Spawn as a request says that has been read."""
        opening = open_caller or _is_open
        if not request.needs_preparing:
            return await self._engine.commit(_spawned, request, opening)
        reserved = await self._engine.commit(_reserve, request, opening)
        run = reserved.run
        if not reserved.is_new:
            return run
        try:
            await self._prepare(run, request)
            return await self._engine.commit(spawn.prepared, run.key, request.generations)
        except BaseException as error:
            why = error_message(error)
            await asyncio.shield(self._engine.commit_with_retry(_withdraw, reserved, why))
            raise

    async def _prepare(self, run: Run, request: SpawnRequest) -> None:
        if request.binds_thread:
            await self._host.bind_thread(self._engine, run)
        if request.terms.leaves or request.facts.cwd:
            try:
                await self._host.make(request)
            except OSError as error:
                raise Refused(
                    "error", f"its files could not be made: {error.strerror or error_words(error)}"
                ) from error

    async def answer(self, params: SpawnParams, caller: Caller) -> dict[str, object]:
        """The answer on the wire: accepted, forbidden or error."""
        try:
            return accepted(await self.spawn(params, caller))
        except (Refused, BadInput) as error:
            return {"status": error.status, "error": str(error)}


class _Reserved(Struct, frozen=True):
    """A run that is reserved, or was made by the same call before; and whether its caller's session is new too."""

    run: Run
    is_new: bool
    opened: bool


def _is_open(c: Commit) -> None:
    """The caller's session was there before."""


def _spawned(c: Commit, request: SpawnRequest, opening: Open) -> Run:
    opening(c)
    return spawn.spawn(c, request)


def _reserve(c: Commit, request: SpawnRequest, opening: Open) -> _Reserved:
    before = c.tx.sessions.get(request.terms.parent)
    opening(c)
    known = spawn.spawned_before(c, request)
    run = spawn.reserve(c, request) if known is None else known
    return _Reserved(run, known is None, before is None or before.deleted)


def _withdraw(c: Commit, reserved: _Reserved, why: str) -> None:
    """Take the reservation back, and the session that was opened for it, unless that was used for something else."""
    parent = reserved.run.terms.parent
    spawn.failed(c, reserved.run.key, why)
    if (
        reserved.opened
        and not c.tx.runs.children(parent)
        and not c.tx.transcripts.last(parent)
        and not c.tx.inbox.unread(parent, 1)
    ):
        c.tx.sessions.delete(parent)


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
            "relDir": child_file(ATTACHMENTS, run.key),
        }
    if spawned.warning:
        answer["warning"] = spawned.warning
    note = accepted_note(run.terms.mode, run.terms.parent, run.terms.program)
    return answer | ({} if note is None else {"note": note})
