"""The activity of a conversation and of its subagents, from two sources: live events, which are quick and may be
missed, and the answers of `sessions.below`, which are complete; regular looks at these are at least a second apart.

A subagent that has ended becomes a card. Pure: times are of the screen's clock and come with each call. A look that
began before a live event of the turn came does not overrule that event.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fledge.cli.term.shown import EndedItem, TurnShown, WorkingChild, WorkingChildren
from fledge.commands.lines import name_of
from fledge.commands.values import Below, Story
from fledge.core.doing import call_line
from fledge.core.entries import CompletionsEntry
from fledge.core.freeze import one_line
from fledge.core.live import TurnEvent

CAUSE_CHARS: Final = 200
CHARS_PER_TOKEN: Final = 4
"""The assumed length of a token, until the provider has counted the tokens."""
ENDINGS: Final = {"ok": "done", "error": "failed", "timeout": "timed out", "killed": "killed"}
"""How a run ended, in a word, by its status."""
UNKNOWN_END: Final = "ended, outcome unknown"


class _Work(Struct):
    """The activity of one session."""

    doing: str = "thinking"
    calls: dict[str, str] = {}
    """Calls under way, by id."""
    heard: int = 0
    """The number of its last event."""

    def hear(self, event: TurnEvent) -> None:
        """Take in an event of the session's turn."""
        match event.kind:
            case "usage":
                return
            case "assistant:text":
                self.doing = "answering"
                return
            case "tool:start":
                self.calls[event.call] = begun_call(event)
            case "tool:end":
                self.calls.pop(event.call, None)
            case _:
                self.calls.clear()
        self.doing = retrying(event) if event.kind in ("retry", "error") else "thinking"

    @property
    def call(self) -> str:
        """The call that began last; empty if none is under way."""
        return next(reversed(self.calls.values()), "")


class Activity:
    """The activity of one conversation and of the subagents below it."""

    def __init__(self) -> None:
        self.heard = 0
        """The number of the last event."""
        self._work: dict[str, _Work] = {}
        self.stop()

    # ---- the turn of the session that the person talks to

    def stop(self) -> None:
        """The turn is over."""
        self.turn: TurnShown | None = None
        """The turn of the session that the person talks to; None between turns."""
        self._own = _Work(heard=self.heard)
        self._counted = self._chars = self._failures = 0

    def hear(self, event: TurnEvent, now: float) -> None:
        """Take in an event of the session that the person talks to."""
        self._take(self._own, event)
        turn = self.turn or TurnShown("thinking", now)
        match event.kind:
            case "start":
                self._counted = self._chars = 0
                self.turn = TurnShown("thinking", now)
            case "end":
                self.stop()
            case "retry" | "error":
                self._failures += 1
                self.turn = self._failed(event, turn, now)
            case "assistant:text":
                self._failures = 0
                self._chars += len(event.text)
                self.turn = replace(turn, state="answering", tool="", tokens=self._tokens)
            case "usage":
                self._counted, self._chars = self._counted + event.tokens_out, 0
                self.turn = replace(turn, tokens=self._tokens)
            case _:
                call = self._own.call
                self.turn = replace(turn, state="tool" if call else "thinking", tool=call)

    def _failed(self, event: TurnEvent, turn: TurnShown, now: float) -> TurnShown:
        in_s = event.retry_in_s
        retry_at = now + in_s if in_s or event.kind == "retry" else 0.0
        cause = one_line(event.cause or event.text, CAUSE_CHARS)
        cause = f"model: {cause}" if event.cause else cause
        return replace(turn, state="retrying", tool=cause, attempt=self._failures + 1, retry_at=retry_at)

    def begun_call(self, call: str) -> str:
        """The call under way that has this id, on one line."""
        return self._own.calls.get(call, "a tool")

    @property
    def _tokens(self) -> int:
        return self._counted + self._chars // CHARS_PER_TOKEN

    # ---- subagents below

    def hear_below(self, event: TurnEvent) -> None:
        """Take in an event of a subagent."""
        self._take(self._work.setdefault(event.session, _Work()), event)

    def _take(self, work: _Work, event: TurnEvent) -> None:
        self.heard += 1
        work.heard = self.heard
        work.hear(event)

    def look(self, below: Below, now: float, heard: int, *, is_talked_with: bool) -> WorkingChildren:
        """Take in an answer of `sessions.below` about the conversation; returns the subagents at work. `heard`: the
        value of that field when the look began. `is_talked_with`: True if the person talks to the conversation, not to
        one of its subagents."""
        if is_talked_with and self._own.heard <= heard:
            self._look_at_turn(below, now)
        newer = {key: work for key, work in self._work.items() if work.heard > heard}
        self._work = {one.session_key: self._work.get(one.session_key, _Work()) for one in below.children} | newer
        return tuple(
            WorkingChild(
                label=child.label,
                doing=self._doing(child.session_key, child.state),
                since=now if child.started_at is None else now - (below.now_at - child.started_at),
                tokens=child.tokens,
                waits=child.waits,
                session_key=child.session_key,
            )
            for child in below.children
        )

    def _look_at_turn(self, below: Below, now: float) -> None:
        if below.opened_at is None:
            self.stop()
            return
        since = now - (below.now_at - below.opened_at)
        if below.waits:
            self.turn = replace(self.turn or TurnShown("waiting", since), state="waiting", tool="")
        elif below.failing is not None and below.failing.next_at is not None:
            fails, turn = below.failing, self.turn or TurnShown("thinking", since)
            cause, retry_at = one_line(fails.reason, CAUSE_CHARS), now + below.failing.next_at - below.now_at
            self.turn = replace(turn, state="retrying", tool=cause, attempt=fails.tries + 1, retry_at=retry_at)
        elif self.turn is None or self.turn.state == "waiting":
            self.turn = TurnShown("thinking", since)

    def _doing(self, key: str, state: str) -> str:
        """The activity of a child: from its events while it runs, else its state."""
        work = self._work[key]
        return (work.call or work.doing) if state == "running" else state


def begun_call(event: TurnEvent) -> str:
    """The tool call that an event `tool:start` is about, on one line."""
    return call_line(event.text, event.arguments)


def retrying(event: TurnEvent) -> str:
    """The activity of a session whose turn has failed."""
    return ("waits for its model: " if event.cause else "failed: ") + one_line(event.cause or event.text, CAUSE_CHARS)


def card_of(story: Story) -> EndedItem:
    """The card of a subagent that has ended."""
    run = story.run
    took = (run.ended_at or 0.0) - (run.started_at or run.created_at)
    status = "killed" if run.ended_reason == "killed" else ENDINGS.get(run.status, UNKNOWN_END)
    return EndedItem(name_of(run), status, took, run.tokens, run.cost_usd or 0.0, story.text or run.error or "")


def cards_of(entry: CompletionsEntry) -> list[EndedItem]:
    """The cards of subagents whose results an earlier sitting has read."""
    cards = []
    for one in entry.completions:
        if one.kind != "plan":
            stats, status = one.stats, ENDINGS.get(one.status, UNKNOWN_END)
            tokens = (stats.tokens_in or 0) + (stats.tokens_out or 0)
            label, text = one.label or one.session_key, one.result or one.error
            cards.append(EndedItem(label, status, stats.runtime_s or 0.0, tokens, stats.cost_usd or 0.0, text))
    return cards
