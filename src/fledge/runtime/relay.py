"""Carries what happens inside turns between processes that share a store: to clients here from turns that another
process drives, and the other way round. Nothing is sent of sessions that no client watches.

A process says which sessions its clients watch when that changes, and again and again while they do. The process that
drives such a session, or one below it, collects its events for a moment and sends them beside its commits. Everything
here may be lost: replies are read from the rows.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

from fledge.cancellation import end_tasks
from fledge.core.cluster import News
from fledge.core.live import COLLECT_S, SAYS_A_WATCH, WATCH_S, Received, TurnEvent, WatchedSessions, packed
from fledge.errors import StoreError
from fledge.orchestrator.engine import Engine
from fledge.runtime.feed import Feed
from fledge.store.base import Cluster, Tx

MOST_WAITING: Final = 512 * 1024
"""Characters that wait to be sent. At more, all waiting events are dropped, and each session's number of them is sent
instead."""
MOST_KNOWN: Final = 1000
"""Sessions whose ancestors are remembered."""

log = logging.getLogger("fledge.engine")


class Relay:
    """The feed of one process, connected with those of the others from `start` until `stop`."""

    def __init__(self, feed: Feed, engine: Engine, cluster: Cluster) -> None:
        self._feed, self._engine, self._cluster = feed, engine, cluster
        self._woken = asyncio.Event()
        self._said: frozenset[str] = frozenset()
        """The sessions that were last said to be watched here."""
        self._says_at = 0.0
        self._received = Received()
        self._watched = WatchedSessions()
        self._number = 1
        self._begun: set[str] = set()
        """Sessions that clients elsewhere have begun to watch: they get the text so far of open replies there."""
        self._waiting: list[TurnEvent] = []
        self._chars = 0
        self._sends_at: float | None = None
        self._lineages: dict[str, list[str]] = {}
        """By session: itself and those above it."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Carry events from now on. The engine must be open."""
        self._feed.on_watch = self._woken.set
        self._engine.on_watched = self._others_watch
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Stop carrying events."""
        self._feed.on_watch, self._feed.relay = lambda: None, None
        self._engine.on_watched = None
        self._cluster.hear_live(None)
        if self._task is not None:
            await end_tasks([self._task])

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _others_watch(self, sessions: list[str], begun: list[str]) -> None:
        self._watched.note(sessions, self._now())
        self._feed.relay = self._put
        if begun:
            self._begun.update(begun)
            self._send_soon()
        self._woken.set()

    def _put(self, event: TurnEvent) -> None:
        """Keep an event of this process until it is sent, unless it is known that no other process watches."""
        lineage = self._lineages.get(event.session)
        if lineage is not None and not self._watched.covers(lineage, self._now()):
            return
        self._chars += len(event.text) + len(event.arguments)
        if self._chars > MOST_WAITING:
            self._waiting, self._chars = _losses([*self._waiting, event]), 0
        else:
            self._waiting.append(event)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._sends_at is None:
            self._sends_at = self._now() + COLLECT_S
            self._woken.set()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            now = self._now()
            self._say(now)
            watched_until = self._watched.ends_at(now)
            if watched_until is None:
                self._feed.relay, self._waiting, self._chars, self._sends_at = None, [], 0, None
            elif self._sends_at is not None and now >= self._sends_at:
                await self._send()
            times = [self._says_at if self._feed.watched else None, watched_until, self._sends_at]
            next_at = min((at for at in times if at is not None), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_at):
                    await self._woken.wait()

    def _say(self, now: float) -> None:
        """Say which sessions are watched here: when there are others than before, and in time."""
        watched = self._feed.watched
        if bool(watched) is not bool(self._said):
            self._cluster.hear_live(self._hear if watched else None)
        if watched and (now >= self._says_at or not watched <= self._said):
            self._says_at = now + WATCH_S / SAYS_A_WATCH
            self._cluster.tell(News(watched=sorted(watched), begun=sorted(watched - self._said)))
        if not watched:
            self._feed.open.forget_heard()
        self._said = watched

    async def _send(self) -> None:
        waiting, self._waiting, self._chars, self._sends_at = self._waiting, [], 0, None
        begun, self._begun = self._begun, set()
        try:
            await self._learn({event.session for event in waiting} | (self._feed.open.own.keys() if begun else set()))
        except StoreError as error:
            log.debug("live events were lost: %s", error)
            self._waiting = [*_losses(waiting), *self._waiting]
            return
        now = self._now()
        wanted = [event for event in waiting if self._watched.covers(self._lineages[event.session], now)]
        # Pieces that wait by now are in the text so far as well: where they begin says so.
        open_now = self._feed.open.own.values() if begun else ()
        wanted += [one.so_far() for one in open_now if not begun.isdisjoint(self._lineages.get(one.session, ()))]
        messages = packed(self._engine.owner, self._number, wanted)
        self._number += len(messages)
        self._cluster.send_live(messages)

    async def _learn(self, sessions: set[str]) -> None:
        if len(self._lineages) > MOST_KNOWN:
            self._lineages.clear()
        new = sessions - self._lineages.keys()

        def look(tx: Tx) -> dict[str, list[str]]:
            return {session: [above.key for above in tx.sessions.lineage(session)] for session in new}

        if new:
            self._lineages |= await self._engine.store.read(look)

    def _hear(self, message: str) -> None:
        for event in self._received.take(message):
            self._feed.receive(event)
            if event.kind == "lost":
                self._said = frozenset()  # the next time it asks for the text so far again


def _losses(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """What is sent instead of these events: for each session how many of its events are missing."""
    missing: Counter[str] = Counter()
    for event in events:
        missing[event.session] += event.count if event.kind == "lost" else 1
    return [TurnEvent("lost", session, count=count) for session, count in missing.items()]
