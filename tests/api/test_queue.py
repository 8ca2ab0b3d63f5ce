"""`messages.queue` from a program: how completions and people's messages reach a busy conversation, by setting and
channel.

Main works from 0 to 10 with a tool, then answers. Two children answer at 4 and 6; somebody speaks at 5 and at 7.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.channels.base import Address, Message
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.testing import ScriptedModel, use
from tests.api.scene import Place
from tests.statements import proves

ANN = Address("ops", "ann")


class Quiet:
    """A channel that takes everything."""

    async def send(self, message: Message) -> None:
        """It has arrived."""

    async def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@fledge.tool(name="work")
async def work() -> str:
    """Work for ten seconds."""
    await asyncio.sleep(10)
    return "worked"


async def script(request: Request) -> Answer:
    words = last_text(request)
    if "Subagent Context" in request.system:
        await asyncio.sleep(float(words))
        return f"answer at {words}"
    if words == "go":
        spawns = (use("sessions_spawn", task=at, label=at) for at in ("4", "6"))
        return ScriptedReply(calls=(*spawns, use("work")))
    return "done"


async def turns(fl: fledge.Fledge, address: Address | None) -> list[list[str]]:
    """What main read, turn by turn: what was said to it, and the children it was told of."""
    chat = fl.session("main", address=address)
    for pause_s, words in ((0, "go"), (5, "at 5"), (2, "at 7")):
        await asyncio.sleep(pause_s)
        await chat.post(words)
    assert await chat.settled(timeout=60)
    found: list[list[str]] = [[]]
    for message in await chat.history():
        if message.role == "user":
            found[-1].append(message.text)
        elif message.role == "event":
            found[-1] += [f"child {label}" for label in ("4", "6") if f'"{label}"' in message.text]
        elif message.role == "assistant" and not message.calls:
            found.append([])
    return found[:-1]


EACH = [["go"], ["child 4"], ["at 5"], ["child 6"], ["at 7"]]
CASES: list[tuple[str, dict[str, Any], list[list[str]]]] = [
    ("not set", {}, [["go", "at 5", "at 7"], ["child 4", "child 6"]]),
    ("mode is for both", {"mode": "followup"}, EACH),
    ("mode is for both", {"mode": "collect"}, [["go"], ["child 4", "child 6", "at 5", "at 7"]]),
    ("people is for messages alone", {"people": "collect"}, [["go"], ["child 4", "child 6", "at 5", "at 7"]]),
    ("people is for messages alone", {"people": "followup"}, [["go"], ["child 4", "child 6"], ["at 5"], ["at 7"]]),
    (
        "and wins over mode",
        {"mode": "followup", "people": "steer"},
        [["go", "at 5", "at 7"], ["child 4"], ["child 6"]],
    ),
    ("a channel has its own", {"byChannel": {"ops": "followup"}}, EACH),
    (
        "for messages alone too",
        {"byChannel": {"ops": {"people": "followup"}}},
        [["go"], ["child 4", "child 6"], ["at 5"], ["at 7"]],
    ),
    ("and only there", {"byChannel": {"news": "followup"}}, [["go", "at 5", "at 7"], ["child 4", "child 6"]]),
]


@proves(
    "2.arbitration.26", "Without a setting completions are collected and people's messages are heard at the next step"
)
@proves("2.arbitration.27", "`mode` sets both, `people` messages alone, `byChannel` either for one channel")
@pytest.mark.parametrize(("name", "queue", "expected"), CASES)
def test_items_reach_a_busy_conversation_as_its_queue_settings_say(
    place: Place, name: str, queue: dict[str, Any], expected: list[list[str]]
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        assert await turns(fl, ANN) == expected, name

    place.act(
        body, ScriptedModel(script), tools=[work], channels={"ops": Quiet()}, config={"messages": {"queue": queue}}
    )


@proves("2.queue.12", "`debounceMsByChannel` sets the debounce of one channel")
@pytest.mark.parametrize(("channel", "told_at"), [("ops", 12.0), ("news", 10.0)])
def test_a_channel_may_have_its_own_debounce(place: Place, channel: str, told_at: float) -> None:
    """Main is free at 10; the last answer came at 9, and is debounced for 3 s on one channel, for 1 s on the other."""

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main", address=Address(channel, "ann"))
        began = fl.engine.clock.now()
        await chat.post("go")
        assert await chat.settled(timeout=60)
        (told,) = [message for message in await chat.history() if message.role == "event"]
        assert told.at - began == pytest.approx(told_at, abs=0.05)

    async def late(request: Request) -> Answer:
        if "Subagent Context" in request.system:
            await asyncio.sleep(3 if last_text(request) == "6" else 4)
        return await script(request)

    queue = {"debounceMsByChannel": {"ops": 3000}}
    channels = {"ops": Quiet(), "news": Quiet()}
    place.act(body, ScriptedModel(late), tools=[work], channels=channels, config={"messages": {"queue": queue}})
