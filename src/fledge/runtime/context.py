"""From a transcript to a model's request: the messages, their length in tokens, and the part that can be summarised.

Pure functions over transcript lines. The tokens of a text are estimated at four characters each. Images count by the
providers' formulas, and opaque data of a provider by its length.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fledge.core.images import ImageEntry, sent
from fledge.core.prompts import FilesShown, first_message, with_files
from fledge.core.transcript import Line, Noted, Replied, Resulted, Spoken, Told, in_order, shown_arguments
from fledge.models.base import AssistantMessage, Call, ModelMessage, ToolMessage, UserMessage

CHARS_A_TOKEN = 4
COMPACT_AT = 0.8
"""The share of the model's window at which older entries are summarised."""
KEEP_SHARE = 0.3
"""The share of the window that is kept verbatim, newest entries first."""

COMPACT_PROMPT = (
    "Summarise the conversation so far for yourself, so that you can go on without it. Keep: what was asked, decisions,"
    " facts and figures found, names of files, and every session key of a child agent, letter by letter. Leave out"
    " pleasantries and what turned out not to matter. Write it as notes, not as a letter."
)


def messages(lines: Sequence[Line], task_head: str = "", shown: FilesShown | None = None) -> tuple[ModelMessage, ...]:
    """The messages for the model, each call followed by its result. `task_head` precedes the task; `shown` says how
    attached files appear; without it only their names do."""
    found: list[ModelMessage] = []
    for line in in_order(lines):
        body = line.body  # compared by type: `isinstance` of a struct that does not fit takes as long as a call
        if type(body) is Replied:
            calls = tuple([Call(call.id, call.name, shown_arguments(call)) for call in body.calls])
            found.append(AssistantMessage(body.text, calls, body.thinking, body.opaque))
        elif type(body) is Resulted:
            found.append(ToolMessage(body.call_id, body.name, body.text, body.is_error, body.images))
        elif type(body) is Spoken:
            words = body.text
            if body.kind == "task":
                words = first_message(task_head, words)
            elif shown is not None and body.files:
                words = with_files(words, body.files, shown)
            found.append(UserMessage(words, body.images))
        elif type(body) is Told:
            found.append(UserMessage(body.text))
        elif type(body) is Noted and body.covers:
            found.append(UserMessage(f"[Notes on the conversation so far]\n{body.text}"))
    return tuple(found)


def images_in(found: Sequence[ModelMessage]) -> list[ImageEntry]:
    """The images of these messages, oldest first."""
    images: list[ImageEntry] = []
    for message in found:
        if type(message) is UserMessage or type(message) is ToolMessage:
            images += message.images
    return images


def in_words(found: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """The messages without their images, which their texts name."""
    return tuple(
        message if isinstance(message, AssistantMessage) or not message.images else replace(message, images=())
        for message in found
    )


def with_newest_images(found: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """The messages with the newest images that fit into one request; their texts say that older ones are left out."""
    images = images_in(found)
    extra = iter(range(len(images) - sent(images)))
    return _without(found, lambda image: "" if next(extra, None) is None else image.unsent_words)


def without_lost_images(found: Sequence[ModelMessage], there: Collection[str]) -> tuple[ModelMessage, ...]:
    """The messages with only the images in `there`; their texts name the missing ones."""
    return _without(found, lambda image: "" if image.sha256 in there else image.lost_words)


def _without(found: Sequence[ModelMessage], words_for: Callable[[ImageEntry], str]) -> tuple[ModelMessage, ...]:
    """The messages without those images for which there are words; their texts have the words instead. Each image is
    asked for once, the oldest first."""
    messages: list[ModelMessage] = []
    for message in found:
        if not isinstance(message, AssistantMessage) and message.images:
            named = [(image, words_for(image)) for image in message.images]
            text = "\n".join([message.text, *(words for _, words in named if words)])
            message = replace(message, text=text, images=tuple(image for image, words in named if not words))
        messages.append(message)
    return tuple(messages)


def tokens_of(text: str) -> int:
    """Estimated tokens of a text."""
    return len(text) // CHARS_A_TOKEN + 1


def length(system: str, found: Sequence[ModelMessage]) -> int:
    """Estimated tokens of a request."""
    tokens = tokens_of(system)
    for message in found:
        tokens += _message_tokens(message)
    return tokens


def _message_tokens(message: ModelMessage) -> int:
    tokens = tokens_of(message.text)
    if type(message) is UserMessage or type(message) is ToolMessage:
        for image in message.images:
            tokens += image.tokens
    elif isinstance(message, AssistantMessage):
        # Opaque data contains the same thinking, encrypted: the longer of the two counts.
        tokens += tokens_of(max(message.thinking, message.opaque, key=len))
        for call in message.calls:
            tokens += tokens_of(call.name + call.arguments)
    return tokens


class CompactionCut(Struct, frozen=True):
    """The messages to summarise: all up to entry `covers`, without images."""

    covers: int
    old: tuple[ModelMessage, ...]


def cut(lines: Sequence[Line], window: int, shown: FilesShown | None = None) -> CompactionCut | None:
    """Where to cut a transcript that is too long; None if nothing can be left out.

    The newest part is kept verbatim, and a call is never separated from its result. Messages since the last reply are
    kept, and so is a reply with open calls: the model has yet to answer them.
    """
    groups = _groups(in_order(lines))
    replies = [at for at, group in enumerate(groups) if isinstance(group[0].body, Replied)]
    if not replies:
        return None
    last = replies[-1]
    keep_from = last if _is_open(groups[last]) else last + 1
    room = int(window * KEEP_SHARE) - sum(_group_tokens(group, shown) for group in groups[keep_from:])
    while keep_from > 0 and _group_tokens(groups[keep_from - 1], shown) <= room:
        keep_from -= 1
        room -= _group_tokens(groups[keep_from], shown)
    old = [line for group in groups[:keep_from] for line in group]
    if not any(isinstance(line.body, Replied) for line in old):
        return None
    # An earlier summary comes first in order but has a later number: count the entries that it covers.
    covers = max(line.body.covers if isinstance(line.body, Noted) and line.body.covers else line.seq for line in old)
    return CompactionCut(covers, in_words(messages(old, shown=shown)))


def _groups(ordered: Sequence[Line]) -> list[list[Line]]:
    """Groups of lines: a reply with the results of its calls; any other line alone."""
    groups: list[list[Line]] = []
    for line in ordered:
        if isinstance(line.body, Resulted) and groups:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _group_tokens(group: Sequence[Line], shown: FilesShown | None) -> int:
    return sum(_message_tokens(message) for message in messages(group, shown=shown))


def _is_open(group: Sequence[Line]) -> bool:
    reply = group[0].body
    return isinstance(reply, Replied) and len(group) - 1 < len(reply.calls)
