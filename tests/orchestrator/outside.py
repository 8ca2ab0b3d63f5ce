"""Everybody outside, for tests of hop 2: who hears what and when, and who is down."""

from collections.abc import Awaitable, Callable, Mapping

from fledge.channels.inbound import inbound
from fledge.core.hook import HookEvent
from fledge.core.route import Address, ChannelMessage
from fledge.errors import NotArrived
from fledge.orchestrator import outbox
from fledge.orchestrator.commit import Rules
from fledge.store.base import OutboxPost
from fledge.testing import Script, Stage
from tests.orchestrator.stage import MAIN, Theatre, World

OPS, NEWS = Address("ops", "ann", "t-1"), Address("news", "bob")


class Outside:
    """Everybody outside: what arrived and when, and who is down."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.arrived: list[tuple[float, ChannelMessage]] = []
        self.tried: list[tuple[float, str]] = []
        self.events: list[HookEvent] = []
        self.answers: dict[str, Address] = {}
        """By listener: where answers should go."""
        self.down: dict[str, int] = {}
        """By channel: how many more tries fail."""
        self.takes_s: dict[str, float] = {}
        self.wait_s = 0.0
        world.performer.calls = self.call

    async def call(self, post: OutboxPost) -> Address | None:
        message, call = outbox.message_of(post), outbox.call_of(post)
        if call is not None:
            self.events.append(call.event)
            return self.answers.get(call.listener)
        assert message is not None
        assert message.id == post.key
        self.tried.append((self.world.at(), message.id))
        await self.world.clock.sleep(self.takes_s.get(message.channel, 0.0))
        if self.down.get(message.channel, 0) > 0:
            self.down[message.channel] -= 1
            raise NotArrived(f"{message.channel} is down", self.wait_s)
        self.arrived.append((self.world.at(), message))
        return None

    @property
    def heard(self) -> list[tuple[str, str, str]]:
        """Channel, recipient and words of what arrived, in order."""
        return [(message.channel, message.to, message.text) for _, message in self.arrived]


Play = Callable[[World, Outside], Awaitable[None]]


def played(
    theatre: Theatre, play: Play, scripts: Mapping[str, Script] | None = None, rules: Rules | None = None
) -> None:
    """One act with somebody outside."""

    async def body(world: World) -> None:
        await play(world, Outside(world))

    theatre.act(body, scripts, rules)


async def hear(world: World, address: Address, text: str, message_id: str) -> str:
    """Somebody speaks from there; answers the session that hears it."""
    return await inbound(world.engine, address.channel, address.to, address.thread, text, message_id)


async def entries(world: World, session: str = MAIN) -> list[str]:
    """The kinds of a transcript's entries."""
    return [entry.kind for entry in await world.look(lambda tx: tx.transcripts.entries(session))]


async def delegate(stage: Stage) -> None:
    """Spawn a child, and say so."""
    await stage.spawn("child")
    await stage.say("under way")
