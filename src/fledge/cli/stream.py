"""The output of `fledge run --json`: one JSON object a line, each of a type of this file, `settled` last.

Names and values are those of the gateway's feeds: keys in camelCase, points in time in milliseconds, kinds and phases
in the same words; `run` and `lost` are the feed's own. The page for programs is docs/protocol.md.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from fledge.commands.feed import Lost, RunHappened
from fledge.commands.wire import to_wire
from fledge.core.live import TurnEvent
from fledge.core.printable import printable_json


class SessionLine(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Something that happened in a session."""

    session_key: str


class TextLine(SessionLine, frozen=True, kw_only=True, tag="text"):
    """A piece of an answer of the conversation, as it comes. The answer comes as `answer` once it is whole."""

    text: str


class ToolLine(SessionLine, frozen=True, kw_only=True, omit_defaults=True, tag="tool"):
    """A tool call of the conversation or of a subagent begins or ends."""

    kind: Literal["tool:start", "tool:end"]
    call: str
    text: str
    """The tool's name when it begins, its result when it ends."""
    arguments: str = ""
    """Of `tool:start`: the arguments, as the model wrote them."""


class UsageLine(SessionLine, frozen=True, kw_only=True, tag="usage"):
    """The usage of one reply of the conversation or of a subagent."""

    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    """None if the price is not known."""


class FailureLine(SessionLine, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    """A try of a turn has failed. It is tried again automatically, unless `settled` follows."""

    kind: Literal["retry", "error"]
    text: str
    remedy: str = ""
    """The change that a person must make before another try can help."""
    retry_in_s: float = 0.0
    """In how many seconds the turn is tried again; 0 if it is not."""


class ResultLine(SessionLine, frozen=True, kw_only=True, tag="result"):
    """A subagent has ended."""

    run_id: str
    label: str
    """Its label, else the beginning of its task."""
    status: str
    ended_reason: str | None
    seconds: float
    tokens: int
    cost_usd: float | None
    text: str
    """Its result, or the error it ended with."""


class QuestionLine(Struct, frozen=True, kw_only=True, tag_field="type", tag="question"):
    """A tool call waits for a person: `fledge approve ID`, or `fledge reject ID`."""

    id: str
    session_key: str
    tool: str
    arguments: str


class Planned(Struct, frozen=True, kw_only=True, tag_field="type", tag="plan"):
    """A plan waits for a person: `fledge approve RUN`, or `fledge reject RUN`."""

    run_id: str
    session_key: str
    label: str
    text: str


class AnswerLine(SessionLine, frozen=True, kw_only=True, omit_defaults=True, tag="answer"):
    """A whole answer, also one before tool calls: each once, in order."""

    text: str
    is_cut: bool = False
    """True: the model's token limit cut it."""


class NoticeLine(Struct, frozen=True, kw_only=True, tag_field="type", tag="notice"):
    """A note of the command itself, which it also prints on standard error."""

    text: str


class Settled(Struct, frozen=True, kw_only=True, tag_field="type", tag="settled"):
    """The command is over, and this is its exit code. Nothing follows."""

    exit: int


StreamEvent = (
    TextLine
    | ToolLine
    | UsageLine
    | FailureLine
    | RunHappened
    | ResultLine
    | QuestionLine
    | Planned
    | AnswerLine
    | NoticeLine
    | Lost
    | Settled
)


def line(event: StreamEvent | Mapping[str, Any]) -> str:
    """The event, or one that is on the wire already, as one line of JSON, which can be printed on a terminal."""
    return printable_json(json.dumps(to_wire(event), ensure_ascii=False, separators=(",", ":")))


def of_turn(event: TurnEvent, conversation: str) -> StreamEvent | None:
    """The stream's event for an event of a turn; None if the stream does not have it."""
    key, text = event.session, event.text
    match event.kind:
        case "assistant:text":
            return TextLine(session_key=key, text=text) if key == conversation else None
        case "tool:start" | "tool:end" as kind:
            return ToolLine(session_key=key, kind=kind, call=event.call, text=text, arguments=event.arguments)
        case "usage":
            return UsageLine(
                session_key=key, tokens_in=event.tokens_in, tokens_out=event.tokens_out, cost_usd=event.cost_usd
            )
        case "retry" | "error" as kind:
            return FailureLine(
                session_key=key,
                kind=kind,
                text=event.cause or text,
                remedy=event.remedy,
                retry_in_s=event.retry_in_s,
            )
        case _:
            return None
