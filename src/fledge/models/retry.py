"""Trying again: the same model after a pause, then the next one of a list, as `core.asking` decides.

Whoever asks reads each try's stream itself and drops what came of one that broke, so that no word ever counts twice.
Waiting and chance are parameters; nothing here knows a provider or decides anything.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from fledge.cancellation import is_stop
from fledge.core.asking import FallBack, Report, Retries, RetryNow, after_try
from fledge.core.value import Value
from fledge.models.base import Broke, Model, ModelEvent, Request

log = logging.getLogger("fledge.models")

Sleep = Callable[[float], Awaitable[object]]
Chance = Callable[[], float]
"""A number from 0 up to, not including, 1."""


NO_END = Broke("interrupted", "the model's stream ended without an end")
"""What a stream has come to that just stops."""


class RetryTold(Value):
    """What was told to `on_retry`: this broke, and it is tried again."""

    broke: Broke
    model: str
    """The model that is asked next, by its provider's name."""
    pause_s: float


class Retrying(Struct, frozen=True):
    """A model that is asked again, and others that are asked after it."""

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
    """The tries at one request. `stream` asks the model whose turn it is; `after` says whether to ask again."""

    __slots__ = ("_failed", "_place", "_request", "_retrying", "_tries")

    def __init__(self, retrying: Retrying, request: Request) -> None:
        self._retrying, self._request = retrying, request
        self._place = self._tries = 0
        self._failed: tuple[str, ...] = ()
        """A line for each model that gave way to the next."""

    def stream(self) -> AsyncIterator[ModelEvent]:
        """Ask the model whose turn it is. The stream is to be closed before the next one is asked for."""
        self._tries += 1
        if not self._place:
            return self._retrying.model.stream(self._request)
        model, name = self._retrying.fallbacks[self._place - 1]
        return model.stream(msgspec.structs.replace(self._request, model=name))

    async def after(self, broke: Broke, on_retry: Callable[[RetryTold], None]) -> Broke | None:
        """What to report after a stream that broke; None, after the pause, if the request is to be asked again: then
        `on_retry` was called, and whatever came of the reply must be forgotten."""
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
    to close it takes back nothing of what was read."""
    close = getattr(events, "aclose", None)
    try:
        if close is not None:
            await close()
    except BaseException as error:
        if is_stop(error):
            raise
        log.exception("closing a model's stream failed")


def _line(broke: Broke, name: str, tries: int) -> str:
    return f"{name}: {broke.message}" + (f" (tried {tries} times)" if tries > 1 else "")


def _told(broke: Broke, name: str, tries: int, failed: Sequence[str]) -> Broke:
    """The last trouble, with a line for every model that was asked before it."""
    if tries == 1 and not failed:
        return broke
    return msgspec.structs.replace(broke, message="; ".join([*failed, _line(broke, name, tries)]))
