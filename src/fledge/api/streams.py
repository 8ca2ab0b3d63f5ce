"""The events of a run or of a conversation as one stream: text and tools as they come, phases as they are committed.

Text comes from the feed, which drops the oldest events when a reader is slow. So it is compared with the committed
replies: a reply of which the reader missed pieces is sent again whole, as one event of the kind `message`. This file
does not know where the feed and the rows are; the holder of a folder and its guests both use it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from fledge.api.values import Message, Reply, TimelineEvent
from fledge.core.live import spliced
from fledge.core.value import Value
from fledge.runtime.feed import Subscription, TurnEvent

RunEvent = TurnEvent | TimelineEvent
"""An event of a run's stream. Its `kind` is `phase` if the phase of the run changed; all other kinds are events inside
its turns."""
_NEEDS_A_LOOK: Final = ("start", "lost")
"""The kinds of events after which the rows are read: a turn begins, so the run's phase has changed; or text is missing,
whose reply may be committed already."""
_BEGINS: Final = ("start", "model:start", "retry", "error")
"""The kinds of events with which the answer to a message may begin."""
NO_TURN: Final = -1
NO_ENTRY: Final = -1
YIELD: Final = "sessions_yield "


class SessionWords:
    """The text of one session: in pieces from the feed, and as committed replies. The reader gets each reply
    completely: all its pieces, or a `message`."""

    def __init__(self, session: str, after: int = 0) -> None:
        self._session = session
        self.told = after
        """The reader has every reply up to this entry, or it is older than the stream."""
        self._steps: list[tuple[int, str]] = []
        """Model steps whose reply is not committed: for each, the newest entry when it began, and its text so far."""
        self._misses = True
        """True if text of the current step may be missing: then its pieces are held back, and its reply is sent
        whole."""

    def is_ahead(self, event: TurnEvent) -> bool:
        """True if this event follows a reply that the reader does not have yet: the reply must be sent first."""
        return self._misses and event.session == self._session and event.entry > self.told

    def heard(self, event: TurnEvent) -> list[TurnEvent]:
        """The events to send for an event of the feed: the event itself, the part of a text that is new, or none."""
        if event.session not in ("", self._session):
            return []
        match event.kind:
            case "model:start":
                self._steps.append((event.entry, ""))
                self._misses = event.entry < self.told  # its reply was sent meanwhile
            case "retry" | "interrupt":
                self._steps = [*self._steps[:-1], *((entry, "") for entry, _ in self._steps[-1:])]
            case "lost":
                self._misses = True
            case "assistant:text":
                return self._heard_text(event)
            case _:
                pass
        return [event]

    def _heard_text(self, event: TurnEvent) -> list[TurnEvent]:
        """The part of a piece that the reader does not have, if it has all before it."""
        if not event.offset and (not self._steps or self._steps[-1][0] != event.entry):
            self._steps.append((event.entry, ""))
        entry, so_far = self._steps[-1] if self._steps else (NO_ENTRY, "")
        if entry != event.entry or entry < self.told or event.offset > len(so_far):
            self._misses = True
            return []
        self._misses = False
        text = spliced(so_far, event.text, event.offset)
        self._steps[-1] = (entry, text)
        has = len(so_far) if text.startswith(so_far) else event.offset
        return [replace(event, text=text[has:], offset=has)] if len(text) > has else []

    def committed(self, replies: Sequence[Message]) -> list[TurnEvent]:
        """The events to send for these committed replies: a `message` for each one whose text the reader does not
        have."""
        found: list[TurnEvent] = []
        for reply in replies:
            if reply.role != "assistant" or reply.seq <= self.told:
                continue
            heard = "".join(text for entry, text in self._steps if entry < reply.seq)
            if reply.text and reply.text not in heard:
                found.append(TurnEvent("message", self._session, reply.text, entry=reply.seq))
            self.told = reply.seq
            if self._steps and self._steps[-1][0] < reply.seq:
                self._misses = True  # the rest of its pieces was sent with the reply
            self._steps = [step for step in self._steps if step[0] >= reply.seq]
        return found


class RunLook(Value):
    """The state of a run, read from rows."""

    timeline: Sequence[TimelineEvent]
    """Events of the timeline that were not sent yet."""
    replies: Sequence[Message]
    """Entries after the last reply that was sent."""
    is_over: bool
    """True if no more events will come from the run."""


class _Moved(asyncio.Event):
    """Set when the rows may have changed. Also sets `woken`, for a reader that waits for rows or text."""

    def __init__(self, woken: asyncio.Event) -> None:
        super().__init__()
        self._woken = woken

    def set(self) -> None:
        super().set()
        self._woken.set()


class Hearing(Protocol):
    """A source of the events inside turns."""

    def listen(
        self,
        size: int = ...,
        poke: Callable[[], None] | None = None,
        session: str = "",
        so_far: str | None = None,
    ) -> Subscription:
        """Subscribe to the events of this session from now on; `poke` is called at each event. The first is the text so
        far of the open reply of the session `so_far`, if one is named."""


class Moves(Protocol):
    """Wakes readers when sessions have moved."""

    def watch(self, moved: asyncio.Event, key: str) -> None:
        """Set this event whenever the session moves, until `unwatch`."""

    def unwatch(self, moved: asyncio.Event, key: str) -> None:
        """Stop setting the event."""


async def run_events(
    key: str, feed: Hearing, moves: Moves, look: Callable[[int, int], Awaitable[RunLook]], after: int = 0
) -> AsyncGenerator[RunEvent, None]:
    """All events of a run, past and future ones, until it has settled: its replies after the entry numbered `after`.

    `look(told, after)` reads the rows: the timeline without its first `told` events, and the messages after the entry
    numbered `after`. It raises `Refused` once the rows can no longer be read.
    """
    woken, words, told = asyncio.Event(), SessionWords(key, after), 0
    moved = _Moved(woken)
    heard = feed.listen(poke=woken.set, session=key, so_far=key)
    moves.watch(moved, key)
    try:
        moved.set()
        while True:
            # Text first, then the rows: so the rows contain the turn to which the text belongs. Changes during the look
            # wake this again.
            woken.clear()
            said = list(heard.waiting())
            looked = RunLook((), (), False)
            if moved.is_set() or any(one.kind in _NEEDS_A_LOOK or words.is_ahead(one) for one in said):
                moved.clear()
                looked = await look(told, words.told)
                told += len(looked.timeline)
            begins = max((at + 1 for at, event in enumerate(looked.timeline) if event.phase == "running"), default=0)
            for phase in looked.timeline[:begins]:
                yield phase
            for one in said:
                if words.is_ahead(one):
                    for event in words.committed([reply for reply in looked.replies if reply.seq <= one.entry]):
                        yield event
                for event in words.heard(one):
                    yield event
            for event in words.committed(looked.replies):
                yield event
            for phase in looked.timeline[begins:]:
                yield phase
            if looked.is_over:
                return
            await woken.wait()
    finally:
        heard.close()
        moves.unwatch(moved, key)


class Own(Value):
    """The part of a transcript that belongs to the answer to one message."""

    replies: Sequence[Message]
    goes_on: bool
    """True if a step that begins now belongs to it, too."""


def own(messages: Sequence[Message], run_id: str) -> Own:
    """The part of the transcript so far that answers the message with this run id. The answer begins once the message
    is read, and ends with a final reply. If its turn yields instead, other messages have turns of their own until
    completions are read."""
    replies: list[Message] = []
    is_read = has_yielded = is_aside = False
    for one in messages:
        if one.run_id == run_id:
            is_read = True
        elif not is_read:
            continue
        elif one.role == "event":
            has_yielded = is_aside = False
        elif one.role == "user" and one.kind == "send":
            is_aside = is_aside or has_yielded
        elif one.role == "assistant" and not is_aside:
            replies.append(one)
            has_yielded = has_yielded or any(call.startswith(YIELD) for call in one.calls)
            if one.text and not one.calls:
                return Own(replies, goes_on=False)
    return Own(replies, goes_on=is_read and not is_aside)


async def answer_events(
    key: str,
    run_id: str,
    after: int,
    heard: Subscription,
    answer: "asyncio.Future[Reply]",
    entries: Callable[[], Awaitable[Sequence[Message]]],
) -> AsyncGenerator[TurnEvent | Reply, None]:
    """The events of the turns that answer the message with this run id, and at the end the answer. Earlier turns, and
    turns for other messages, are left out. `entries` reads the entries of the transcript after `after`."""
    words, own_turn = SessionWords(key, after), NO_TURN
    answer.add_done_callback(lambda _: heard.close())
    try:
        async for one in heard:
            is_own = one.turn == own_turn
            if one.kind == "lost" and own_turn == NO_TURN:
                mine = own(await entries(), run_id)
                is_own = mine.goes_on or bool(mine.replies)  # events of its answer may be lost
            elif one.kind == "lost":
                is_own = True
            elif one.session == key and not is_own:
                own_turn = NO_TURN
                if one.kind in _BEGINS:
                    until = [entry for entry in await entries() if not one.entry or entry.seq <= one.entry]
                    is_own = own(until, run_id).goes_on
                    own_turn = one.turn if is_own else NO_TURN
            if is_own:
                for event in words.heard(one):
                    yield event
        reply = answer.result()
        for event in words.committed(own(await entries(), run_id).replies):
            yield event
        yield reply
    finally:
        heard.close()
        answer.cancel()
        await asyncio.wait([answer])
