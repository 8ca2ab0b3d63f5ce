"""Asking the process that holds a state folder, as a program without fledge would: blocking, with nothing but the
standard library, one request on each connection. `Client` asks a gateway over HTTP, `Hatch` the private socket."""

import http.client
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from fledge.client.connection import error_of
from fledge.errors import BadInput, HolderLeft, Refused, StoreError
from fledge.store.lock import holder_of
from fledge.store.ways import CONTROL_SOCKET, reached, read_token

TIMEOUT_S = 30.0
CONNECT_S = 2.0


def request(method: str, params: Mapping[str, object]) -> bytes:
    """A request of JSON-RPC."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": 1})


def answer_in(raw: bytes) -> Any:
    """What was answered. Raises what was refused, as the library would."""
    told = msgspec.json.decode(raw)
    if "error" in told:
        raise error_of(told["error"])
    return told["result"]


class Remote(ABC):
    """Whoever holds a folder, as other processes ask it. Each call is a request of its own; close nothing."""

    def call(self, method: str, /, **params: object) -> Any:
        """What the method answers. Raises what it refused, as the library would, and what `exchange` raises."""
        wait_s = TIMEOUT_S
        for name, seconds in (("timeoutSeconds", 1.0), ("timeoutMs", 0.001)):
            given = params.get(name)
            wait_s += given * seconds if isinstance(given, int | float) else 0.0
        return answer_in(self.exchange(request(method, params), wait_s))

    @abstractmethod
    def exchange(self, raw: bytes, wait_s: float) -> bytes:
        """The whole answer to one request. Raises HolderLeft if the process ended before it had answered, StoreError
        if it does not answer in time."""

    @abstractmethod
    def is_there(self) -> bool:
        """True if somebody takes connections there."""


class Hatch(Remote):
    """The holder's socket in the folder."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def exchange(self, raw: bytes, wait_s: float) -> bytes:
        """One line there, one line back."""
        with self._left(acted=False):
            connection = self._connected(wait_s)
        with self._left(acted=True), connection, connection.makefile("rb") as answer:
            connection.sendall(raw + b"\n")
            told = answer.readline()
        if not told.endswith(b"\n"):
            raise HolderLeft(self._words, acted=True)
        return told

    @property
    def _words(self) -> str:
        return f"the process that held {self._state} ended before it answered"

    @contextmanager
    def _left(self, acted: bool) -> Iterator[None]:
        """Say of a connection that fails whether the process has ended, or takes too long."""
        try:
            yield
        except TimeoutError:
            raise StoreError(f"the process that holds {self._state} takes too long to answer") from None
        except OSError:
            raise HolderLeft(self._words, acted) from None

    def is_there(self) -> bool:
        """True if somebody takes connections there."""
        try:
            self._connected(CONNECT_S).close()
        except OSError:
            return False
        return True

    def _connected(self, timeout_s: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            with reached(self._state) as path:
                connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection


class Client(Remote):
    """A gateway."""

    def __init__(self, address: str, token: str) -> None:
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise BadInput("address", "must be like http://127.0.0.1:18789", address)
        self._place, self._token = (parts.hostname, parts.port), token
        self.address = address

    def exchange(self, raw: bytes, wait_s: float) -> bytes:
        """A POST, and its answer's body."""
        return self.request("POST", "/rpc", raw, wait_s)

    def is_there(self) -> bool:
        """True if somebody takes connections there."""
        try:
            socket.create_connection(self._place, CONNECT_S).close()
        except OSError:
            return False
        return True

    def events(self, cursor: int | None = None, session: str = "") -> Iterator[dict[str, Any]]:
        """Events from the cursor on (from now on, without one), until the gateway closes."""
        query = "&".join(
            [*([] if cursor is None else [f"cursor={cursor}"]), *([f"session={session}"] if session else [])]
        )
        connection = http.client.HTTPConnection(*self._place, timeout=60.0)
        try:
            response = self._open(connection, "GET", f"/events?{query}", None)
            for line in response:
                if line.startswith(b"data: "):
                    yield msgspec.json.decode(line[6:])
        except OSError as error:
            raise StoreError(f"the gateway at {self.address} broke off ({error})") from None
        finally:
            connection.close()

    def request(self, verb: str, path: str, body: bytes | None = None, timeout_s: float = TIMEOUT_S) -> bytes:
        """The body of the answer to one request. Raises Refused for a status that says no."""
        connection = http.client.HTTPConnection(*self._place, timeout=timeout_s)
        try:
            return self._open(connection, verb, path, body).read()
        except TimeoutError:
            raise StoreError(f"the gateway at {self.address} takes too long to answer") from None
        except ConnectionRefusedError as error:
            raise HolderLeft(f"the gateway at {self.address} does not answer ({error})", acted=False) from None
        except (OSError, http.client.HTTPException) as error:
            raise HolderLeft(f"the gateway at {self.address} ended before it answered ({error})", acted=True) from None
        finally:
            connection.close()

    def _open(
        self, connection: http.client.HTTPConnection, verb: str, path: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
        if response.status == 503:
            raise HolderLeft(
                f"the gateway at {self.address} takes no requests now: {_reason(response.read(10_000))}", False
            )
        if response.status >= 400:
            raise Refused(
                "error", f"the gateway at {self.address} answered {response.status}: {_reason(response.read(10_000))}"
            )
        return response


def _reason(raw: bytes) -> str:
    """What a refusal says, in its own words."""
    try:
        return str(msgspec.json.decode(raw)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return raw.decode("utf-8", "replace")


def find(state: Path) -> Remote | None:
    """The process that holds this state folder, if there is one that can be asked: at its hatch, else at its gateway's
    address. Refused: it is a gateway without a hatch, and its token cannot be read.

    What a dead process left in the lock's file counts for nothing: somebody must take connections there.
    """
    holder = holder_of(state / "lock")
    if holder is None or not holder.address:
        return None
    hatch = Hatch(state)
    if hatch.is_there():
        return hatch
    gateway = None if holder.address == CONTROL_SOCKET else Client(holder.address, read_token(state))
    return gateway if gateway is not None and gateway.is_there() else None
