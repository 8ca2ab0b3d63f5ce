"""Answers of one session, as a screen shows them: streamed while they come, and read again as entries of the transcript
once they are committed. Each word is shown once; the person's own words, when the agent reads them.

Streamed words may be missed (a slow reader, a holder that left); then nothing of that answer streams any more, and the
entry has the rest. Which words belong to which entry follows from the events of the turn, which name the newest one.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fledge.api.values import Message
from fledge.cli.term.shown import AnswerItem, Called, NoticeItem, Screen, SpokenItem
from fledge.core.asking import CUT
from fledge.core.attachments import size_words
from fledge.core.doing import call_line
from fledge.core.route import is_worth_sending

SILENT: Final = ("NO_REPLY", "HEARTBEAT_OK", "ANNOUNCE_SKIP", "REPLY_SKIP")


def may_be_silence(text: str) -> bool:
    """True of the beginning of an answer that may become a word by which a model says nothing."""
    begun = text.strip()
    return not begun or any(word.startswith(begun) for word in SILENT)


def attachment_line(name: str, size: int) -> str:
    """The line that shows a file which came with a message."""
    return f"📎 {name} ({size_words(size)})"


def message_text(entry: Message) -> str:
    """A person's words as a screen shows them. The last lines of the text name the files that came with it."""
    files = entry.attachments
    lines = entry.text.split("\n")
    return "\n".join([*lines[: len(lines) - len(files)], *(attachment_line(one.name, one.size) for one in files)])


def called_lines(entry: Message) -> list[str]:
    """The tool calls of an entry, each on one line."""
    return [call_line(tool, arguments) for tool, _, arguments in (call.partition(" ") for call in entry.calls)]


class UnreadWords(Struct, frozen=True):
    """Words that a person said here, and that no turn has read, as far as is known."""

    text: str
    shown: str
    """The same as the person saw it in the input."""
    is_queued: bool
    """True: they are shown as queued, and among what was said once they are read."""


class Answers:
    """What one session says. A screen that is read in turns shows only whole entries."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.seen = 0
        """The newest entry that is shown, or was there before."""
        self.last_answer = ""
        """The newest whole answer that was shown."""
        self.unread: dict[str, UnreadWords] = {}
        """What was said here and is not read, by run id."""
        self._misses = True
        """Words of the answer on its way may be missing."""
        self._heard = ""
        """The answer on its way."""
        self._shown = ""
        """What is on the screen and no entry yet."""

    def begin(self, seen: int) -> None:
        """Another session is talked with, or the same one anew; up to this entry it is shown."""
        self.forget()
        self.seen, self._misses = seen, True

    # ---- as it comes

    def hear(self, text: str) -> None:
        """One more piece. It is held back as long as it may become a word that means silence."""
        if self._misses or self._screen.in_turns:
            return
        self._heard += text
        if self._shown.startswith(self._heard):
            return  # of an answer that broke off and is given again
        if not self._heard.startswith(self._shown):
            self.forget_shown()
        if not may_be_silence(self._heard):
            self._screen.words(self._heard[len(self._shown) :])
            self._shown = self._heard

    def miss(self) -> None:
        """Words may have been missed."""
        self._misses, self._heard = True, ""

    def forget(self) -> None:
        """The answer on its way will not be an entry: it is asked for anew, or its turn was stopped."""
        self.forget_shown()
        self._heard = ""

    def forget_shown(self) -> None:
        """What is on the screen stays, and is the beginning of nothing."""
        if self._shown:
            self._screen.complete()
        self._shown = ""

    # ---- as entries

    def take(self, entries: Sequence[Message]) -> None:
        """Show what these entries have that is not shown yet; they follow those that were taken before."""
        for entry in entries:
            if entry.role == "assistant":
                self._complete(entry)
            elif entry.role == "user" and entry.kind == "send":
                self._read(entry)
            self.seen = entry.seq

    def reach(self, entry: int) -> None:
        """The turn stands at this entry, up to which all were taken: words that follow are of a later one."""
        if entry >= self.seen:
            self._misses, self._heard = False, ""

    def _read(self, entry: Message) -> None:
        """The agent has read what a person said, here or elsewhere."""
        own = self.unread.pop(entry.run_id, None)
        if own is None or own.is_queued:
            self.forget_shown()
            words = message_text(entry) if own is None else own.shown
            self._screen.say(SpokenItem(words, is_typed_here=own is not None))

    def _complete(self, entry: Message) -> None:
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
        for call in called_lines(entry):
            self._screen.say(Called(call))
        if entry.is_cut:
            self._screen.say(NoticeItem(f"[{CUT}]"))
