"""Trying again: the same model after a pause, then the next one of a list, as `core.asking` decides.

`Retrying` is itself a `Model`. Its stream carries one `Broke` at most, and only when nothing more will be tried. A
reply that breaks after some of it was yielded is asked for again only if the consumer said, by passing `on_retry`, that
it will drop what it has: without that promise the `Broke` goes through, so that no word ever arrives twice. A consumer
that reads each try's stream itself (`Retrying.tries`) saves a generator around it. Waiting and chance are parameters;
nothing here knows a provider or decides anything.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from fledge.cancellation import is_stop
from fledge.core.asking import FallBack, Report, Retries, RetryNow, after_try
from fledge.models.base import Broke, Model, ModelEvent, ReplyEnded, Request

log = logging.getLogger("fledge.models")

Sleep = Callable[[float], Awaitable[object]]
Chance = Callable[[], float]
"""A number from 0 up to, not including, 1."""


NO_END = Broke("interrupted", "the model's stream ended without an end")
"""What a stream has come to that just stops."""


class RetryTold(Struct, frozen=True):
    """What was told to `on_retry`: this broke, and it is tried again."""

    broke: Broke
    model: str
    """The model that is asked next, by its provider's name."""
    pause_s: float


class Retrying:
    """A model that is asked again, and others that are asked after it.

    `fallbacks` are models with their providers' names for them.
    """

    def __init__(
        self,
        model: Model,
        fallbacks: Sequence[tuple[Model, str]] = (),
        *,
        retries: Retries | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Chance = random.random,
    ) -> None:
        self._model = model
        self._fallbacks = tuple(fallbacks)
        self._retries = retries or Retries()
        self._sleep, self._chance = sleep, chance

    def tries(self, request: Request) -> "Tries":
        """The tries at answering this request, for a consumer that reads each stream itself."""
        models = [(self._model, request.model), *self._fallbacks]
        return Tries(models, request, self._retries, self._sleep, self._chance)

    async def stream(
        self, request: Request, on_retry: Callable[[RetryTold], None] | None = None
    ) -> AsyncIterator[ModelEvent]:
        """Answer the request, from whichever model does.

        `on_retry` is called before anything of the next reply is yielded, in the task that reads the stream: whoever
        passes it must then forget every event of this stream so far.
        """
        tries = self.tries(request)
        while True:
            broke = NO_END
            yielded = False
            events = tries.stream()
            try:
                async for event in events:
                    if isinstance(event, Broke):
                        broke = event
                        break
                    yielded = True
                    yield event
                    if isinstance(event, ReplyEnded):
                        return
            finally:
                await close_stream(events)
            told = await tries.after(broke, on_retry, may_repeat=on_retry is not None or not yielded)
            if told is not None:
                yield told
                return

    async def close(self) -> None:
        """Let go of the connections of all models."""
        for model in {id(model): model for model in (self._model, *(model for model, _ in self._fallbacks))}.values():
            await model.close()


class Tries:
    """The tries at one request. `stream` asks the model whose turn it is; `after` says whether to ask again."""

    __slots__ = ("_chance", "_failed", "_models", "_place", "_request", "_retries", "_sleep", "_tries")

    def __init__(
        self, models: Sequence[tuple[Model, str]], request: Request, retries: Retries, sleep: Sleep, chance: Chance
    ) -> None:
        self._models, self._request = models, request
        self._retries, self._sleep, self._chance = retries, sleep, chance
        self._place = self._tries = 0
        self._failed: list[str] = []
        """A line for each model that gave way to the next."""

    def stream(self) -> AsyncIterator[ModelEvent]:
        """Ask the model whose turn it is. The stream is to be closed before the next one is asked for."""
        self._tries += 1
        model, name = self._models[self._place]
        if self._place:
            return model.stream(msgspec.structs.replace(self._request, model=name))
        return model.stream(self._request)

    async def after(
        self, broke: Broke, on_retry: Callable[[RetryTold], None] | None, may_repeat: bool = True
    ) -> Broke | None:
        """What to report after a stream that broke; None, after the pause, if the request is to be asked again.
        `may_repeat`: nothing of the reply was passed on, or it is dropped."""
        name, tries = self._models[self._place][1], self._tries
        following = self._models[self._place + 1][1] if self._place + 1 < len(self._models) else None
        follows = after_try(
            broke.trouble, broke.retry_after_s, tries, following is not None, self._retries, self._chance()
        )
        if isinstance(follows, Report) or not may_repeat:
            return _told(broke, name, tries, self._failed)
        pause_s = follows.pause_s if isinstance(follows, RetryNow) else 0.0
        if on_retry is not None:
            on_retry(RetryTold(broke, name if isinstance(follows, RetryNow) else following or name, pause_s))
        if isinstance(follows, FallBack):
            self._failed.append(_line(broke, name, tries))
            self._place, self._tries = self._place + 1, 0
        else:
            await self._sleep(pause_s)
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


def _told(broke: Broke, name: str, tries: int, failed: list[str]) -> Broke:
    """The last trouble, with a line for every model that was asked before it."""
    if tries == 1 and not failed:
        return broke
    return msgspec.structs.replace(broke, message="; ".join([*failed, _line(broke, name, tries)]))
