"""The part that the adapters of all protocols share: the connections to one service, and the way of a request to it.

A request is first made fit for its model. Parts that the service then refuses (a hosted search, summaries of reasoning,
images, opaque data that it no longer accepts) are left out, and the request is sent again. Every failure on the way
becomes one `Broke`. A stream that is closed early, by its consumer or by cancellation, closes its connection. Only the
adapter of a protocol knows the fields of that protocol; the token counts that both protocols of OpenAI share are here.
`transport.Connections` are loaded with the first request.
"""

import asyncio
import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlencode

import msgspec

from fledge.cancellation import error_message
from fledge.clock import Clock, SystemClock
from fledge.core.redact import error_words
from fledge.core.schema import JsonObject
from fledge.egress import Headers, proxy_for, tls_context
from fledge.errors import BadInput
from fledge.models.base import Broke, Call, ModelEvent, Request, StopReason, Usage
from fledge.models.catalog import Card
from fledge.models.http import BrokenReply, EventLines, HttpLimits, ReplyReading, SurrogatePairs, Wire, no_key
from fledge.models.images import for_model, without_refused_images
from fledge.models.keys import SecretKey, bearer
from fledge.models.native_search import is_refused
from fledge.models.opaque import without_refused
from fledge.models.provider_errors import broke, fault_in, remedy, shown
from fledge.models.providers import Provider, base_url_of, key_place, needed_key
from fledge.models.transcript import encoded, is_object

if TYPE_CHECKING:
    from fledge.models.transport import Connections, HttpAnswer

_MOST_ERROR_BYTES = 64 * 1024
# A compressed stream comes in blocks: late, and costly to unpack.
_FIELDS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",
    "User-Agent": "fledge",
}
_PROXY_REFUSES = 407
_NOBODY_THERE = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)


def settled_calls(
    stop: StopReason, calls: Sequence[Call], last_has_arguments: bool
) -> tuple[StopReason, list[int], str]:
    """The real stop reason of a reply, the positions of its calls that can be run, and the names of the cut ones.

    Raises `BrokenReply` for a tool call without a name.
    """
    kept, last = list(range(len(calls))), len(calls) - 1
    if stop in ("length", "refused"):
        # The last call may have been cut in the middle of its arguments, or before the first of them.
        kept = [at for at in kept if is_object(calls[at].arguments) and (at < last or last_has_arguments)]
    else:
        stop = "tools" if calls else "end"
    if not all(calls[at].name for at in kept):
        raise BrokenReply(Broke("interrupted", "a tool call without a name"))
    return stop, kept, ", ".join(call.name or "an unknown tool" for at, call in enumerate(calls) if at not in kept)


class TokenDetails(Wire):
    """The parts of a token count, in the protocols of OpenAI."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class TokenUsage(Wire):
    """The tokens of a reply, as OpenAI counts them: those that the cache served or stored are part of the input."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None


def counted_usage(usage: TokenUsage | None, searches: int = 0) -> Usage | None:
    """The usage of a reply, as we count it; None if the service did not count."""
    if usage is None:
        return None
    details = usage.input_tokens_details or TokenDetails()
    read, write = details.cached_tokens or 0, details.cache_write_tokens or 0
    thought = (usage.output_tokens_details or TokenDetails()).reasoning_tokens or 0
    fresh = max(0, (usage.input_tokens or 0) - read - write)
    return Usage(fresh, usage.output_tokens or 0, read, write, thought, searches)


class HttpModel(ABC):
    """Any model behind one endpoint of a service. Use it from one event loop at a time."""

    path: ClassVar[str]
    """The path of every request, below the address of the service."""
    _searches = True
    """True if the service may search the web itself; False once it refused: an organization may forbid search."""

    def __init__(
        self,
        provider: Provider,
        key: SecretKey | None,
        env: Mapping[str, str] = {},
        ca_file: str | None = None,
        card: Callable[[str], Card | None] = lambda _: None,
        *,
        limits: HttpLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`env` names proxies and certificates, `ca_file` certificates of additional authorities to trust. `card` finds
        a model's card by its provider's name for it."""
        base_url = base_url_of(provider, env)
        # The address may be given with the version that the path begins with.
        self._base = base_url.removesuffix("/v1") if self.path.startswith("/v1/") else base_url
        if self._base.startswith("https:"):
            tls_context(env, ca_file)  # reports an unreadable file before the first request
        self._provider, self._key, self._card = provider, key, card
        self._missing_key = needed_key(provider, env) if key is None else None
        """The variable that the user has to set before a request can be sent; None: no key is missing."""
        self._env, self._ca_file, self._proxy = env, ca_file, proxy_for(self._base, env)
        self._limits, self._clock = limits or _limits_of(provider), clock or SystemClock()
        self._connections: Connections | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base})"

    @abstractmethod
    def body(self, request: Request) -> JsonObject:
        """The request in the protocol's words."""

    @abstractmethod
    def _reading(self, request: Request) -> ReplyReading:
        """The object that reads the reply."""

    def _headers(self) -> dict[str, str]:
        """The headers that carry the key."""
        return bearer(self._key)

    def _is_searching(self, request: Request) -> bool:
        card = self._card(request.model)
        return request.search and self._searches and card is not None and card.search

    def _gives_up(self, request: Request, refusal: Broke) -> bool:
        """True if the service refused an optional feature, which this adapter no longer asks for from now on."""
        if not (self._is_searching(request) and is_refused(refusal)):
            return False
        self._searches = False
        return True

    # ---- the way of a request ----------------------------------------------------------------------------------------

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer the request; ends with one `ReplyEnded` or one `Broke`."""
        if self._missing_key is not None:
            yield Broke("auth", no_key(self._missing_key))
            return
        request = for_model(request, self._card(request.model))
        reading, limits, key = self._reading(request), self._limits, self._key
        begun = False
        try:
            answer = await self._accepted(request)
            begun = True
            try:
                lines, pairs = EventLines(limits.max_event_bytes), SurrogatePairs()
                left = limits.max_reply_bytes
                while not reading.over:
                    raw = await _next(answer, reading)
                    if not raw:
                        break
                    left -= len(raw)
                    if left < 0:
                        words = f"the reply has more than {limits.max_reply_bytes} bytes"
                        raise BrokenReply(Broke("interrupted", words))
                    for data in lines.feed(raw):
                        for event in reading.take(pairs.joined(data)):
                            yield event
                if reading.over:
                    with suppress(OSError):
                        await answer.to_the_end()
            finally:
                answer.close()
            if not reading.finished:
                raise BrokenReply(Broke("interrupted", "the stream ended before the reply did"))
            for event in reading.ending():
                yield event
        except BrokenReply as reply:
            told = reply.event
            change = remedy(told, self._provider.name, key_place(self._provider), self._base)
            yield msgspec.structs.replace(told, message=shown(told.message, key), remedy=change)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            yield Broke("interrupted", shown(f"malformed chunk: {error_words(error)}", key))
        except BadInput as error:
            yield Broke("bad_request", shown(str(error), key))
        except OSError as error:
            words = error_message(error)
            if isinstance(error, TimeoutError):
                words = f"no answer in time ({words})"
            elif not begun and (why := _unreachable(error)):
                words = f"{self._base} cannot be reached ({why}): is the address right, and the server running?"
            yield Broke("interrupted" if begun else "retryable", shown(words, key))

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        opened, self._connections = self._connections, None
        if opened is not None and (opened.loop is asyncio.get_running_loop() or opened.loop.is_closed()):
            await opened.close()

    async def _accepted(self, request: Request) -> "HttpAnswer":
        """The answer to the request, or to its first simpler version that the service does not refuse."""
        while True:
            try:
                return await self._post(encoded(self.body(request)))
            except BrokenReply as refusal:
                event = refusal.event
                if self._gives_up(request, event):
                    continue
                plainer = without_refused(request, event) or without_refused_images(request, event)
                if plainer is None:
                    raise
                request = plainer

    async def _post(self, body: bytes) -> "HttpAnswer":
        headers, query = overlaid({**_FIELDS, **self._headers()}, self._provider.headers), self._provider.query
        path = f"{self.path}?{urlencode(query)}" if query else self.path
        # Redirects are not followed: they would carry the key to a place that is not configured.
        answer = await (await self._opened()).send(path, headers, body)
        status, fields = answer.status, answer.fields
        kind = fields.get("content-type", "text/event-stream").lower()
        packed = fields.get("content-encoding", "identity").lower()
        if status == 200 and kind.startswith("text/event-stream") and packed == "identity":
            return answer
        try:
            raw = await _bounded(answer) if packed == "identity" else b""
        finally:
            answer.close()
        event = broke(status, raw, fields, self._clock.now(), self._key)
        if status == _PROXY_REFUSES and self._proxy is not None:
            from fledge.models.transport import credentials_wanted

            event = Broke("auth", credentials_wanted(self._proxy), None, status)
        elif 300 <= status < 400:
            event = Broke("bad_request", f"{event.message} (a redirect; base_url is wrong)", None, status)
        elif status < 300:
            fault = fault_in(raw)
            event = broke(fault.status or 400, raw, {}, 0.0, self._key) if fault else event
            words = f"expected text/event-stream, got {kind.split(';')[0]}; is base_url right? {event.message}"
            if packed != "identity":
                words = f"the answer came compressed ({packed}), which was not asked for"
            event = Broke(event.trouble if fault else "bad_request", words, None, status)
        raise BrokenReply(event)

    async def _opened(self) -> "Connections":
        # Connections belong to their loop; those of another loop, which may be closed, cannot be used here.
        if self._connections is None or self._connections.loop is not asyncio.get_running_loop():
            await self.close()
            from fledge.models.transport import Connections

            self._connections = Connections(self._base, self._env, self._ca_file, self._limits)
        return self._connections


def _limits_of(provider: Provider) -> HttpLimits:
    if provider.timeout_s is None:
        return HttpLimits()
    # The limit holds for silence too: a model that is still being loaded sends nothing for minutes.
    return HttpLimits(request_s=provider.timeout_s, idle_s=provider.timeout_s)


def overlaid(headers: Headers, over: Headers) -> dict[str, str]:
    """The headers, replaced by those of `over` where the names are equal, letter case aside."""
    names = {name.lower() for name in over}
    return {name: value for name, value in headers.items() if name.lower() not in names} | dict(over)


def _unreachable(error: OSError) -> str:
    """Why the service cannot be reached, in the system's words; empty for every other error."""
    if isinstance(error, socket.gaierror):
        return error.strerror or error_words(error)
    # The text of asyncio's error is not the system's, so it is looked up by number.
    return os.strerror(error.errno) if error.errno in _NOBODY_THERE else ""


async def _next(answer: "HttpAnswer", reading: ReplyReading) -> bytes:
    """The next bytes; none at the end. A reply that is whole cannot be broken by the end of its connection."""
    try:
        return await answer.read()
    except OSError:
        if reading.finished:
            return b""
        raise


async def _bounded(answer: "HttpAnswer") -> bytes:
    """The beginning of an error's body, or as much as came before the connection failed."""
    raw = b""
    with suppress(OSError):
        while len(raw) < _MOST_ERROR_BYTES and (piece := await answer.read()):
            raw += piece
    return raw[:_MOST_ERROR_BYTES]
