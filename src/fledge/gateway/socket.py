"""The WebSocket of the gateway: `commands.talk` on it, and the codes with which it is closed."""

import asyncio
import contextlib
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from fledge.commands.gateway_state import GatewayState
from fledge.commands.talk import ConnectionEnd, talk
from fledge.gateway.guests import call_as_guest

CLOSED: Final[dict[ConnectionEnd, tuple[int, str]]] = {
    "slow": (1008, "you are slow"),
    "closing": (1012, "the gateway closes"),
}
"""The close code and the reason for a client that is disconnected."""


async def converse(gateway: GatewayState, websocket: WebSocket) -> None:
    """Carry out the requests on a socket until it closes."""
    await websocket.accept()
    ended = await talk(gateway, _Messages(websocket), call_as_guest)
    if ended in CLOSED:
        with contextlib.suppress(TimeoutError, RuntimeError):  # it may be gone by now
            async with asyncio.timeout(gateway.patience.stuck_s):
                await websocket.close(*CLOSED[ended])


class _Messages:
    """The messages of a WebSocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> bytes | str | None:
        try:
            message = await self._websocket.receive()
        except (WebSocketDisconnect, RuntimeError):
            return None
        if message["type"] == "websocket.disconnect":
            return None
        raw = message.get("text")
        return raw if raw is not None else message.get("bytes") or b""

    async def send(self, told: bytes) -> None:
        try:
            await self._websocket.send_text(told.decode())
        except (WebSocketDisconnect, RuntimeError):
            raise ConnectionError("the client is gone") from None
