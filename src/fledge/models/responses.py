"""The responses protocol of OpenAI's own models: items in, items out, nothing stored at the provider.

A reply is a list of items: reasoning, messages, calls. With `store: false` the provider forgets them, so all data that
it wants back (reasoning with its encrypted content, the phase of a message) is sealed with the reply and handed back in
its order; without this data a model thinks everything through again at each step. Keys, connections and errors are
handled in `keys`, `adapter` and `provider_errors`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from fledge.core.schema import JsonObject
from fledge.core.value import Value
from fledge.models.adapter import HttpModel, TokenUsage, counted_usage, settled_calls
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
    UserMessage,
)
from fledge.models.catalog import reasoning_effort
from fledge.models.http import ReplyReading, Wire, broken_stream
from fledge.models.images import data_url
from fledge.models.native_search import CitedSource, sources_text
from fledge.models.opaque import unseal
from fledge.models.provider_errors import ErrorBody
from fledge.models.transcript import NO_OUTPUT, NO_TEXT, object_text, with_clean_calls, with_room

ENCRYPTED = "reasoning.encrypted_content"
LEAST_TOKENS = 16
"""The smallest `max_output_tokens` that is accepted."""
PARAGRAPH = "\n\n"
"""Separates the messages of one reply, and the parts of its thinking."""
ResponseItem = dict[str, Any]
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_SUMMARIES = re.compile(r"reasoning summar", re.IGNORECASE)


class ResponsesModel(HttpModel):
    """Any model behind a responses endpoint."""

    path = "/responses"
    _summaries = True
    """True until the service refuses summaries of reasoning: OpenAI refuses them to unverified organizations."""

    def body(self, request: Request) -> JsonObject:
        """The request in the protocol's words."""
        searches = self._is_searching(request)
        body: JsonObject = {
            "model": request.model,
            "input": _input(request, self._provider.name, searches),
            "stream": True,
            "store": False,
            "max_output_tokens": max(LEAST_TOKENS, with_room(request.max_tokens, request.thinking)),
        }
        if request.system:
            body["instructions"] = request.system
        if request.tools or searches:
            hosted: list[ResponseItem] = [{"type": "web_search"}] if searches else []
            body["tools"] = hosted + [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                    # A strict schema must require every property, which ours do not.
                    "strict": False,
                }
                for tool in request.tools
            ]
        effort = reasoning_effort(self._card(request.model), request.thinking)
        if effort is not None:
            summary = {"summary": "auto"} if self._summaries and effort != "none" else {}
            body["reasoning"] = {"effort": effort, **summary}
            # Models that do not reason refuse this.
            body["include"] = [ENCRYPTED]
        return body

    def _reading(self, request: Request) -> ReplyReading:
        return _Reading(request.model, self._provider.name, self._is_searching(request))

    def _is_searching(self, request: Request) -> bool:
        # Search is refused beside the lowest level of reasoning.
        lowest = reasoning_effort(self._card(request.model), request.thinking) == "minimal"
        return super()._is_searching(request) and not lowest

    def _gives_up(self, request: Request, refusal: Broke) -> bool:
        if self._summaries and _NO_SUMMARIES.search(refusal.message):
            self._summaries = False
            return True
        return super()._gives_up(request, refusal)


# ---- what is sent ----------------------------------------------------------------------------------------------------


def _input(request: Request, provider: str, searches: bool) -> list[ResponseItem]:
    items: list[ResponseItem] = []
    for message in with_clean_calls(request.messages, _CALL_ID):
        if isinstance(message, AssistantMessage):
            kept = unseal(message.opaque, provider, request.model, list[_Kept])
            rebuilt = None if kept is None else _rebuilt(message, kept, searches)
            items += _plain_items(message) if rebuilt is None else rebuilt
        elif isinstance(message, ToolMessage):
            output = _parts(request, message) if message.images else message.text or NO_OUTPUT
            items.append({"type": "function_call_output", "call_id": message.call_id, "output": output})
        else:
            items.append({"type": "message", "role": "user", "content": _parts(request, message)})
    return items


def _parts(request: Request, message: UserMessage | ToolMessage) -> list[ResponseItem]:
    images = [{"type": "input_image", "image_url": data_url(request, one), "detail": "auto"} for one in message.images]
    return [{"type": "input_text", "text": message.text or NO_TEXT}, *images]


def _plain_items(message: AssistantMessage) -> list[ResponseItem]:
    """A reply of another model, or one whose items are unknown: its text, then its calls."""
    said = [_said(message.text or NO_TEXT)] if message.text or not message.calls else []
    return [*said, *map(_called, message.calls)]


def _said(text: str) -> ResponseItem:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _called(call: Call) -> ResponseItem:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": object_text(call.arguments),
    }


# ---- what is handed back ---------------------------------------------------------------------------------------------


class _Kept(Value, omit_defaults=True):
    """One item of a reply, without the text and the calls, which the transcript holds."""

    kind: Literal["reasoning", "message", "call", "search", "sources"]
    length: int = 0
    """Of a message, and of the list of sources: its characters in the reply's text."""
    phase: str = ""
    """Of a message: commentary or final answer, where the model says so."""
    id: str = ""
    """Of reasoning, as are the next two."""
    summary: tuple[str, ...] = ()
    encrypted: str = ""
    search: ResponseItem = msgspec.field(default_factory=dict)
    """Of a search: the item as it came."""


def _rebuilt(message: AssistantMessage, kept: Sequence[_Kept], searches: bool) -> list[ResponseItem] | None:
    """The reply's items in their order; None if they no longer fit the reply."""
    items: list[ResponseItem] = []
    said = called = 0
    for item in kept:
        if item.kind == "reasoning":
            summary = [{"type": "summary_text", "text": text} for text in item.summary]
            items.append({"type": "reasoning", "id": item.id, "summary": summary, "encrypted_content": item.encrypted})
        elif item.kind == "message":
            said += len(PARAGRAPH) if said else 0
            text = message.text[said : said + item.length]
            said += item.length
            items.append(_said(text) | ({"phase": item.phase} if item.phase else {}))
        elif item.kind == "search":
            if not searches:
                return None  # the reasoning that led to it may not stand without it
            items.append(item.search)
        elif item.kind == "sources":
            said += item.length
        else:
            items += map(_called, message.calls[called : called + 1])
            called += 1
    if (said, called) != (len(message.text), len(message.calls)):
        return None
    # Reasoning must be followed by the item that it led to.
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items or None


# ---- what comes back -------------------------------------------------------------------------------------------------


class _Part(Wire):
    text: str = ""
    annotations: list[CitedSource] | None = None


class _Item(Wire):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None
    phase: str | None = None
    summary: list[_Part] | None = None
    content: list[_Part] | None = None


class _Incomplete(Wire):
    reason: str | None = None


class _Response(Wire):
    model: str | None = None
    usage: TokenUsage | None = None
    error: ErrorBody | None = None
    incomplete_details: _Incomplete | None = None


class _Event(Wire):
    type: str
    delta: str | None = None
    output_index: int = 0
    summary_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    code: str | int | None = None
    message: str | None = None
    error: ErrorBody | None = None


_decode = msgspec.json.Decoder(_Event).decode
_STOPS: Mapping[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refused"}


class _Reading(ReplyReading):
    """One reply, event by event."""

    def __init__(self, model: str, provider: str, searches: bool) -> None:
        super().__init__(model, provider, searches)
        self._found: dict[int, ResponseItem] = {}
        """The whole items of searches, by their place among the items."""
        self._stop: StopReason = "end"
        self._usage: TokenUsage | None = None
        self._items: dict[int, _Item] = {}
        self._begun: dict[int, _Item] = {}
        """Items that have begun; a call among them that was never completed was cut."""
        self._said: dict[int, int] = {}
        """Characters of each message, by its place among the items."""
        self._thought_at: tuple[int, int] | None = None
        self._refused = False

    def take(self, data: bytes) -> Sequence[ModelEvent]:
        """The text and the thoughts of one event; whole items and usage are gathered for the end."""
        if self.over:
            # Some servers send `[DONE]` after the last event.
            return ()
        event = _decode(data)
        if self._searches and event.item is not None and (event.type, event.item.type) == _SEARCHED:
            self._found[event.output_index] = msgspec.json.decode(data)["item"]
        handle = _HANDLERS.get(event.type)
        return () if handle is None else handle(self, event)

    def ending(self) -> list[ModelEvent]:
        """The last events: sources, the data that the provider wants back, calls, usage, and the stop reason."""
        items = [self._items[place] for place in sorted(self._items)]
        uses = [item for item in items if item.type == "function_call"]
        calls = [_call(item, f"call_{number}", item.arguments or "{}") for number, item in enumerate(uses)]
        why: StopReason = "refused" if self._refused else self._stop
        cut: list[Call] = []
        sources, kept = "", list[_Kept]()
        if why == "end":
            sources = sources_text(
                source
                for item in items
                if item.type == "message"
                for part in item.content or ()
                for source in part.annotations or ()
            )
            kept = self._kept(len(sources))
        else:
            begun = [item for place, item in sorted(self._begun.items()) if place not in self._items]
            cut = [_call(item, "", "") for item in begun if item.type == "function_call"]
        stop, whole, dropped = settled_calls(why, [*calls, *cut], not cut and bool(uses and uses[-1].arguments))
        usage = counted_usage(self._usage, sum(map(_is_search, self._found.values())))
        return self._ended(stop, [calls[at] for at in whole], dropped, usage, kept, sources)

    def _text(self, event: _Event) -> Sequence[ModelEvent]:
        if not event.delta:
            return ()
        said = self._said.get(event.output_index, 0)
        apart = PARAGRAPH if self._said and not said else ""
        self._said[event.output_index] = said + len(event.delta)
        return (Text(apart + event.delta),)

    def _refusal(self, event: _Event) -> Sequence[ModelEvent]:
        self._refused = True
        return self._text(event)

    def _thought(self, event: _Event) -> Sequence[ModelEvent]:
        if not event.delta:
            return ()
        at = (event.output_index, event.summary_index)
        apart = "" if self._thought_at in (None, at) else PARAGRAPH
        self._thought_at = at
        return (Thought(apart + event.delta),)

    def _item(self, event: _Event) -> Sequence[ModelEvent]:
        items = self._begun if event.type == "response.output_item.added" else self._items
        if event.item is not None:
            items[event.output_index] = event.item
        return ()

    def _end(self, event: _Event) -> Sequence[ModelEvent]:
        response = event.response or _Response()
        self.finished = self.over = True
        self._model = response.model or self._model
        self._usage = response.usage
        if event.type == "response.incomplete":
            reason = (response.incomplete_details or _Incomplete()).reason
            self._stop = _STOPS.get(reason or "", "length")
        return ()

    def _fail(self, event: _Event) -> Sequence[ModelEvent]:
        # The reference has an error's fields in the event itself, the service sends them in an object.
        inner = event.error if event.response is None else event.response.error
        fault = inner or ErrorBody(message=event.message, code=event.code)
        raise broken_stream(fault, fault.message or str(fault.code or fault.type or "no reason given"))

    def _kept(self, sources: int) -> list[_Kept]:
        """The items to hand back; none if the transcript alone has everything that is needed."""
        kept: list[_Kept] = []
        for place, item in sorted(self._items.items()):
            if item.type == "reasoning" and item.encrypted_content:
                summary = tuple(part.text for part in item.summary or ())
                kept.append(_Kept("reasoning", id=item.id or "", summary=summary, encrypted=item.encrypted_content))
            elif item.type == "message" and place in self._said:
                kept.append(_Kept("message", self._said[place], item.phase or ""))
            elif item.type == "function_call":
                kept.append(_Kept("call"))
            elif place in self._found:
                kept.append(_Kept("search", search=self._found[place]))
        if sources:
            kept.append(_Kept("sources", sources))
        says_more = any(item.encrypted or item.phase or item.kind in ("search", "sources") for item in kept)
        return kept if says_more else []


def _call(item: _Item, id: str, arguments: str) -> Call:
    """The call of an item; `id` is used only if the item has no call id of its own."""
    return Call(item.call_id or id, item.name or "", arguments)


def _is_search(item: ResponseItem) -> bool:
    """True if the item is a search, which is charged; opening a page is not charged."""
    action = item.get("action")
    return isinstance(action, dict) and action.get("type") == "search"


_SEARCHED = ("response.output_item.done", "web_search_call")
_HANDLERS: Mapping[str, Callable[[_Reading, _Event], Sequence[ModelEvent]]] = {
    "response.output_text.delta": _Reading._text,
    "response.refusal.delta": _Reading._refusal,
    "response.reasoning_summary_text.delta": _Reading._thought,
    "response.reasoning_text.delta": _Reading._thought,
    "response.output_item.added": _Reading._item,
    "response.output_item.done": _Reading._item,
    "response.completed": _Reading._end,
    "response.incomplete": _Reading._end,
    "response.failed": _Reading._fail,
    "error": _Reading._fail,
}
"""The events that are read; all others are ignored."""
