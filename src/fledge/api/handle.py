"""A program's handle on one run: wait for the run, read its result, steer it. Made by `fl.spawn` and, after a restart,
by `fl.run`.

A handle has no state of its own: all handles on a run give the same answers, and dropping one changes nothing.
"""

from collections.abc import AsyncGenerator, Generator
from typing import Any, Generic, Literal, NoReturn, TypeVar

from fledge.api import views
from fledge.api.spawn_options import budget_given
from fledge.api.streams import Hearing, Moves, RunEvent, RunLook, run_events
from fledge.api.values import Plan, Result, RunInfo, quoted
from fledge.core.figures import duration
from fledge.core.policy import Budget
from fledge.core.run import Instant
from fledge.core.value import Value
from fledge.errors import Refused, check_text
from fledge.orchestrator import control, messages
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.engine import Changes, Engine, deadline
from fledge.orchestrator.spawner import Spawner
from fledge.runtime.feed import Feed
from fledge.store.base import Session, Tx

T = TypeVar("T")

CLEANUP_S = 5.0
"""How long `remove` waits for the cleanup of a run that has ended."""


class HandleSeen(Value):
    """The state of a run when a handle last read it."""

    status: str
    """The outcome once the run has ended, else the phase."""
    since: Instant | None
    """When the run was spawned; None if that is no longer known."""
    ended_at: Instant | None


class Handle(Generic[T]):
    """A run, as `fl.spawn` and `fl.run` return it. `await handle` waits for its `Result`.

    >>> run = await fl.spawn("Say hello", label="greeting")
    >>> (await run).text
    'echo: Say hello'
    """

    def __init__(
        self,
        engine: Engine,
        spawner: Spawner,
        changes: Changes,
        feed: Feed,
        session_key: str,
        run_id: str,
        output_type: type[T] | None = None,
        label: str = "",
    ) -> None:
        self._engine, self._spawner, self._changes = engine, spawner, changes
        self._feed: Hearing = feed
        self._moves: Moves = changes
        self.output_type = output_type
        """The type into which the answer is decoded; None: none was given."""
        self.label = label
        """The label that the run was spawned with."""
        self.session_key = session_key
        """The session key of the run; it never changes."""
        self._seen: HandleSeen | None = None
        """The state of the run when this handle last read it; only for `repr`."""
        self.run_id = run_id
        """The run id (or session key) with which the handle was made; it finds the run for ever, however often that is
        steered or resumed."""

    def __repr__(self) -> str:
        return shown(self.label, self.run_id, self._seen, self._engine.clock.now())

    def __getattr__(self, name: str) -> NoReturn:
        """Say where the attribute is that a handle does not have."""
        if name in Result.__struct_fields__ or hasattr(Result, name):
            raise AttributeError(f"a handle has no {name!r}, its result has: await it, as in `(await run).{name}`")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __await__(self) -> Generator[Any, None, Result[T]]:
        return self.result().__await__()

    async def result(self, timeout: float | None = None) -> Result[T]:
        """Wait for the result; after `timeout` seconds return one with the status `pending`.

        Reading the result of a run that this program spawned counts as its delivery. It can be read again at any time.
        Cancelling the wait does not affect the run.

        >>> run = await fl.spawn("Say hello")
        >>> (await run.result(timeout=60)).status
        'ok'
        """
        key = self.session_key

        def over(tx: Tx) -> bool | None:
            return views.is_readable(tx.runs.load(key)) or None

        await self._changes.until(over, [key], deadline(self._engine, timeout))
        found = await self.peek()
        if found.done:  # also if it ended just after the time was up
            await consume(self._engine, key)
        return found

    async def peek(self) -> Result[T]:
        """Return the result so far, without waiting. This does not count as delivery.

        >>> run = await fl.spawn("Say hello")
        >>> (await run.peek()).status in ("pending", "ok")
        True
        """

        def look(tx: Tx) -> tuple[Result[T], Session | None]:
            return views.result(tx, self.session_key, self.output_type), tx.sessions.get(self.session_key)

        found, session = await self._engine.store.read(look)
        since = found.started_at if session is None else session.created_at
        self._seen = HandleSeen(found.status if found.done else found.phase, since, found.ended_at)
        return found

    async def info(self) -> RunInfo:
        """Return the current state of the run.

        >>> run = await fl.spawn("Say hello", label="greeting")
        >>> (await run.info()).label
        'greeting'
        """
        found = await self._engine.store.read(lambda tx: views.run_info(tx, self.session_key))
        self._seen = HandleSeen(found.status, found.created_at, found.ended_at)
        return found

    def events(self) -> AsyncGenerator[RunEvent, None]:
        """Stream the events of the run until it has settled.

        Phases (`kind` is `phase`) come from the beginning of the run; text, tools and retries come as they happen. A
        reply from before, or one of which a slow reader missed pieces, comes whole, as one `message` event. Leaving the
        stream does not affect the run.

        >>> run = await fl.spawn("Say hello")
        >>> async for event in run.events():
        ...     match event.kind:
        ...         case "phase":
        ...             print(event.phase)
        ...         case "assistant:text" | "message":
        ...             print(event.text)
        spawning
        queued
        running
        echo: Say hello
        announcing
        """
        return run_events(self.session_key, self._feed, self._moves, self._look)

    async def _look(self, told: int, after: int) -> RunLook:
        self._changes.check_open()
        key = self.session_key

        def look(tx: Tx) -> RunLook:
            timeline = views.timeline(tx.events.of(key))[told:]
            return RunLook(timeline, views.messages(tx, key, after, views.LOOK_BACK), views.is_settled(tx, key))

        return await self._engine.store.read(look)

    async def plan(self, timeout: float | None = None) -> Plan | None:
        """Wait for the run's plan; None if the run ends first, or after `timeout` seconds.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> (await run.plan()).text
        'echo: Say hello'
        """
        key = self.session_key

        def planned(tx: Tx) -> Plan | Literal[False] | None:
            """False: the run has ended."""
            return views.plan(tx, key) or (None if tx.runs.load(key).ended is None else False)

        found: Plan | Literal[False] | None = await self._changes.until(planned, [key], deadline(self._engine, timeout))
        return found or None

    async def steer(self, message: str) -> str:
        """Stop the current work and give the run new instructions; return the run id of the new attempt.

        Raises `Refused` if the run has ended.

        >>> run = await fl.spawn("Wait for me")
        >>> new_id = await run.steer("Say hello instead")
        >>> (await run).run_id == new_id
        True
        """
        check_text("message", message)
        return (await self._engine.commit(control.steer, self.session_key, message)).run_id

    async def send(self, message: str) -> str:
        """Send the run a message without stopping it; return its run id, which `reply` of the run's conversation takes.
        The run reads it at its next step.

        While its plan awaits an answer, a message whose first word is approve, approved, reject or rejected answers the
        plan; the run reads any other message once the plan has its answer.

        >>> run = await fl.spawn("Say hello")
        >>> run_id = await run.send("And goodbye")
        """
        check_text("message", message)
        return (await self._engine.commit(messages.accept_request, self.session_key, message)).run_id

    async def kill(self) -> Killing:
        """End the run and everything below it, without an announcement; return which sessions have ended and which are
        still stopping. That is false if everything had ended before.

        >>> run = await fl.spawn("Wait for me")
        >>> bool(await run.kill())
        True
        >>> (await run).status
        'killed'
        >>> bool(await run.kill())
        False
        """
        try:
            return await self._kill()
        except Refused as error:
            if error.status != "done":
                raise
            return Killing((), ())

    async def _kill(self) -> Killing:
        return await self._engine.commit(control.kill, self.session_key)

    async def resume(self, words: str = "", *, budget: Budget | None = None) -> str:
        """Let a run that was killed, failed or timed out continue; return the run id of the new attempt.

        It keeps its task, transcript and work, reads what its end had left unread, and `words` as a message; its
        timeouts begin anew. Its killed children stay killed. A run whose budget is used up needs a new `budget`.
        Raises `Refused` if the run is at work, ended well, was archived, or its session is gone; `fl.again` starts the
        task anew.

        >>> run = await fl.spawn("Wait for me")
        >>> await run.kill() is not None
        True
        >>> (await run).status
        'killed'
        >>> new_id = await run.resume("Say hello")
        >>> (await run).run_id == new_id
        True
        """
        check_text("words", words)
        return (await self._spawner.resume(self.session_key, words, budget_given(budget))).run_id

    async def remove(self) -> None:
        """Take the finished run off the lists before its time, as archiving does.

        Its transcript and its result are kept as long as those of an archived run. Raises `Refused` if the run still
        works, or has something to tell.

        >>> run = await fl.spawn("Say hello")
        >>> (await run).text
        'echo: Say hello'
        >>> await run.remove()
        >>> await fl.runs()
        []
        """
        key = self.session_key

        def cleaned_up(tx: Tx) -> bool | None:
            return tx.runs.load(key).phase.name != "cleanup_pending" or None

        # A run whose result was just read is cleaned up in a moment.
        await self._changes.until(cleaned_up, [key], deadline(self._engine, CLEANUP_S))
        await self._engine.commit(control.remove, key)


def shown(label: str, run_id: str, seen: HandleSeen | None, now: Instant) -> str:
    """The printed form of a handle: label, status and age, as far as the handle has read them."""
    name = f"{quoted(label)} {run_id}" if label else run_id
    if seen is None or seen.since is None:
        return f"<fledge run {name}{'' if seen is None else f': {seen.status}'}>"
    if seen.ended_at is None:
        return f"<fledge run {name}: {seen.status}, spawned {duration(now - seen.since)} ago>"
    return f"<fledge run {name}: {seen.status}, after {duration(seen.ended_at - seen.since)}>"


async def consume(engine: Engine, key: str) -> None:
    """Count a run's result as delivered. Does nothing if it counts already, or if it goes to a conversation."""

    def is_unread(tx: Tx) -> bool:
        return tx.runs.load(key).terms.program and any(row.announces for row in tx.inbox.of_run(key))

    if await engine.store.read(is_unread):
        await engine.commit(control.read_result, key)
