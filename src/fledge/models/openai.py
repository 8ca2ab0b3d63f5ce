"""The chat-completions protocol, as OpenAI speaks it and as its many compatible servers do.

Compatible servers differ: usage, call ids, `[DONE]` or a call's index may be missing, thinking comes under two names.
What arrives is read with that in mind; what is sent stays within what all of them accept. Keys, connections and errors
are the business of `keys` and `http`.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from fledge.clock import Clock
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    Ended,
    Message,
    ModelEvent,
    Request,
    Stop,
    Text,
    Thinking,
    Thought,
    ToolMessage,
    Usage,
)
from fledge.models.http import BrokenReply, Limits, Wire, without_key
from fledge.models.keys import Key
from fledge.models.transcript import NO_OUTPUT, NO_TEXT, encoded, is_object, object_text, with_clean_ids, with_room
from fledge.models.trouble import Fault, fault_in, trouble_of

BASE_URL = "https://api.openai.com/v1"
TokenField = Literal["max_tokens", "max_completion_tokens"]
_CALL_ID = re.compile(r"[!-~]{1,40}")
_KNOWS_MINIMAL = re.compile(r"(?:.*/)?gpt-5(?:-mini|-nano)?(?:-\d{4}-\d\d-\d\d)?")
_STOPS: Mapping[str, Stop] = {
    "stop": "end",
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refused",
}


class OpenAIModel:
    """Any model behind a chat-completions endpoint.

    `key_name` is what the user has to set where a key is needed; None where the service asks for none.
    """

    def __init__(
        self,
        *,
        key: Key | None,
        key_name: str | None = "OPENAI_API_KEY",
        base_url: str = BASE_URL,
        token_field: TokenField | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._key, self._key_name = key, key_name
        self._wire = Wire(base_url, limits, clock)
        # OpenAI's thinking models refuse the old name of this field; most compatible servers know no other.
        self._token_field: TokenField = token_field or (
            "max_completion_tokens" if re.match(r"https://[^/]*\bopenai\.(?:azure\.)?com\b", base_url) else "max_tokens"
        )

    def __repr__(self) -> str:
        return f"OpenAIModel({self._wire!r})"

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer the request; ends with one `Ended` or one `Broke`."""
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.reveal()}"
        elif self._key_name is not None:
            return without_key(self._key_name)
        body = encoded(request_body(request, self._token_field))
        return self._wire.stream("/chat/completions", headers, body, _Reading(request.model), self._key)

    async def close(self) -> None:
        """Let go of connections."""
        await self._wire.close()


# ---- what is sent ----------------------------------------------------------------------------------------------------


def request_body(request: Request, token_field: TokenField) -> dict[str, object]:
    """The request in the protocol's words."""
    messages = [_message(message) for message in with_clean_ids(request.messages, _CALL_ID)]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    thinking = request.thinking
    body: dict[str, object] = {
        "model": request.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Local servers count this against a small window: there, nothing is added for thinking.
        token_field: request.max_tokens if token_field == "max_tokens" else with_room(request.max_tokens, thinking),
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in request.tools
        ]
    if effort := reasoning_effort(request.model, thinking):
        body["reasoning_effort"] = effort
    return body


def reasoning_effort(model: str, thinking: Thinking) -> str | None:
    """Our thinking level in the protocol's words; None asks for nothing. `minimal` is known to few models."""
    if thinking == "off":
        return None
    return "low" if thinking == "minimal" and not _KNOWS_MINIMAL.fullmatch(model) else thinking


def _message(message: Message) -> dict[str, object]:
    if isinstance(message, AssistantMessage):
        said: dict[str, object] = {"role": "assistant"}
        if message.text or not message.calls:
            said["content"] = message.text or NO_TEXT
        if message.calls:
            said["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": object_text(call.arguments)},
                }
                for call in message.calls
            ]
        return said
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text or NO_OUTPUT}
    return {"role": "user", "content": message.text or NO_TEXT}


# ---- what comes back -------------------------------------------------------------------------------------------------


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Piece(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Piece] | None = None


class _Choice(Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None


class _Chunk(Struct, gc=False):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Fault | str | None = None


class _Gathered:
    """A call of which pieces still come."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


_decode = msgspec.json.Decoder(_Chunk).decode


class _Reading:
    """One reply, chunk by chunk."""

    def __init__(self, model: str) -> None:
        self.finished = False
        self.over = False
        self._model = model
        self._reason = ""
        self._refused = False
        self._usage: _Usage | None = None
        self._calls: list[_Gathered] = []
        self._at: dict[int, _Gathered] = {}

    def take(self, data: bytes) -> list[ModelEvent]:
        """The words and thoughts of one chunk; calls and usage are gathered for the end."""
        if data.strip() == b"[DONE]":
            self.over = True
            return []
        chunk = _decode(data)
        if chunk.model:
            self._model = chunk.model
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.error is not None or (chunk.choices is None and chunk.usage is None):
            self._fault(data)
        events: list[ModelEvent] = []
        for choice in chunk.choices or ():
            delta = choice.delta
            if delta is not None:
                thought = delta.reasoning_content or delta.reasoning
                if thought:
                    events.append(Thought(thought))
                if delta.content:
                    events.append(Text(delta.content))
                if delta.refusal:
                    self._refused = True
                    events.append(Text(delta.refusal))
                if delta.tool_calls:
                    for piece in delta.tool_calls:
                        self._gather(piece)
            if choice.finish_reason:
                self.finished = True
                self._reason = choice.finish_reason
        return events

    def ending(self) -> list[ModelEvent]:
        """The calls, the usage, and why it ended."""
        if self._reason == "error":
            raise BrokenReply(Broke("interrupted", "the service ended the reply with an error"))
        stop: Stop = "refused" if self._refused else _STOPS.get(self._reason, "end")
        calls = [
            Call(call.id or f"call_{number}", call.name, "".join(call.arguments) or "{}")
            for number, call in enumerate(self._calls)
        ]
        if not all(call.name for call in calls):
            raise BrokenReply(Broke("interrupted", "a tool call without a name"))
        if stop in ("length", "refused"):
            # The last call may have been cut in the middle of its arguments: no call at all.
            calls = [call for call in calls if is_object(call.arguments)]
        else:
            stop = "tools" if calls else "end"
        return [*calls, *self._counted(), Ended(stop, self._model)]

    def _counted(self) -> list[ModelEvent]:
        usage = self._usage
        if usage is None:
            return []
        details = usage.prompt_tokens_details or _Details()
        read = details.cached_tokens or usage.prompt_cache_hit_tokens or 0
        write = details.cache_write_tokens or 0
        fresh = max(0, (usage.prompt_tokens or 0) - read - write)
        return [Usage(fresh, usage.completion_tokens or 0, read, write)]

    def _gather(self, piece: _Piece) -> None:
        function = piece.function or _Function()
        if piece.index is None:
            begins = bool(piece.id or function.name) or not self._calls
            call = None if begins else self._calls[-1]
        else:
            call = self._at.get(piece.index)
        # Some servers give every call the same index: another id is another call.
        if call is None or (piece.id and call.id and piece.id != call.id):
            call = _Gathered()
            self._calls.append(call)
            if piece.index is not None:
                self._at[piece.index] = call
        # Set once, not joined: some servers repeat them in every piece.
        call.id = call.id or piece.id or ""
        call.name = call.name or function.name or ""
        if isinstance(function.arguments, str):
            call.arguments.append(function.arguments)
        elif function.arguments is not None:
            call.arguments.append(msgspec.json.encode(function.arguments).decode())

    def _fault(self, data: bytes) -> None:
        fault = fault_in(data)
        if fault is not None:
            status = fault.status
            words = fault.message or str(fault.type or fault.code)
            raise BrokenReply(Broke(trouble_of(status, fault), f"error in the stream: {words}", None, status))
