"""From a transcript to a model's request: which messages it sees, how long that is, what may be summarised.

Pure functions over transcript lines. How many tokens a text has is estimated (four characters each); providers count
exactly, and what they counted last is what the estimate is corrected by. Images count by the providers' formulas, and
data that goes back to a provider by its length.
"""

from collections.abc import Collection, Sequence

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
"""The share of the window that stays verbatim, newest first."""

COMPACT_PROMPT = (
    "Summarise the conversation so far for yourself, so that you can go on without it. Keep: what was asked, decisions,"
    " facts and figures found, names of files, and every session key of a child agent, letter by letter. Leave out"
    " pleasantries and what turned out not to matter. Write it as notes, not as a letter."
)


def messages(lines: Sequence[Line], task_head: str = "", shown: FilesShown | None = None) -> tuple[ModelMessage, ...]:
    """What the model sees, in its order; every call is followed by its result, a task has its head. `shown`: how it
    sees the files of messages; without, their names alone."""
    found: list[ModelMessage] = []
    for line in in_order(lines):
        match line.body:  # what most lines are first: a case that does not fit costs as much as a call
            case Replied() as reply:
                calls = tuple([Call(call.id, call.name, shown_arguments(call)) for call in reply.calls])
                found.append(AssistantMessage(reply.text, calls, reply.thinking, reply.opaque))
            case Resulted() as result:
                found.append(ToolMessage(result.call_id, result.name, result.text, result.is_error, result.images))
            case Spoken(text=text, kind="task", images=images):
                found.append(UserMessage(first_message(task_head, text), images))
            case Spoken(text=text, images=images, files=files):
                words = text if shown is None or not files else with_files(text, files, shown)
                found.append(UserMessage(words, images))
            case Told(text=text):
                found.append(UserMessage(text))
            case Noted(text=text, covers=covers) if covers:
                found.append(UserMessage(f"[Notes on the conversation so far]\n{text}"))
            case Noted():
                continue
    return tuple(found)


def images_in(found: Sequence[ModelMessage]) -> list[ImageEntry]:
    """The images of these messages, oldest first."""
    images: list[ImageEntry] = []
    for message in found:
        if type(message) is UserMessage or type(message) is ToolMessage:
            images += message.images
    return images


def in_words(found: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """The messages without their images: the texts name them."""
    return tuple(
        message if isinstance(message, AssistantMessage) or not message.images else replace(message, images=())
        for message in found
    )


def with_newest_images(found: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """The messages with as many of the newest images as one request takes; the texts tell that older ones are left
    out."""
    images = images_in(found)
    extra = len(images) - sent(images)
    messages: list[ModelMessage] = []
    for message in found:
        if extra and not isinstance(message, AssistantMessage) and message.images:
            old, kept = message.images[:extra], message.images[extra:]
            extra -= len(old)
            words = "\n".join([message.text, *(image.unsent_words for image in old)])
            message = replace(message, text=words, images=kept)
        messages.append(message)
    return tuple(messages)


def without_lost_images(found: Sequence[ModelMessage], there: Collection[str]) -> tuple[ModelMessage, ...]:
    """The messages with the images whose bytes are there; the texts tell which ones are not."""
    messages: list[ModelMessage] = []
    for message in found:
        if not isinstance(message, AssistantMessage) and any(image.sha256 not in there for image in message.images):
            lost = [image.lost_words for image in message.images if image.sha256 not in there]
            kept = tuple(image for image in message.images if image.sha256 in there)
            message = replace(message, text="\n".join([message.text, *lost]), images=kept)
        messages.append(message)
    return tuple(messages)


def tokens_of(text: str) -> int:
    """About how many tokens a text has."""
    return len(text) // CHARS_A_TOKEN + 1


def length(system: str, found: Sequence[ModelMessage]) -> int:
    """About how many tokens a request has."""
    return tokens_of(system) + sum([_message_tokens(message) for message in found])


def _message_tokens(message: ModelMessage) -> int:
    tokens = tokens_of(message.text)
    if isinstance(message, AssistantMessage):
        # Opaque data holds the thinking once more, encrypted: the longer of the two counts.
        tokens += tokens_of(max(message.thinking, message.opaque, key=len))
        for call in message.calls:
            tokens += tokens_of(call.name + call.arguments)
    else:
        for image in message.images:
            tokens += image.tokens
    return tokens


class CompactionCut(Struct, frozen=True):
    """What to summarise: everything up to entry `covers`, images in words."""

    covers: int
    old: tuple[ModelMessage, ...]


def cut(lines: Sequence[Line], window: int, shown: FilesShown | None = None) -> CompactionCut | None:
    """Where to cut a transcript that has grown too long; None if nothing can be left out.

    The newest part stays verbatim, and the cut never separates a call from its result. What was read since the last
    reply stays too, and so does a reply whose calls are open: they are not answered yet.
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
    # An earlier note stands first but was written later: what it stands for is what counts, not its own place.
    covers = max(line.body.covers if isinstance(line.body, Noted) and line.body.covers else line.seq for line in old)
    return CompactionCut(covers, in_words(messages(old, shown=shown)))


def _groups(ordered: Sequence[Line]) -> list[list[Line]]:
    """Lines that belong together: a reply with the results of its calls; any other line alone."""
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
