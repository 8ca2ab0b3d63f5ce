"""Agents that talk to each other: who may, who speaks when, what comes of it, and that no ring goes round for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.core.exchange import MAX_HOPS, Exchange, Over
from fledge.core.route import Address
from fledge.core.run import Terms
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.orchestrator import bindings, control, spawn
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.store.base import Spec, Tx
from fledge.testing import InlineStore, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from tests.statements import proves
from tests.tools.desk import Desk

A, B, C = "agent:main:main", "agent:bob:main", "agent:cat:main"
OPEN = (
    "tools.sessions.visibility=all",
    "tools.agentToAgent.enabled=true",
    "agents.list=[{id:'bob'},{id:'cat'},{id:'dog'}]",
)
NARROW = Rules(widths={"main": 1, "subagent": 1, "nested": 1})

Act = Callable[[Desk, str], Awaitable[str]]
"""What an agent says when it reads these words; it may use tools first."""


def says(*replies: str) -> Act:
    """An agent that says these in turn, and then the last for ever."""
    left = list(replies)

    async def act(desk: Desk, words: str) -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    return act


class Company:
    """Agents on one engine, in virtual time; what each does is an `Act`."""

    def __init__(self, tmp_path: Path, acts: dict[str, Act], settings: tuple[str, ...] = OPEN) -> None:
        self.tmp_path, self.acts, self.settings = tmp_path, acts, settings
        self.there = tuple(acts)
        """Whose conversations exist from the start."""
        self.errors: list[BaseException] = []
        self.performer = ScriptedPerformer(self._script)

    async def _script(self, stage: Stage) -> None:
        words = msgspec.json.decode(await stage.task())["text"]
        try:
            reply = await self.acts[stage.session](Desk(stage, self.tmp_path, self.settings), words)
        except Exception as error:
            self.errors.append(error)
            raise
        await stage.say(reply)

    def meet(self, then: Callable[[Engine], Awaitable[None]], rules: Rules | None = None) -> None:
        """Say go to the first agent, do the rest beside, and wait until nothing goes on."""

        async def main() -> None:
            store = InlineStore(self.tmp_path / "state")
            async with Engine(store, self.performer, clock=VirtualClock(), ids=SeededIds(3), rules=rules) as engine:
                for key in self.there:
                    await converse(engine, key)
                await engine.commit(lambda c: control.send(c, A, "go"))
                await pass_time(engine, 600.0)
                await then(engine)
            await store.close()

        run_virtual(main())
        if self.errors:
            raise self.errors[0]


async def converse(engine: Engine, key: str) -> None:
    await engine.commit(lambda c: spawn.open_conversation(c, key))


async def pass_time(engine: Engine, seconds: float) -> None:
    await engine.clock.wait_until(engine.clock.now() + seconds, asyncio.Event())


def heard(tx: Tx, session: str) -> list[str]:
    """The words of others that a session read: what was said to it, without what stands around."""
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(session)]
    spoken = [body.text for body in bodies if isinstance(body, Spoken) and body.source]
    return [" ".join(line[2:] for line in text.splitlines() if line.startswith("> ")) or text for text in spoken]


def replies(tx: Tx, session: str) -> list[str]:
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(session)]
    return [body.text for body in bodies if isinstance(body, Replied)]


def exchanges(tx: Tx, *sessions: str) -> list[Exchange]:
    found = [tx.exchanges.get(f"{session}#1.{n}") for session in sessions for n in range(1, 40)]
    return [one for one in found if one is not None]


def asks(answers: list[dict[str, Any]], to: str = B, then: str = "thanks", **more: Any) -> Act:
    """An agent that sends hello when it is told to go, and otherwise says what follows."""

    async def act(desk: Desk, words: str) -> str:
        if words != "go":
            return then
        answers.append(await desk("sessions_send", sessionKey=to, message="hello", **more))
        return "done"

    return act


# ---- an exchange -----------------------------------------------------------------------------------------------------


@proves("4.a2a.2", "`sessions_send` takes sessionKey, or label with agentId, message and timeoutSeconds 30")
@proves("4.a2a.3")
def test_the_answer_comes_back_and_the_two_take_turns_until_they_are_through(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    company = Company(tmp_path, {A: asks(answers, then="and?"), B: says("hi", "so", "well", "ANNOUNCE_SKIP")})

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: heard(tx, B)) == ["hello", "and?", "and?", CLOSING]
        assert await engine.store.read(lambda tx: heard(tx, A)) == ["hi", "so", "well"]
        assert await engine.store.read(lambda tx: replies(tx, A)) == ["done", "and?", "and?", "and?"]
        (exchange,) = await engine.store.read(lambda tx: exchanges(tx, A))
        assert exchange.stage == Over("silent")
        assert exchange.path == (A, B, A, B, A, B, A, B)

    company.meet(then)
    (sent,) = answers
    assert (sent["status"], sent["reply"]) == ("ok", "hi")
    assert sent["delivery"] == "the exchange goes on; further turns reach both of you"


CLOSING = (
    "[Agent to agent] The exchange is over. If your own user should hear of it, say so now in one or two sentences;"
    " else reply ANNOUNCE_SKIP alone."
)


@proves("4.a2a.2")
def test_who_does_not_wait_hears_of_the_answer_in_a_turn(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    company = Company(tmp_path, {A: asks(answers, then="REPLY_SKIP", timeoutSeconds=0), B: says("hi", "ANNOUNCE_SKIP")})

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: replies(tx, A)) == ["done", "REPLY_SKIP"]
        assert await engine.store.read(lambda tx: heard(tx, A)) == ["hi"]

    company.meet(then)
    assert answers[0]["status"] == "accepted"
    assert answers[0]["delivery"] == "it is read in a turn of its own"


@proves("4.a2a.4", "REPLY_SKIP stops it")
def test_reply_skip_ends_the_turns(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    company = Company(tmp_path, {A: asks(answers, then="REPLY_SKIP"), B: says("hi", "ANNOUNCE_SKIP")})

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: heard(tx, B)) == ["hello", CLOSING]

    company.meet(then)


@proves("4.a2a.3")
def test_without_turns_only_the_closing_follows(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    settings = (*OPEN, "session.agentToAgent.maxPingPongTurns=0")
    company = Company(tmp_path, {A: asks(answers), B: says("hi", "told my user")}, settings)

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: (heard(tx, A), heard(tx, B))) == ([], ["hello", CLOSING])
        (exchange,) = await engine.store.read(lambda tx: exchanges(tx, A))
        assert exchange.stage == Over("announced")

    company.meet(then)


@proves("4.a2a.5", "ANNOUNCE_SKIP silences it")
@pytest.mark.parametrize(("closing", "posted"), [("we agreed", ["we agreed"]), ("ANNOUNCE_SKIP", [])])
def test_of_all_that_was_said_only_the_closing_words_leave_for_a_channel(
    tmp_path: Path, closing: str, posted: list[str]
) -> None:
    answers: list[dict[str, Any]] = []
    acts = {A: asks(answers, then="REPLY_SKIP"), B: says("hi", closing)}
    company = Company(tmp_path, acts)
    first = acts[A]

    async def with_routes(desk: Desk, words: str) -> str:
        if words == "go":
            await desk.engine.commit(lambda c: bindings.follow(c, A, Address("board", "main")))
            await desk.engine.commit(lambda c: bindings.follow(c, B, Address("board", "bob")))
        return await first(desk, words)

    acts[A] = with_routes

    async def then(engine: Engine) -> None:
        sent = [msgspec.json.decode(post.body) for post in company.performer.posted if post.kind == "message"]
        assert [(one["to"], one["text"]) for one in sent if one["to"] == "bob"] == [("bob", text) for text in posted]
        assert [one["text"] for one in sent if one["to"] == "main"] == ["done"]

    company.meet(then)


def test_silence_ends_it_without_a_closing(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    company = Company(tmp_path, {A: asks(answers), B: says("NO_REPLY")})

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: heard(tx, B)) == ["hello"]

    company.meet(then)
    assert answers[0]["status"] == "ok"
    assert "reply" not in answers[0]


@proves("4.a2a.2")
def test_an_answer_that_takes_too_long_still_reaches_the_one_who_asked(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    async def slow(desk: Desk, words: str) -> str:
        await desk.pass_time(50.0)
        return "at last" if "hello" in words else "ANNOUNCE_SKIP"

    company = Company(tmp_path, {A: asks(answers, then="REPLY_SKIP"), B: slow})

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: heard(tx, A)) == ["at last"]

    company.meet(then)
    assert answers[0]["status"] == "timeout"


def test_with_one_slot_for_all_conversations_the_answer_still_comes_at_once(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    took: list[float] = []

    async def first(desk: Desk, words: str) -> str:
        before = desk.engine.clock.now()
        said = await asks(answers, then="REPLY_SKIP")(desk, words)
        took.append(desk.engine.clock.now() - before)
        return said

    company = Company(tmp_path, {A: first, B: says("hi", "ANNOUNCE_SKIP")})

    async def then(engine: Engine) -> None:
        assert took[0] < 1.0

    company.meet(then, NARROW)
    assert answers[0]["reply"] == "hi"


def test_a_busy_agent_answers_when_its_own_turn_is_over(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    async def first(desk: Desk, words: str) -> str:
        if words == "go":
            await desk.engine.commit(lambda c: control.send(c, B, "a person's question"))
            await desk.pass_time(1.0)
        return await asks(answers, then="REPLY_SKIP")(desk, words)

    async def busy(desk: Desk, words: str) -> str:
        if words == "a person's question":
            await desk.pass_time(10.0)
            await desk.stage.step("looked")
            return "for the person"
        return "for the agent" if "hello" in words else "ANNOUNCE_SKIP"

    company = Company(tmp_path, {A: first, B: busy})

    async def then(engine: Engine) -> None:
        assert (await engine.store.read(lambda tx: replies(tx, B)))[:2] == ["for the person", "for the agent"]

    company.meet(then)
    assert answers[0]["reply"] == "for the agent"


def test_a_persons_words_do_not_enter_a_turn_for_another_agent(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    async def second(desk: Desk, words: str) -> str:
        if "hello" in words:
            await desk.engine.commit(lambda c: control.send(c, B, "a person's question"))
            assert await desk.stage.step("looked") == 0
            return "for the agent"
        return "for the person" if words == "a person's question" else "ANNOUNCE_SKIP"

    company = Company(tmp_path, {A: asks(answers, then="REPLY_SKIP"), B: second})

    async def then(engine: Engine) -> None:
        assert "for the person" in await engine.store.read(lambda tx: replies(tx, B))

    company.meet(then)
    assert answers[0]["reply"] == "for the agent"


def test_a_stop_of_the_one_who_asked_ends_it(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    async def second(desk: Desk, words: str) -> str:
        await desk.engine.commit(lambda c: control.stop(c, A))
        return "hi"

    company = Company(tmp_path, {A: asks(answers), B: second})

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: heard(tx, A)) == []
        (exchange,) = await engine.store.read(lambda tx: exchanges(tx, A))
        assert exchange.stage == Over("its sender was stopped")

    company.meet(then)
    assert answers == []


# ---- who may speak with whom -----------------------------------------------------------------------------------------


@proves("4.a2a.1")
@pytest.mark.parametrize(
    ("settings", "to", "status", "reason"),
    [
        (OPEN[::2], B, "forbidden", "tools.agentToAgent.enabled and tools.agentToAgent.allow"),
        (OPEN[1:], B, "forbidden", "another agent's session, visibility is tree, needs all: tools.sessions.visibility"),
        ((*OPEN, "tools.agentToAgent.allow=['main','c*']"), B, "forbidden", "tools.agentToAgent.allow"),
        ((*OPEN, "tools.agentToAgent.allow=['bob']"), B, "forbidden", "tools.agentToAgent.allow"),
        ((*OPEN, "agents.defaults.sandbox.mode=all"), B, "forbidden", "tools.sessions.visibility"),
        (OPEN, A, "forbidden", f"{A} cannot send to itself"),
        (OPEN, "agent:nobody:main", "error", "no session agent:nobody:main"),
        (OPEN, "agent:dog:notes", "error", "no session agent:dog:notes"),
    ],
)
def test_what_is_not_allowed_is_refused_with_the_setting_and_sends_nothing(
    tmp_path: Path, settings: tuple[str, ...], to: str, status: str, reason: str
) -> None:
    answers: list[dict[str, Any]] = []
    company = Company(tmp_path, {A: asks(answers, to), B: says("hi")}, settings)

    async def then(engine: Engine) -> None:
        assert await engine.store.read(lambda tx: heard(tx, B)) == []
        assert await engine.store.read(lambda tx: exchanges(tx, A)) == []

    company.meet(then)
    assert answers[0]["status"] == status
    assert reason in answers[0]["error"]


@proves("4.a2a.1")
@pytest.mark.parametrize("allow", ["[]", "['*']", "['main','b*']", "['MAIN','Bob']"])
def test_agents_that_are_listed_may_talk(tmp_path: Path, allow: str) -> None:
    answers: list[dict[str, Any]] = []
    acts = {A: asks(answers, then="REPLY_SKIP"), B: says("hi", "ANNOUNCE_SKIP")}
    company = Company(tmp_path, acts, (*OPEN, f"tools.agentToAgent.allow={allow}"))

    async def then(engine: Engine) -> None:
        assert answers[0]["reply"] == "hi"

    company.meet(then)


def test_the_main_conversation_of_a_configured_agent_begins_with_the_first_message(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    dog = "agent:dog:main"
    company = Company(tmp_path, {A: asks(answers, dog, then="REPLY_SKIP"), dog: says("woof", "ANNOUNCE_SKIP")})
    company.there = (A,)

    async def then(engine: Engine) -> None:
        assert answers[0]["reply"] == "woof"

    company.meet(then)


def test_another_session_of_the_same_agent_needs_no_rule_but_sight(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    notes = "agent:main:notes"
    acts = {A: asks(answers, notes, then="REPLY_SKIP"), notes: says("noted", "ANNOUNCE_SKIP")}
    company = Company(tmp_path, acts, ("tools.sessions.visibility=agent",))

    async def then(engine: Engine) -> None:
        assert answers[0]["reply"] == "noted"

    company.meet(then)


def start(request: spawn.SpawnRequest, c: Commit) -> None:
    spawn.spawn(c, request)


@proves("4.a2a.2")
def test_a_label_finds_a_session_of_another_agent(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    async def first(desk: Desk, words: str) -> str:
        if words != "go":
            return "REPLY_SKIP"
        for label, agent_id in (("eyes", "bob"), ("eyes", "cat"), ("ears", "cat")):
            spec = Spec(task="work", label=label, agent_id=agent_id)
            await desk.engine.commit(partial(start, spawn.SpawnRequest(spec=spec, terms=Terms(parent=C))))
        await desk.pass_time(1.0)
        names: list[dict[str, Any]] = [{"label": "EARS"}, {"label": "eyes"}, {"label": "eyes", "agentId": "bob"}]
        names.append({"label": "nose"})
        answers.extend([await desk("sessions_send", message="hello", **named) for named in names])
        return "done"

    async def script(stage: Stage) -> None:
        words = msgspec.json.decode(await stage.task())["text"]
        if stage.session == A:
            await stage.say(await first(Desk(stage, tmp_path, OPEN), words))
        elif stage.run is not None:
            await stage.sleep(1000)

    company = Company(tmp_path, {A: says(""), C: says("")})
    company.performer.script = script

    async def then(engine: Engine) -> None:
        assert [answer["status"] for answer in answers] == ["accepted", "error", "accepted", "error"]
        assert answers[0]["sessionKey"].startswith("agent:cat:subagent:")
        assert "'eyes' is ambiguous: agent:bob:subagent:" in answers[1]["error"]
        assert answers[2]["sessionKey"].startswith("agent:bob:subagent:")
        assert answers[3]["error"] == "no session labelled 'nose' that you may see"

    company.meet(then)


# ---- rings -----------------------------------------------------------------------------------------------------------


@proves("4.a2a.6", "Hops carry a trace with a total cap of 20, so rings cannot loop")
@pytest.mark.parametrize("turns", [0, 5])
@pytest.mark.parametrize("wait_s", [0, 30])
def test_a_ring_of_three_that_always_sends_on_stops_after_twenty_messages(
    tmp_path: Path, turns: int, wait_s: float
) -> None:
    refusals: list[str] = []
    n = 0

    def on(to: str) -> Act:
        async def act(desk: Desk, words: str) -> str:
            nonlocal n
            n += 1
            sent = await desk("sessions_send", index=n, sessionKey=to, message=f"message {n}", timeoutSeconds=wait_s)
            refusals.extend([sent["error"]] if sent["status"] == "forbidden" else [])
            return f"reply {n}"

        return act

    settings = (*OPEN, f"session.agentToAgent.maxPingPongTurns={turns}")
    company = Company(tmp_path, {A: on(B), B: on(C), C: on(A)}, settings)

    async def then(engine: Engine) -> None:
        await pass_time(engine, 3600.0)
        read = await engine.store.read(lambda tx: [heard(tx, key) for key in (A, B, C)])
        assert sum(len(words) for words in read) == MAX_HOPS
        assert await engine.store.read(lambda tx: [tx.turns.get(key) for key in (A, B, C)]) == [None, None, None]
        begun = n
        await pass_time(engine, 3600.0)
        assert n == begun, "nothing goes on"

    company.meet(then)
    assert refusals
    assert all("hops 20 of 20" in refusal for refusal in refusals)
