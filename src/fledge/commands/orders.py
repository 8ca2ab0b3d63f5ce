"""Carries out slash commands: reads a line, calls the verb that it names, and gives the verb's answer as plain text.

A command comes from a person that the edge knows, never from a model: a word in it means something below the session in
which it is given. How a line is read is in `slash`, what a verb does is with the verb. From which edge a line came is
not known here.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import structs, to_builtins

from fledge.api.views import question
from fledge.commands import lines, looking, slash
from fledge.commands.dispatch import value_of
from fledge.commands.gateway_state import GatewayState
from fledge.commands.looking import MOST_SHOWN
from fledge.commands.params import budget_of_words
from fledge.commands.slash import Order
from fledge.commands.wire import WireObject
from fledge.config import agent_view, known_agents, model_for_conversation
from fledge.core.freeze import one_line
from fledge.core.keys import is_called, short_id
from fledge.core.prompts import flattened, list_text
from fledge.core.route import Address
from fledge.core.run import Instant
from fledge.core.targets import is_everybody
from fledge.core.value import Value
from fledge.errors import BadInput, FledgeError, NotFound, Refused
from fledge.orchestrator import transcripts, views
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.effects import Killing
from fledge.store.base import Approval, Session, Tx
from fledge.workspaces.documents import versions_in

T = TypeVar("T")

COMPACTED = "Your notes stand for our conversation so far. Say in one sentence where we stand."
"""The message that `/compact` sends, so that the turn has something to answer."""
NAME_CHARS = 48
LABEL_CHARS = 40
"""How many characters of its task are the label of a subagent that a person starts."""


class CommandResult(Value):
    """The result of a command, in words for the person who gave it."""

    text: str
    ok: bool = True
    verb: slash.Verb | None = None
    """The command that was carried out; None if its line could not be read, or it was refused."""


async def run_line(gateway: GatewayState, session: str, line: str, at: Address | None = None) -> CommandResult:
    """Carry out the command of a line in a session, in the name of the gateway's client. A FledgeError is not raised:
    its words are the result."""
    try:
        order = slash.read(line)
        if order is None:
            raise BadInput("command", "must begin with / and a word: /help lists them", line)
        said = await _Said(gateway, session, order, at).done()
        text = said if isinstance(said, str) else "\n".join(said) or "nothing here"
        return CommandResult(text, verb=order.verb)
    except FledgeError as error:
        return CommandResult(str(error), ok=False)


# ---- doing -----------------------------------------------------------------------------------------------------------


class _Said:
    """One command that was given in a session."""

    def __init__(self, gateway: GatewayState, session: str, order: Order, at: Address | None) -> None:
        self._gateway, self._session, self._order, self._at = gateway, session, order, at

    async def done(self) -> str | list[str]:
        """Carry it out; answers the words for the person, as text or in lines."""
        session, order, now = self._session, self._order, self._gateway.now()
        match order.verb:
            case "help":
                return slash.help_text()
            case "list":
                return await self._read(lambda tx: list_text(views.child_rows(tx, session), now))
            case "tree":
                below = await self._call("runs.tree", requester=session, limit=MOST_SHOWN)
                return lines.tree(below.runs, now, below.left_out)
            case "info":
                return lines.story(await self._call("runs.info", target=await self._run()))
            case "log":
                key = await self._run()
                shown = await self._call("sessions.history", session=key, limit=order.count, tools=order.tools)
                return lines.log(shown)
            case "status":
                key = await self._run() if order.target else session
                rules = self._gateway.fl.engine.rules
                return await self._read(lambda tx: _standing(tx, key, rules, now))
            case "agents":
                return await self._agents()
            case "model":
                return await self._model()
            case "compact":
                words = f"{COMPACTED} {order.words}".strip()
                await self._call("agent", session=session, message=words, compact=True)
                return "the conversation so far is summarised before the next answer"
            case "send":
                key = await self._run()
                sent = await self._call("runs.tell", target=key, requester=session, message=order.words)
                return lines.sent(await self._name(key), sent)
            case "spawn":
                return await self._spawn()
            case "kill":
                target = order.target if is_everybody(order.target) else await self._run()
                if order.words == slash.DRY_RUN:
                    return lines.ends(await self._call("runs.ends", target=target, requester=session))
                return await self._ended(await self._call("runs.kill", target=target, requester=session, wait=True))
            case "stop":
                done = await self._call("sessions.stop", session=session, wait=True)
                ended = done.killed or done.stopping or done.finished
                return f"stopped; {await self._ended(done)}" if ended else "stopped"
            case "steer":
                return await self._next_attempt("steered", "runs.steer", message=order.words)
            case "resume":
                given = {"budget": to_builtins(budget_of_words(order.budget))} if order.budget else {}
                return await self._next_attempt("resumed", "runs.resume", words=order.words, **given)
            case "approve":
                return await self._next_attempt("approved the plan of", "plans.approve", words=order.words)
            case "reject":
                return await self._next_attempt("rejected the plan of", "plans.reject", reason=order.words)
            case "again":
                return _started(await self._call("runs.again", target=await self._run()))
            case "undelivered":
                return await self._undelivered()
            case "approvals":
                return await self._read(lambda tx: _questions(tx, session, now))
            case "allow" | "deny":
                return await self._answer()
            case "permissions":
                return await self._permissions()
            case "event":
                posted = await self._call("system.event", session=session, text=order.words)
                return "posted" if posted.posted else "the last event that waits says the same"
            case "heartbeat":
                beat = await self._call("heartbeat.request", session=session, reason=order.words)
                return f"a heartbeat of {beat.session_key} is asked for"
            case "reload":
                return await self._reload()
            case "image" | "attach" as verb:
                # A caller on another machine must not be able to read a file of this one.
                field = "images" if verb == "image" else "attachments"
                raise BadInput(f"/{verb}", f"works in a terminal only; over the gateway, `send` takes {field}")
            case "focus":
                return await self._focus()
            case "unfocus":
                bound = await self._call("sessions.unfocus", session=session, address=_address(self._at))
                return f"this place is not bound to {bound.session_key} any more"

    async def _call(self, verb: str, **params: Any) -> Any:
        """The answer of a verb."""
        return await value_of(self._gateway, verb, params)

    async def _read(self, view: Callable[[Tx], T]) -> T:
        return await self._gateway.read(view)

    async def _run(self) -> str:
        """The key of the run below this session that the command names."""
        return await self._read(lambda tx: views.find_run(tx, self._session, self._order.target))

    async def _name(self, key: str) -> str:
        return await self._read(lambda tx: named(tx, key))

    async def _own(self) -> Session:
        found = await self._read(lambda tx: tx.sessions.get(self._session))
        if found is None:
            raise NotFound(f"no session {self._session}")
        return found

    async def _next_attempt(self, done: str, verb: str, **params: Any) -> str:
        now = await self._call(verb, target=await self._run(), **params)
        run = f" · run {short_id(now.run_id)}" if verb.startswith("runs.") else ""
        return f"{done} {await self._name(now.session_key)}: attempt {now.attempt}{run}"

    async def _ended(self, done: Killing) -> str:
        keys = (*done.killed, *done.finished, *done.stopping)
        names = await self._read(lambda tx: {key: named(tx, key) for key in keys})
        return lines.killing(done, names)

    async def _spawn(self) -> str:
        order, own = self._order, await self._own()
        started = await self._call(
            "runs.spawn",
            requester=self._session,
            task=order.words,
            label=one_line(order.words, LABEL_CHARS),
            agent="" if order.target == own.facts.agent_id else order.target,
            model=order.model,
            thinking=order.thinking or None,
        )
        return _started(started)

    async def _agents(self) -> list[str]:
        now, config = self._gateway.now(), self._gateway.fl.config
        known = await self._read(lambda tx: tx.sessions.get(self._session))
        ids = known_agents(config, "main" if known is None else known.facts.agent_id)

        def bound(tx: Tx) -> list[str]:
            rows = [row for row in views.child_rows(tx, self._session) if _is_bound(tx, row.key)]
            return [f"{named(tx, row.key)} · {row.status_text(now)}" for row in rows]

        return lines.agents([agent_view(config, one) for one in ids], await self._read(bound))

    async def _model(self) -> str:
        """Show the model of this conversation, or set it; `default`: the settings apply again."""
        name = self._order.target
        if name:
            given = "" if name.casefold() == "default" else name
            await self._call("sessions.patch", session=self._session, model=given)
        facts = (await self._own()).facts
        if facts.model:
            since = " from its next turn on" if name else ""
            return f"this conversation uses {facts.model}{since}; /model default ends that"
        chosen = model_for_conversation(self._gateway.fl.config, facts.agent_id)
        return f"this conversation uses {'no model' if chosen is None else chosen.name}, as the settings say"

    async def _reload(self) -> str:
        folder = self._gateway.fl.spawner.workspace_of(await self._own())
        place, digests = await asyncio.to_thread(versions_in, folder)
        taken = await self._call("documents.accept", workspace=place, digests=digests)
        return f"taken in: {', '.join(taken)}" if taken else "no document was left out"

    async def _undelivered(self) -> str | list[str]:
        action, word = self._order.words, self._order.target
        if not action:
            return lines.undelivered(await self._call("undelivered.list"))
        key = await self._read(lambda tx: views.undelivered_key(tx, self._session, word))
        taken = await self._call(f"undelivered.{action}", target=key)
        return f"{taken.key} is {'offered again' if action == 'retry' else 'dismissed'}"

    async def _answer(self) -> str:
        order = self._order
        asked = await self._read(lambda tx: _one_asked(tx, self._session, order))
        for_whom = f"{asked.tool} for {await self._name(asked.session)}"
        if order.verb == "deny":
            await self._call("approvals.deny", id=asked.id, digest=asked.digest, words=order.words)
            return f"denied: {for_whom}"
        done = await self._call(
            "approvals.approve",
            id=asked.id,
            digest=asked.digest,
            always=bool(order.words),
            children=order.words.endswith("children"),
        )
        rule = done.permission
        return f"allowed: {for_whom}" + (f"\nfrom now on: {lines.permission(rule)}" if rule else "")

    async def _permissions(self) -> str | list[str]:
        if not self._order.words:
            return lines.permissions(await self._call("permissions.list"))
        return f"asks again: {lines.permission(await self._call('permissions.revoke', id=self._order.target))}"

    async def _focus(self) -> str:
        key = await self._run()
        if self._at is None:
            raise Refused("error", f"you speak from no place that could be bound: open the conversation {key} itself")
        await self._call("sessions.focus", session=key, address=_address(self._at))
        return f"messages from here go to {await self._name(key)} now; /unfocus ends that"


def _started(accepted: WireObject) -> str:
    return f"started {accepted['childSessionKey']} · run {short_id(accepted['runId'])}"


def _address(at: Address | None) -> tuple[str, ...] | None:
    return None if at is None else structs.astuple(at)


def _is_bound(tx: Tx, key: str) -> bool:
    route = tx.routes.get(key)
    return route is not None and route.kind == "bound"


def _standing(tx: Tx, key: str, rules: Rules, now: Instant) -> list[str]:
    ran = tx.turns.last_ran(key)
    left_out = [] if ran is None else transcripts.left_out_documents(tx, os.path.realpath(ran.workspace))
    return lines.standing(views.session_status(tx, key, rules, now), left_out)


def _questions(tx: Tx, session: str, now: float) -> list[str]:
    asked = looking.asked_below(tx, session)
    return [lines.question_left(question(tx, one), named(tx, one.session), now) for one in asked] or [
        "nothing waits for you"
    ]


def _one_asked(tx: Tx, session: str, order: Order) -> Approval:
    found = [one for one in looking.asked_below(tx, session) if is_called(one.id, order.target)]
    if len(found) != 1:
        why = f"{len(found)} questions are" if found else "no question is"
        which = f"named {order.target[:80]!r}" if order.target else "waiting"
        raise BadInput(f"/{order.verb}", f"{why} {which}: /approvals lists what waits for you")
    return found[0]


def named(tx: Tx, key: str) -> str:
    """The name of a run for people: its label, else its key."""
    run = tx.runs.find(key)
    label = "" if run is None else tx.runs.spec(key).label
    return flattened(label, NAME_CHARS) or key
