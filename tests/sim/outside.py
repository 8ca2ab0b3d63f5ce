"""Whoever is outside in a play: channels that are down for a while or for ever, hooks that throw, hang or answer late,
a context engine. They outlive processes, and remember everything that reached them.

How long a call takes and whether it goes wrong follows from the seed, its id and how often it came. One that goes wrong
may have arrived all the same: who sent it cannot know.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec
from msgspec import Struct

from fledge.core.hook import DeliveryTarget, HookEvent, SubagentEnded, SubagentSpawned, SubagentSpawning
from fledge.core.route import ChannelMessage
from fledge.errors import NotArrived, Undeliverable
from fledge.hooks import Hooks, Listening
from fledge.orchestrator.outbox import hook_post_key
from fledge.runtime.outlet import Outlet
from tests.sim.schedule import CHANNELS, Schedule, dice

TAKES_S = (0.0, 0.0, 0.05, 1.0, 5.0)
FOR_EVER_S = 1e6
HOOK_S, HOOK_RETRIES, ENDPOINT_RETRIES = 10.0, 2, 3


class Told(Struct, frozen=True):
    """Something that reached somebody: when, and what."""

    at: float
    body: str


class Witness(Protocol):
    """What those outside need of the play."""

    plan: Schedule
    dead: bool

    def now(self) -> float:
        """Seconds since the play began."""
        ...

    def say(self, words: str) -> None:
        """Something for whoever listens."""
        ...


class Outside:
    """Everybody."""

    def __init__(self, witness: Witness) -> None:
        self._witness, self._beyond, self._seed = witness, witness.plan.beyond, witness.plan.seed
        self._tries: Counter[str] = Counter()
        self.arrived: dict[str, list[Told]] = {}
        """By id: each time it came."""
        self.refused: set[str] = set()
        """Ids of messages that can never arrive."""
        self.under_way: set[str] = set()
        """Ids of calls that have begun and not ended."""

    def outlet(self) -> Outlet:
        """How one process reaches them."""
        self.under_way.clear()
        return Outlet(
            {name: _Channel(self, name) for name in CHANNELS if self._beyond.writes},
            self._listening() if self._beyond.listens else {},
            _Contexts(self) if self._beyond.listens else None,
        )

    def _listening(self) -> dict[str, Listening]:
        hooks = Hooks()

        @hooks.on("subagent_spawned", "subagent_ended", name="audit", timeout_s=HOOK_S, retries=HOOK_RETRIES)
        async def audit(event: HookEvent) -> None:
            await self.reached(call_id("audit", event), event)

        @hooks.on("subagent_delivery_target", name="router", timeout_s=HOOK_S)
        async def router(event: DeliveryTarget) -> object:
            name = call_id("router", event)
            await self.reached(name, event)
            throw = dice(self._seed, "router", name)
            answers = [None, None, "nonsense", {"channel": "news", "to": "eve"}, {"channel": "nowhere", "to": "x"}]
            return throw.choice(answers)

        @hooks.on("subagent_spawning", name="binder", timeout_s=HOOK_S)
        async def binder(event: SubagentSpawning) -> object:
            name = call_id("binder", event)
            await self.reached(name, event)
            throw = dice(self._seed, "binder", name)
            ready = {"threadBindingReady": True, "channel": "ops", "to": "ann", "thread": f"t-{event.label}"}
            return throw.choice([ready] * 6 + [None, {"status": "error", "error": "no threads today"}, {}])

        endpoint = Listening("endpoint", ("subagent_spawned", "subagent_ended"), _Endpoint(self), ENDPOINT_RETRIES)
        return {**hooks.listening(), "endpoint": endpoint}

    # ---- what becomes of a call

    async def reached(self, name: str, what: object, is_up: bool = True) -> None:
        """A call has come: it takes its time, and arrives or not."""
        self._tries[name] += 1
        throw = dice(self._seed, "outside", name, self._tries[name])
        with self._calling(name):
            await asyncio.sleep(throw.choice(TAKES_S))
            fate = throw.choice(["breaks", "breaks", "waits", "hangs", "unheard", "unheard"])
            wrong = throw.random() < self._beyond.trouble
            if self._witness.dead:
                raise asyncio.CancelledError
            if not is_up:
                raise NotArrived("it is down")
            if wrong and fate == "waits":
                raise NotArrived("too many", 7.0)
            if wrong and fate == "breaks":
                raise RuntimeError("it broke")
            if wrong and fate == "hangs":
                await asyncio.sleep(FOR_EVER_S)
            self._witness.say(f"outside: {name} arrived")
            body = msgspec.json.encode(what).decode()
            self.arrived.setdefault(name, []).append(Told(self._witness.now(), body))
            if wrong:
                raise RuntimeError("it hung up")

    def refuse(self, name: str) -> None:
        """Some messages can never arrive, where calls go wrong at all."""
        if dice(self._seed, "never", name).random() < self._beyond.trouble / 10 and not self._witness.dead:
            self.refused.add(name)
            raise Undeliverable("it can never arrive")

    @contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        self.under_way.add(name)
        try:
            yield
        finally:
            self.under_way.discard(name)

    def is_up(self, channel: str) -> bool:
        """True while the channel works."""
        now = self._witness.now()
        return not any(down <= now < up for down, up in self._beyond.outages.get(channel, ()))


def call_id(listener: str, event: HookEvent) -> str:
    """The id of a hook's call, as whoever gets only the event knows it."""
    match event:
        case SubagentEnded():
            return hook_post_key("subagent_ended", listener, event.target_session_key)
        case SubagentSpawned():
            return hook_post_key("subagent_spawned", listener, event.child_session_key)
        case SubagentSpawning():
            return hook_post_key("subagent_spawning", listener, event.child_session_key)
        case _:
            return hook_post_key("subagent_delivery_target", listener, event.child_session_key)


class _Channel:
    def __init__(self, outside: Outside, name: str) -> None:
        self._outside, self._name = outside, name

    async def send(self, message: ChannelMessage) -> None:
        self._outside.refuse(message.id)
        await self._outside.reached(message.id, message, self._outside.is_up(self._name))

    async def close(self) -> None:
        """Nothing is held."""


class _Endpoint:
    """Somebody's server: it is told the id."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def call(self, call_id: str, event: HookEvent) -> object:
        await self._outside.reached(call_id, event)
        return None

    async def close(self) -> None:
        """Nothing is held."""


class _Contexts:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def subagent_started(self, session_key: str, requester: str, timeout_s: float) -> None:
        await self._outside.reached(f"context:started:{session_key}", (session_key, requester))

    async def subagent_ended(self, session_key: str, reason: str) -> None:
        await self._outside.reached(f"context:{reason}:{session_key}", (session_key, reason))
