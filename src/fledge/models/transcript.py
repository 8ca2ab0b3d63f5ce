"""What every adapter does to a transcript before it writes it in its provider's words.

Transcripts outlive models: ids that one provider gave may repeat or be refused by another, a model may have called a
tool by a name that no tool can have, arguments may be broken JSON, texts may hold what UTF-8 cannot. What leaves here
is acceptable to all, and the same for the same transcript, so that provider caches keep matching.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from fledge.core.schema import JsonObject
from fledge.models.base import AssistantMessage, Call, ModelMessage, Thinking, ToolMessage

NO_TEXT = "(no text)"
"""Stands for a message that says nothing, where a provider refuses emptiness."""
NO_OUTPUT = "(no output)"
BUDGETS: Mapping[Thinking, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
"""Tokens to think with, by level."""
_ANSWER_TOKENS = 8192
"""What stays for the answer beside the thinking, unless less was asked for."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_clean_calls(messages: Sequence[ModelMessage], allowed: re.Pattern[str]) -> list[ModelMessage]:
    """The messages with call ids that match `allowed` and occur once, and names that every provider accepts.

    Results follow their calls' new ids. Where a step's ids repeat, results belong to them in the order of the calls.
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
    """The token limit with room to think: thinking counts as output. No more is added than leaves room to answer."""
    return max(max_tokens, BUDGETS.get(thinking, 0) + min(max_tokens, _ANSWER_TOKENS))


def is_object(arguments: str) -> bool:
    """Whether a call's arguments are a JSON object."""
    try:
        _object.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError):
        return False
    return True


def object_text(arguments: str) -> str:
    """The arguments as the text of a JSON object: as they are, or told as broken where they are not one."""
    if is_object(arguments):
        return arguments
    return msgspec.json.encode({"invalid_json": _speakable(arguments)}).decode()


def encoded(body: JsonObject) -> bytes:
    """The body as JSON. What UTF-8 cannot hold (lone surrogates) becomes a question mark."""
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
