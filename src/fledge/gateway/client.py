"""Asking whoever holds a state folder from another process, with nothing but the standard library.

Where they are stands in the lock of the folder: a gateway, with its token in a file beside it, or a hatch, a socket in
the folder itself. Whoever may read the folder may ask.
"""

import http.client
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from fledge.errors import BadInput, FledgeError, NotFound, Refused, StoreError
from fledge.gateway.auth import read_token
from fledge.store.lock import holder_of

TIMEOUT_S = 30.0
CONNECT_S = 2.0


HATCH = "hatch"
"""What stands in the lock instead of an address, and what the socket is called."""
PATH_BYTES = 100
"""The path of a socket may not be longer than about this."""


class Remote(ABC):
    """Whoever holds a folder, as other processes ask it. Each call is a request of its own; close nothing."""

    def call(self, method: str, /, **params: object) -> Any:
        """What the method answers. Raises what it refused, as the library would, or StoreError if nobody answers."""
        ask = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
        wait_s = TIMEOUT_S
        for name, seconds in (("timeoutSeconds", 1.0), ("timeoutMs", 0.001)):
            given = params.get(name)
            wait_s += given * seconds if isinstance(given, int | float) else 0.0
        told = msgspec.json.decode(self.exchange(msgspec.json.encode(ask), wait_s))
        if "error" in told:
            raise error_of(told["error"])
        return told["result"]

    @abstractmethod
    def exchange(self, raw: bytes, wait_s: float) -> bytes:
        """The answer to one request. Raises StoreError if nobody answers in time."""

    @abstractmethod
    def is_there(self) -> bool:
        """True if somebody takes connections there."""


class Hatch(Remote):
    """A process that holds a folder and is no gateway, such as a chat."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def exchange(self, raw: bytes, wait_s: float) -> bytes:
        """One line there, one line back."""
        try:
            with self._connected(wait_s) as connection, connection.makefile("rb") as answer:
                connection.sendall(raw + b"\n")
                told = answer.readline()
        except OSError as error:
            raise StoreError(f"the process that holds {self._state} does not answer ({error})") from None
        if not told:
            raise StoreError(f"the process that holds {self._state} has ended: try again")
        return told

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


@contextmanager
def reached(state: Path) -> Iterator[str]:
    """A path of the folder's socket that is short enough to be used, as long as the block lasts."""
    path = str(state / HATCH)
    if len(os.fsencode(path)) <= PATH_BYTES:
        yield path
        return
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{HATCH}"
    finally:
        os.close(folder)


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
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(f"the gateway at {self.address} does not answer ({error})") from None
        finally:
            connection.close()

    def _open(
        self, connection: http.client.HTTPConnection, verb: str, path: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
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


def error_of(error: dict[str, Any]) -> FledgeError:
    """What a gateway refused, as the library would raise it."""
    data = error.get("data") or {}
    match error["code"]:
        case -32602 if "expected" in data:
            return BadInput(data["field"], data["expected"])
        case -32001:
            return NotFound(error["message"])
        case -32002:
            return StoreError(error["message"])
        case _:
            return Refused(data.get("status", "error"), error["message"])


def find(state: Path) -> Remote | None:
    """Whoever holds this state folder and can be asked, if anybody does. Refused: a gateway's token cannot be read.

    What a dead process left in the lock's file counts for nothing: somebody must take connections there.
    """
    holder = holder_of(state / "lock")
    if holder is None or not holder.address:
        return None
    remote = Hatch(state) if holder.address == HATCH else Client(holder.address, read_token(state))
    return remote if remote.is_there() else None
