"""Opening connections to one service: which addresses its name has, which of them answers, and the proof of its name.

What is said over a connection is not known here, nor how long one is kept.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable, Sequence
from itertools import zip_longest

from fledge.models.connection import Connection

KNOWN_S = 60.0
"""How long the addresses of a name are believed."""
NEXT_S = 0.25
"""How long one address may take before the next one is tried beside it."""


@functools.cache
def default_tls() -> ssl.SSLContext:
    """Names and certificates are checked, by the authorities the system trusts or those of `SSL_CERT_FILE`."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialler:
    """Opens connections to one host and port; with `tls` the host must prove its name."""

    def __init__(self, host: str, port: int, tls: Callable[[], ssl.SSLContext] | None, patience_s: float) -> None:
        self._host, self._port, self._tls, self._patience_s = host, port, tls, patience_s
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Lock()
        self._addresses: Sequence[str] = ()
        self._known_until = 0.0

    async def dial(self) -> Connection:
        """A connection that stands. Raises `OSError`, or `TimeoutError` if that took too long."""
        try:
            async with asyncio.timeout(self._patience_s) as patience:
                try:
                    return await self._first_of(await self._places())
                except OSError:
                    self._known_until = 0.0
                    raise
        except TimeoutError as error:
            if patience.expired():
                raise TimeoutError("no connection yet") from error
            raise

    async def _places(self) -> Sequence[str]:
        """The addresses of the host. A thousand who want to know at once ask once."""
        if ":" in self._host or self._host.replace(".", "").isdigit():
            return [self._host]
        async with self._asking:
            if self._loop.time() >= self._known_until:
                found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
                # Of both families in turns: where one of them leads nowhere, the second try already gets through.
                families = [
                    [a for a in addresses if (":" in a) is six] for six in (":" in addresses[0], "." in addresses[0])
                ]
                self._addresses = [a for pair in zip_longest(*families) for a in pair if a is not None]
                self._known_until = self._loop.time() + KNOWN_S
            return self._addresses

    async def _first_of(self, addresses: Sequence[str]) -> Connection:
        """A connection to the first address that answers; the next is tried when one fails or takes long."""
        if len(addresses) == 1:
            return await self._connect(addresses[0])
        # Not `happy_eyeballs_delay`: the race of asyncio forgets its winner if it is cancelled in the last moment.
        untried, trying = list(addresses), set[asyncio.Task[Connection]]()
        trouble: BaseException | None = None
        try:
            while untried or trying:
                if untried:
                    trying.add(self._loop.create_task(self._connect(untried.pop(0))))
                wait_s = NEXT_S if untried else None
                done, _ = await asyncio.wait(trying, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task.exception() is None:
                        trying.remove(task)
                        return task.result()
                    trying.remove(task)
                    trouble = trouble or task.exception()
            assert trouble is not None
            raise trouble
        finally:
            for task in trying:
                task.cancel()
                task.add_done_callback(_drop)

    async def _connect(self, address: str) -> Connection:
        transport, connection = await self._loop.create_connection(
            Connection,
            address,
            self._port,
            ssl=None if self._tls is None else self._tls(),
            server_hostname=None if self._tls is None else self._host,
        )
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection


def _drop(task: asyncio.Task[Connection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
