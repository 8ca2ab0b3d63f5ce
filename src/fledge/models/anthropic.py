"""The messages protocol, as Anthropic speaks it.

It wants roles to alternate, all results of a step in one message, no empty text, and its own thinking handed back as it
was given. Thinking is signed: the order and the signatures of a reply's blocks (`_Part`) are sealed with the reply, so
that the same model gets the same blocks back.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from fledge.core.images import ImageEntry
from fledge.core.schema import JsonObject
from fledge.models.adapter import HttpModel, settled_calls
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    ModelEvent,
    Request,
    StopReason,
    Text,
    Thinking,
    Thought,
    ToolMessage,
    Usage,
)
from fledge.models.catalog import reasoning_effort
from fledge.models.http import BrokenReply, ReplyReading, Wire, broken_stream
from fledge.models.images import base64_of
from fledge.models.keys import SecretKey
from fledge.models.native_search import MAX_SEARCHES, CitedSource, sources_text
from fledge.models.opaque import unseal
from fledge.models.provider_errors import ErrorBody
from fledge.models.transcript import (
    BUDGETS,
    NO_OUTPUT,
    NO_TEXT,
    object_text,
    with_clean_calls,
    with_room,
)

API_VERSION = "2023-06-01"
"""The header `anthropic-version`: without it every request is refused."""
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TAKES_BUDGETS = re.compile(r"claude-(?:\d|instant|(?:opus|sonnet|haiku)-4(?:-[015])?(?:-\d{8}|-latest)?$)|(?!claude-)")
"""Models whose thinking is given a token budget; later ones decide for themselves and refuse a budget."""
SEARCH_TOOL = "web_search_20250305"
_SEARCHES = ("server_tool_use", "web_search_tool_result")
_KEPT = {"type": "ephemeral"}
"""Marks a block up to which the provider may cache the request."""
_STOPS: Mapping[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
Block = JsonObject
_Messages = list[tuple[str, list[Block]]]
"""Roles, each with its content."""


class AnthropicModel(HttpModel):
    """Any model behind a messages endpoint."""

    path = "/v1/messages"

    def _headers(self) -> dict[str, str]:
        return access_headers(self._key)

    def body(self, request: Request) -> JsonObject:
        """The request in the protocol's words."""
        provider, searches = self._provider.name, self._is_searching(request)
        budgeted = _TAKES_BUDGETS.match(request.model) is not None
        thinking = request.thinking
        messages = _messages(request, provider, thinking != "off" or not budgeted, searches)
        if budgeted and thinking != "off" and not _may_think(messages):
            thinking = "off"
            messages = _messages(request, provider, False, searches)
        system = [_text(request.system)] if request.system else []
        tools: list[Block] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in request.tools
        ]
        if searches:
            tools.append({"type": SEARCH_TOOL, "name": "web_search", "max_uses": MAX_SEARCHES})
        # Cached: the request up to the end of its unchanging head, and the whole request.
        for blocks in (system or tools, messages[-1][1] if messages and messages[-1][0] == "user" else []):
            if blocks:
                blocks[-1]["cache_control"] = _KEPT
        body: JsonObject = {
            "model": request.model,
            "max_tokens": with_room(request.max_tokens, thinking),
            "messages": [{"role": role, "content": blocks} for role, blocks in messages],
            "stream": True,
        }
        if system:
            body["system"] = system
        if tools:
            body["tools"] = tools
        if thinking != "off" and budgeted:
            body["thinking"] = {"type": "enabled", "budget_tokens": BUDGETS[thinking]}
        elif thinking != "off":
            body["thinking"] = {"type": "adaptive", "display": "summarized"}
            level: Thinking = "low" if thinking == "minimal" else thinking
            if level != "adaptive":  # without an effort it decides itself
                body["output_config"] = {"effort": reasoning_effort(self._card(request.model), level)}
        return body

    def _reading(self, request: Request) -> ReplyReading:
        return _Reading(request.model, self._provider.name, self._is_searching(request))


def access_headers(key: SecretKey | None) -> dict[str, str]:
    """The headers without which a request of any kind is refused."""
    return {"anthropic-version": API_VERSION} | ({} if key is None else {"x-api-key": key.reveal()})


# ---- what is sent ----------------------------------------------------------------------------------------------------


def _messages(request: Request, provider: str, thinks: bool, searches: bool) -> _Messages:
    """Alternating messages, the first from the user; results of one step stand together.

    In replies of this provider and model, the thinking goes back if `thinks`, the searches if `searches`.
    """
    merged: _Messages = []
    for message in with_clean_calls(request.messages, _CALL_ID):
        if isinstance(message, AssistantMessage):
            role = "assistant"
            parts = unseal(message.opaque, provider, request.model, list[_Part]) or []
            is_needed = thinks or any(part.kind in ("search", "sources") for part in parts)
            blocks = _rebuilt(message, parts, thinks, searches) if parts and is_needed else None
            blocks = _spoken(message) if blocks is None else blocks
        elif isinstance(message, ToolMessage):
            role = "user"
            result: Block = {"type": "tool_result", "tool_use_id": message.call_id}
            said = message.text if message.text.strip() else NO_OUTPUT
            shown = [_image(request, image) for image in message.images]
            result["content"] = [_text(said), *shown] if shown else said
            if message.is_error:
                result["is_error"] = True
            blocks = [result]
        else:
            role = "user"
            blocks = [_text(message.text if message.text.strip() else NO_TEXT)]
            blocks += [_image(request, image) for image in message.images]
        if not blocks:
            continue
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        else:
            merged.append((role, blocks))
    if merged and merged[0][0] == "assistant":
        merged.insert(0, ("user", [_text(NO_TEXT)]))
    return merged


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _image(request: Request, image: ImageEntry) -> Block:
    source = {"type": "base64", "media_type": image.media_type, "data": base64_of(request, image)}
    return {"type": "image", "source": source}


def _use(call: Call) -> Block:
    arguments = msgspec.Raw(object_text(call.arguments).encode())
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _spoken(message: AssistantMessage) -> list[Block]:
    said = [_text(message.text)] if message.text.strip() else []
    return said + [_use(call) for call in message.calls]


def _may_think(messages: _Messages) -> bool:
    """True if the request may switch thinking on: a turn that is under way must have begun with thinking."""
    first: object = "thinking"
    for role, blocks in reversed(messages):
        if role == "assistant":
            first = blocks[0]["type"]
        elif all(block["type"] != "tool_result" for block in blocks):
            break
    return first in ("thinking", "redacted_thinking")


# ---- thinking, handed back -------------------------------------------------------------------------------------------


_Kind = Literal["thinking", "redacted", "text", "call", "search", "sources"]
_KINDS: Mapping[str, _Kind] = {"thinking": "thinking", "redacted_thinking": "redacted", "tool_use": "call"}
"""By a block's type; all others hold text."""


class _Part(Struct, array_like=True):
    """One block of a reply: its kind, the number of characters of the reply's text or thinking in it, and its proof."""

    kind: _Kind
    length: int = 0
    proof: str = ""
    """Of a search: the whole block, as it came."""


def _rebuilt(message: AssistantMessage, parts: list[_Part], thinks: bool, searches: bool) -> list[Block] | None:
    """The reply's blocks as they came; None if they do not fit the reply any more."""
    blocks: list[Block] = []
    said = thought = called = 0
    for part in parts:
        if part.kind == "thinking":
            words = message.thinking[thought : thought + part.length]
            thought += part.length
            if thinks:
                blocks.append({"type": "thinking", "thinking": words, "signature": part.proof})
        elif part.kind == "redacted":
            if thinks:
                blocks.append({"type": "redacted_thinking", "data": part.proof})
        elif part.kind == "search":
            if searches:
                blocks.append(msgspec.json.decode(part.proof))
        elif part.kind == "sources":
            said += part.length
        elif part.kind == "text":
            words = message.text[said : said + part.length]
            said += part.length
            if words.strip():
                blocks.append(_text(words))
        else:
            blocks += map(_use, message.calls[called : called + 1])
            called += 1
    whole = (said, thought, called) == (len(message.text), len(message.thinking), len(message.calls))
    return blocks if whole else None


# ---- what comes back -------------------------------------------------------------------------------------------------


class _OutputDetails(Wire):
    thinking_tokens: int | None = None


class _ServerUse(Wire):
    web_search_requests: int | None = None


class _Usage(Wire):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None
    server_tool_use: _ServerUse | None = None


class _Start(Wire):
    model: str | None = None
    usage: _Usage | None = None


class _Begun(Wire):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: dict[str, msgspec.Raw] | None = None


class _Delta(Wire):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: CitedSource | None = None
    stop_reason: str | None = None


class _Event(Wire):
    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: _Begun | None = None
    message: _Start | None = None
    usage: _Usage | None = None
    error: ErrorBody | None = None


class _Open(Struct, eq=False):
    """A block that still arrives in pieces."""

    begun: _Begun
    proof: str
    pieces: list[str] = []
    length: int = 0
    raw: Block | None = None
    """Of a search: the block as it came."""

    @property
    def kind(self) -> str:
        return self.begun.type

    def call(self, number: int) -> Call:
        given = msgspec.json.encode(self.begun.input or {}).decode()
        return Call(self.begun.id or f"call_{number}", self.begun.name or "", "".join(self.pieces) or given)


class _Whole(Wire):
    content_block: Block


_decode = msgspec.json.Decoder(_Event).decode


class _Reading(ReplyReading):
    """One reply, event by event."""

    def __init__(self, model: str, provider: str, searches: bool) -> None:
        super().__init__(model, provider, searches)
        self._reason = ""
        self._counts: dict[str, int] = {}
        self._blocks: dict[int, _Open] = {}
        self._cited: list[CitedSource] = []

    def take(self, data: bytes) -> tuple[ModelEvent, ...]:
        """The words and thoughts of one event; calls, proofs and usage are gathered for the end."""
        event = _decode(data)
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None:
            block = self._blocks.get(event.index)
            if block is None:
                raise BrokenReply(Broke("interrupted", f"malformed chunk: no block {event.index} was begun"))
            return self._piece(block, delta)
        if event.type == "content_block_start" and event.content_block is not None:
            begun = event.content_block
            if event.index in self._blocks:
                raise BrokenReply(Broke("interrupted", f"malformed chunk: block {event.index} was begun twice"))
            block = self._blocks[event.index] = _Open(begun, begun.signature or begun.data or "")
            if self._searches and begun.type in _SEARCHES:
                block.raw = msgspec.json.decode(data, type=_Whole).content_block
            return self._piece(block, _Delta(text=begun.text, thinking=begun.thinking))
        if event.type == "message_start" and event.message is not None:
            self._model = event.message.model or self._model
            self._count(event.message.usage)
        elif event.type == "message_delta":
            self._count(event.usage)
            if delta is not None and delta.stop_reason:
                self._reason = delta.stop_reason
                self.finished = True
        elif event.type == "message_stop":
            self.finished = self.over = True
        elif event.type == "error":
            fault = event.error or ErrorBody(message="no reason given")
            raise broken_stream(fault, f"{fault.type}: {fault.message}")
        return ()

    def ending(self) -> list[ModelEvent]:
        """The last events: sources, proofs of thinking and searches, calls, usage, and the stop reason."""
        blocks = list(self._blocks.values())
        uses = [block for block in blocks if block.kind == "tool_use"]
        calls = [block.call(number) for number, block in enumerate(uses)]
        has_arguments = bool(uses and (uses[-1].pieces or uses[-1].begun.input))
        stop, kept, dropped = settled_calls(_STOPS.get(self._reason, "end"), calls, has_arguments)
        cut = [use for number, use in enumerate(uses) if number not in kept]
        blocks = [block for block in blocks if block not in cut]
        sources = sources_text(self._cited)
        parts = _parts(blocks) if sources or any(block.proof or block.raw for block in blocks) else []
        if sources:
            parts.append(_Part("sources", len(sources)))
        usage = Usage(**self._counts) if self._counts else None
        return self._ended(stop, [calls[at] for at in kept], dropped, usage, parts, sources)

    def _piece(self, block: _Open, delta: _Delta) -> tuple[ModelEvent, ...]:
        if delta.text:
            block.length += len(delta.text)
            return (Text(delta.text),)
        if delta.thinking:
            block.length += len(delta.thinking)
            return (Thought(delta.thinking),)
        if delta.partial_json:
            block.pieces.append(delta.partial_json)
        elif delta.signature:
            block.proof += delta.signature
        elif delta.citation is not None:
            self._cited.append(delta.citation)
        return ()

    def _count(self, usage: _Usage | None) -> None:
        """Later counts replace earlier ones: they are totals, not increments."""
        if usage is None:
            return
        counts = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_creation_input_tokens,
            "reasoning_tokens": (usage.output_tokens_details or _OutputDetails()).thinking_tokens,
            "searches": (usage.server_tool_use or _ServerUse()).web_search_requests,
        }
        self._counts |= {name: count for name, count in counts.items() if count is not None}


def _parts(blocks: list[_Open]) -> list[_Part]:
    """The parts from which the blocks of a reply can be rebuilt, with its text, its thinking and its calls."""
    parts: list[_Part] = []
    for block in blocks:
        if block.raw is None:
            parts.append(_Part(_KINDS.get(block.kind, "text"), block.length, block.proof))
            continue
        if block.pieces:
            block.raw["input"] = msgspec.Raw("".join(block.pieces).encode())
        parts.append(_Part("search", 0, msgspec.json.encode(block.raw).decode()))
    return parts
