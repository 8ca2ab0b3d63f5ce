"""The cleaning of a transcript that all adapters share, before each writes it in the format of its protocol.

Transcripts outlive models: ids that one provider gave may repeat or be refused by another, a model may have called a
tool by a name that no tool can have, arguments may be broken JSON, texts may hold characters that UTF-8 cannot. The
cleaned transcript is acceptable to all providers, and the same for the same transcript, so that provider caches keep
matching.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from fledge.core.schema import JsonObject
from fledge.models.base import AssistantMessage, Call, ModelMessage, Thinking, ToolMessage

NO_TEXT = "(no text)"
"""Stands for an empty message, where a provider refuses one."""
NO_OUTPUT = "(no output)"
BUDGETS: Mapping[Thinking, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 22528,
    "adaptive": 8192,
}
"""Tokens to think with, by level. The most leave a model of 32 000 tokens room for `_ANSWER_TOKENS`."""
_ANSWER_TOKENS = 8192
"""The tokens that remain for the answer beside the thinking, unless the request asks for fewer."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_clean_calls(messages: Sequence[ModelMessage], allowed: re.Pattern[str]) -> list[ModelMessage]:
    """The messages with call ids that match `allowed` and occur once, and names that every provider accepts.

    Results get the new ids of their calls. Where the ids of a step repeat, the results belong to the calls in order.
    """
    cleaned: list[ModelMessage] = []
    seen: set[str] = set()
    renamed: dict[str, deque[str]] = {}
    number = 0
    for message in messages:
        if isinstance(message, AssistantMessage):
            renamed = {}
            calls = []
            for call in message.calls:
                id = call.id
                if id in seen or not allowed.fullmatch(id):
                    id = f"call_{number}"
                    while id in seen:
                        id += "_"
                seen.add(id)
                number += 1
                renamed.setdefault(call.id, deque()).append(id)
                name = _NO_NAME.sub("_", call.name)[:_LONGEST_NAME] or "_"
                calls.append(call if (id, name) == (call.id, call.name) else Call(id, name, call.arguments))
            if calls:
                message = msgspec.structs.replace(message, calls=tuple(calls))
        elif isinstance(message, ToolMessage):
            ids = renamed.get(message.call_id)
            if ids and ids[0] != message.call_id:
                message = msgspec.structs.replace(message, call_id=ids[0])
            if ids:
                ids.popleft()
        cleaned.append(message)
    return cleaned


def with_room(max_tokens: int, thinking: Thinking) -> int:
    """The token limit with room to think, because thinking counts as output. It is raised by no
    more than leaves `_ANSWER_TOKENS` for the answer beside the thinking, or `max_tokens` if they are fewer."""
    return max(max_tokens, BUDGETS.get(thinking, 0) + min(max_tokens, _ANSWER_TOKENS))


def is_object(arguments: str) -> bool:
    """True if a call's arguments are a JSON object."""
    try:
        _object.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError):
        return False
    return True


def object_text(arguments: str) -> str:
    """The arguments as the text of a JSON object: as they are, or inside `invalid_json` if they are not an object."""
    if is_object(arguments):
        return arguments
    return msgspec.json.encode({"invalid_json": _speakable(arguments)}).decode()


def encoded(body: JsonObject) -> bytes:
    """The body as JSON. A character that UTF-8 cannot hold (a lone surrogate) becomes a question mark."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_speakable(body))


def _speakable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_speakable(key): _speakable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_speakable(item) for item in value]
    return value
