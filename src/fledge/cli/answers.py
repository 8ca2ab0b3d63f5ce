"""Answers of one session, as a screen shows them: streamed while they come, and read again as entries of the transcript
once they are committed. Each word is shown once. Messages of the person are shown when the agent reads them, unless the
chat showed them when they were sent. A call is shown when its result is there. What a sitting restores from an earlier
one takes the same way.

Streamed words may be missed (a slow reader, a holder that left); the rest of that answer is then not streamed, and the
entry shows it. The events of a turn name the newest entry: the words that follow them belong to a later one.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fledge.api.values import Message
from fledge.cli.term.shown import AnswerItem, CallEnded, NoticeItem, Screen, SpokenItem
from fledge.core.asking import CUT
from fledge.core.attachments import size_words
from fledge.core.doing import call_line
from fledge.core.entries import CallValue, HistoryEntry, MessageEntry, ReplyEntry, ResultEntry
from fledge.core.route import is_worth_sending
from fledge.core.transcript import SPAWN, YIELD

BROKE_OFF: Final = "[this answer broke off]"
NOT_SHOWN: Final = "[the rest of this answer is not shown here]"
"""Marks below the beginning of an answer: it will not go on, or the chat shows something else now."""
SHOWN_OTHERWISE: Final = (SPAWN, YIELD)
"""Tools whose effect is among the subagents at work: of a good call no result is shown."""
SILENT: Final = ("NO_REPLY", "HEARTBEAT_OK", "ANNOUNCE_SKIP", "REPLY_SKIP")


def may_be_silence(text: str) -> bool:
    """True if this beginning of an answer may still become one of the tokens by which a model says nothing."""
    begun = text.strip()
    return not begun or any(word.startswith(begun) for word in SILENT)


def attachment_line(name: str, size: int) -> str:
    """The line that shows a file attached to a message."""
    return f"📎 {name} ({size_words(size)})"


def message_text(entry: MessageEntry) -> str:
    """A person's message as a screen shows it. The last lines of its text name the attached files; attachment lines
    replace them."""
    files = entry.attachments
    lines = entry.text.split("\n")
    return "\n".join([*lines[: len(lines) - len(files)], *(attachment_line(one.name, one.size) for one in files)])


def called_lines(entry: Message) -> list[str]:
    """The tool calls of an entry, each on one line."""
    return [call_line(tool, arguments) for tool, _, arguments in (call.partition(" ") for call in entry.calls)]


def call_ended(entry: ResultEntry, call: CallValue | None) -> CallEnded:
    """The result of a call as an item."""
    is_ok = not (entry.is_error or entry.is_unknown)
    line = call_line(entry.name, "{}" if call is None else call.arguments)
    seconds = None if call is None else entry.at - call.started_at
    return CallEnded(line, is_ok, seconds, "" if is_ok and entry.name in SHOWN_OTHERWISE else entry.text)


class UnreadWords(Struct, frozen=True):
    """A message that the person typed here and that no turn has read, as far as is known."""

    text: str
    shown: str
    """The text as the person saw it in the input."""
    is_queued: bool
    """True: it is shown as queued, and among the other messages once it is read."""


class Answers:
    """The answers of one session. A screen that works in turns (`Screen.in_turns`) shows only whole entries."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.seen = 0
        """The newest entry that is shown, or that was there before this session was shown."""
        self._open_reply = 0
        """The first entry that is shown and has a call whose result is not; 0: there is none."""
        self.last_answer = ""
        """The newest whole answer that was shown."""
        self.unread: dict[str, UnreadWords] = {}
        """Messages that were typed here and are not read, by run id."""
        self._misses = True
        """True if words of the answer in progress may be missing."""
        self._heard = ""
        """The answer in progress, as far as it has come."""
        self._shown = ""
        """Text that is on the screen and in no entry yet."""

    def begin(self, seen: int) -> None:
        """The person talks to another session, or to the same one anew; its entries up to this one count as shown."""
        self.forget(NOT_SHOWN)
        self.seen, self._open_reply, self._misses = seen, 0, True

    @property
    def known(self) -> int:
        """The entries to take are those that follow this one: they begin with a reply whose calls have not ended, which
        is shown already, or behind all that is shown."""
        return min(self.seen, self._open_reply - 1) if self._open_reply else self.seen

    @property
    def is_open(self) -> bool:
        """True while words stand on the screen that are in no entry yet."""
        return bool(self._shown)

    # ---- as it comes

    def hear(self, text: str) -> None:
        """Add a piece of the answer. It is held back as long as the answer may become a token that means silence."""
        if self._misses or self._screen.in_turns:
            return
        self._heard += text
        if self._shown.startswith(self._heard):
            return  # the answer broke off and is repeated; this part is on the screen
        if not self._heard.startswith(self._shown):
            self.forget_shown()
        if not may_be_silence(self._heard):
            self._screen.words(self._heard[len(self._shown) :])
            self._shown = self._heard

    def miss(self) -> None:
        """Words may have been missed."""
        self._misses, self._heard = True, ""

    def forget(self, mark: str = BROKE_OFF) -> None:
        """The answer in progress will not become an entry: the model is asked again, or its turn was stopped."""
        self.forget_shown(mark)
        self._heard = ""

    def forget_shown(self, mark: str = BROKE_OFF) -> None:
        """The text on the screen stays, with this mark below it, and nothing continues it."""
        if self._shown:
            self._screen.complete()
            if mark:
                self._screen.say(NoticeItem(mark))
        self._shown = ""

    # ---- as entries

    def take(self, entries: Sequence[HistoryEntry], newest: int | None = None) -> None:
        """Show the parts of these entries, up to `newest`, that are not shown yet; they follow the entry `known`."""
        replies = [entry for entry in entries if isinstance(entry, ReplyEntry)]
        calls = {call.result_seq: call for reply in replies for call in reply.calls}
        for entry in entries:
            if entry.seq <= self.seen or (newest is not None and entry.seq > newest):
                continue
            match entry:
                case ReplyEntry():
                    self._complete(entry)
                case MessageEntry(kind="send"):
                    self._read(entry)
                case ResultEntry():
                    self._screen.say(call_ended(entry, calls.get(entry.seq)))
                case _:
                    pass
            self.seen = entry.seq
        lack = (one.seq for one in replies if any(not 0 < call.result_seq <= self.seen for call in one.calls))
        self._open_reply = next((seq for seq in lack if seq <= self.seen), 0)

    def reach(self, entry: int) -> None:
        """The turn has reached this entry, and all entries up to it were taken: words that follow belong to a later
        one."""
        if entry >= self.seen:
            self._misses, self._heard = False, ""

    def _read(self, entry: MessageEntry) -> None:
        """The agent has read a message of the person, typed here or elsewhere."""
        own = self.unread.pop(entry.run_id, None)
        if own is None or own.is_queued:
            self.forget_shown()
            words = message_text(entry) if own is None else own.shown
            self._screen.say(SpokenItem(words, is_typed_here=own is not None))

    def _complete(self, entry: ReplyEntry) -> None:
        text = entry.text
        if text and self._shown.startswith(text):
            self._shown, self._heard = self._shown[len(text) :], self._heard[len(text) :]
            if not self._shown:
                self._screen.complete()
        elif is_worth_sending(text):
            if self._shown and text.startswith(self._shown):
                self._screen.words(text[len(self._shown) :])
                self._screen.complete()
            else:
                self.forget_shown()
                self._screen.say(AnswerItem(text))
            self._shown = self._heard = ""
        if is_worth_sending(text):
            self.last_answer = text
        if entry.is_cut:
            self._screen.say(NoticeItem(f"[{CUT}]"))
