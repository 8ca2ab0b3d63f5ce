"""Signed webhooks: JSON posted to another server, and the signature by which either side proves its identity.

Three headers carry the proof, as in the Standard Webhooks convention: `webhook-id` (the same for every try),
`webhook-timestamp` (seconds since the epoch) and `webhook-signature`, which is `v1,` and the base64 of HMAC-SHA256 over
`<id>.<timestamp>.<body>`. A receiver calls `verify`, which also refuses a timestamp more than five minutes off, and
keeps the id to recognise a message that comes twice. The secret is kept in memory only.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from fledge.cancellation import error_message
from fledge.clock import Clock, SystemClock
from fledge.core.route import ChannelMessage
from fledge.core.run import Instant
from fledge.errors import BadInput, NotArrived, Refused, Undeliverable
from fledge.models.keys import SecretKey
from fledge.models.provider_errors import plain, retry_after, shown

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE_S = 300.0
LEAST_SECRET_BYTES = 16
MOST_ANSWER_BYTES = 64 * 1024
MOST_SIGNATURES = 16
PERMANENT = frozenset({400, 405, 410, 411, 413, 414, 415, 422, 501, 505})
"""Statuses that mean that the server will never take this request. 401, 403 and 404 are not among them: a server that
is being deployed answers so for a while."""
_PREFIX = "whsec_"
_STAMP = re.compile(r"[0-9]{1,12}")
_WIRE_ID = re.compile(r"[!-~]{1,512}")


# ---- proof -----------------------------------------------------------------------------------------------------------


def _secret(key: SecretKey | str) -> bytes:
    """The key for signatures: base64 after `whsec_`; any other text is used as it is."""
    text = key.reveal() if isinstance(key, SecretKey) else key
    if text.startswith(_PREFIX):
        try:
            raw = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            raise BadInput("secret", "must be base64 after whsec_") from None
    else:
        raw = text.encode()
    if len(raw) < LEAST_SECRET_BYTES:
        raise BadInput("secret", f"must have at least {LEAST_SECRET_BYTES} bytes")
    return raw


def wire_id(message_id: str) -> str:
    """The id for the header: printable, and without `.`, which separates the parts of the signed text."""
    return "".join(c if "!" <= c <= "~" and c not in ".%" else f"%{ord(c):02X}" for c in message_id)


def sign(secret: SecretKey | str, message_id: str, at: Instant, body: bytes) -> dict[str, str]:
    """The three headers that prove this body. Refused: a secret under 16 bytes."""
    sent_id, stamp = wire_id(message_id), str(int(at))
    return {ID: sent_id, TIMESTAMP: stamp, SIGNATURE: f"v1,{_signature(_secret(secret), sent_id, stamp, body)}"}


def _signature(secret: bytes, sent_id: str, stamp: str, body: bytes) -> str:
    signed = f"{sent_id}.{stamp}.".encode() + body
    return base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


class Proof(Struct, frozen=True):
    """The headers of a webhook, decoded but not verified: that takes the body and the secret."""

    id: str
    stamp: str
    signatures: tuple[str, ...]


def read_proof(headers: Mapping[str, str], now: Instant) -> Proof:
    """The proof in the headers. Refused, before the body is needed: a missing or malformed id or time, a time more than
    five minutes from now."""
    given = {name.lower(): value for name, value in headers.items()}
    sent_id, stamp, signatures = given.get(ID, ""), given.get(TIMESTAMP, ""), given.get(SIGNATURE, "").split()
    if not _WIRE_ID.fullmatch(sent_id) or "." in sent_id or not _STAMP.fullmatch(stamp):
        raise Refused("forbidden", "the webhook is not signed")
    if abs(now - int(stamp)) > TOLERANCE_S:
        raise Refused("forbidden", "the webhook's time is more than 5 minutes off")
    return Proof(sent_id, stamp, tuple(signatures[:MOST_SIGNATURES]))


def verify(secret: SecretKey | str, headers: Mapping[str, str], body: bytes, now: Instant) -> str:
    """The id of a webhook whose signature proves that its sender has the secret.

    Refused, without a hint how near it was: whatever `read_proof` refuses, and a signature that does not fit. While a
    secret is being changed there may be several signatures, separated by blanks.
    """
    key, proof = _secret(secret), read_proof(headers, now)
    expected = f"v1,{_signature(key, proof.id, proof.stamp, body)}".encode()
    fits = [hmac.compare_digest(signature.encode("utf-8", "replace"), expected) for signature in proof.signatures]
    if not any(fits):
        raise Refused("forbidden", "the webhook's signature is wrong")
    return proof.id


# ---- sending ---------------------------------------------------------------------------------------------------------


class Poster:
    """Posts signed JSON to one address. Use it from one event loop at a time; close it when done."""

    def __init__(self, url: str, secret: SecretKey, timeout_s: float, clock: Clock | None = None) -> None:
        _secret(secret)
        self._url, self._key, self._timeout_s, self._clock = url, secret, timeout_s, clock or SystemClock()
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, message_id: str, body: bytes) -> bytes:
        """The beginning of the answer, once the other side has taken it (any 2xx). Raises NotArrived otherwise, and
        Undeliverable where the other side will never take it.

        Redirects are not followed, certificates are checked, no proxy or cookie of ours is used.
        """
        from aiohttp import ClientError

        headers = {"Content-Type": "application/json", **sign(self._key, message_id, self._clock.now(), body)}
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._opened().post(self._url, data=body, headers=headers, allow_redirects=False)
                try:
                    raw = await _bounded(response)
                finally:
                    response.close()
        except TimeoutError:
            raise NotArrived(f"no answer within {self._timeout_s:g} s") from None
        except (ClientError, OSError) as error:
            raise NotArrived(shown(error_message(error), self._key)) from None
        if 200 <= response.status < 300:
            return raw
        words = f"HTTP {response.status}: {plain(raw)}" if raw else f"HTTP {response.status}"
        if 300 <= response.status < 400:
            words = f"HTTP {response.status}: a redirect, which is not followed; give the address it leads to"
        if response.status in PERMANENT:
            raise Undeliverable(shown(words, self._key))
        wait_s = retry_after(response.headers, self._clock.now()) or 0.0
        raise NotArrived(shown(words, self._key), wait_s)

    def _opened(self) -> "ClientSession":
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            from aiohttp import ClientSession, DummyCookieJar

            self._loop = loop
            self._session = ClientSession(cookie_jar=DummyCookieJar(), headers={"User-Agent": "fledge"})
        return self._session

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _bounded(response: "ClientResponse") -> bytes:
    pieces: list[bytes] = []
    left = MOST_ANSWER_BYTES
    while left > 0 and (piece := await response.content.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


class WebhookChannel:
    """A channel to a server that takes webhooks. The body is the message as JSON; see `core.route.ChannelMessage` for
    its fields."""

    def __init__(self, poster: Poster) -> None:
        self._poster = poster

    async def send(self, message: ChannelMessage) -> None:
        """Post the message; it has arrived when the server answers with a 2xx status."""
        await self._poster.post(message.id, msgspec.json.encode(message))

    async def close(self) -> None:
        """Close every connection."""
        await self._poster.close()
