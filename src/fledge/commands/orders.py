"""Slash commands as deeds: one module for chat, gateway and page. What is said back is plain text.

A command comes from a person whom the edge knows, and is never given by a model: it may do what it says to everything
below the session it is given in. How a line is read is in `slash`; which edge it came from is not known here.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from fledge.api.program import Fledge
from fledge.api.views import forest, newest, question, undelivered
from fledge.commands import lines, looking, slash
from fledge.commands.looking import MOST_SHOWN
from fledge.commands.slash import Order
from fledge.config import Config, agent_view, known_agents, model_for_conversation
from fledge.core.exchange import plan_words
from fledge.core.freeze import one_line
from fledge.core.keys import is_called, short_id
from fledge.core.prompts import ChildRow, flattened, in_list_order, list_text
from fledge.core.route import Address
from fledge.core.run import Instant
from fledge.errors import BadInput, FledgeError, NotFound, Refused
from fledge.orchestrator import bindings, control, documents, killing, steps, system_events, views
from fledge.orchestrator.asked import SpawnParams
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger, Sent
from fledge.orchestrator.spawner import Spawner
from fledge.store.base import Approval, Tx
from fledge.workspaces.documents import versions_in

T = TypeVar("T")

NAME_CHARS = 48
LABEL_CHARS = 40
"""How much of its task names a subagent that a person starts."""
SHORT_CHARS = 24
SHOWN = 4
"""How many subagents a status line names."""
EVERYBODY = ("all", "*")


class CommandResult(Struct, frozen=True):
    """What a command came to, in words for the person who gave it."""

    text: str
    ok: bool = True
    verb: slash.Verb | None = None
    """What was done; None of a line that could not be read."""


class Person(Struct, frozen=True):
    """Who gives a command, as the edge knows them, and where they stand: the place that `/focus` binds."""

    name: str = "user"
    at: Address | None = None
    """None: nowhere that could be bound, as a client of the gateway."""


async def run_command(fl: Fledge, session: str, line: str, by: Person | None = None) -> CommandResult:
    """Do what a line says in a session, for this person. Whatever is wrong with it is told, not raised."""
    return await Commands(fl.engine, fl.config, fl.spawner, fl.messenger).run(session, line, by)


def targets(tx: Tx, session: str, now: Instant) -> list[slash.Choice]:
    """What a session's subagents are called, with how they stand, for completion. A label that several have is none:
    there the number in the list is offered."""
    rows = in_list_order(views.child_rows(tx, session))
    times = Counter(row.label for row in rows)
    return [
        (name, row.status_text(now)) if times[row.label] == 1 else (str(number), f"{name}: {row.status_text(now)}")
        for number, row in enumerate(rows, 1)
        if (name := flattened(row.label, NAME_CHARS))
    ]


def status_line(tx: Tx, session: str, now: Instant) -> str:
    """What goes on below a conversation, and that its turn cannot answer, in one line; empty if nothing does."""
    rows = [row for row in views.child_rows(tx, session) if row.is_active]
    shown = [f"{flattened(row.label, SHORT_CHARS) or row.key[-8:]} {_standing(row, now)}" for row in rows[:SHOWN]]
    more = [f"and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    asked = len(_asked(tx, session))
    waits = [f"{asked} {'question waits' if asked == 1 else 'questions wait'} for you"] if asked else []
    late = views.unanswered_in(tx, session, now)
    return "  ·  ".join([*([late] if late else []), *shown, *more, *waits])


def _standing(row: ChildRow, now: Instant) -> str:
    """How it stands, said once."""
    return row.status if row.status == "awaiting approval" else row.status_text(now)


class Commands:
    """Slash commands for the sessions of one engine."""

    def __init__(self, engine: Engine, config: Config, spawner: Spawner, messenger: Messenger) -> None:
        self._engine, self._config, self._spawner, self._messenger = engine, config, spawner, messenger

    async def run(self, session: str, line: str, by: Person | None = None) -> CommandResult:
        """Do what a line says in a session, for this person. Whatever is wrong with it is told, not raised."""
        try:
            order = slash.read(line)
            if order is None:
                raise BadInput("command", "must begin with / and a word: /help lists them", line)
            return CommandResult(await self._do(session, order, by or Person()), verb=order.verb)
        except FledgeError as error:
            return CommandResult(str(error), ok=False)

    async def _do(self, session: str, order: Order, by: Person) -> str:
        now = self._engine.clock.now()
        match order.verb:
            case "help":
                return slash.help_text()
            case "list":
                return await self._read(lambda tx: list_text(views.child_rows(tx, session), now))
            case "tree":
                found = await self._read(lambda tx: forest(tx, [session], MOST_SHOWN))
                return _lines(lines.tree(found.runs, now, found.left_out))
            case "info":
                told = await self._read(lambda tx: looking.story(tx, _run(tx, session, order), now))
                return _lines(lines.story(told, now))
            case "log":
                return await self._read(
                    lambda tx: _lines(lines.log(newest(tx, _run(tx, session, order), order.count, order.tools)))
                )
            case "status":
                rules = self._engine.rules
                return await self._read(
                    lambda tx: _lines(lines.standing(looking.standing(tx, _meant(tx, session, order), rules, now)))
                )
            case "agents":
                return await self._read(lambda tx: _lines(self._agents(tx, session)))
            case "model":
                return await self._model(session, order.target)
            case "send":
                return await self._send(session, order)
            case "spawn":
                return await self._spawn(session, order)
            case "kill":
                return await self._kill(session, order)
            case "resume":
                key = await self._read(lambda tx: _run(tx, session, order))
                run = await self._spawner.resume(key, order.words)
                name = await self._read(lambda tx: named(tx, key))
                return f"resumed {name}: attempt {run.attempt} · run {short_id(run.run_id)}"
            case "again":
                key = await self._read(lambda tx: _run(tx, session, order))
                run = (await self._spawner.again(key)).run
                return f"started {run.key} · run {short_id(run.run_id)}"
            case "stop":
                return await self._stop(session)
            case "steer" | "approve" | "reject":
                return await self._engine.commit(lambda c: _direct(c, session, order))
            case "undelivered":
                return await self._undelivered(session, order)
            case "approvals":
                now = self._engine.clock.now()
                return await self._read(lambda tx: _lines(_questions(tx, session, now)))
            case "allow" | "deny":
                return await self._engine.commit(lambda c: _answer(c, session, order, by.name))
            case "event":
                posted = await self._engine.commit(lambda c: system_events.post(c, session, order.words))
                return "posted" if posted else "the last event that waits says the same"
            case "heartbeat":
                key = await self._engine.commit(lambda c: system_events.request_heartbeat(c, session, order.words))
                return f"a heartbeat of {key} is asked for"
            case "reload":
                return await self._reload(session)
            case "image":
                # Whoever asks from elsewhere must not have a file of this machine read.
                raise BadInput("/image", "can be said in a terminal alone; over the gateway, `send` takes images")
            case "focus":
                return await self._engine.commit(lambda c: _focus(c, session, order, by))
            case "unfocus":
                held = await self._engine.commit(lambda c: bindings.unfocus(c, session, by.at, by.name))
                return f"this place is not bound to {held.session} any more"

    async def _read(self, view: Callable[[Tx], T]) -> T:
        return await self._engine.store.read(view)

    def _agents(self, tx: Tx, session: str) -> list[str]:
        now = self._engine.clock.now()
        known = tx.session(session)
        own = "main" if known is None else known.facts.agent_id
        lines = ["Agents you may start:"]
        for agent in (agent_view(self._config, one) for one in known_agents(self._config, own)):
            about = f" · {flattened(agent.description, 120)}" if agent.description else ""
            lines.append(f"  {agent.id}{about}" + (f" · {agent.model}" if agent.model else ""))
        bound = [row for row in views.child_rows(tx, session) if _is_bound(tx, row.key)]
        if bound:
            lines.append("Bound to a thread:")
            lines += [f"  {named(tx, row.key)} · {row.status_text(now)}" for row in bound]
        return lines

    async def _model(self, session: str, name: str) -> str:
        """Show the model of this conversation, or set it; `default`: as the settings say again."""
        if name:
            given = "" if name.casefold() == "default" else name
            if given:
                self._spawner.check_model(given)
            await self._engine.commit(lambda c: control.patch_session(c, session, {"model": given}))
        known = await self._read(lambda tx: tx.session(session))
        if known is None:
            raise NotFound(f"no session {session}")
        if known.facts.model:
            since = " from its next turn on" if name else ""
            return f"this conversation uses {known.facts.model}{since}; /model default ends that"
        chosen = model_for_conversation(self._config, known.facts.agent_id)
        return f"this conversation uses {'no model' if chosen is None else chosen.name}, as the settings say"

    async def _send(self, session: str, order: Order) -> str:
        key = await self._read(lambda tx: _run(tx, session, order))
        sent = await self._messenger.tell(session, key, order.words)
        name = await self._read(lambda tx: named(tx, key))
        return _told(name, sent)

    async def _spawn(self, session: str, order: Order) -> str:
        own = await self._read(lambda tx: tx.session(session))
        if own is None:
            raise NotFound(f"no session {session}")
        params = SpawnParams(
            task=order.words,
            label=one_line(order.words, LABEL_CHARS),
            agent_id="" if order.target == own.facts.agent_id else order.target,
            model=order.model,
            thinking=next((level for level in slash.THINKING if level == order.thinking), None),
        )
        run = (await self._spawner.spawn(params, await self._spawner.caller_for(session))).run
        return f"started {run.key} · run {short_id(run.run_id)}"

    async def _kill(self, session: str, order: Order) -> str:
        done = await self._engine.commit(lambda c: _killed(c, session, order))
        return await self._how_it_came_out(done)

    async def _stop(self, session: str) -> str:
        done = await self._engine.commit(lambda c: control.stop(c, session))
        below = await self._how_it_came_out(done)
        return "stopped" if not (done.killed or done.stopping) else f"stopped; {below}"

    async def _how_it_came_out(self, done: control.Killing) -> str:
        came = await killing.outcome_of(self._engine, self._messenger.changes, done)
        parts = {"killed": came.killed, "finished before the kill": came.finished, "did not stop": came.running}

        def words(tx: Tx) -> str:
            told = [f"{how}: {', '.join(named(tx, key) for key in keys)}" for how, keys in parts.items() if keys]
            return "; ".join(told) or "nothing was running"

        return await self._read(words)

    async def _reload(self, session: str) -> str:
        own = await self._read(lambda tx: tx.session(session))
        if own is None:
            raise NotFound(f"no session {session}")
        place, digests = await asyncio.to_thread(versions_in, self._spawner.workspace_of(own))
        taken = await self._engine.commit(lambda c: documents.accept(c, place, digests))
        return f"taken in: {', '.join(taken)}" if taken else "no document was left out"

    async def _undelivered(self, session: str, order: Order) -> str:
        match order.words:
            case "retry" | "dismiss" as action:

                def take(c: Commit) -> str:
                    key = views.undelivered_key(c.tx, session, order.target)
                    control.take_up(c, action, key)
                    return key

                key = await self._engine.commit(take)
                return f"{key} is {'offered again' if action == 'retry' else 'dismissed'}"
            case _:
                return await self._read(lambda tx: _lines(lines.undelivered(undelivered(tx))))


# ---- whom a word means -----------------------------------------------------------------------------------------------


def _run(tx: Tx, session: str, order: Order) -> str:
    return views.find_run(tx, session, order.target)


def _meant(tx: Tx, session: str, order: Order) -> str:
    return views.find_run(tx, session, order.target) if order.target else session


def named(tx: Tx, key: str) -> str:
    run = tx.find_run(key)
    label = "" if run is None else tx.spec(key).label
    return flattened(label, NAME_CHARS) or key


def _is_bound(tx: Tx, key: str) -> bool:
    route = tx.route(key)
    return route is not None and route.kind == "bound"


def _lines(shown: list[str]) -> str:
    return "\n".join(shown) or "nothing here"


# ---- commits ---------------------------------------------------------------------------------------------------------


def _killed(c: Commit, session: str, order: Order) -> control.Killing:
    if order.target.casefold() in EVERYBODY:
        return control.kill_all(c, session)
    return control.kill(c, _run(c.tx, session, order))


def _direct(c: Commit, session: str, order: Order) -> str:
    key = _run(c.tx, session, order)
    name = named(c.tx, key)
    if order.verb == "steer":
        run = control.steer(c, key, order.words)
        return f"steered {name}: attempt {run.attempt} · run {short_id(run.run_id)}"
    approves = order.verb == "approve"
    run = control.answer_plan(c, key, approves, plan_words(approves, order.words))
    return f"{'approved' if approves else 'rejected'} the plan of {name}: attempt {run.attempt}"


def _focus(c: Commit, session: str, order: Order, by: Person) -> str:
    key = _run(c.tx, session, order)
    if by.at is None:
        raise Refused("error", f"you speak from no place that could be bound: open the conversation {key} itself")
    bindings.focus(c, session, key, by.at, by.name)
    return f"what is said here is said to {named(c.tx, key)} now; /unfocus ends that"


def _told(name: str, sent: Sent) -> str:
    match sent.status:
        case "ok":
            return f"{name}: {sent.reply}" if sent.reply else f"{name} has nothing to say"
        case "accepted":
            return f"sent to {name}: {sent.delivery}"
        case "timeout":
            return f"sent to {name}: it is still at it; its answer will be in its log"
        case _:
            return f"{name}: {sent.error}"


# ---- questions to a person -------------------------------------------------------------------------------------------


def _asked(tx: Tx, session: str) -> list[Approval]:
    """What waits for a person's answer in this session and below it."""
    return [one for one in tx.open_approvals() if any(above.key == session for above in tx.lineage(one.session))]


def _questions(tx: Tx, session: str, now: float) -> list[str]:
    asked = _asked(tx, session)
    return [lines.question_left(question(one), named(tx, one.session), now) for one in asked] or [
        "nothing waits for you"
    ]


def _answer(c: Commit, session: str, order: Order, by: str) -> str:
    found = [one for one in _asked(c.tx, session) if is_called(one.id, order.target)]
    if len(found) != 1:
        why = f"{len(found)} questions are" if found else "no question is"
        which = f"named {order.target[:80]!r}" if order.target else "waiting"
        raise BadInput(f"/{order.verb}", f"{why} {which}: /approvals lists what waits for you")
    asked = found[0]
    steps.answer(c, asked.id, order.verb == "allow", by, asked.digest)
    return f"{'allowed' if order.verb == 'allow' else 'denied'}: {asked.tool} for {named(c.tx, asked.session)}"
