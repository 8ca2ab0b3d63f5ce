"""A conversation as a program holds it: say something and wait for the answer, watch it come, look back, stop."""

import asyncio
from collections.abc import AsyncIterator

from msgspec import Struct

from fledge.api import views
from fledge.api.changes import Changes
from fledge.api.handle import deadline
from fledge.api.values import Message, Question, Reply
from fledge.core.freeze import said
from fledge.core.keys import SessionKey, is_child_key
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.errors import BadInput, NotFound
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.control import Killing
from fledge.orchestrator.engine import Engine
from fledge.runtime.feed import Feed, TurnEvent
from fledge.runtime.profiles import ConfiguredProfiles
from fledge.store.base import Tx

LOOK_BACK = 100_000


class _Said(Struct, frozen=True):
    """What was known when a message was accepted."""

    row: str
    last: int
    """The newest entry then: its answer comes after."""
    failures: int
    """How often the open turn had failed by then."""


class Conversation:
    """One session, by its key. Made by `fl.session`; it begins with the first message.

    >>> chat = fl.session("main")
    >>> (await chat.send("Hello")).text
    'echo: Hello'
    """

    def __init__(
        self, engine: Engine, changes: Changes, feed: Feed, key: SessionKey, profiles: ConfiguredProfiles
    ) -> None:
        self._engine, self._changes, self._feed, self._profiles = engine, changes, feed, profiles
        self._agent_id = key.agent_id
        self.key = str(key)

    def __repr__(self) -> str:
        return f"<fledge session {self.key}>"

    # ---- saying

    async def send(self, message: str, *, timeout: float | None = None) -> Reply:
        """Say something and wait for the answer; `pending` after `timeout` seconds, or if a person is asked first.

        >>> reply = await fl.session("main").send("Hello", timeout=60)
        >>> reply.ok
        True
        """
        at = deadline(self._engine, timeout)
        heard = self._feed.listen()
        try:
            said_ = await self._say(message)
            answer = await self._changes.until(lambda tx: _answer(tx, self.key, said_), [self.key], at)
            if answer is not None and answer.status == "error":
                words = [event.text for event in heard.waiting() if event.kind == "error" and event.session == self.key]
                answer = Reply(status="error", error=words[-1] if words else answer.error, message_id=said_.row)
        finally:
            heard.close()
        return answer or Reply(status="pending", message_id=said_.row)

    async def post(self, message: str) -> str:
        """Say something without waiting; answers the message's id.

        >>> message_id = await fl.session("main").post("Hello")
        >>> (await fl.session("main").reply(message_id)).text
        'echo: Hello'
        """
        return (await self._say(message)).row

    async def reply(self, message_id: str, *, timeout: float | None = None) -> Reply:
        """Wait for the answer to a message that was sent before, by this process or an earlier one.

        >>> chat = fl.session("main")
        >>> first = await chat.send("Hello", timeout=0)
        >>> (await chat.reply(first.message_id)).text
        'echo: Hello'
        """
        row = await self._engine.store.read(lambda tx: tx.row(message_id))
        if row is None or row.session != self.key:
            raise NotFound(f"no message {message_id!r} to {self.key}")
        said_ = _Said(message_id, 0, 0)
        at = deadline(self._engine, timeout)
        answer = await self._changes.until(lambda tx: _answer(tx, self.key, said_), [self.key], at)
        return answer or Reply(status="pending", message_id=message_id)

    async def stream(self, message: str) -> AsyncIterator[TurnEvent]:
        """Say something and watch the answer come: words, tools, retries, until it is there.

        >>> events = [event async for event in fl.session("main").stream("Hello")]
        >>> "".join(event.text for event in events if event.kind == "assistant:text")
        'echo: Hello'
        """
        heard = self._feed.listen()
        said_ = await self._say(message)
        answer = asyncio.ensure_future(self._changes.until(lambda tx: _answer(tx, self.key, said_), [self.key], None))
        answer.add_done_callback(lambda _: heard.close())
        try:
            async for event in heard:
                if event.session in ("", self.key):
                    yield event
            answer.result()
        finally:
            heard.close()
            answer.cancel()
            await asyncio.wait([answer])

    async def _say(self, message: str) -> _Said:
        if not isinstance(message, str):
            raise BadInput("message", "must be text", message)
        self._profiles.check(self._agent_id)
        return await self._engine.commit(lambda c: _say(c, self.key, message))

    # ---- looking and stopping

    async def history(self, *, limit: int = 100, after: int = 0, tools: bool = False) -> list[Message]:
        """The newest entries of the transcript, oldest first; those numbered above `after`. Tool results if asked for.

        >>> await fl.session("main").history()
        []
        """
        if limit < 1:
            raise BadInput("limit", "must be 1 or more", limit)
        entries = await self._engine.store.read(lambda tx: tx.entries(self.key, after, LOOK_BACK))
        return [views.message(entry) for entry in entries if tools or entry.kind != "tool"][-limit:]

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do: no turn open, nothing unread, everything below settled. False: time is up.

        >>> await fl.session("main").settled(timeout=60)
        True
        """
        at = deadline(self._engine, timeout)
        found = await self._changes.until(lambda tx: is_at_rest(tx, self.key) or None, None, at)
        return found is not None

    async def stop(self) -> Killing:
        """Stop its turn and everything below it. What it was asked counts as answered by that.

        >>> chat = fl.session("main")
        >>> message_id = await chat.post("Wait for me")
        >>> stopped = await chat.stop()
        """
        return await self._engine.commit(lambda c: control.stop(c, self.key))

    async def delete(self) -> None:
        """Delete it with its transcript. What its children have yet to say is kept as undelivered.

        >>> chat = fl.session("main")
        >>> reply = await chat.send("Hello")
        >>> await chat.delete()
        """
        await self._engine.commit(lambda c: control.delete_session(c, self.key))


def _say(c: Commit, key: str, message: str) -> _Said:
    if c.tx.session(key) is None and not is_child_key(key):
        spawn.open_conversation(c, key)
    turn = c.tx.turn(key)
    last = c.tx.last_entry(key)
    return _Said(control.send(c, key, message), last, 0 if turn is None else turn.failures)


def _answer(tx: Tx, key: str, said_: _Said) -> Reply | None:
    """The answer to a message, or why there will be none for now; None while it is on its way."""
    row, turn = tx.row(said_.row), tx.turn(key)
    if row is None or row.state == "void":
        return Reply(status="stopped", error="it was stopped before it read this", message_id=said_.row)
    if row.state != "unread":
        text = _text_after(tx, key, said_)
        if text is not None:
            return Reply(status="ok", text=text if said(text) == "text" else "", message_id=said_.row)
        if turn is None:
            return Reply(status="stopped", error="its turn ended without an answer", message_id=said_.row)
    if turn is not None and turn.failures > said_.failures:
        return Reply(status="error", error="its turn failed and is tried again", message_id=said_.row)
    questions = _questions(tx, key)
    if questions:
        return Reply(status="pending", message_id=said_.row, questions=questions)
    return None


def _text_after(tx: Tx, key: str, said_: _Said) -> str | None:
    """The final words that followed the message, once there are any."""
    seen = False
    for entry in tx.entries(key, said_.last, LOOK_BACK):
        match from_body(entry.body):
            case Spoken(row=row) if row == said_.row:
                seen = True
            case Replied(text=text, calls=()) if seen:
                return text
            case _:
                continue
    return None


def _questions(tx: Tx, key: str) -> tuple[Question, ...]:
    """What a person must answer before the session's turn goes on; empty while something else goes on."""
    driver = tx.driver(key)
    if driver is not None and driver.release_at is None:
        return ()
    return tuple(views.question(asked) for asked in tx.approvals(key) if asked.state == "waiting")


def is_at_rest(tx: Tx, key: str) -> bool:
    """Nothing is left to do: no turn is open, nothing is unread or queued, and everything below has settled."""
    idle = tx.turn(key) is None and tx.queued(key) is None and not tx.unread(key, 1)
    return idle and tx.counts(key).unsettled == 0
