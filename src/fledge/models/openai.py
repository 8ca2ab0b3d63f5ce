"""The chat-completions protocol, as OpenAI began it and as its many compatible servers speak it.

Compatible servers differ: usage, call ids, `[DONE]` or a call's index may be missing, thinking comes under two names.
Replies are read accordingly; requests use only fields that all servers accept, and `Quirks` has the known demands of
single services. Fields beyond the protocol that a server sends with a reply (`reasoning_content`, `reasoning_details`,
a call's `extra_content`) are handed back to that server and model: some refuse to go on without them. Keys, connections
and errors are handled in `keys`, `adapter` and `provider_errors`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from fledge.core.images import ImageEntry
from fledge.core.schema import JsonObject
from fledge.models.adapter import HttpModel, TokenDetails, TokenUsage, counted_usage, settled_calls
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    ModelEvent,
    Request,
    StopReason,
    Text,
    Thought,
    ToolMessage,
)
from fledge.models.catalog import reasoning_effort
from fledge.models.http import BrokenReply, ReplyReading, Wire, broken_stream
from fledge.models.images import data_url
from fledge.models.opaque import unseal
from fledge.models.provider_errors import ErrorBody, fault_in
from fledge.models.providers import Quirks, usual_quirks
from fledge.models.transcript import NO_OUTPUT, NO_TEXT, object_text, with_clean_calls, with_room

RESULT_IMAGES = "[Images of the tool results above]"
UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Gemini's placeholder for the signature of a call that another model made."""
_UNSIGNED_BEFORE = re.compile(r"gemini-[12]\b")
"""Models that neither need a signature nor are known to accept the placeholder."""
_CALL_ID = re.compile(r"[!-~]{1,40}")
_NEW_TOKEN_FIELD = re.compile(r"o\d|gpt-5")
"""Models that refuse the old name of the token limit, also behind a server that hands requests through to OpenAI."""
_STOPS: Mapping[str, StopReason] = {"length": "length", "max_tokens": "length", "content_filter": "refused"}


class OpenAIModel(HttpModel):
    """Any model behind a chat-completions endpoint."""

    path = "/chat/completions"
    _searches = False

    @cached_property
    def _quirks(self) -> Quirks:
        return self._provider.quirks or usual_quirks(self._base)

    def body(self, request: Request) -> JsonObject:
        """The request in the protocol's words."""
        quirks = self._quirks
        thinks = quirks.thinking_switch and request.thinking != "off"
        signs = quirks.signed_calls and not _UNSIGNED_BEFORE.search(request.model)
        messages: list[JsonObject] = [{"role": "system", "content": request.system}] if request.system else []
        results: list[ToolMessage] = []
        for message in with_clean_calls(request.messages, _CALL_ID):
            if not isinstance(message, ToolMessage):
                messages += _shown(request, results)
                results = []
            if isinstance(message, AssistantMessage):
                kept = unseal(message.opaque, self._provider.name, request.model, _Kept) or _Kept()
                messages.append(_said(message, kept, thinks, signs))
            elif isinstance(message, ToolMessage):
                messages.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text or NO_OUTPUT})
                results.append(message)
            else:
                messages.append({"role": "user", "content": _content(request, message.text or NO_TEXT, message.images)})
        messages += _shown(request, results)
        if quirks.reply_after_results:
            messages = _with_replies(messages)
        token_field = "max_completion_tokens" if _NEW_TOKEN_FIELD.match(request.model) else quirks.token_field
        body: JsonObject = {
            "model": request.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            # Local servers count `max_tokens` against a small window, so nothing is added to it for thinking.
            token_field: request.max_tokens
            if token_field == "max_tokens"
            else with_room(request.max_tokens, request.thinking),
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
                }
                for tool in request.tools
            ]
        if quirks.thinking_switch:
            body["thinking"] = {"type": "enabled" if thinks else "disabled"}
        effort = reasoning_effort(self._card(request.model), request.thinking, chat_with_tools=bool(request.tools))
        if effort is not None and (thinks or not quirks.thinking_switch):
            body["reasoning_effort"] = effort
        return body

    def _reading(self, request: Request) -> ReplyReading:
        return _Reading(request.model, self._provider.name)


# ---- what is sent ----------------------------------------------------------------------------------------------------


def _content(request: Request, text: str, images: Sequence[ImageEntry]) -> object:
    """Text alone, or text and images as parts."""
    parts = [{"type": "image_url", "image_url": {"url": data_url(request, image)}} for image in images]
    return [{"type": "text", "text": text}, *parts] if parts else text


def _shown(request: Request, results: Sequence[ToolMessage]) -> list[JsonObject]:
    """The images of a step's tool results, as a user message: a tool message can hold only text."""
    images = [image for result in results for image in result.images]
    words = "\n".join([RESULT_IMAGES, *(image.words for image in images)])
    return [{"role": "user", "content": _content(request, words, images)}] if images else []


def _with_replies(messages: list[JsonObject]) -> list[JsonObject]:
    """The messages, with a reply inserted between tool results and a user message that follows them."""
    found: list[JsonObject] = []
    for message in messages:
        if found and found[-1]["role"] == "tool" and message["role"] == "user":
            found.append({"role": "assistant", "content": NO_TEXT})
        found.append(message)
    return found


def _said(message: AssistantMessage, kept: "_Kept", thinks: bool, signs: bool) -> JsonObject:
    """A reply, with the fields that its server wants back."""
    said: JsonObject = {"role": "assistant"}
    if message.text or not message.calls:
        said["content"] = message.text or NO_TEXT
    if kept.reasoning or thinks:
        said["reasoning_content"] = message.thinking if kept.reasoning else ""
    if kept.details:
        said["reasoning_details"] = kept.details
    if message.calls:
        extras = {0: UNSIGNED} if signs and not kept.calls else kept.calls
        said["tool_calls"] = [_called(call, extras.get(number)) for number, call in enumerate(message.calls)]
    return said


def _called(call: Call, extra: object) -> JsonObject:
    function = {"name": call.name, "arguments": object_text(call.arguments)}
    called: JsonObject = {"id": call.id, "type": "function", "function": function}
    return called if extra is None else called | {"extra_content": extra}


class _Kept(Struct, frozen=True, omit_defaults=True):
    """Fields beyond the protocol that came with a reply and go back with it."""

    reasoning: bool = False
    """The reply's thinking came as `reasoning_content`. Its text is in the transcript."""
    details: list[Any] = []
    calls: dict[int, Any] = {}
    """`extra_content` of calls, by their number."""


# ---- what comes back -------------------------------------------------------------------------------------------------


class _Function(Wire):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Piece(Wire):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, Any] | None = None


class _Delta(Wire):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[_Piece] | None = None


class _Choice(Wire):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(Wire):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None

    @property
    def tokens(self) -> TokenUsage:
        """The counts in the form of the responses protocol. Some servers report cached tokens in a separate field."""
        details = self.prompt_tokens_details or TokenDetails()
        details.cached_tokens = details.cached_tokens or self.prompt_cache_hit_tokens
        return TokenUsage(self.prompt_tokens, self.completion_tokens, details, self.completion_tokens_details)


class _Chunk(Wire):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: ErrorBody | str | None = None


class _Gathered(Struct):
    """A call that still arrives in pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = []
    extra: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class _Reading(ReplyReading):
    """One reply, chunk by chunk."""

    def __init__(self, model: str, provider: str) -> None:
        super().__init__(model, provider)
        self._reason = ""
        self._reasoned = False
        self._details: list[Any] = []
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
        is_fault = chunk.error is not None or (chunk.choices is None and chunk.usage is None)
        if is_fault and (fault := fault_in(data)) is not None:
            raise broken_stream(fault, fault.message or str(fault.type or fault.code))
        events: list[ModelEvent] = []
        for choice in chunk.choices or ():
            delta = choice.delta
            if delta is not None:
                thought = delta.reasoning_content or delta.reasoning
                if thought:
                    self._reasoned |= bool(delta.reasoning_content)
                    events.append(Thought(thought))
                if delta.reasoning_details:
                    self._details += delta.reasoning_details
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
        """The last events: the data that the server wants back, the calls, the usage, and the stop reason."""
        if self._reason == "error":
            raise BrokenReply(Broke("interrupted", "the service ended the reply with an error"))
        found = self._calls
        calls = [
            Call(call.id or f"call_{number}", call.name, "".join(call.arguments) or "{}")
            for number, call in enumerate(found)
        ]
        said: StopReason = "refused" if self._refused else _STOPS.get(self._reason, "end")
        stop, whole, dropped = settled_calls(said, calls, bool(found) and any(found[-1].arguments))
        extras = {number: found[at].extra for number, at in enumerate(whole) if found[at].extra is not None}
        is_kept = self._reasoned or self._details or extras
        kept = _Kept(self._reasoned, _joined(self._details), extras) if is_kept else None
        usage = counted_usage(None if self._usage is None else self._usage.tokens)
        return self._ended(stop, [calls[at] for at in whole], dropped, usage, kept)

    def _gather(self, piece: _Piece) -> None:
        function = piece.function or _Function()
        if piece.index is None:
            begins = bool(piece.id or function.name) or not self._calls
            call = None if begins else self._calls[-1]
        else:
            call = self._at.get(piece.index)
        # Some servers give every call the same index: then a new id begins a new call.
        if call is None or (piece.id and call.id and piece.id != call.id):
            call = _Gathered()
            self._calls.append(call)
            if piece.index is not None:
                self._at[piece.index] = call
        # Set once, not joined: some servers repeat them in every piece.
        call.id = call.id or piece.id or ""
        call.name = call.name or function.name or ""
        call.extra = call.extra or piece.extra_content
        if isinstance(function.arguments, str):
            call.arguments.append(function.arguments)
        elif function.arguments is not None:
            call.arguments.append(msgspec.json.encode(function.arguments).decode())


def _joined(details: list[Any]) -> list[Any]:
    """Reasoning details in whole blocks: a text comes in pieces of one index, and its signature signs all of it."""
    joined: list[Any] = []
    for index, group in groupby(details, _text_index):
        pieces = list(group)
        if index is None:
            joined += pieces
            continue
        block = {name: value for piece in pieces for name, value in piece.items() if value is not None}
        joined.append(block | {"text": "".join(piece.get("text") or "" for piece in pieces)})
    return joined


def _text_index(detail: Any) -> str | None:
    is_text = isinstance(detail, dict) and detail.get("type") == "reasoning.text"
    return str(detail.get("index")) if is_text else None
