"""`signins.list` and `signins.end`: the browsers that are signed in at the gateway's page, and the file of them.

A browser that has shown the gateway's token, or a code of `fledge page`, gets a credential of its own: a short id, and
a random secret. The file has the id and a digest of the credential that is keyed with the token: it is worth nothing to
a reader, cannot be made without the token, and does not count with another token. Gateways that share a state folder
share the file: one of them writes at a time, and each looks before it answers whether the file is another one.
"""

import asyncio
import fcntl
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from fledge.commands.gateway_state import GatewayState
from fledge.commands.params import Nothing
from fledge.commands.table import Params, method
from fledge.core.run import Instant
from fledge.core.value import NamedValue, Value
from fledge.errors import NotFound, Refused, StoreError
from fledge.plain_file import open_plain, read_plain, write_private

SIGN_IN_FILE: Final = "gateway.signins"
LOCK_FILE: Final = "gateway.signins.lock"
UNUSED_S: Final = 30 * 86_400.0
"""A sign-in ends when it has not been used for so long."""
STORE_USE_S: Final = 3600.0
"""The last use of a sign-in is stored at most so often."""
MOST_SIGN_INS: Final = 100
"""One more ends the one whose last use is longest ago."""
MOST_BROWSER_CHARS: Final = 200
MOST_FILE_BYTES: Final = 1024 * 1024
ID_BYTES: Final = 8
SECRET_BYTES: Final = 32


class SignIn(Value):
    """One browser that is signed in."""

    id: str
    digest: str
    """Of its credential, keyed with the token."""
    browser: str
    """What the browser said of itself: hostile words."""
    made_at: Instant
    used_at: Instant

    def is_live(self, now: Instant) -> bool:
        """True until it has not been used for too long."""
        return now < self.used_at + UNUSED_S


class _Document(Value):
    """The file."""

    token: str
    """A digest of nothing, keyed with the token: it tells whose sign-ins these are."""
    sign_ins: tuple[SignIn, ...]


SignInsById = dict[str, SignIn]


class SignIns:
    """The sign-ins of a state folder's gateways. Methods that write wait for a lock, so they run in a thread."""

    def __init__(self, state: Path, token: str) -> None:
        self._state, self._token = state, token
        self._known: SignInsById = {}
        self._version: tuple[int, int, int] | None = None
        """Of the file that `_known` was read from: its inode, time and size."""
        self._stored_at: dict[str, Instant] = {}
        """When this process last stored a use of each, or tried to."""

    def begin(self, browser: str, now: Instant) -> str:
        """Sign a browser in; answers its credential. StoreError: it cannot be stored."""
        id = secrets.token_hex(ID_BYTES)
        credential = f"{id}.{secrets.token_urlsafe(SECRET_BYTES)}"
        words = "".join(sign for sign in browser if sign.isprintable())[:MOST_BROWSER_CHARS]
        made = SignIn(id, self._digest(credential), words, now, now)

        def added(known: SignInsById) -> SignInsById:
            live = sorted((one for one in known.values() if one.is_live(now)), key=lambda one: one.used_at)
            return {one.id: one for one in (*live[-(MOST_SIGN_INS - 1) :], made)}

        self._change(added)
        return credential

    def end(self, id: str) -> SignIn:
        """End a sign-in. NotFound: there is none of this id. StoreError: that cannot be stored."""
        ended: list[SignIn] = []

        def without(known: SignInsById) -> SignInsById:
            if id not in known:
                raise NotFound(f"no browser is signed in under {id[:80]!r}")
            ended.append(known.pop(id))
            return known

        self._change(without)
        return ended[0]

    def live(self, now: Instant) -> list[SignIn]:
        """The browsers that are signed in, the one used last first."""
        self._look()
        return sorted((one for one in self._known.values() if one.is_live(now)), key=lambda one: -one.used_at)

    def holds(self, credential: str, now: Instant) -> str | None:
        """The id of the sign-in that has this credential; None if there is none. How long this takes reveals nothing
        about any credential."""
        id = credential.partition(".")[0]
        digest = self._digest(credential)
        self._look()
        one = self._known.get(id)
        same = hmac.compare_digest(digest, "" if one is None else one.digest)
        return id if same and one is not None and one.is_live(now) else None

    def is_live(self, id: str, now: Instant) -> bool:
        """True while the sign-in of this id has not ended."""
        self._look()
        return id in self._known and self._known[id].is_live(now)

    async def use(self, id: str, now: Instant) -> None:
        """Remember that a sign-in is used now. If that cannot be stored, the sign-in may end earlier: no error."""
        one = self._known.get(id)
        if one is None or now - max(one.used_at, self._stored_at.get(id, 0.0)) < STORE_USE_S:
            return
        self._stored_at[id] = now

        def used(known: SignInsById) -> SignInsById:
            if id in known:
                known[id] = msgspec.structs.replace(known[id], used_at=now)
            return known

        try:
            await asyncio.to_thread(self._change, used)
        except StoreError:
            return

    def _digest(self, credential: str) -> str:
        return hmac.digest(self._token.encode(), credential.encode("utf-8", "replace"), "sha256").hex()

    def _look(self) -> None:
        """Read the file, if it is another one than was read last. One that cannot be read changes nothing."""
        try:
            found = os.stat(self._state / SIGN_IN_FILE)
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            if version != self._version:
                self._known, self._version = self._read(), version
        except FileNotFoundError:
            self._known, self._version = {}, None
        except OSError:
            return

    def _read(self) -> SignInsById:
        """What the file has. A damaged file, or one of another token, has no sign-in."""
        try:
            found = msgspec.json.decode(read_plain(self._state / SIGN_IN_FILE, MOST_FILE_BYTES), type=_Document)
        except (FileNotFoundError, msgspec.DecodeError):
            return {}
        return {one.id: one for one in found.sign_ins} if hmac.compare_digest(found.token, self._digest("")) else {}

    def _change(self, change: Callable[[SignInsById], SignInsById]) -> None:
        path = self._state / SIGN_IN_FILE
        try:
            with self._alone():
                made = _Document(self._digest(""), tuple(change(self._read()).values()))
                write_private(path, msgspec.json.encode(made).decode())
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}); nothing has changed") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While the block lasts, no other process changes the file."""
        descriptor = open_plain(self._state / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


# ---- the verbs -------------------------------------------------------------------------------------------------------


class SignedIn(NamedValue):
    """A browser that is signed in at the gateway's page."""

    id: str
    browser: str
    """What the browser said of itself."""
    made_at: Instant
    used_at: Instant
    """Its last use, to the hour."""
    ends_at: Instant
    """When it ends if it is not used any more."""


def _sign_ins(gateway: GatewayState) -> SignIns:
    if gateway.sign_ins is None:
        raise Refused("error", "no gateway serves this folder: start one with `fledge serve`")
    return gateway.sign_ins


def _shown(one: SignIn) -> SignedIn:
    return SignedIn(
        id=one.id, browser=one.browser, made_at=one.made_at, used_at=one.used_at, ends_at=one.used_at + UNUSED_S
    )


@method("signins.list")
async def signins_list(gateway: GatewayState, params: Nothing) -> list[SignedIn]:
    """The browsers that are signed in at the gateway's page, the one used last first."""
    return [_shown(one) for one in _sign_ins(gateway).live(gateway.now())]


class EndSignIn(Params):
    """`signins.end`."""

    id: Annotated[str, Meta(min_length=1, max_length=64, description="of a browser that is signed in")]


@method("signins.end")
async def signins_end(gateway: GatewayState, params: EndSignIn) -> SignedIn:
    """Sign a browser out: its id counts no more, and its feeds end at once, those at another gateway of the folder
    within seconds."""
    ended = await asyncio.to_thread(_sign_ins(gateway).end, params.id)
    for watch in gateway.watches:
        watch.poke()
    return _shown(ended)
