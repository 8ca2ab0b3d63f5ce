"""The private socket of a process that holds a state folder: commands of the same user ask it here.

A socket in the folder, of its owner alone; messages of JSON-RPC on it (`talk`), a line each, with the methods of the
gateway. There is no token: a process that can open the socket could open the folder itself. Nothing here knows HTTP.
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

from fledge.api.fledge import Fledge
from fledge.cancellation import end_tasks
from fledge.commands import rpc
from fledge.commands.gateway_state import GatewayState
from fledge.commands.line_pipe import LinePipe
from fledge.commands.talk import talk
from fledge.core.redact import error_words
from fledge.store.unforked import forget, keep_from_children
from fledge.store.ways import CONTROL_SOCKET, reached

BACKLOG: Final = 128
DRAIN_S: Final = 10.0
"""How long requests under way may take once the process leaves."""

log = logging.getLogger("fledge.control_socket")


@asynccontextmanager
async def control_socket(fl: Fledge, gateway: GatewayState | None = None) -> AsyncIterator[None]:
    """Answer commands of the same user as long as the block lasts, with the state of a gateway if there is one. If the
    socket cannot be made, the process works without it."""
    try:
        listening = _bind(fl.state)
    except OSError as error:
        log.warning(
            "%s: cannot be made (%s); other commands cannot ask this process",
            fl.state / CONTROL_SOCKET,
            error_words(error),
        )
        yield
        return
    gateway = gateway or GatewayState(fl)
    most_kb = gateway.limits.max_body_kb
    refusal = rpc.refusal(f"at most {most_kb} KiB: gateway.maxBodyKb")
    asked: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, descriptor = asyncio.current_task(), writer.get_extra_info("socket").fileno()
        assert task is not None
        asked.add(task)
        task.add_done_callback(asked.discard)
        keep_from_children(descriptor)
        # Cancelled only below, when the process leaves: the task must end as if nothing had happened, for asyncio
        # prints a traceback of a cancelled one.
        try:
            with contextlib.suppress(asyncio.CancelledError):
                if _is_ours(writer):
                    # So that `drain` waits for all that is sent: the process may leave next.
                    writer.transport.set_write_buffer_limits(0)
                    await talk(gateway, LinePipe(reader, writer, refusal))
        finally:
            forget(descriptor)
            writer.close()

    keep_from_children(listening.fileno())
    server = await asyncio.start_unix_server(answer, sock=listening, backlog=BACKLOG, limit=most_kb * 1024)
    try:
        yield
    finally:
        gateway.close()  # requests that wait are answered at once, with the present state
        _unlink(fl.state)
        # From here on no process can connect; connections that wait to be accepted are accepted and answered.
        for _ in range(2):
            await asyncio.sleep(0)
        forget(listening.fileno())
        server.close()
        if asked:
            await asyncio.wait(asked, timeout=DRAIN_S)
        await end_tasks(asked)


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
        if stat.S_ISSOCK((state / CONTROL_SOCKET).lstat().st_mode):
            (state / CONTROL_SOCKET).unlink()
