"""Which key does what: when a key answers a question, what Esc and Ctrl-C mean, how a long paste is folded.

Pure tables over what the screen knows. A key that was meant for a message must never approve anything, so a bare key
answers only where nobody can be in the middle of typing.
"""

import re
from typing import Final, Literal

QUIET_S: Final = 1.0
"""So long must no key have been pressed before a bare key answers a question."""
READ_S: Final = 0.7
"""So long must a question have stood on the terminal before a bare key answers it."""
PAUSE_S: Final = 0.3
"""A bare key answers if no other follows for so long; else it was the first letter of a message."""
ARMED_S: Final = 2.0
"""Within this time a second Esc or Ctrl-C leaves."""
FOLDED_LINES: Final = 10
"""A paste of more lines is folded."""

_FOLDED: Final = re.compile(r"\[paste (\d+): \d+ lines\]")

KeyAction = Literal["close menu", "back", "stop", "clear", "arm", "leave", "nothing"]


def may_answer(
    now: float, last_key_at: float, shown_at: float | None, *, is_empty: bool, is_focused: bool = False
) -> bool:
    """True if a bare key answers the question that is shown.

    - `last_key_at`: when the key before this one was pressed.
    - `shown_at`: since when the question stands on the terminal; None if it does not.
    - `is_empty`: nothing is typed in the input.
    - `is_focused`: the person went to this very question by Ctrl-Y.
    """
    if shown_at is None:
        return False
    if is_focused:
        return True
    is_quiet = now - last_key_at >= QUIET_S
    return is_empty and is_quiet and now - shown_at >= READ_S


def on_escape(
    key: Literal["esc", "ctrl-c"],
    *,
    has_menu: bool,
    is_answering: bool,
    has_turn: bool,
    is_empty: bool,
    is_armed: bool,
) -> KeyAction:
    """What Esc or Ctrl-C does. The nearest thing first: a menu, a question, the turn, the input, the chat."""
    if has_menu:
        return "close menu"
    if is_answering:
        return "back"
    if has_turn:
        return "stop"
    if not is_empty:
        return "clear" if key == "ctrl-c" else "nothing"
    return "leave" if is_armed else "arm"


class Pastes:
    """Long pastes, folded into a mark in the input and unfolded when it is sent."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def fold(self, text: str) -> str:
        """The text, or a mark that stands for it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1 - text.endswith("\n")
        if lines <= FOLDED_LINES:
            return text
        self._texts.append(text)
        return f"[paste {len(self._texts)}: {lines} lines]"

    def unfold(self, text: str) -> str:
        """The text with what its marks stand for."""

        def whole(mark: re.Match[str]) -> str:
            number = int(mark[1])
            return self._texts[number - 1] if 0 < number <= len(self._texts) else mark[0]

        return _FOLDED.sub(whole, text)
