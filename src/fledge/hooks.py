"""Hooks: functions of yours that are called at four moments of a run, and answer a question at two of them.

Register them before opening: each has a name that stays the same over restarts, because an undelivered call finds its
function by that name. Every call has an id, which webhooks receive; it comes at least once. A function that raises or
takes too long is called again later and given up in the end; no run, no lane and no other hook waits for it. Only the
two questions hold something up: a spawn waits for the answer to `subagent_spawning`, a result for that to
`subagent_delivery_target`. A question that fails is not repeated: the spawn is refused, the result goes where it would
go anyway.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from fledge.channels.webhook import Poster
from fledge.core.hook import (
    HOOKS,
    DeliveryTarget,
    HookEvent,
    HookName,
    SubagentEnded,
    SubagentSpawned,
    SubagentSpawning,
)
from fledge.core.route import check_channel
from fledge.errors import BadInput, NotArrived

__all__ = ["DeliveryTarget", "HookEvent", "HookName", "Hooks", "SubagentEnded", "SubagentSpawned", "SubagentSpawning"]

TIMEOUT_S = 10.0
RETRIES = 3

F = TypeVar("F", bound=Callable[..., object])


class Hooked(Protocol):
    """The function or webhook of a listener."""

    async def call(self, call_id: str, event: HookEvent) -> object:
        """Call it with the event, and return its answer. Raises if the call failed."""

    async def close(self) -> None:
        """Close its connections."""


class Listening(Struct, frozen=True):
    """A registered listener: its name, its hooks, and how often a call that failed is repeated."""

    name: str
    on: tuple[HookName, ...]
    hooked: Hooked
    retries: int = RETRIES


class Hooks:
    """Your functions, by the hook they listen to.

    >>> hooks = Hooks()
    >>> @hooks.on("subagent_ended")
    ... def note(event):
    ...     print(event.target_session_key, event.outcome)
    """

    def __init__(self) -> None:
        self._listening: dict[str, Listening] = {}

    def on(
        self, *hooks: HookName, name: str = "", timeout_s: float = TIMEOUT_S, retries: int = RETRIES
    ) -> Callable[[F], F]:
        """Register the function below for these hooks. It takes the event, and may be async.

        Its name is that of the function unless one is given. Refused: an unknown hook, a name that is taken or no plain
        word, a timeout that is not above 0, retries below 0.
        """
        for hook in hooks:
            if hook not in HOOKS:
                raise BadInput("hook", f"must be one of {', '.join(HOOKS)}", hook)
        if not hooks:
            raise BadInput("hook", f"must be one of {', '.join(HOOKS)}")
        if not timeout_s > 0:
            raise BadInput("timeout_s", "must be above 0", timeout_s)
        if retries < 0:
            raise BadInput("retries", "must be 0 or more", retries)

        def register(function: F) -> F:
            if not callable(function):
                raise BadInput("function", "must be a function that takes the event", function)
            called = name or getattr(function, "__name__", "").lower()
            known = check_channel(called, "name")
            if known in self._listening:
                raise BadInput("name", "is taken: give each function its own", known)
            self._listening[known] = Listening(known, tuple(hooks), _Function(function, timeout_s), retries)
            return function

        return register

    def listening(self) -> Mapping[str, Listening]:
        """All registered listeners, by name."""
        return dict(self._listening)


class _Function:
    """A user's function. One that is not async runs in a thread, which cannot be ended: a late answer is dropped."""

    def __init__(self, function: Callable[..., object], timeout_s: float) -> None:
        self._function, self._timeout_s = function, timeout_s

    async def call(self, call_id: str, event: HookEvent) -> object:
        try:
            async with asyncio.timeout(self._timeout_s):
                if inspect.iscoroutinefunction(self._function):
                    return await cast(Awaitable[object], self._function(event))
                answer = await asyncio.to_thread(self._function, event)
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError:
            raise NotArrived(f"no answer within {self._timeout_s:g} s") from None

    async def close(self) -> None:
        """A function holds nothing to close."""


class WebhookHook:
    """A listener on a server: the event is posted as signed JSON, and the answer is the JSON of the response."""

    def __init__(self, poster: Poster) -> None:
        self._poster = poster

    async def call(self, call_id: str, event: HookEvent) -> object:
        """Post the event and return the answer; None if the response is empty or no JSON."""
        raw = await self._poster.post(call_id, msgspec.json.encode(event))
        try:
            return msgspec.json.decode(raw) if raw.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    async def close(self) -> None:
        """Close every connection."""
        await self._poster.close()
