"""A model that plays a script: for tests, demos and benchmarks, without a network.

A script is a function from the request to an answer, or a list of rules about the last message. It can call tools,
think, take time (through a sleep that is a parameter), come in pieces, and fail on demand. Rules and `in_order` choose
an answer by the request alone, so a restarted program gets the same answers; `failures` go by the number of the request
since the model was made.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct

from fledge.core.prompts import task_of
from fledge.core.value import Value
from fledge.errors import BadInput
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    ModelEvent,
    Opaque,
    ProviderErrorKind,
    ReplyEnded,
    Request,
    StopReason,
    Text,
    Thought,
    Usage,
)
from fledge.models.retry import Sleep


class ScriptedReply(Value):
    """The answer of a scripted model to one request. Missing call ids and usage are filled in."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    opaque: str = ""
    usage: Usage | None = None
    stop: StopReason | None = None
    model: str = ""


class CutReply(Value):
    """The reply of the script, broken after its first `after` events."""

    after: int
    trouble: ProviderErrorKind = "interrupted"


Answer = ScriptedReply | str | Call | Broke | Sequence[ModelEvent]
"""An answer of a script: a text, a tool call, a whole reply, a failure, or events as a model streams them."""
ModelScript = Callable[[Request], Answer | Awaitable[Answer]]
ScriptedFailure = ProviderErrorKind | Broke | CutReply


class Rule(Struct, frozen=True):
    """A rule of a `ScriptedModel`: if `when` fits the request, the model answers `say`.

    `when` is text that the last message contains, a pattern that it matches, or a function of the request.
    """

    when: str | re.Pattern[str] | Callable[[Request], bool]
    say: Answer | ModelScript


def use(name: str, /, **arguments: Any) -> Call:
    """Make a tool call for a script: `use("read", path="a.txt")`."""
    return Call("", name, msgspec.json.encode(arguments).decode())


def last_text(request: Request) -> str:
    """Return the text of the last message; for the first message of a subagent, its task."""
    return task_of(request.messages[-1].text) if request.messages else ""


def echo(request: Request) -> ScriptedReply:
    """A script that repeats the last message, or the task of a subagent."""
    return ScriptedReply(last_text(request))


def in_order(*answers: Answer | ModelScript) -> ModelScript:
    """A script that gives these answers one after the other, in each conversation and each run from the first one on.

    An answer may be a function of the request. The replies in the request are counted to find the next answer, so a
    restarted program goes on with the right one. If no answer is left, the request fails and the error says so.

    >>> publish = ScriptedModel(in_order(use("publish", title="Bees"), lambda request: f"Done: {last_text(request)}"))
    """

    def script(request: Request) -> Answer | Awaitable[Answer]:
        given = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if given >= len(answers):
            return Broke("bad_request", f"the script has no answer number {given + 1}")
        answer = answers[given]
        return answer(request) if callable(answer) else answer

    return script


class ScriptedModel:
    """A model that answers from a script: a function of the request, or a list of `Rule`. It needs no network.

    - `failures`: errors to simulate, by number of the request, from 1.
    - `piece_chars`: stream texts in pieces of this length; 0 streams them whole.
    - `latency_s`, `piece_s`: seconds before a reply, and before each piece.

    The attribute `requests` holds all requests, in order.
    """

    def __init__(
        self,
        script: ModelScript | Iterable[Rule],
        *,
        failures: Mapping[int, ScriptedFailure] | None = None,
        piece_chars: int = 0,
        latency_s: float = 0.0,
        piece_s: float = 0.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._script: ModelScript = script if callable(script) else _by_rules(tuple(script))
        self._failures = dict(failures or {})
        for number, failure in self._failures.items():
            if isinstance(failure, str) and failure not in get_args(ProviderErrorKind):
                words = ", ".join(get_args(ProviderErrorKind))
                raise BadInput(f"failures.{number}", f"must be one of {words}, or a Broke or Cut", failure)
        self._piece_chars, self._latency_s, self._piece_s, self._sleep = piece_chars, latency_s, piece_s, sleep
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer this request from the script."""
        self.requests.append(request)
        failure = self._failures.get(len(self.requests))
        if self._latency_s:
            await self._sleep(self._latency_s)
        if isinstance(failure, str):
            failure = Broke(failure, f"scripted {failure}")
        if isinstance(failure, Broke):
            yield failure
            return
        answer = self._script(request)
        if not isinstance(answer, (str, Call)) and isinstance(answer, Awaitable):
            answer = await answer
        cut_after = None if failure is None else failure.after
        for number, event in enumerate(self._events(request, answer)):
            if number == cut_after:
                break
            if self._piece_s:
                await self._sleep(self._piece_s)
            yield event
        if failure is not None:
            yield Broke(failure.trouble, "scripted cut")

    async def close(self) -> None:
        """Do nothing: a script holds no connections."""

    def _events(self, request: Request, answer: Answer) -> Sequence[ModelEvent]:
        if isinstance(answer, str):
            answer = ScriptedReply(answer)
        elif isinstance(answer, Call):
            answer = ScriptedReply(calls=(answer,))
        elif isinstance(answer, Broke):
            return (answer,)
        if not isinstance(answer, ScriptedReply):
            return answer
        events: list[ModelEvent] = [Thought(piece) for piece in self._pieces(answer.thinking)]
        events += [Text(piece) for piece in self._pieces(answer.text)]
        if answer.opaque:
            events.append(Opaque(answer.opaque))
        events.extend(with_ids(request, answer.calls))
        events.append(answer.usage or _estimate(request, answer))
        events.append(ReplyEnded(answer.stop or ("tools" if answer.calls else "end"), answer.model or request.model))
        return events

    def _pieces(self, text: str) -> list[str]:
        size = self._piece_chars
        if not size:
            return [text] if text else []
        return [text[at : at + size] for at in range(0, len(text), size)]


def with_ids(request: Request, calls: Sequence[Call]) -> list[Call]:
    """The calls; those without an id get one from their place in the conversation."""
    if all(call.id for call in calls):
        return list(calls)
    before = sum(len(said.calls) for said in request.messages if isinstance(said, AssistantMessage))
    return [Call(call.id or f"call_{before + at}", call.name, call.arguments) for at, call in enumerate(calls)]


def _by_rules(rules: tuple[Rule, ...]) -> ModelScript:
    def script(request: Request) -> Answer | Awaitable[Answer]:
        text = last_text(request)
        for rule in rules:
            when = rule.when
            if isinstance(when, str):
                fits = when in text
            elif isinstance(when, re.Pattern):
                fits = when.search(text) is not None
            else:
                fits = when(request)
            if fits:
                return rule.say(request) if callable(rule.say) else rule.say
        return Broke("bad_request", f"no rule fits {text[:80]!r}")

    return script


def _estimate(request: Request, reply: ScriptedReply) -> Usage:
    """About four characters a token, as a rule of thumb."""
    given = len(request.system) + sum([len(message.text) for message in request.messages])
    said = len(reply.text) + len(reply.thinking) + sum([len(call.arguments) for call in reply.calls])
    return Usage(given // 4 + 1, said // 4 + 1)
