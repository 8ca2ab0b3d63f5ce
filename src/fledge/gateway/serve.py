"""`fledge serve`: open the folder, listen, and close in order when it is stopped.

The socket is bound before the folder is opened, so that a process that finds the folder in use learns the address to
use instead. Closing takes no more requests, answers those that wait, lets every driver go, and then ends.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from msgspec.structs import replace

import fledge
from fledge.commands.control_socket import control_socket
from fledge.commands.gateway_state import GatewayState, Patience
from fledge.commands.login import LoginCodes
from fledge.commands.signins import SignIns
from fledge.config import Config
from fledge.config.layers import Layers
from fledge.config.schema import GatewayBlock
from fledge.egress import Environment
from fledge.errors import BadInput, StoreError
from fledge.gateway.app import make_app
from fledge.gateway.auth import door
from fledge.gateway.connections import limited
from fledge.runtime.outlet import secret_of
from fledge.signals import set_on_signals
from fledge.store.ways import make_token

DRAIN_S: Final = 10
"""How long requests under way may take once the server is closing."""
BACKLOG: Final = 128

Ready = Callable[[str, GatewayState], Awaitable[None] | None]


async def serve(
    state: Path,
    config: Config,
    *,
    ready: Ready | None = None,
    stop: asyncio.Event | None = None,
    patience: Patience | None = None,
    env: Environment | None = None,
    layers: Layers = (),
    **options: Any,
) -> None:
    """Serve this folder until `stop` is set, or SIGTERM or Ctrl-C arrives. `options` are those of `fledge.open`.

    `ready` is called with the address once requests are taken. `layers` are the documents that the settings were made
    of.
    """
    limits = config.gateway
    listening = bind(limits)
    stop = stop or asyncio.Event()
    try:
        address = _address(limits.host, listening.getsockname()[1])
        opened = fledge.open(state, config=config, env=env, address=address, **options)
        given = os.environ if env is None else env
        secrets = {name: secret_of(one, f"channels.{name}", given) for name, one in config.channels.items()}
        async with opened as fl:
            gateway = GatewayState(fl, patience, layers=layers)
            token = make_token(state)
            gateway.logins, gateway.sign_ins = LoginCodes(address), SignIns(state, token)
            entrance = door(token, limits.host, limits.allowed_hosts, limits.allowed_origins)
            server = _server(make_app(gateway, entrance, secrets), limits, gateway.patience)
            # On a store of a server each command commits itself, so the folder needs no control socket.
            asked = contextlib.nullcontext() if isinstance(options.get("store"), str) else control_socket(fl, gateway)
            with set_on_signals(stop):
                async with asked:
                    await _until_stopped(server, listening, gateway, stop, address, ready)
    finally:
        listening.close()


def bind(limits: GatewayBlock) -> socket.socket:
    """A socket that listens where the settings say. Refused: an address that is not ours, a port in use."""
    try:
        family, kind, number, _, place = socket.getaddrinfo(
            limits.host, limits.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, number)
    except OSError as error:
        raise BadInput("gateway.host", f"must be an address of this machine ({error.strerror})", limits.host) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise StoreError(
            f"gateway.port: {limits.host} port {limits.port} cannot be listened on ({error.strerror}); choose another"
        ) from None
    return listening


def _address(host: str, port: int) -> str:
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Set `listening` once requests are taken."""
        await super().startup(sockets=sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn handles no signals: `serve` does."""
        yield


def _server(app: Any, limits: GatewayBlock, patience: Patience) -> _Server:
    settings = uvicorn.Config(
        app,
        http=limited(limits.max_connections, patience.head_s),
        backlog=BACKLOG,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=limits.max_body_kb * 1024,
        ws_max_queue=16,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        h11_max_incomplete_event_size=64 * 1024,
        limit_concurrency=limits.max_connections + 1,  # from here on uvicorn answers 503
        timeout_keep_alive=30,
        timeout_graceful_shutdown=DRAIN_S,
    )
    return _Server(settings)


def _is_logged(record: logging.LogRecord) -> bool:
    """False of uvicorn's message about each client that was rejected or disconnected: an attacker must not fill the
    log."""
    return not record.getMessage().startswith("ASGI callable returned without completing")


async def _until_stopped(
    server: _Server,
    listening: socket.socket,
    gateway: GatewayState,
    stop: asyncio.Event,
    address: str,
    ready: Ready | None,
) -> None:
    logging.getLogger("uvicorn.error").addFilter(_is_logged)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await server.listening.wait()
        if ready is not None:
            told = ready(address, gateway)
            if told is not None:
                await told
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gateway.close()
        server.should_exit = True
        stopping.cancel()
        await asyncio.gather(serving, stopping, return_exceptions=True)


def with_options(config: Config, host: str | None, port: int | None) -> Config:
    """The settings, with the values of the command line."""
    gateway = config.gateway
    if host is not None:
        gateway = replace(gateway, host=host)
    if port is not None:
        if not 0 <= port <= 65535:
            raise BadInput("--port", "must be 0 to 65535", port)
        gateway = replace(gateway, port=port)
    return replace(config, gateway=gateway)
