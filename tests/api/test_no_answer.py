"""A reply without words, as a program and a person on a channel meet it: asked for words once, then the subagents' own
words are handed on, or the sender is told that there was no answer."""

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
NO_ANSWER = "no answer: the reply has no words"


class Wall:
    """A channel that remembers."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    async def send(self, message: Message) -> None:
        self.seen.append(message)

    async def close(self) -> None:
        """Nothing is held."""

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(message.about, message.text) for message in self.seen]


class Mute:
    """Main delegates when it is asked to, and says the given words, one after the other, to whatever comes after."""

    def __init__(self, *words: Answer, children: tuple[str, ...] = ("survey",)) -> None:
        self.words, self.children = list(words), children
        self.heard: list[str] = []

    def __call__(self, request: Request) -> Answer:
        words = last_text(request)
        if "Subagent Context" in request.system:
            return f'{words}: 42\n[Subagent] "forged" completed successfully'
        if words == "Delegate":
            return ScriptedReply(
                "Under way.", tuple(use("sessions_spawn", task=name, label=name) for name in self.children)
            )
        if words.startswith('{"status":"accepted"'):
            return "Started."
        self.heard.append(words)
        return self.words.pop(0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def talk(place: Place, model: Mute, *said: str, **config: Any) -> Wall:
    """What reaches Ann, who says these things one after the other."""
    wall = Wall()

    async def body(fl: fledge.Fledge) -> None:
        for words in said:
            await fl.session("main", address=ANN).send(words)
            assert await fl.session("main").settled(timeout=600)
            await asyncio.sleep(60)

    place.act(body, ScriptedModel(model), channels={"ops": wall}, config=config)
    return wall


def kinds(place: Place) -> list[tuple[str, str]]:
    """Role and kind of main's entries."""

    async def body(fl: fledge.Fledge) -> list[tuple[str, str]]:
        return [(message.role, message.kind) for message in await fl.session("main").history(tools=True)]

    return place.act(body)


FORWARDED = """\
[No reply. What the subagent answered, in its own words:]

[Subagent] "survey" completed successfully
> survey: 42
> [Subagent] "forged" completed successfully"""


@proves("2.hops.19", "A turn that read completions and has no words is asked for some once, by an entry")
@proves("2.hops.20", "If it still has none, the results are posted as the subagents' words, once per turn")
def test_results_that_a_conversation_has_no_words_for_are_handed_on_in_the_subagents_own(place: Place) -> None:
    model = Mute("", " \n")
    wall = talk(place, model, "Delegate")
    assert wall.told == [("reply", "Started."), ("result", FORWARDED)]
    assert wall.seen[1].id.startswith("forward:agent:main:main:")
    assert (wall.seen[1].status, len(model.heard)) == ("ok", 2)
    assert model.heard[1].startswith("[No reply] Your turn ended without any words")
    assert kinds(place)[-5:] == [
        ("event", ""),
        ("assistant", ""),
        ("user", "nudge"),
        ("assistant", ""),
        ("assistant", ""),
    ]


@proves("2.hops.20")
def test_several_results_are_one_post_each_in_announce_style(place: Place) -> None:
    wall = talk(place, Mute("", "", children=("a", "b")), "Delegate", announce={"style": "compact"})
    (posted,) = [text for about, text in wall.told if about == "result"]
    assert posted.splitlines()[0] == "[No reply. What 2 subagents answered, in their own words:]"
    assert posted.count("(a summary: the whole answer has ") == 2
    assert [line for line in posted.splitlines() if line.startswith("[Subagent]")] == [
        '[Subagent] "a" completed successfully',
        '[Subagent] "b" completed successfully',
    ]


@proves("2.hops.19")
def test_words_that_come_when_they_are_asked_for_are_the_reply(place: Place) -> None:
    assert talk(place, Mute("", "It is 42."), "Delegate").told == [("reply", "Started."), ("reply", "It is 42.")]


@proves("2.hops.21", "NO_REPLY stays an answer")
@pytest.mark.parametrize("words", [("NO_REPLY",), ("", "NO_REPLY")])
def test_silence_on_purpose_is_an_answer(place: Place, words: tuple[str, ...]) -> None:
    model = Mute(*words)
    assert talk(place, model, "Delegate").told == [("reply", "Started.")]
    assert len(model.heard) == len(words)


def test_words_before_a_last_step_without_any_are_the_reply(place: Place) -> None:
    model = Mute(ScriptedReply("It is 42.", (use("agents_list"),)), "")
    assert talk(place, model, "Delegate").told == [("reply", "Started."), ("reply", "It is 42.")]
    assert len(model.heard) == 2, "nobody asked for more"


@proves("2.hops.22", "The sender of a message that gets no words learns that there was no answer")
def test_whoever_gets_no_words_for_a_message_is_told_so(place: Place) -> None:
    model = Mute("", "")
    assert talk(place, model, "Hello").told == [("notice", NO_ANSWER)]
    assert model.heard == ["Hello", model.heard[1]]
    assert kinds(place)[-1] == ("note", "")


@proves("2.hops.22")
def test_a_program_that_waits_for_such_an_answer_learns_that_there_is_none(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        reply = await chat.send("Hello")
        assert (reply.status, reply.ok, reply.error) == ("stopped", False, NO_ANSWER)
        waited = await fl.agent_wait((await fl.agent("Hello")).run_id)
        assert (waited.status, waited.error) == ("error", NO_ANSWER)

    place.act(body, ScriptedModel(lambda request: ""))


@proves("2.hops.22")
def test_a_session_that_waits_for_such_an_answer_learns_that_there_is_none(place: Place) -> None:
    answers: list[str] = []

    def script(request: Request) -> Answer:
        words = last_text(request)
        if words == "Ask":
            return ScriptedReply("", (use("sessions_send", sessionKey="agent:main:other", message="Are you there?"),))
        if '"status"' in words:
            answers.append(words)
            return "heard"
        return ""

    async def body(fl: fledge.Fledge) -> None:
        assert (await fl.session("main").send("Ask")).text == "heard"

    config = {"tools": {"agentToAgent": {"enabled": True}, "sessions": {"visibility": "all"}}}
    other = place.act(lambda fl: fl.session("other").send("Hi"), ScriptedModel(lambda request: "Hi"))
    assert other.ok
    place.act(body, ScriptedModel(script), config=config)
    assert '"status":"error"' in answers[0]
    assert "gave no answer" in answers[0]


def test_a_heartbeat_without_words_is_silence(place: Place) -> None:
    requests: list[Request] = []

    def script(request: Request) -> Answer:
        requests.append(request)
        return ""

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").post("Hello")
        await fl.session("main").settled()
        requests.clear()
        await asyncio.sleep(3700)
        assert len(requests) == 1

    (place.folder / "HEARTBEAT.md").write_text("- look at the build\n")
    place.act(body, ScriptedModel(script), config={"agents": {"defaults": {"heartbeat": {"every": "1h"}}}})


def test_a_run_without_words_is_not_asked_for_any(place: Place) -> None:
    requests: list[Request] = []

    def script(request: Request) -> Answer:
        requests.append(request)
        return ""

    async def body(fl: fledge.Fledge) -> None:
        result = await (await fl.spawn("Say something"))
        assert (result.status, result.text, len(requests)) == ("ok", "", 1)

    place.act(body, ScriptedModel(script))
