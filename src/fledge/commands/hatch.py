"""The private socket of a process that holds a state folder: commands of the same user ask it here.

A socket in the folder, of its owner alone; one request of JSON-RPC a connection, a line each way, with the methods of
the gateway. There is no token: whoever can open the socket could open the folder. A process that leaves answers every
request it has read, and says of those it has not that it did not carry them out. Nothing here knows HTTP.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fledge.api.program import Fledge
from fledge.commands import rpc
from fledge.commands.desk import Desk
from fledge.commands.methods import call
from fledge.store.ways import HATCH, reached

BACKLOG: Final = 128
REQUEST_S: Final = 5.0
"""How long a request may take to come."""
DRAIN_S: Final = 10.0
"""How long requests under way may take once the process leaves."""

log = logging.getLogger("fledge.hatch")


@asynccontextmanager
async def hatch(fl: Fledge, desk: Desk | None = None) -> AsyncIterator[None]:
    """Answer commands of the same user as long as the block lasts, with the state of a gateway if there is one. If the
    socket cannot be made, the process works without it."""
    try:
        listening = _bind(fl.state)
    except OSError as error:
        log.warning("%s: cannot be made (%s); other commands cannot ask this process", fl.state / HATCH, error)
        yield
        return
    desk = desk or Desk(fl, fl.config.gateway)
    asked: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        asked.add(task)
        task.add_done_callback(asked.discard)
        # Cancelled only below, when the process leaves: the task must end as if nothing had happened, for asyncio
        # prints a traceback of a cancelled one.
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await _answer(desk, reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, sock=listening, backlog=BACKLOG)
    try:
        yield
    finally:
        desk.close()  # requests that wait are answered with what there is
        _unlink(fl.state)
        # From here on nobody can connect; those who have, and wait to be accepted, are accepted and answered.
        for _ in range(2):
            await asyncio.sleep(0)
        server.close()
        if asked:
            await asyncio.wait(asked, timeout=DRAIN_S)
        for task in (*asked,):
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _answer(desk: Desk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if not _is_ours(writer):
        return
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(REQUEST_S):
            raw = await _line(reader, desk.limits.max_body_kb * 1024)
        if raw is None:
            told: bytes | None = rpc.refusal(f"at most {desk.limits.max_body_kb} KiB: gateway.maxBodyKb")
        elif desk.closing.is_set():
            told = rpc.refusal("the process that holds the folder is about to end: ask again", rpc.LEAVING)
        else:
            told = await rpc.answer(raw, lambda name, given: call(desk, name, given))
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits for all of it: the process may leave next
        writer.write((told or b"") + b"\n")
        await writer.drain()


async def _line(reader: asyncio.StreamReader, most: int) -> bytes | None:
    """The line that comes; None if it is longer than may be, but read to its end, so that its writer reads why."""
    raw, read = b"", 0
    while not raw.endswith(b"\n") and (piece := await reader.read(65536)):
        read += len(piece)
        raw = raw + piece if read <= most else piece[-1:]
    return raw if read <= most else None


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """True if the asking process is this user's, as far as the system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the socket's own permissions say so
    asking = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", asking)[1] in (os.getuid(), 0)


def _bind(state: Path) -> socket.socket:
    """A socket in the folder. The folder's lock is held, so one that lies there already was left by a dead process."""
    _unlink(state)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reached(state) as path:
            listening.bind(path)
            os.chmod(path, 0o600)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _unlink(state: Path) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK((state / HATCH).lstat().st_mode):
            (state / HATCH).unlink()
