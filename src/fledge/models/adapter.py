"""What the adapters of all protocols share: the service's key and endpoint, and the way of a request to it.

A request is first made fit for its model. What the service then refuses (a hosted search, images, data it wants back no
more) is left out, and the request is sent again. The fields of a protocol are known to its own adapter alone.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import ClassVar, Required, TypedDict

from fledge.clock import Clock, SystemClock
from fledge.core.schema import JsonObject
from fledge.models.base import Broke, Call, ModelEvent, Request, StopReason, Usage
from fledge.models.catalog import Card
from fledge.models.http import Access, BrokenReply, Endpoint, HttpLimits, ReplyReading, Wire, without_key
from fledge.models.images import for_model
from fledge.models.keys import SecretKey, bearer
from fledge.models.native_search import is_refused
from fledge.models.opaque import plainer_request
from fledge.models.transcript import encoded, whole_calls


def settled_calls(
    stop: StopReason, calls: Sequence[Call], last_has_arguments: bool
) -> tuple[StopReason, list[int], str]:
    """Why a reply really ended, the places of its calls that can be run, and the names of those that were cut.

    Raises `BrokenReply` for a tool call without a name.
    """
    kept, dropped = list(range(len(calls))), ""
    if stop in ("length", "refused"):
        kept, dropped = whole_calls(calls, last_has_arguments)
    else:
        stop = "tools" if calls else "end"
    if not all(calls[at].name for at in kept):
        raise BrokenReply(Broke("interrupted", "a tool call without a name"))
    return stop, kept, dropped


class TokenDetails(Wire):
    """What a count of tokens is made of, in the protocols of OpenAI."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


def counted_usage(
    given: int | None,
    given_details: TokenDetails | None,
    said: int | None,
    said_details: TokenDetails | None,
    searches: int = 0,
) -> Usage:
    """The usage of a reply, where the tokens that the cache served or stored are counted as given."""
    details = given_details or TokenDetails()
    read, write = details.cached_tokens or 0, details.cache_write_tokens or 0
    thought = (said_details or TokenDetails()).reasoning_tokens or 0
    return Usage(max(0, (given or 0) - read - write), said or 0, read, write, thought, searches)


class Service(TypedDict, total=False):
    """What every adapter is made with, besides the address."""

    key: Required[SecretKey | None]
    key_name: str | None
    """What the user has to set where a key is needed; None where the service asks for none."""
    provider: str
    card: Callable[[str], Card | None]
    """Finds a model's card by its provider's name for it."""
    limits: HttpLimits
    clock: Clock
    access: Access


class HttpModel(ABC):
    """Any model behind one endpoint of a service."""

    path: ClassVar[str]
    vendor: ClassVar[str]
    """Whose protocol it is, and the name of that service's key: unless others are given."""
    vendor_key: ClassVar[str]
    _searches = True
    """Whether the service searches the web itself: an organization may have switched that off."""

    def __init__(self, base_url: str, service: Service) -> None:
        self._key, self._key_name = service["key"], service.get("key_name", self.vendor_key)
        self._provider = service.get("provider", self.vendor)
        self._card: Callable[[str], Card | None] = service.get("card", lambda _: None)
        limits, clock = service.get("limits", HttpLimits()), service.get("clock", SystemClock())
        self._endpoint = Endpoint(base_url, self.path, self._key, limits, clock, service.get("access", Access()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint!r})"

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer the request; ends with one `ReplyEnded` or one `Broke`."""
        if self._key is None and self._key_name is not None:
            return without_key(self._key_name)
        request = for_model(request, self._card(request.model))

        def plainer(refusal: Broke) -> bytes | None:
            nonlocal request
            if not self._gives_up(request, refusal):
                bare = plainer_request(request, refusal)
                if bare is None:
                    return None
                request = bare
            return encoded(self._body(request))

        headers = {"Content-Type": "application/json", **self._headers()}
        body, reading = encoded(self._body(request)), self._reading(request)
        return self._endpoint.stream(headers, body, reading, plainer)

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    def _headers(self) -> dict[str, str]:
        """The headers that carry the key."""
        return bearer(self._key)

    @abstractmethod
    def _body(self, request: Request) -> JsonObject:
        """The request in the protocol's words."""

    @abstractmethod
    def _reading(self, request: Request) -> ReplyReading:
        """Reads the reply."""

    def _is_searching(self, request: Request) -> bool:
        card = self._card(request.model)
        return request.search and self._searches and card is not None and card.search

    def _gives_up(self, request: Request, refusal: Broke) -> bool:
        """True if the service refused something that this adapter asks for no more from now on."""
        if not (self._is_searching(request) and is_refused(refusal)):
            return False
        self._searches = False
        return True
