"""Trying again: the same model after a pause, then the next one of a list.

`Retrying` is itself a `Model`. Its stream carries one `Broke` at most, and only when nothing more will be tried. A
reply that breaks after some of it was yielded is asked for again only if the consumer said, by passing `on_retry`, that
it will drop what it has: without that promise the `Broke` goes through, so that no word ever arrives twice. Waiting and
chance are parameters; nothing here knows a provider.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from fledge.cancellation import is_stop
from fledge.models.base import Broke, Ended, Model, ModelEvent, Request

log = logging.getLogger("fledge.models")

Sleep = Callable[[float], Awaitable[object]]
Chance = Callable[[], float]
"""A number from 0 up to, not including, 1."""


class Patience(Struct, frozen=True, kw_only=True):
    """How often and how long."""

    tries: int = 4
    """For each model, the first try included."""
    first_s: float = 0.5
    """Pause before the second try; each further one is twice as long."""
    most_s: float = 30.0
    """No pause of our own is longer."""
    most_retry_after_s: float = 60.0
    """No pause that a provider asks for is longer."""


class Retry(Struct, frozen=True):
    """What was told to `on_retry`: this broke, and it is tried again."""

    broke: Broke
    model: str
    """The model that is asked next, by its provider's name."""
    pause_s: float


class Retrying:
    """A model that is asked again, and others that are asked after it.

    `fallbacks` are models with their providers' names for them. Trouble decides: `retryable` and `interrupted` are
    tried again, then the next model is asked; `auth` and `quota` go to the next model at once; `bad_request`, `refused`
    and `overflow` are the request's own fault and end the matter.
    """

    def __init__(
        self,
        model: Model,
        fallbacks: Sequence[tuple[Model, str]] = (),
        *,
        patience: Patience | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Chance = random.random,
    ) -> None:
        self._model = model
        self._fallbacks = tuple(fallbacks)
        self._patience = patience or Patience()
        self._sleep, self._chance = sleep, chance

    async def stream(
        self, request: Request, on_retry: Callable[[Retry], None] | None = None
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
                        if isinstance(event, Broke):
                            broke = event
                            break
                        yield event
                        if isinstance(event, Ended):
                            return
                        yielded = True
                finally:
                    await close_stream(events)
                again = broke.trouble in ("retryable", "interrupted") and tries < self._patience.tries
                onward = following is not None and broke.trouble in ("retryable", "interrupted", "auth", "quota")
                if not (again or onward) or (yielded and on_retry is None):
                    yield _told(broke, name, tries, failed)
                    return
                pause_s = self._pause(tries, broke.retry_after_s) if again else 0.0
                if on_retry is not None:
                    on_retry(Retry(broke, name if again else following or name, pause_s))
                if not again:
                    failed.append(_line(broke, name, tries))
                    break
                await self._sleep(pause_s)

    async def close(self) -> None:
        """Let go of the connections of all models."""
        for model in {id(model): model for model in (self._model, *(model for model, _ in self._fallbacks))}.values():
            await model.close()

    def _pause(self, tries: int, retry_after_s: float | None) -> float:
        patience = self._patience
        # Half of the pause is chance: callers that broke together come back apart.
        own_s = min(patience.most_s, patience.first_s * 2.0 ** (tries - 1)) * (0.5 + self._chance() / 2)
        return own_s if retry_after_s is None else max(own_s, min(retry_after_s, patience.most_retry_after_s))


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
        log.exception("a model's stream could not be closed")


def _line(broke: Broke, name: str, tries: int) -> str:
    return f"{name}: {broke.message}" + (f" (tried {tries} times)" if tries > 1 else "")


def _told(broke: Broke, name: str, tries: int, failed: list[str]) -> Broke:
    """The last trouble, with a line for every model that was asked before it."""
    if tries == 1 and not failed:
        return broke
    return msgspec.structs.replace(broke, message="; ".join([*failed, _line(broke, name, tries)]))
