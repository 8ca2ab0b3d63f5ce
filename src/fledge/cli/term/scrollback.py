"""The order of the rows that stay: those of an answer as they become certain, and whole items between its blocks.

An item that only informs (a card, a notice, the person's words) never splits a sentence: while a block of the answer
is open it waits. A question, and what the person asked for, end the open block where it is. Rows are handed out once
and never again. This file draws nothing.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

from wcwidth import clip

from fledge.cli.term.cells import Theme, columns, fit, pieces, plain, wrap
from fledge.cli.term.figures import call_facts, ended_facts, first_lines, sign_of
from fledge.cli.term.markdown import Boundary, Markdown, Out
from fledge.cli.term.shown import (
    AnswerItem,
    Called,
    CallEnded,
    CallQuestion,
    ChatItem,
    EndedItem,
    ErrorItem,
    NoticeItem,
    OutputItem,
    PlanQuestion,
    SpokenItem,
    Verbatim,
    may_wait,
)
from fledge.core.printable import printable

CARD_ROWS: Final = 3
"""Rows of a result that a card shows."""
CARD_CHARS: Final = 4000
"""So much of a result is read for its card."""
RESULT_ROWS: Final = 3
"""Rows of a call's result that are shown."""
SPOKEN_ROWS: Final = 12
"""Rows of the person's own words that are shown; the person knows the rest."""

BELOW: Final = "    "
_TWO_COLUMNS: Final = re.compile(r"( *\S+(?: \S+)*)(  +)(\S.*)")

Whole = ChatItem | CallQuestion | PlanQuestion
OpensResult = Callable[[str], str]
"""From the label of a subagent to the command that shows its whole result."""
IN_CHAT: Final[OpensResult] = "/open {}".format


class Scrollback:
    """One conversation's rows. `take` answers those to write now, each once."""

    def __init__(self, theme: Theme, opens: OpensResult = IN_CHAT) -> None:
        """`opens`: gives the command that shows the whole result of the subagent with this label."""
        self._theme, self._opens = theme, opens
        self._markdown = Markdown(theme)
        self.waiting: list[Whole] = []
        """Items that wait for the end of a block."""
        self._out: list[str] = []
        self._last: Literal["nothing", "answer", "items", "calls", "blank"] = "nothing"
        self.shown: set[str] = set()
        """Questions and plans whose text stands in the scrollback."""

    def words(self, text: str, width: int) -> None:
        """A piece of the answer."""
        self._place(self._markdown.feed(text, width), width)

    def complete(self, width: int) -> None:
        """The answer is complete; the next words begin another one."""
        self._place(self._markdown.end(width), width)
        self._markdown = Markdown(self._theme)
        if self._last != "nothing":
            self._last = "items"  # a blank row stands between two answers

    def say(self, item: Whole, width: int) -> None:
        """An item; placed at once if no block is open, or if it may not wait."""
        self.waiting.append(item)
        if self._markdown.is_at_boundary:
            self._place([Boundary.HERE], width)
        elif not may_wait(item):
            self._place(self._markdown.cut(width), width)

    def cut(self, width: int) -> None:
        """End the open block where it is, because rows of something else follow that are not written by this file."""
        self._place(self._markdown.cut(width), width)
        if self._last not in ("nothing", "blank"):
            self._out.append("")
        self._last = "items"

    def tail(self, width: int) -> list[str]:
        """The rows of the answer that are not certain yet."""
        rows = self._markdown.tail(width)
        return ["", *rows] if rows and self._last in ("items", "calls") else rows

    def take(self) -> list[str]:
        """The rows to write now."""
        out, self._out = self._out, []
        return out

    def _place(self, given: Sequence[Out], width: int) -> None:
        for out in given:
            if isinstance(out, str):
                if self._last in ("items", "calls") and out:
                    self._out.append("")
                self._out.append(out)
                self._last = "answer" if out else "blank"
            else:
                for item in self.waiting:
                    self._place_item(item, width)
                self.waiting = []

    def _place_item(self, item: Whole, width: int) -> None:
        follows: Literal["calls", "items"] = "calls" if isinstance(item, Called | CallEnded) else "items"
        if self._last not in ("nothing", "blank") and not (self._last == follows == "calls"):
            self._out.append("")
        self._out += item_rows(item, width, self._theme, self._opens)
        self._last = follows
        if isinstance(item, CallQuestion | PlanQuestion):
            self.shown.add(item.id)


def item_rows(item: Whole, width: int, theme: Theme, opens: OpensResult = IN_CHAT) -> list[str]:
    """An item as rows."""
    match item:
        case SpokenItem(text=text):
            rows = _wrapped(text, width, theme, "b", "› ", "  ")
            more = len(rows) - SPOKEN_ROWS
            return rows if more <= 0 else [*rows[:SPOKEN_ROWS], theme.paint(f"  … {more} more rows", "d")]
        case NoticeItem(text=text):
            return _notice_rows(text, width, theme)
        case ErrorItem(text=text):
            return _wrapped(text, width, theme, "r", "✖ ", "  ")
        case Called(call=call):
            return [theme.line(f"· {call}", width, "d")]
        case CallEnded(call=call, is_ok=is_ok, text=text):
            facts = " · ".join(["", *call_facts(item)])
            sign = theme.paint("✓", "g") if is_ok else theme.paint("✗", "r")
            head = f"{fit(call, max(1, width - 2 - columns(facts)))}{facts}"
            lines = first_lines(text, RESULT_ROWS)
            return [
                f"{sign} {theme.line(head, width - 2, 'd')}",
                *(_result_row(line, width, theme) for line in lines),
            ]
        case EndedItem():
            return _card_rows(item, width, theme, opens)
        case AnswerItem(text=text):
            markdown = Markdown(theme)
            return [row for row in (*markdown.feed(text, width), *markdown.end(width)) if isinstance(row, str)]
        case Verbatim(text=text):
            return printable(text).split("\n")
        case OutputItem(call=call, text=text):
            rows = printable(text.rstrip()).split("\n")
            return [theme.line(f"⎿ {call}", width, "d"), *(theme.paint(f"  {row}", "d") for row in rows)]
        case PlanQuestion(who=who, text=text):
            return [theme.line(f"◇ {who}'s plan", width, "y"), *item_rows(AnswerItem(text), width, theme)]
        case CallQuestion(who=who, text=text):
            rows = printable(text).split("\n")
            return [theme.line(f"? {who} wants to run", width, "y"), *(f"    {row}" for row in rows)]


def _result_row(line: str, width: int, theme: Theme) -> str:
    """A row of a result, with its blanks."""
    line, room = line.expandtabs(8), width - 2
    return theme.paint(f"  {line}" if columns(line) <= room else f"  {clip(line, 0, room - 1)}…", "d")


def _card_rows(card: EndedItem, width: int, theme: Theme, opens: OpensResult) -> list[str]:
    sign, style = sign_of(card.status)
    facts = ended_facts(card)
    label = fit(card.label, max(1, width - 2 - columns(" · ".join(["", *facts]))))
    rows = [theme.paint(sign, style) + " " + fit(" · ".join([label, *facts]), width - 2)]
    lines = _without_marks(card.text)
    rows += [f"  {fit(line, width - 2)}" for line in lines[:CARD_ROWS]]
    if len(lines) > CARD_ROWS or any(columns(line) > width - 2 for line in lines):
        hint = _open_hint(printable(card.label), width // 2, opens)
        room = width - 2 - columns(hint) - 1
        last = fit(rows[-1].removesuffix("…") + " …", room)
        rows[-1] = f"  {last}" + " " * (room + 1 - columns(last)) + theme.paint(hint, "d")
    return rows


def _without_marks(text: str) -> list[str]:
    """The first lines of a text in markdown that have words, without its marks, each whole."""
    markdown, width = Markdown(Theme(colour=True)), 2**15
    rows = [*markdown.feed(text[:CARD_CHARS], width), *markdown.end(width)]
    return [line for row in rows if isinstance(row, str) and (line := plain(row)).strip()]


def _open_hint(label: str, room: int, opens: OpensResult) -> str:
    """The command that shows the whole result. The first words of a long label are enough: the command accepts them,
    too."""
    words = label.split()
    while words and columns(opens(" ".join(words))) > room:
        words.pop()
    return opens(" ".join(words)).strip()


def _notice_rows(text: str, width: int, theme: Theme) -> list[str]:
    """A notice. Of a line in two columns that does not fit, the second column is wrapped below itself; where the first
    one leaves no room for that, it stands below the first."""
    rows: list[str] = []
    for line in printable(text).expandtabs(8).split("\n"):
        found = _TWO_COLUMNS.fullmatch(line)
        if found is None or columns(line) <= width:
            rows += _wrapped(line, width, theme, "d")
            continue
        left, gap, right = found.groups()
        hang = columns(left + gap)
        if hang <= width // 2:
            rows += _wrapped(right, width, theme, "d", left + gap, " " * hang)
        else:
            rows += [*_wrapped(left, width, theme, "d"), *_wrapped(right, width, theme, "d", BELOW, BELOW)]
    return rows


def _wrapped(text: str, width: int, theme: Theme, style: str, first: str = "", rest: str = "") -> list[str]:
    """The text as rows. A line that fits stays as it is, with its blanks: it may be a part of a table. One that does
    not is wrapped below its own indentation."""
    rows: list[str] = []
    for line in printable(text).expandtabs(8).split("\n"):
        prefix = rest if rows else first
        if columns(prefix) + columns(line) <= width:
            rows.append(theme.paint(prefix + line, style))
            continue
        indent = " " * min(len(line) - len(line.lstrip(" ")), width // 2)
        room = width - columns(prefix) - len(indent)
        for row in wrap(list(pieces(line.strip(" "), style)), room, room):
            prefix = rest if rows else first
            rows.append(theme.paint(prefix + indent, style) + theme.row(row.pieces))
    return rows
