"""The meaning of keys: when a key answers a question, what Esc and Ctrl-C do, how a long paste is folded.

Pure functions of the screen's state. A key that was meant for a message must never approve anything, so a bare key
answers only when the person cannot be in the middle of typing.
"""

import re
from typing import Final, Literal

QUIET_S: Final = 1.0
"""How long no key may have been pressed before a bare key answers a question."""
READ_S: Final = 0.7
"""How long a question must have stood on the terminal before a bare key answers it."""
PAUSE_S: Final = 0.3
"""A bare key answers if no other key follows for so long; else it was the first letter of a message."""
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
    """The action of Esc or Ctrl-C. It concerns the nearest thing: a menu, a question, the turn, the input, the chat."""
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
    """Long pastes, each folded into a mark in the input and unfolded when the message is sent."""

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
        """The text with each mark replaced by its paste."""

        def whole(mark: re.Match[str]) -> str:
            number = int(mark[1])
            return self._texts[number - 1] if 0 < number <= len(self._texts) else mark[0]

        return _FOLDED.sub(whole, text)
