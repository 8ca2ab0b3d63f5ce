"""What happens to a run or in a conversation, as one stream: words and tools as they come, phases as they are
committed.

Words come from the feed, which drops the oldest when a reader is slow. So they are held against the replies that were
committed: a reply that was not heard whole is told whole, by one event of the kind `message`. Where the feed and the
rows are is not known here; the holder of a folder and its guests both use this.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, Protocol

from fledge.api.values import Message, Reply, TimelineEvent
from fledge.core.value import Value
from fledge.runtime.feed import Subscription, TurnEvent

RunEvent = TurnEvent | TimelineEvent
"""What a run's stream tells; `kind` says which: a phase of its life is `phase`, all else happens in its turns."""
_NEEDS_A_LOOK: Final = ("start", "lost")
"""A turn begins, so the run's phase has changed; or words are missing, whose reply may be committed already."""
_BEGINS: Final = ("start", "model:start", "retry", "error")
"""Events with which it may begin that a message is answered."""
NO_TURN: Final = -1
YIELD: Final = "sessions_yield "


class SessionWords:
    """The words of one session: streamed, and as committed replies. Each reply is told once as a whole."""

    def __init__(self, session: str, after: int = 0) -> None:
        self._session = session
        self.told = after
        """Up to this entry every reply is told, or was there before."""
        self._steps: list[tuple[int, str]] = []
        """Model steps whose reply is not committed: the newest entry when each began, and what was heard of it."""
        self._misses = True
        """Words of the step under way may be missing; they are held back, and its reply is told whole."""

    def is_ahead(self, event: TurnEvent) -> bool:
        """True of an event that follows a reply which was neither heard nor told: that one is told first."""
        return self._misses and event.session == self._session and event.entry > self.told

    def heard(self, event: TurnEvent) -> list[TurnEvent]:
        """What to tell of an event of the feed."""
        if event.session not in ("", self._session):
            return []
        match event.kind:
            case "model:start":
                self._steps.append((event.entry, ""))
                self._misses = event.entry < self.told  # its reply was told meanwhile
            case "retry" | "interrupt":
                self._steps = [*self._steps[:-1], *((entry, "") for entry, _ in self._steps[-1:])]
            case "lost":
                self._steps, self._misses = [], True
            case "assistant:text" if self._misses:
                return []
            case "assistant:text":
                entry, text = self._steps.pop()
                self._steps.append((entry, text + event.text))
            case _:
                pass
        return [event]

    def committed(self, replies: Sequence[Message]) -> list[TurnEvent]:
        """What to tell now that these replies are committed: those that were not heard."""
        found: list[TurnEvent] = []
        for reply in replies:
            if reply.role != "assistant" or reply.seq <= self.told:
                continue
            heard = "".join(text for entry, text in self._steps if entry < reply.seq)
            if reply.text and reply.text not in heard:
                found.append(TurnEvent("message", self._session, reply.text, entry=reply.seq))
            self.told = reply.seq
            if self._steps and self._steps[-1][0] < reply.seq:
                self._misses = True  # what is still to come of it is told
            self._steps = [step for step in self._steps if step[0] >= reply.seq]
        return found


class RunLook(Value):
    """What the rows say of a run."""

    timeline: Sequence[TimelineEvent]
    """Events that were not told."""
    replies: Sequence[Message]
    """Entries behind the last reply that was told."""
    is_over: bool
    """Nothing more will come of it."""


class _Moved(asyncio.Event):
    """Set when the rows may say something new; wakes whoever waits for that or for words."""

    def __init__(self, woken: asyncio.Event) -> None:
        super().__init__()
        self._woken = woken

    def set(self) -> None:
        super().set()
        self._woken.set()


class Hearing(Protocol):
    """Where it is heard what happens inside turns."""

    def listen(self, size: int = ..., poke: Callable[[], None] | None = None, session: str = "") -> Subscription:
        """Hear of this session from now on; `poke` is called at each event."""


class Moves(Protocol):
    """Where it is told that sessions move."""

    def watch(self, moved: asyncio.Event, key: str) -> None:
        """Set this event whenever the session moves, until `unwatch`."""

    def unwatch(self, moved: asyncio.Event, key: str) -> None:
        """Leave the event alone from now on."""


async def run_events(
    key: str, feed: Hearing, moves: Moves, look: Callable[[int, int], Awaitable[RunLook]]
) -> AsyncGenerator[RunEvent, None]:
    """Everything that happened to a run and will, until it has settled.

    `look`: what the rows say: all but the first so many events, and replies behind this entry. Raises `Refused` once
    nothing can be looked at any more.
    """
    woken, words, told = asyncio.Event(), SessionWords(key), 0
    moved = _Moved(woken)
    heard = feed.listen(poke=woken.set, session=key)
    moves.watch(moved, key)
    try:
        moved.set()
        while True:
            # Words first, then the rows: so the rows tell of the turn that the words are of. What happens during the
            # look wakes this again.
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
    """What of a conversation belongs to the answer to one message."""

    replies: Sequence[Message]
    goes_on: bool
    """A step that begins now does, too."""


def own(messages: Sequence[Message], run_id: str) -> Own:
    """What the transcript so far says of the message of this run id. Its answer begins once it is read and ends with a
    final reply. If its turn yields instead, messages of others have turns of their own, until completions are read."""
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
    """What happens in a conversation while the message of this run id is answered, and the answer. Turns before it, and
    turns for other messages, are left out. `entries` are those behind `after`."""
    words, own_turn = SessionWords(key, after), NO_TURN
    answer.add_done_callback(lambda _: heard.close())
    try:
        async for one in heard:
            is_own = one.turn == own_turn
            if one.kind == "lost" and own_turn == NO_TURN:
                mine = own(await entries(), run_id)
                is_own = mine.goes_on or bool(mine.replies)  # something of it may be lost
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
