"""What happens to a run or in a conversation, as one stream: words and tools as they come, phases as they are
committed.

Words come from the feed, which drops the oldest when a reader is slow. So they are held against the replies that were
committed: a reply that was not heard whole is told whole, by one event of the kind `message`. Where the feed and the
rows are is not known here; the holder of a folder and its guests both use this.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from fledge.api.values import Message, Reply, TimelineEvent
from fledge.runtime.feed import Subscription, TurnEvent

RunEvent = TurnEvent | TimelineEvent
"""What a run's stream tells; `kind` says which: a phase of its life is `phase`, all else happens in its turns."""
_NEEDS_A_LOOK: Final = ("start", "lost")
"""A turn begins, so the run's phase has changed; or words are missing, whose reply may be committed already."""


class Words:
    """The words of one session: streamed, and as committed replies. Each reply is told once as a whole."""

    def __init__(self, session: str, after: int = 0) -> None:
        self._session = session
        self._told = after
        """The newest entry that is told, or was there before."""
        self._steps: list[tuple[int, str]] = []
        """Model steps whose reply is not committed: the newest entry when each began, and what was heard of it."""
        self._misses = True
        """Words of the step under way may be missing; they are held back, and its reply is told whole."""

    @property
    def told(self) -> int:
        """Up to this entry every reply is told."""
        return self._told

    def heard(self, event: TurnEvent) -> list[TurnEvent]:
        """What to tell of an event of the feed."""
        if event.session not in ("", self._session):
            return []
        match event.kind:
            case "model:start":
                self._steps.append((event.entry, ""))
                self._misses = event.entry < self._told  # its reply was told meanwhile
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
            if reply.role != "assistant" or reply.seq <= self._told:
                continue
            heard = "".join(text for entry, text in self._steps if entry < reply.seq)
            if reply.text and reply.text not in heard:
                found.append(TurnEvent("message", self._session, reply.text, entry=reply.seq))
            self._told = reply.seq
            if self._steps and self._steps[-1][0] < reply.seq:
                self._misses = True  # what is still to come of it is told
            self._steps = [step for step in self._steps if step[0] >= reply.seq]
        return found


class Looked(Struct, frozen=True):
    """What the rows say of a run."""

    timeline: Sequence[TimelineEvent]
    """Events that were not told."""
    replies: Sequence[Message]
    """Entries behind the last reply that was told."""
    is_over: bool
    """Nothing more will come of it."""


class Source(Protocol):
    """Where a stream gets what it tells."""

    def listen(self, poke: Callable[[], None]) -> Subscription:
        """Hear what happens inside turns from now on; `poke` is called at each event."""
        ...

    def watch(self, key: str, moved: asyncio.Event) -> None:
        """Set this event whenever this session moves, until `unwatch`."""
        ...

    def unwatch(self, key: str, moved: asyncio.Event) -> None:
        """Leave the event alone from now on."""
        ...

    async def look(self, told: int, after: int) -> Looked:
        """What the rows say: all but the first so many events, and replies behind this entry. Raises `Refused` once
        nothing can be looked at any more."""
        ...


class _Moved(asyncio.Event):
    """Set when the rows may say something new; wakes whoever waits for that or for words."""

    def __init__(self, woken: asyncio.Event) -> None:
        super().__init__()
        self._woken = woken

    def set(self) -> None:
        super().set()
        self._woken.set()


async def run_events(source: Source, key: str) -> AsyncGenerator[RunEvent, None]:
    """Everything that happened to a run and will, until it has settled."""
    woken, words, told = asyncio.Event(), Words(key), 0
    moved = _Moved(woken)
    heard = source.listen(woken.set)
    source.watch(key, moved)
    try:
        moved.set()
        while True:
            # Words first, then the rows: so the rows tell of the turn that the words are of. What happens during the
            # look wakes this again.
            woken.clear()
            said = list(heard.waiting())
            looked = None
            if moved.is_set() or any(one.kind in _NEEDS_A_LOOK for one in said):
                moved.clear()
                looked = await source.look(told, words.told)
                told += len(looked.timeline)
            timeline = [] if looked is None else list(looked.timeline)
            begins = max((at + 1 for at, event in enumerate(timeline) if event.phase == "running"), default=0)
            for phase in timeline[:begins]:
                yield phase
            for one in said:
                for event in words.heard(one):
                    yield event
            for event in words.committed([] if looked is None else looked.replies):
                yield event
            for phase in timeline[begins:]:
                yield phase
            if looked is not None and looked.is_over:
                return
            await woken.wait()
    finally:
        heard.close()
        source.unwatch(key, moved)


async def answer_events(
    key: str,
    after: int,
    heard: Subscription,
    answer: "asyncio.Future[Reply]",
    entries: Callable[[], Awaitable[Sequence[Message]]],
) -> AsyncGenerator[TurnEvent | Reply, None]:
    """What happens in a conversation until this answer is there, and the answer. `entries` are those behind `after`."""
    words = Words(key, after)
    answer.add_done_callback(lambda _: heard.close())
    try:
        async for one in heard:
            for event in words.heard(one):
                yield event
        reply = answer.result()
        for event in words.committed(await entries()):
            yield event
        yield reply
    finally:
        heard.close()
        answer.cancel()
        await asyncio.wait([answer])
