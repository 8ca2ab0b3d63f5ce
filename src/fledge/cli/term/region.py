"""The live region below the scrollback: a pure function from the chat's state, the terminal's size and time to rows.

From top to bottom: the end of the answer that is coming, the state of the turn, the subagents at work, the question
that waits for the person, queued words, notes. The input follows below. In a low terminal the question is kept before
all else.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from fledge.cli.term.cells import Theme, chop, columns, fit
from fledge.cli.term.figures import next_try
from fledge.cli.term.shown import CallQuestion, OpenQuestions, PlanQuestion, TurnShown, WorkingChildren
from fledge.core.figures import count_text, elapsed
from fledge.core.printable import printable

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINS_PER_S: Final = 8
TAIL_ROWS: Final = 8
CHILD_ROWS: Final = 4
QUEUED_ROWS: Final = 3
QUESTION_ROWS: Final = 6
"""A call that takes more rows is shown whole in the scrollback, too, and only its beginning here."""
LABEL_COLUMNS: Final = 24
MENU_ROWS: Final = 6

QuestionKeys = Literal["waits", "keys", "reason"]
"""The effect of keys on the question: none yet, answer it, or write the reason for a no."""


class View(Struct, frozen=True):
    """All that the region depends on, besides the time and the terminal."""

    tail: tuple[str, ...] = ()
    """Rows of the answer that may still change, already wrapped to the width of the terminal."""
    turn: TurnShown | None = None
    children: WorkingChildren = ()
    shows_all: bool = False
    """True if every child gets a row, as far as the height of the terminal allows."""
    asked: OpenQuestions = ()
    answering: QuestionKeys = "waits"
    queued: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Short notes about the input, such as what joins the next message."""
    reads_keys: bool = True
    """False if there is no input: then no key is named but Ctrl-C."""


def region_rows(view: View, width: int, room: int, now: float, theme: Theme) -> list[str]:
    """The rows above the input: at most `room`, none wider than `width`."""
    question = question_rows(view, width, theme)
    turn = [turn_row(view.turn, width, now, theme, view.reads_keys)] if view.turn else _at_work(view, width, theme)
    notes = [theme.line(note, width, "d") for note in view.notes]
    left = room - len(question) - len(turn) - len(notes)
    queued = queued_rows(view.queued, width, max(0, min(QUEUED_ROWS, left - 2)), theme)
    left -= len(queued) + bool(view.tail)
    most = left if view.shows_all else min(CHILD_ROWS, left)
    children = child_rows(view.children, width, max(0, most), now, theme, view.reads_keys)
    left -= len(children) - bool(view.tail)
    tail = view.tail[-min(TAIL_ROWS, left) :] if left > 0 else ()
    rows = [*tail, *turn, *children, *question, *queued, *notes]
    return rows[max(0, len(rows) - room) :]


def turn_row(turn: TurnShown, width: int, now: float, theme: Theme, reads_keys: bool) -> str:
    """The state of the turn, its time, and how to stop it. Where no keys are read, Ctrl-C ends the command."""
    stops = "esc stops" if reads_keys else "ctrl-c leaves"
    tokens = [f"↓ {count_text(turn.tokens)} tok"] if turn.tokens else []
    if turn.state == "retrying":
        wait = next_try(turn, now)
        return theme.paint("✖", "r") + " " + _facts([turn.tool], [wait, stops], width - 2)
    first = {"waiting": "waits for you", "tool": printable(turn.tool)}.get(turn.state, turn.state)
    spin = "·" if turn.state == "waiting" else SPINNER[int(now * SPINS_PER_S) % len(SPINNER)]
    since = elapsed(now - turn.since)
    if columns(" · ".join([first, since, *tokens, stops])) > width - 2:
        tokens = []
    return theme.paint(spin, "c") + " " + _facts([first], [since, *tokens, stops], width - 2)


def _at_work(view: View, width: int, theme: Theme) -> list[str]:
    """The head of the children's rows between turns."""
    number = len(view.children)
    if not number:
        return []
    return [theme.paint("·", "c") + " " + fit(f"{number} subagent{'s' * (number > 1)} at work", width - 2)]


def child_rows(
    children: WorkingChildren, width: int, most: int, now: float, theme: Theme, reads_keys: bool
) -> list[str]:
    """One row for each child at work; if there are more, those that wait for the person come first."""
    chosen = sorted(range(len(children)), key=lambda number: (not children[number].waits, number))[:most]
    shown = [children[number] for number in sorted(chosen)]
    more = f"ctrl-t: all {len(children)}" if reads_keys else f"{len(children) - len(shown)} more"
    hint = f"({more})" if len(shown) < len(children) else ""
    rows = []
    for child in shown:
        is_last = child is shown[-1]
        room = width - 4 - (columns(hint) + 1 if is_last and hint else 0)
        doing = "waits for you" if child.waits else child.doing
        tokens = [count_text(child.tokens)] if child.tokens else []
        label = fit(child.label, LABEL_COLUMNS)
        facts = _facts([label, doing], [elapsed(now - child.since), *tokens], room)
        row = f"  {'└' if is_last else '├'} " + (theme.paint(facts, "y") if child.waits else facts)
        if is_last and hint:
            row += " " * max(1, room + 1 - columns(facts)) + theme.paint(hint, "d")
        rows.append(row)
    return rows


def question_rows(view: View, width: int, theme: Theme) -> list[str]:
    """The first open question, and the keys that work for it now."""
    if not view.asked:
        return []
    asked = view.asked[0]
    of = f"1 of {len(view.asked)}" if len(view.asked) > 1 else ""
    if isinstance(asked, PlanQuestion):
        head = _spread(f"◇ {asked.who}'s plan, in full in the scrollback", of, width)
        rows, keys = [], ["y carry out", "n reject with a reason", "e edit in $EDITOR"]
    else:
        head = _spread(f"? {asked.who} wants to run", of, width)
        rows = _call_rows(asked, width)
        keys = ["y once", *filter(None, [always_key(asked, width)]), "n no", "e say why"]
    if view.answering != "keys":
        keys = ["enter sends the reason", "esc goes back"] if view.answering == "reason" else ["ctrl-y: answer"]
    style = "" if view.answering == "keys" else "d"
    return [theme.paint(head, "y"), *rows, *(f"  {theme.paint(row, style)}" for row in _joined(keys, width - 2))]


def always_key(question: CallQuestion, width: int) -> str:
    """The key that makes a rule; empty if no rule can be made, or the terminal is too narrow to show it whole: a person
    must see all of what they allow."""
    words = f"a always for {printable(question.granted)}" if question.always else ""
    return words if columns(words) <= width - 2 else ""


def is_long(question: CallQuestion, width: int) -> bool:
    """True if the call does not fit in the region, so that it must stand in the scrollback first."""
    return len(_whole_call(question, width)) > QUESTION_ROWS


def _whole_call(question: CallQuestion, width: int) -> list[str]:
    return [f"    {row}" for line in printable(question.text).split("\n") for row in chop(line, width - 4)]


def _call_rows(question: CallQuestion, width: int) -> list[str]:
    rows = _whole_call(question, width)
    if len(rows) > QUESTION_ROWS:
        rows = [*rows[: QUESTION_ROWS - 1], "    … whole in the scrollback"]
    if question.place:
        place = fit(f"in {question.place}", width)
        if columns(rows[-1]) + 2 + columns(place) <= width:
            rows[-1] = _spread(rows[-1], place, width)
        else:
            rows.append(f"    {fit(place, width - 4)}")
    return rows


def queued_rows(queued: tuple[str, ...], width: int, most: int, theme: Theme) -> list[str]:
    """Words of the person that were not read yet, or wait for their place in the scrollback."""
    if most <= 0:
        return []
    older = len(queued) - most + 1 if len(queued) > most else 0
    rows = [f"queued: {older} earlier"] if older else []
    rows += [f"queued › {text}" for text in queued[older:]]
    return [theme.paint("  " + fit(row, width - 2), "d") for row in rows]


def menu_rows(choices: Sequence[tuple[str, str]], chosen: int | None, width: int, theme: Theme) -> list[str]:
    """The completion menu of the typed word: the choices near the chosen one, with their meanings."""
    first = max(0, min((chosen or 0) - MENU_ROWS // 2, len(choices) - MENU_ROWS))
    rows = []
    for number, (word, meaning) in list(enumerate(choices))[first : first + MENU_ROWS]:
        row = fit(f"{word} {meaning}", width - 2)
        rows.append(f"{'›' if number == chosen else ' '} " + theme.paint(row, "b" if number == chosen else "d"))
    return rows


def input_hint(view: View, has_words: bool) -> str:
    """A hint about Enter, where its effect is not the usual one."""
    return "(enter: heard at the next step)" if view.turn and has_words and view.answering != "reason" else ""


def _facts(flexible: list[str], fixed: list[str], room: int) -> str:
    """Facts on one row; if they are too long, the last flexible one is cut, and then the row."""
    *first, last = flexible
    spare = room - columns(" · ".join([*first, "", *fixed]))
    shown = [*first, fit(last, max(1, spare)), *fixed]
    return fit(" · ".join(shown), room)


def _joined(words: Sequence[str], room: int) -> list[str]:
    """Words on as few rows as hold them, none divided."""
    rows: list[str] = []
    for word in (fit(word, room) for word in words):
        if rows and columns(rows[-1]) + 3 + columns(word) <= room:
            rows[-1] += f" · {word}"
        else:
            rows.append(word)
    return rows


def _spread(left: str, right: str, width: int) -> str:
    """One text at the left, with its leading blanks, and perhaps one at the right."""
    indent = " " * (len(left) - len(left.lstrip(" ")))
    if not right:
        return indent + fit(left, width - len(indent))
    shown = indent + fit(left, width - columns(right) - 2 - len(indent))
    return shown + " " * max(2, width - columns(shown) - columns(right)) + right
