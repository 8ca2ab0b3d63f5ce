"""The model of a simulated session: what it says follows from the seed, the session's label and its place in the
transcript; how long that takes and whether it breaks, also from how often it was asked.

It is the witness of what models are asked: every request is shown to the play before it is answered.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from fledge.core.freeze import ANNOUNCE_SKIP, HEARTBEAT_OK, NO_REPLY, REPLY_SKIP
from fledge.core.heartbeat import PROMPT
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    ModelEvent,
    ProviderErrorKind,
    ReplyEnded,
    Request,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
)
from fledge.models.scripted import use
from fledge.runtime.context import COMPACT_PROMPT
from tests.sim.deaf import whatever_happens
from tests.sim.schedule import dice

LATENCIES_S = (0.0, 0.1, 0.5, 1.0, 3.0, 12.0)
TROUBLES: tuple[ProviderErrorKind, ...] = ("retryable", "interrupted", "auth", "refused")


class Who(Struct, frozen=True, kw_only=True):
    """The session that thinks."""

    session: str
    epoch: int
    label: str
    talks: bool
    """It is a conversation: a turn of it answers what came in last."""
    spawns: bool
    tools: tuple[str, ...]
    spins: bool = False
    """It repeats a call that changes nothing."""


class Watcher(Protocol):
    """What a mind needs of the play."""

    seed: int
    trouble: float
    chatty: float
    """How readily messages are sent."""
    foreign: tuple[str, ...]
    """Runtimes that children may be carried out by."""

    @property
    def calm(self) -> bool:
        """Nothing new is to be begun."""
        ...

    def asked(self, who: Who, request: Request) -> tuple[int, int]:
        """A request is about to be answered: how many replies the transcript holds, and how often it was asked."""
        ...


class Mind:
    """One session's model for one turn."""

    def __init__(self, watcher: Watcher, who: Who, deaf: bool) -> None:
        self._watcher, self._who, self._deaf = watcher, who, deaf

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer, or break, after a while."""
        watcher, label = self._watcher, self._who.label
        replies, times = watcher.asked(self._who, request)
        fate = dice(watcher.seed, "fate", label, replies, times)
        latency_s = fate.choice(LATENCIES_S)
        broken = not watcher.calm and fate.random() < watcher.trouble
        wait = whatever_happens if self._deaf and fate.random() < 0.5 else asyncio.sleep
        await wait(latency_s / 2)
        if broken and fate.random() < 0.5:
            yield Broke(fate.choice(TROUBLES), "the provider would not")
            return
        text, calls = self._reply(request, replies)
        yield Text(text)
        await wait(latency_s / 2)
        if broken:
            yield Broke("interrupted", "the provider hung up")
            return
        for index, call in enumerate(calls):
            yield Call(f"call_{index}", call.name, call.arguments)
        yield Usage(100 + 20 * len(request.messages), 50)
        yield ReplyEnded("tools" if calls else "end", "simulated")

    async def close(self) -> None:
        return

    # ---- what it says

    def _reply(self, request: Request, replies: int) -> tuple[str, list[Call]]:
        who = self._who
        if request.messages[-1:] == (UserMessage(COMPACT_PROMPT),):
            return f"notes of {who.label} up to {replies}", []
        throw = dice(self._watcher.seed, "reply", who.label, replies)
        beat = dice(self._watcher.seed, "beat", who.label, replies)
        if request.messages[-1:] == (UserMessage(PROMPT),) and (self._watcher.calm or beat.random() < 0.8):
            return self._beat(beat, replies), []
        if who.spins and not self._watcher.calm:
            return "again", [use("no_such_tool", x=1)]
        # A conversation ends its turn sooner or later, a run its work.
        length = _since_last_word(request) if who.talks else replies
        if self._watcher.calm or length >= throw.randint(1, 4):
            return self._final(throw, replies), []
        calls = self._calls(throw, request, replies)
        return (f"{who.label} works, {replies}", calls) if calls else (self._final(throw, replies), [])

    def _final(self, throw: random.Random, replies: int) -> str:
        words = f"answer {replies} of {self._who.label}"
        if self._watcher.chatty and dice(self._watcher.seed, "skip", self._who.label, replies).random() < 0.1:
            return REPLY_SKIP
        said = [words] * 12 + [NO_REPLY, ANNOUNCE_SKIP, "", f"{words}\nSUMMARY: short", words + " and more" * 800]
        return throw.choice(said)

    def _beat(self, throw: random.Random, replies: int) -> str:
        """An answer to a heartbeat in which nothing came in: mostly that all is well."""
        said = [HEARTBEAT_OK] * 4 + [f"{HEARTBEAT_OK} all is quiet", f"<b>{HEARTBEAT_OK}</b>.", "as ever", "as ever"]
        return throw.choice([*said, f"look at {replies}", f"{HEARTBEAT_OK} {'and more ' * 60}", NO_REPLY, ""])

    def _calls(self, throw: random.Random, request: Request, replies: int) -> list[Call]:
        who = self._who
        calls: list[Call] = []
        if who.spawns and throw.random() < 0.6:
            calls += [self._spawn(throw, f"{who.label}.{replies}{'abc'[at]}") for at in range(throw.randint(1, 3))]
        children = _spawned(request)
        if "subagents" in who.tools and children and throw.random() < 0.3:
            calls.append(_directs(throw, throw.choice(children)))
        if throw.random() < 0.5:
            hands = [name for name in who.tools if name.startswith("hand_")]
            calls += [use(name) for name in throw.choices(hands, k=throw.randint(1, 3))] if hands else []
        if (calls or children) and throw.random() < 0.5:
            calls.append(_yields(throw, who.talks))
        if "sessions_send" in who.tools:
            calls += self._sends(dice(self._watcher.seed, "send", who.label, replies), children)
        if throw.random() < 0.05:
            calls.append(use("no_such_tool", x=1))
        if throw.random() < 0.05:
            calls.append(Call("", "sessions_spawn", "{not json"))
        return calls

    def _sends(self, throw: random.Random, children: list[str]) -> list[Call]:
        """Messages to its children, to other agents, to nobody; waited for or not."""
        if throw.random() >= self._watcher.chatty:
            return []
        whom: dict[str, object] = {"sessionKey": throw.choice(["agent:bob:main", "agent:eve:main", "agent:main:main"])}
        if children and throw.random() < 0.4:
            whom = {"label": throw.choice(children)} if throw.random() < 0.8 else {"sessionKey": "nobody"}
        waits_s = throw.choice([0, 0, 2, 30])
        return [use("sessions_send", message=f"from {self._who.label}", timeoutSeconds=waits_s, **whom)]

    def _spawn(self, throw: random.Random, label: str) -> Call:
        terms: dict[str, Any] = {"task": f"the work of {label}", "label": label}
        if throw.random() < 0.3:
            terms["cleanup"] = "delete"
        if throw.random() < 0.2:
            terms["planMode"] = True
        if throw.random() < 0.2:
            terms["expectsCompletionMessage"] = False
        if throw.random() < 0.3:
            terms["runTimeoutSeconds"] = throw.choice([2, 8, 30])
        if throw.random() < 0.1:
            terms |= {"thread": True, "mode": "session"}
        other = dice(self._watcher.seed, "runtime", label)
        if self._watcher.foreign and other.random() < 0.4:
            terms["runtime"] = other.choice(self._watcher.foreign)
            terms.pop("planMode", None)
        return use("sessions_spawn", **terms)


def _since_last_word(request: Request) -> int:
    """Replies since something came in."""
    count = 0
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        count += isinstance(message, AssistantMessage)
    return count


def _spawned(request: Request) -> list[str]:
    """Labels of children the model sees that it asked for."""
    calls = [call for said in request.messages if isinstance(said, AssistantMessage) for call in said.calls]
    spawns = [call for call in calls if call.name == "sessions_spawn" and call.arguments.startswith('{"')]
    return [str(msgspec.json.decode(call.arguments)["label"]) for call in spawns]


def _directs(throw: random.Random, child: str) -> Call:
    action = throw.choice(["list", "kill", "steer", "steer", "approve", "approve", "reject"])
    target = throw.choice([child, child, "last", "1", "nobody"])
    return use("subagents", action=action, target=target, message=f"{action}: as I say")


def _yields(throw: random.Random, talks: bool) -> Call:
    """A conversation's with terms is refused; mostly it gives none."""
    asked, deadline_s = throw.choice(["all", "all", "any", 1, 2, 3]), throw.choice([5, 60, 1800])
    if talks and asked != 3:
        return use("sessions_yield")
    return use("sessions_yield", **{"for": asked, "deadlineSeconds": deadline_s})


def wire_faults(request: Request) -> list[str]:
    """What is wrong with the order of a request's messages: every call is followed by its result, nothing else is."""
    wrong: list[str] = []
    owed: list[tuple[str, str]] = []
    for message in request.messages:
        if isinstance(message, ToolMessage):
            if not owed or owed.pop(0) != (message.call_id, message.name):
                wrong.append(f"a result without its call: {message.name}")
            continue
        if owed:
            wrong.append(f"calls without results: {owed}")
        owed = [(call.id, call.name) for call in message.calls] if isinstance(message, AssistantMessage) else []
    if owed:
        wrong.append(f"asked while calls are open: {owed}")
    if not request.messages or isinstance(request.messages[-1], AssistantMessage):
        wrong.append("asked although nothing came after the last reply")
    return wrong
