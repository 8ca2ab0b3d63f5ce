"""The connection between engines on a PostgreSQL store: LISTEN and NOTIFY, the server's time, signs of life.

Commits tell news to a channel of the schema, inside their transaction. A thread with a connection of its own hears it,
and writes every few seconds that its engine is alive; it does so beside the event loop, so that a busy program is not
taken for a dead one. Once a second it asks the server for a sign of life: a connection that answers has missed
nothing. After a lost connection the engine looks at everything.

Words of turns for clients of other processes go by a channel of their own, on the same connection and never in a
commit. Only processes that want them listen there.
"""

import asyncio
import logging
import math
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg

from fledge.clock import SystemClock
from fledge.core.cluster import BEATS_A_LEASE, News, from_message, to_messages
from fledge.core.redact import error_words
from fledge.core.run import Instant
from fledge.errors import StoreError
from fledge.store.postgres_server import ServerAddress, connect
from fledge.store.unforked import forget, keep_from_children

PROBE_S: Final = 1.0
"""How often the connection is asked for a sign of life."""
FIRST_WAIT_S: Final = 0.05
MOST_WAIT_S: Final = 1.0
"""How long to wait before the next try to connect."""
NOW: Final = "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
_SEEN: Final = f"UPDATE engines SET seen_at = {NOW} WHERE id = %s"
UP: Final = f"SELECT {NOW}, CAST(extract(epoch FROM pg_postmaster_start_time()) AS DOUBLE PRECISION)"
"""The time of the server, and when it started."""
_SEND: Final = "SELECT pg_notify(%s, message) FROM unnest(CAST(%s AS TEXT[])) AS message"

log = logging.getLogger("fledge.store")


class ServerClock(SystemClock):
    """The time of the server, as far as it is known: it was read when a transaction began, and has passed since. It is
    never ahead of the server by more than the drift of this machine's clock."""

    def __init__(self, at: Instant) -> None:
        self.learn(at)

    def learn(self, at: Instant) -> None:
        """The server has just said that it is this time."""
        self._read = at, time.monotonic()

    def now(self) -> Instant:
        """Seconds since the epoch."""
        at, read_at = self._read
        return at + time.monotonic() - read_at


def _elapsed() -> float:
    """Seconds of this machine, also those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class _Lease:
    """The lease of this process's engine. It is counted from before a sign of life is sent: the server, which writes
    down when that arrives, counts a little longer."""

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at

    @property
    def is_over(self) -> bool:
        return _elapsed() >= self.ends_at


class PostgresCluster:
    """Lets one engine be seen and hear the others."""

    def __init__(
        self, server: ServerAddress, clock: ServerClock, up_at: Instant, lease_s: float, sender: Callable[[], int]
    ) -> None:
        self._server, self.clock, self.lease_s = server, clock, lease_s
        self.address = server.shown
        self.up_at = up_at
        """When the server started, or this process reached it again after a break; infinite during a break."""
        self.lease = _Lease(-math.inf)
        self._sender = sender
        """The number of the connection by which this process writes: its news is known here."""
        self._ends = threading.Event()
        self._woken, self._waker = -1, -1
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outgoing: deque[tuple[str, Sequence[str]]] = deque()
        """Messages to send beside commits, by channel."""
        self._heard_live: Callable[[str], None] | None = None

    def join(self, engine: str, heard: Callable[[News], None]) -> None:
        """Let this engine be seen from now on, and hear what others commit."""
        loop = self._loop = asyncio.get_running_loop()

        def hear(news: News) -> None:
            with suppress(RuntimeError):  # that loop has closed, and with it the engine
                loop.call_soon_threadsafe(heard, news)

        self._ends.clear()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        keep_from_children(self._woken)
        keep_from_children(self._waker)
        self._thread = threading.Thread(target=self._listen, args=(engine, hear), name="fledge-listen", daemon=True)
        self._thread.start()

    async def leave(self) -> None:
        """It is neither seen nor hears anything any more."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._ends.set()
        self._wake()
        await asyncio.to_thread(thread.join)
        for end in (self._woken, self._waker):
            forget(end)
            os.close(end)
        self._waker = -1

    def tell(self, news: News) -> None:
        """Tell the other engines something that no commit says. It may be lost."""
        self._send(self._server.channel, to_messages(news))

    def send_live(self, messages: Sequence[str]) -> None:
        """Send messages to those that hear live ones, in order. They may be lost."""
        self._send(self._server.live_channel, messages)

    def hear_live(self, heard: Callable[[str], None] | None) -> None:
        """Hear live messages of other engines from now on, in the event loop of `join`; None: stop."""
        self._heard_live = heard
        self._wake()

    def _send(self, channel: str, messages: Sequence[str]) -> None:
        if messages:
            self._outgoing.append((channel, messages))
            self._wake()

    def _wake(self) -> None:
        if self._waker >= 0:
            with suppress(BlockingIOError):  # it is full, so the thread wakes anyway
                os.write(self._waker, b"x")

    def _listen(self, engine: str, hear: Callable[[News], None]) -> None:
        wait_s = FIRST_WAIT_S
        while not self._ends.is_set():
            try:
                connection = connect(self._server, "listener").connection
                keep_from_children(connection.fileno())
            except StoreError as error:
                log.debug("%s", error)  # the writer says so too, and fails what waits for it
                self._outgoing.clear()
                self._ends.wait(wait_s)
                wait_s = min(2 * wait_s, MOST_WAIT_S)
                continue
            descriptor, attended_at = connection.fileno(), time.monotonic()
            try:
                self._attend(connection, engine, hear)
            except (psycopg.Error, OSError) as error:
                log.debug("the connection that listens was lost: %s", error_words(error))
                self.up_at = math.inf
                # A server that takes connections and refuses writes must not be asked without a pause.
                wait_s = FIRST_WAIT_S if time.monotonic() - attended_at > MOST_WAIT_S else wait_s
                self._ends.wait(wait_s)
                wait_s = min(2 * wait_s, MOST_WAIT_S)
            finally:
                forget(descriptor)
                connection.close()

    def _attend(self, connection: "psycopg.Connection[Any]", engine: str, hear: Callable[[News], None]) -> None:
        """Listen until the connection is lost, which raises, or the engine leaves."""

        own = connection.info.backend_pid
        listens_live = False

        def notified(notice: psycopg.Notify) -> None:
            if notice.pid in (own, self._sender()):
                return
            if notice.channel == self._server.channel:
                hear(from_message(notice.payload))
            elif (heard := self._heard_live) is not None and self._loop is not None:
                with suppress(RuntimeError):  # that loop has closed
                    self._loop.call_soon_threadsafe(heard, notice.payload)

        connection.add_notify_handler(notified)
        connection.execute(f"LISTEN {self._server.channel}".encode())
        if self.up_at == math.inf:
            (self.up_at,) = connection.execute(f"SELECT {NOW}".encode()).fetchone() or (math.inf,)
        hear(News(look=True, everything=True))
        wire, beat_s = connection.pgconn, self.lease_s / BEATS_A_LEASE
        asked_at = seen_at = -self.lease_s
        while not self._ends.is_set():
            now = time.monotonic()
            if now - seen_at >= beat_s:
                asked_at = seen_at = now
                sent_at = _elapsed()
                if connection.execute(_SEEN.encode(), (engine,)).rowcount == 0:
                    self.lease.ends_at = -math.inf
                    hear(News(look=True, everything=True, expelled=True))
                elif self.lease.is_over:  # the row may be a new one, after others counted this engine as dead
                    self.lease = _Lease(sent_at + self.lease_s)
                    hear(News(look=True))
                else:
                    self.lease.ends_at = sent_at + self.lease_s
            elif now - asked_at >= PROBE_S:
                asked_at = now
                connection.execute("SELECT 1")
            if listens_live is not (self._heard_live is not None):
                listens_live = not listens_live
                verb = "LISTEN" if listens_live else "UNLISTEN"
                connection.execute(f"{verb} {self._server.live_channel}".encode())
            while self._outgoing:
                channel, messages = self._outgoing.popleft()
                connection.execute(_SEND.encode(), (channel, list(messages)))
            rest_s = min(asked_at + PROBE_S, seen_at + beat_s) - time.monotonic()
            ready, _, _ = select.select([wire.socket, self._woken], [], [], max(0.0, rest_s))
            if self._woken in ready:
                os.read(self._woken, 4096)
            if wire.socket in ready:
                wire.consume_input()
                while (notice := wire.notifies()) is not None:
                    notified(psycopg.Notify(notice.relname.decode(), notice.extra.decode(), notice.be_pid))
