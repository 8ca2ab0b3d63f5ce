"""Trying again: the same model after a pause, then the next one of a list, as `core.asking` decides.

`Retrying` is itself a `Model`. Its stream carries one `Broke` at most, and only when nothing more will be tried. A
reply that breaks after some of it was yielded is asked for again only if the consumer said, by passing `on_retry`, that
it will drop what it has: without that promise the `Broke` goes through, so that no word ever arrives twice. Waiting and
chance are parameters; nothing here knows a provider or decides anything.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from fledge.cancellation import is_stop
from fledge.core.asking import FallBack, Report, Retries, RetryNow, after_try
from fledge.models.base import Broke, Call, Model, ModelEvent, Opaque, ReplyEnded, Request, Text, Thought, Usage

log = logging.getLogger("fledge.models")

_MORE_FOLLOWS = frozenset((Text, Thought, Opaque, Call, Usage))
"""Events after which a stream goes on: found at once, for there may be thousands."""

Sleep = Callable[[float], Awaitable[object]]
Chance = Callable[[], float]
"""A number from 0 up to, not including, 1."""


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

    async def stream(
        self, request: Request, on_retry: Callable[[RetryTold], None] | None = None
    ) -> AsyncIterator[ModelEvent]:
        """Answer the request, from whichever model does.

        `on_retry` is called before anything of the next reply is yielded, in the task that reads the stream: whoever
        passes it must then forget every event of this stream so far.
        """
        models = [(self._model, request.model), *self._fallbacks]
        failed: list[str] = []
        for place, (model, name) in enumerate(models):
            asked = request if place == 0 else msgspec.structs.replace(request, model=name)
            following = models[place + 1][1] if place + 1 < len(models) else None
            tries = 0
            while True:
                tries += 1
                broke = Broke("interrupted", "the stream ended without an end")
                yielded = False
                events = model.stream(asked)
                try:
                    async for event in events:
                        if type(event) in _MORE_FOLLOWS:
                            yielded = True
                            yield event
                        elif isinstance(event, Broke):
                            broke = event
                            break
                        else:
                            yield event
                            if isinstance(event, ReplyEnded):
                                return
                            yielded = True
                finally:
                    await close_stream(events)
                follows = after_try(
                    broke.trouble, broke.retry_after_s, tries, following is not None, self._retries, self._chance()
                )
                if isinstance(follows, Report) or (yielded and on_retry is None):
                    yield _told(broke, name, tries, failed)
                    return
                pause_s = follows.pause_s if isinstance(follows, RetryNow) else 0.0
                if on_retry is not None:
                    on_retry(RetryTold(broke, name if isinstance(follows, RetryNow) else following or name, pause_s))
                if isinstance(follows, FallBack):
                    failed.append(_line(broke, name, tries))
                    break
                await self._sleep(pause_s)

    async def close(self) -> None:
        """Let go of the connections of all models."""
        for model in {id(model): model for model in (self._model, *(model for model, _ in self._fallbacks))}.values():
            await model.close()


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
