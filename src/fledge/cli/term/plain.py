"""A conversation as plain lines: for pipes, dumb terminals and screen readers. Nothing is redrawn, nothing moves.

Words of an answer are written as they come, or line by line for a screen reader. Items that only inform wait for the
end of a paragraph, as they do on a live screen; questions, and what the person asked for, end the line where it is. At
a terminal a line `y`, `a` or `n` answers the oldest open question; in a pipe questions are only shown, because a line
there may have been written before the question.
"""

import asyncio
import io
import signal
import threading
from contextlib import suppress
from typing import TextIO

from fledge.cli.term.figures import call_facts, ended_facts, first_lines
from fledge.cli.term.keys import ARMED_S, READ_S
from fledge.cli.term.shown import (
    AnswerItem,
    Called,
    CallEnded,
    ChatItem,
    EndedItem,
    ErrorItem,
    Leave,
    NoticeItem,
    OpenQuestion,
    OpenQuestions,
    OutputItem,
    PlanQuestion,
    QuestionAnswered,
    Screen,
    SpokenItem,
    StopWanted,
    TurnShown,
    Verbatim,
    Wish,
    WordsSent,
    WorkingChildren,
    may_wait,
)
from fledge.core.printable import printable, quoted_lines


class PlainScreen(Screen):
    """Lines in, lines out. Typed words stand on the terminal already, and nothing can be emptied or copied. The
    receiver of words is shown only by the command that changes it."""

    def __init__(self, typed: TextIO, out: TextIO, *, answers: bool, by_line: bool) -> None:
        """`answers`: a bare letter answers a question. `by_line`: an answer is written in whole lines."""
        super().__init__()
        self._in, self._out, self._answers, self._by_line = typed, out, answers, by_line
        self.in_turns = not answers
        self._line = ""
        """The line of the answer that is coming."""
        self._written = self._row_at = 0
        """How many characters of it are written already, and how many of these stand on rows that are ended."""
        self._in_code = self._has_begun = False
        self._waiting: list[str] = []
        self._at_work: set[str] = set()
        """The session keys of the subagents that have had their line."""
        self._asked_at: dict[str, float] = {}
        self._reader: threading.Thread | None = None
        self._armed_until = 0.0
        self._trouble = ""
        """The text of the last error, as it was shown."""

    # ---- shown by the chat

    def words(self, text: str) -> None:
        """A piece of an answer."""
        self._has_begun = True
        *lines, last = printable(text).split("\n")
        for line in lines:
            self._line += line
            self._write_line("\n")
            self._in_code ^= self._line.lstrip().startswith(("```", "~~~"))
            ends = not self._line.strip() and not self._in_code
            self._line, self._written, self._row_at = "", 0, 0
            if ends:
                self._write_waiting()
        self._line += last
        if not self._by_line:
            self._write_line()
            self._written = len(self._line)

    def complete(self) -> None:
        """The answer is complete."""
        self._end_row()
        self._line, self._written, self._row_at, self._in_code, self._has_begun = "", 0, 0, False, False
        self._write_waiting()

    def _cut(self) -> None:
        """End the line where it is; its rest follows on another row."""
        self._end_row()
        self._write_waiting()

    def _end_row(self) -> None:
        if len(self._line) > self._row_at:
            self._write_line("\n")
        self._written = self._row_at = len(self._line)

    def say(self, item: ChatItem) -> None:
        """Show an item. One that only informs waits for the end of a paragraph. Left out: words that were typed here,
        which stand there already; calls, which got a line when they began; and outputs that the person did not ask
        for."""
        match item:
            case Called() | SpokenItem(is_typed_here=True) | OutputItem(is_asked_for=False):
                return
            case ErrorItem(text=text):
                self._trouble = text
        self._put(item_lines(item))
        if not may_wait(item):
            self._cut()

    def turn(self, turn: TurnShown | None) -> None:
        """The turn under way: a tool call that begins and a model error get a line each."""
        before, self._turn = self._turn, turn
        if turn is None or (before is not None and (before.state, before.tool) == (turn.state, turn.tool)):
            return
        if turn.state == "tool":
            self._put(f"· {printable(turn.tool)}")
        elif turn.state == "retrying":
            cause = "" if self._trouble and turn.tool.endswith(self._trouble) else f"✖ {printable(turn.tool)}; "
            self._put(f"{cause}try {turn.attempt} follows by itself")

    def children(self, children: WorkingChildren) -> None:
        """Subagents at work; a new one gets a line."""
        for child in children:
            if child.session_key not in self._at_work:
                self._put(f"· {printable(child.label)} is at work")
        self._at_work = {child.session_key for child in children}

    def ask(self, asked: OpenQuestions) -> None:
        """Open questions; each is shown once, in full."""
        self._asked = asked
        for question in asked:
            if question.id not in self._asked_at:
                self._asked_at[question.id] = self.now()
                self._put(question_lines(question, answers=self._answers))
                self._cut()

    def put_back(self, text: str) -> None:
        """Show words that were not read: there is no input to put them into."""
        if text:
            self._put(f"not read, send it again:{quoted_lines(printable(text))}")
            self._cut()

    # ---- wishes of the person

    async def wish(self) -> Wish:
        """The next wish, from a line or from Ctrl-C."""
        if self._reader is None:
            loop = asyncio.get_running_loop()
            self._reader = threading.Thread(target=self._pump, args=(loop,), name="typed lines", daemon=True)
            self._reader.start()
            if self._answers:
                loop.add_signal_handler(signal.SIGINT, self._interrupted)
        return await super().wish()

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(self._in, io.TextIOWrapper):
            self._in.reconfigure(errors="replace")
        with suppress(RuntimeError):  # the loop is closed: lines are not needed any more
            for line in self._in:
                loop.call_soon_threadsafe(self._typed, line.rstrip("\n"))
            loop.call_soon_threadsafe(self._wishes.put_nowait, Leave())

    def _typed(self, line: str) -> None:
        answer = self._answer(line.strip()) if self._answers else None
        if answer is not None:
            self._asked = tuple(one for one in self._asked if one.id != answer.id)
            self._wishes.put_nowait(answer)
        elif line.strip():
            self._wishes.put_nowait(WordsSent(line, line))

    def _answer(self, line: str) -> QuestionAnswered | None:
        """The line as an answer to the first open question; None if it is a message."""
        letter, _, words = line.partition(" ")
        if not self._asked or self.now() - self._asked_at[self._asked[0].id] < READ_S:
            return None
        verdict = self._asked[0].verdicts.get(letter)
        if verdict is None or (words and letter != "n"):
            return None
        return QuestionAnswered(self._asked[0].id, verdict, words)

    def _interrupted(self) -> None:
        """Ctrl-C stops the turn; between turns, the second one leaves."""
        if self._turn is not None:
            self._wishes.put_nowait(StopWanted())
        elif self.now() < self._armed_until:
            self._wishes.put_nowait(Leave())
        else:
            self._armed_until = self.now() + ARMED_S
            self._put("ctrl-c again leaves; nothing is lost by it")
            self._cut()

    # ---- lines

    def _put(self, lines: str) -> None:
        self._waiting.append(lines)
        if not self._has_begun:
            self._write_waiting()

    def _write_waiting(self) -> None:
        for lines in self._waiting:
            self._write(f"{lines}\n")
        self._waiting.clear()

    def _write_line(self, end: str = "") -> None:
        """Write the rest of the coming line, from the first character that is not written yet."""
        self._write(self._line[self._written :] + end)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def card_line(card: EndedItem) -> str:
    """How a subagent ended, on one line, made printable."""
    return printable(" · ".join([card.label, *ended_facts(card)]))


def item_lines(item: ChatItem) -> str:
    """An item as lines, made printable."""
    match item:
        case SpokenItem(text=text):
            lines = f"› {text}"
        case ErrorItem(text=text):
            lines = f"✖ {text}"
        case EndedItem():
            lines = card_line(item) + "".join(f"\n  {line}" for line in item.text.splitlines()[:3])
        case CallEnded():
            head = " · ".join([f"{'✓' if item.is_ok else '✗'} {item.call}", *call_facts(item)])
            lines = "\n  ".join([head, *first_lines(item.text, 3)])
        case Called(call=call):
            lines = f"· {call}"
        case NoticeItem(text=text) | AnswerItem(text=text) | Verbatim(text=text) | OutputItem(text=text):
            lines = text
    return printable(lines)


def question_lines(question: OpenQuestion, *, answers: bool) -> str:
    """A question in full, with how to answer it."""
    who, whole = printable(question.who), quoted_lines(printable(question.text))
    if isinstance(question, PlanQuestion):
        head, keys = f"{who} has a plan:{whole}", "y carries it out, n REASON rejects it"
    else:
        place = f" in {printable(question.place)}" if question.place else ""
        always = f", a always for {printable(question.granted)}" if question.always else ""
        head, keys = f"? {who} wants to run{place}:{whole}", f"y allows it once{always}, n or n REASON denies it"
    return f"{head}\n  {keys}" if answers else head
