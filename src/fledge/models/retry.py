"""Trying again: the same model after a pause, then the next one of a list, as `core.asking` decides.

The code that uses `Tries` reads the stream of each try and drops the events of a try that broke, so that no word ever
counts twice. Waiting and chance are parameters; nothing here knows a provider or decides anything.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from fledge.cancellation import is_stop, trace
from fledge.core.asking import FallBack, Report, Retries, RetryNow, after_try
from fledge.core.value import Value
from fledge.models.base import Broke, Model, ModelEvent, Request

log = logging.getLogger("fledge.models")

Sleep = Callable[[float], Awaitable[object]]
Chance = Callable[[], float]
"""A number from 0 up to, not including, 1."""


NO_END = Broke("interrupted", "the model's stream ended without an end")
"""The result of a stream that stops without a `ReplyEnded` or `Broke`."""


class RetryTold(Value):
    """The argument of `on_retry`: the try that broke, the model that is asked next, and the pause before that."""

    broke: Broke
    model: str
    """The model that is asked next, by its provider's name."""
    pause_s: float


class Retrying(Struct, frozen=True):
    """A model with retries, and fallbacks that are asked when it gives up."""

    model: Model
    fallbacks: Sequence[tuple[Model, str]] = ()
    """Models, with their providers' names for them."""
    retries: Retries = Retries()
    sleep: Sleep = asyncio.sleep
    chance: Chance = random.random

    def tries(self, request: Request) -> "Tries":
        """The tries at answering this request."""
        return Tries(self, request)


class Tries:
    """The tries at one request. `stream` asks the current model; `after` decides whether to ask again."""

    __slots__ = ("_failed", "_place", "_request", "_retrying", "_tries")

    def __init__(self, retrying: Retrying, request: Request) -> None:
        self._retrying, self._request = retrying, request
        self._place = self._tries = 0
        self._failed: tuple[str, ...] = ()
        """A line for each model after which the next one was asked."""

    def stream(self) -> AsyncIterator[ModelEvent]:
        """Ask the current model. Its stream must be closed before `stream` is called again."""
        self._tries += 1
        if not self._place:
            return self._retrying.model.stream(self._request)
        model, name = self._retrying.fallbacks[self._place - 1]
        return model.stream(msgspec.structs.replace(self._request, model=name))

    async def after(self, broke: Broke, on_retry: Callable[[RetryTold], None]) -> Broke | None:
        """The error to report after a stream that broke. None, after the pause, if `stream` is to be called again: then
        `on_retry` was called, and the events of the broken stream must be dropped."""
        names, tries = [self._request.model, *[name for _, name in self._retrying.fallbacks]], self._tries
        name, *others = names[self._place :]
        following = others[0] if others else None
        retries, chance = self._retrying.retries, self._retrying.chance()
        match after_try(broke.trouble, broke.retry_after_s, tries, following is not None, retries, chance):
            case RetryNow(pause_s=pause_s):
                on_retry(RetryTold(broke, name, pause_s))
                await self._retrying.sleep(pause_s)
            case FallBack():
                on_retry(RetryTold(broke, following or name, 0.0))
                self._failed = (*self._failed, _line(broke, name, tries))
                self._place, self._tries = self._place + 1, 0
            case Report():
                return _told(broke, name, tries, self._failed)
        return None


async def close_stream(events: AsyncIterator[ModelEvent]) -> None:
    """Close a stream that was not read to its end. `Model` promises an iterator, which need not be closable; a failure
    to close it is only logged, and the events that were read stay valid."""
    close = getattr(events, "aclose", None)
    try:
        if close is not None:
            await close()
    except BaseException as error:
        if is_stop(error):
            raise
        log.error("closing a model's stream failed\n%s", trace(error))


def _line(broke: Broke, name: str, tries: int) -> str:
    return f"{name}: {broke.message}" + (f" (tried {tries} times)" if tries > 1 else "")


def _told(broke: Broke, name: str, tries: int, failed: Sequence[str]) -> Broke:
    """The last trouble, with a line for every model that was asked before it."""
    if tries == 1 and not failed:
        return broke
    return msgspec.structs.replace(broke, message="; ".join([*failed, _line(broke, name, tries)]))
