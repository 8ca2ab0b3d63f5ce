"""A conversation, as a program uses it: send a message and wait for the answer or stream it, read the transcript, stop
the turn.

Each message becomes a request with a run id. A program that has the run id can wait for the answer, also after a
restart.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from msgspec import UNSET

from fledge.api import views
from fledge.api.carried import GivenFile, GivenImage, carried
from fledge.api.streams import Hearing, Moves, RunLook, answer_events, run_events
from fledge.api.values import Accepted, Message, Question, Reply
from fledge.core.exchange import how_answered, how_read
from fledge.core.freeze import classify_reply
from fledge.core.keys import agent_of
from fledge.core.params import as_written
from fledge.core.run import AwaitingApproval, Instant
from fledge.core.transcript import Replied, Spoken, from_body, joined
from fledge.errors import BadInput, NotFound, Refused, check_text
from fledge.orchestrator import control, messages
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.engine import Changes, Engine, deadline
from fledge.runtime.feed import Feed, TurnEvent
from fledge.runtime.profiles import ConfiguredProfiles
from fledge.store.base import MessageRequest, Tx, Wishes

LOOK_BACK_ENTRIES = 200
"""How many entries before the end of a turn are searched for its answer."""


class Conversation:
    """A conversation with a model that can spawn subagents. Made by `fl.session`; its first message creates it.

    >>> chat = fl.session("main")
    >>> (await chat.send("Hello")).text
    'echo: Hello'
    """

    def __init__(
        self,
        engine: Engine,
        changes: Changes,
        feed: Feed,
        key: str,
        profiles: ConfiguredProfiles,
        check: Callable[[str], None],
        is_asked: Callable[[], bool],
        origin: str = "",
    ) -> None:
        self._engine, self._changes, self._profiles = engine, changes, profiles
        self._feed: Hearing = feed
        self._moves: Moves = changes
        self._check = check
        """Raises `BadInput` or `Refused` if this agent could not work, for example because it has no model."""
        self._is_asked = is_asked
        """Answers True once a function of this program answers the questions that wait for a person: waits then
        continue while one is open."""
        self.origin = origin
        """The origin of messages sent here: the address of the person who speaks; empty if none was given."""
        self.key = key

    def __repr__(self) -> str:
        return f"<fledge session {self.key}>"

    # ---- sending

    async def send(
        self,
        message: str,
        *,
        images: Sequence[GivenImage] = (),
        attachments: Sequence[GivenFile] = (),
        timeout: float | None = None,
    ) -> Reply:
        """Send a message and wait for the answer.

        The reply is `pending` after `timeout` seconds, or if a person must answer a question first.

        `images` are PNG, JPEG, GIF or WebP: file paths, or `fledge.Image`. A model that accepts no images gets their
        names and sizes. `attachments` are any files: paths, or `fledge.Attachment`. The model gets their names, sizes
        and paths, and can read them with its file tools; without such tools it gets the text of small ones.

        >>> reply = await fl.session("main").send("Hello", timeout=60)
        >>> reply.ok
        True
        """
        at = self._deadline(timeout)
        said = await self._say(message, images, attachments)
        return await self._answer(said.run_id, said.failures or 0, at)

    async def post(
        self, message: str, *, images: Sequence[GivenImage] = (), attachments: Sequence[GivenFile] = ()
    ) -> str:
        """Send a message without waiting; return a run id, with which `reply` waits for the answer.

        >>> run_id = await fl.session("main").post("Hello")
        >>> (await fl.session("main").reply(run_id)).text
        'echo: Hello'
        """
        return (await self._say(message, images, attachments)).run_id

    async def reply(
        self, run_id: str, *, timeout: float | None = None, failures: int = 0, asks: bool | None = None
    ) -> Reply:
        """Wait for the answer to an earlier message, which may have been sent by an earlier process.

        `failures` is how often the turn had failed when the message was sent: only a further failure ends the wait.
        With `asks=True` the wait continues while a person must answer a question; by default it does so if
        `fl.on_approval` was called.

        >>> chat = fl.session("main")
        >>> first = await chat.send("Hello", timeout=0)
        >>> (await chat.reply(first.run_id)).text
        'echo: Hello'
        """
        at = self._deadline(timeout)
        known = await self._engine.store.read(lambda tx: tx.requests.get(run_id))
        if known is None or known.session != self.key:
            raise NotFound(f"{self.key} has no message with the run id {run_id!r}")
        return await self._answer(run_id, failures, at, asks)

    async def stream(
        self, message: str, *, images: Sequence[GivenImage] = (), attachments: Sequence[GivenFile] = ()
    ) -> AsyncGenerator[TurnEvent | Reply, None]:
        """Send a message and stream the answer: text, tools, retries. The last event is the whole `Reply`.

        The stream has only the turns that answer this message. It leaves out turns that run while the message still
        waits, and turns for other messages; `fl.listen` has the events of all turns. If a slow reader missed pieces of
        a text, the whole text comes again as a `message` event. Leaving the stream early does not stop the turn.

        >>> async for event in fl.session("main").stream("Hello"):
        ...     if event.kind in ("assistant:text", "reply"):
        ...         print(event.kind, event.text)
        assistant:text echo: Hello
        reply echo: Hello
        """
        after = await self._last_entry()
        heard = self._feed.listen(session=self.key)
        try:
            said = await self._say(message, images, attachments)
            answer = asyncio.ensure_future(self._answer(said.run_id, said.failures or 0, None))
        except BaseException:
            heard.close()
            raise
        entries = partial(self._entries, after)
        async with aclosing(answer_events(self.key, said.run_id, after, heard, answer, entries)) as events:
            async for event in events:
                yield event

    async def follow(self, *, after: int | None = None) -> AsyncGenerator[TurnEvent, None]:
        """Stream the events of all turns of the conversation, until the reader leaves.

        If a reply is being written, the first event is its text so far. A reply of which a slow reader missed pieces
        comes whole, as one `message` event. With `after`, so do the replies since the entry of that number.

        >>> chat = fl.session("main")
        >>> run_id = await chat.post("Hello")
        >>> async for event in chat.follow(after=0):
        ...     if event.kind in ("assistant:text", "message"):
        ...         print(event.text)
        ...         break
        echo: Hello
        """
        begins = await self._last_entry() if after is None else after

        async def look(told: int, seen: int) -> RunLook:
            self._check_open()
            return RunLook((), await self._entries(seen), False)

        async with aclosing(run_events(self.key, self._feed, self._moves, look, begins)) as events:
            async for event in events:
                if isinstance(event, TurnEvent):
                    yield event

    async def post_event(self, text: str) -> bool:
        """Post a system event: the model reads it, and answers only if it matters.

        An idle conversation reads it in a heartbeat turn, a busy one at its next step. Returns False if the same event
        is already waiting.

        >>> await fl.session("main").post_event("The nightly build failed")
        True
        """
        check_text("text", text)
        self._check_thinks()
        return await self._engine.commit(messages.post_event, self.key, text)

    async def request_heartbeat(self, reason: str = "") -> str:
        """Request a heartbeat: a turn without a message, in which the model checks its open work.

        Requests within a quarter of a second are merged. Returns the key of the session that gets the heartbeat: for a
        running subagent, the conversation above it.

        >>> await fl.session("main").request_heartbeat("a new day")
        'agent:main:main'
        """
        check_text("reason", reason)
        self._check_thinks()
        return await self._engine.commit(messages.request_heartbeat, self.key, reason)

    async def _say(self, message: str, images: Sequence[GivenImage], attachments: Sequence[GivenFile]) -> Accepted:
        check_text("message", message)
        self._check_thinks()
        return await self._accept(message, images, attachments)

    def _check_thinks(self) -> None:
        self._check(agent_of(self.key))

    async def _accept(
        self,
        message: str,
        images: Sequence[GivenImage],
        attachments: Sequence[GivenFile],
        wishes: Wishes | None = None,
        idempotency_key: str = "",
    ) -> Accepted:
        async with carried(self._profiles, self.key, images, attachments) as files:

            def accept(c: Commit) -> Accepted:
                turn = c.tx.turns.get(self.key)
                asked = messages.accept_request(c, self.key, message, wishes, idempotency_key, self.origin, files)
                return Accepted(run_id=asked.run_id, failures=UNSET if turn is None else turn.failures or UNSET)

            try:
                return await self._engine.commit(accept)
            except Refused as error:
                raise as_written(error, {"idempotencyKey": "idempotency_key"}) from None

    async def _answer(self, run_id: str, failures: int, at: Instant | None, asks: bool | None = None) -> Reply:
        """The answer, or `pending` at the time `at`. `asks`: wait while a person must answer a question; None: only if
        a function of this program answers such questions."""

        def look(tx: Tx) -> Reply | None:
            return _reply(tx, run_id, failures, self._is_asked() if asks is None else asks)

        heard = self._feed.listen()
        try:
            reply = await self._changes.until(look, [self.key], at)
            if reply is not None and reply.status == "error":
                words = [event.text for event in heard.waiting() if event.kind == "error" and event.session == self.key]
                reply = Reply(status="error", error=words[-1] if words else reply.error, run_id=run_id)
        finally:
            heard.close()
        if reply is None:
            reply = await self._engine.store.read(lambda tx: _pending(tx, run_id))
        return reply

    def _deadline(self, timeout: float | None) -> Instant | None:
        """When a wait of `timeout` seconds ends, by the clock that `_answer` uses; None waits for ever."""
        return deadline(self._engine, timeout)

    def _check_open(self) -> None:
        """Raise `Refused` once nothing more will change here."""
        self._changes.check_open()

    async def _last_entry(self) -> int:
        """The number of the newest entry of the transcript."""
        return await self._engine.store.read(lambda tx: tx.transcripts.last(self.key))

    async def _entries(self, after: int) -> list[Message]:
        """The entries of the transcript numbered above `after`."""
        return await self._engine.store.read(lambda tx: views.messages(tx, self.key, after, views.LOOK_BACK))

    # ---- reading and stopping

    async def history(self, *, limit: int = 100, after: int = 0, tools: bool = False) -> list[Message]:
        """Return the newest `limit` entries of the transcript, oldest first.

        `after` skips entries up to that number; `tools` includes tool results.

        >>> await fl.session("main").history()
        []
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise BadInput("limit", "must be 1 or more", limit)
        return await self._engine.store.read(lambda tx: views.transcript(tx, self.key, limit, after, tools))

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until no turn is open, nothing is unread and all subagents have settled. False after `timeout` seconds.

        >>> await fl.session("main").settled(timeout=60)
        True
        """
        at = self._deadline(timeout)
        found = await self._changes.until(lambda tx: views.is_at_rest(tx, self.key) or None, None, at)
        return found is not None

    async def stop(self) -> Killing:
        """Stop the current turn and all subagents below it. The messages of that turn count as answered.

        >>> chat = fl.session("main")
        >>> run_id = await chat.post("Wait for me")
        >>> stopped = await chat.stop()
        """
        return await self._engine.commit(control.stop, self.key)

    async def delete(self) -> None:
        """Delete the conversation and its transcript. Results still to come from its subagents become undelivered.

        >>> chat = fl.session("main")
        >>> reply = await chat.send("Hello")
        >>> await chat.delete()
        """
        await self._engine.commit(control.delete_session, self.key)


def _reply(tx: Tx, run_id: str, failures: int, is_asked: bool) -> Reply | None:
    """The answer, or the reason why there is none for now; None while the message waits or its turn is at work."""
    asked = tx.requests.get(run_id)
    if asked is None:
        raise NotFound(f"no run {run_id!r}")
    stands = messages.request_standing(tx, run_id)
    if stands.status == "ok":
        return Reply(status="ok", text=_words(tx, asked), run_id=run_id)
    if stands.status != "pending":
        return Reply(status="stopped", error=stands.error or stands.status, run_id=run_id)
    turn = tx.turns.get(asked.session)
    if turn is not None and turn.failures > failures:
        return Reply(status="error", error="its turn failed and is tried again", run_id=run_id)
    questions = () if is_asked else _questions(tx, asked.session)
    run = tx.runs.find(asked.session)
    awaits = not is_asked and stands.started_at is None and run is not None and type(run.phase) is AwaitingApproval
    return _pending(tx, run_id, questions) if questions or awaits else None


def _pending(tx: Tx, run_id: str, questions: tuple[Question, ...] = ()) -> Reply:
    """The reply while there is no answer, with how the message is read."""
    asked = tx.requests.get(run_id)
    row, run = (None, None) if asked is None else (tx.inbox.get(asked.row), tx.runs.find(asked.session))
    if row is None or row.state != "unread":
        delivery = ""
    elif row.kind == "approval" and run is not None:
        delivery = how_answered(run)
    else:
        delivery = how_read(run)
    return Reply(status="pending", run_id=run_id, questions=questions, delivery=delivery)


def _words(tx: Tx, asked: MessageRequest) -> str:
    """The text of the answer; empty if the model chose silence, or the transcript is gone.

    If the last reply has no text, the answer is the last text before it, no further back than the message itself.
    """
    entries = tx.transcripts.entries(asked.session, asked.entry - LOOK_BACK_ENTRIES, LOOK_BACK_ENTRIES)
    for _, body in reversed(joined((entry.seq, from_body(entry.body)) for entry in entries)):
        match body:
            case Replied(text=text) if classify_reply(text) != "empty":
                return text if classify_reply(text) == "text" else ""
            case Spoken(row=row) if row == asked.row:
                break
            case _:
                continue
    return ""


def _questions(tx: Tx, key: str) -> tuple[Question, ...]:
    """The questions that a person must answer before the session's turn continues; empty while a driver is at work on
    it."""
    driver = tx.drivers.get(key)
    if driver is not None and driver.release_at is None:
        return ()
    return tuple(views.question(tx, asked) for asked in tx.approvals.of(key) if asked.state == "waiting")
