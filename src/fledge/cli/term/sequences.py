"""Divides what a terminal sends into characters, keys and reports, each whole, however it was cut on its way.

Terminals send more than keys: the window has the focus, answers to queries, a new size or theme, keys in protocols that
nobody asked for here. A reader that does not know such a sequence would take it for Escape and letters. Pure.
"""

import re
from typing import Final

ESC: Final = "\x1b"
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"
GIVE_UP_S: Final = 0.5
"""A sequence whose rest has not come after this time will not be completed: what is typed next is text."""

_CSI: Final = re.compile(r"\x1b\[(?:\[.|M.{3}|(?![\[M])[0-?]*[ -/]*[@-~])", re.DOTALL)
"""Also the function keys of the Linux console (`[[A`) and old mouse reports (`[M` and three characters)."""
_CSI_BEGUN: Final = re.compile(r"\x1b\[(?:\[|M.{0,2}|[0-?]*[ -/]*)", re.DOTALL)
_ESC_O: Final = re.compile(r"\x1bO[0-9;]*[@-~]")
_ESC_O_BEGUN: Final = re.compile(r"\x1bO[0-9;]*")
_STRING_BEGUN: Final = re.compile(r"\x1b(?:\](?![^0-9lLI])|P(?![^0-9;<=>?!])|[_^X])[^\x00-\x1f\x7f\x9c]*")
"""OSC, DCS, APC, PM and SOS: text up to BEL or ST. The first character of the two whose letters are also typed with Alt
is one that terminals send there."""
_NO_PAUSE: Final = re.compile(r"(\x1b*)(\x1b[_^X]?)")
"""A pause ends these: Escapes, and an Alt key that may also begin a string."""


class TypedSequences:
    """Gives what came as whole tokens: text, `ESC` alone, `ESC` with the character of an Alt key, key sequences and
    reports (CSI, `ESC O`), and pastes with their marks. Strings (OSC, DCS, APC, PM, SOS) are left out."""

    def __init__(self) -> None:
        self._held = ""
        """The beginning of a sequence that is not complete."""
        self._fed_at = 0.0

    def feed(self, data: str, now: float) -> list[str]:
        """More characters; answers the tokens that are complete."""
        if now - self._fed_at > GIVE_UP_S and not self._held.startswith(PASTE_BEGINS):
            self._held = ""
        self._fed_at = now
        text, found = self._held + data, []
        while text:
            length = text.find(ESC) if text[0] != ESC else _length(text)
            if length is None:
                break
            end = length if length > 0 else len(text)
            if not _STRING_BEGUN.match(text[:end]) or end <= 2:
                found.append(text[:end])
            text = text[end:]
        self._held = text
        return found

    def flush(self) -> list[str]:
        """Nothing follows for now: an Escape is a key of its own."""
        held = _NO_PAUSE.fullmatch(self._held)
        if held is None:
            return []
        self._held = ""
        return [*held[1], held[2]]


def _length(text: str) -> int | None:
    """The length of the sequence that begins this text; None while it is not complete. A character that no sequence of
    its kind contains ends it."""
    if text.startswith(PASTE_BEGINS):
        end = text.find(PASTE_ENDS)
        return None if end < 0 else end + len(PASTE_ENDS)
    if len(text) == 1:
        return None
    match text[1]:
        case "[":
            return _matched(text, _CSI, _CSI_BEGUN)
        case "O":
            return _matched(text, _ESC_O, _ESC_O_BEGUN)
        case "\x1b":
            return _length_after_escape(text)
        case "]" | "P" | "_" | "^" | "X":
            return _string_length(text)
        case _:
            return 2


def _matched(text: str, whole: re.Pattern[str], begun: re.Pattern[str]) -> int | None:
    if found := whole.match(text):
        return found.end()
    found = begun.match(text)
    assert found is not None
    return None if found.end() == len(text) else found.end()


def _length_after_escape(text: str) -> int | None:
    """Two Escapes: some terminals send one before the sequence of a key for Alt with that key."""
    inner = _length(text[1:])
    if inner is None:
        return None
    is_key = text[2] in "[O" and not text.startswith(PASTE_BEGINS, 1)
    return 1 + inner if is_key else 1


def _string_length(text: str) -> int | None:
    begun = _STRING_BEGUN.match(text)
    if begun is None:
        return 2
    end = begun.end()
    match text[end : end + 2]:
        case "" | "\x1b":
            return None
        case "\x1b\\":
            return end + 2
        case rest:
            return end + 1 if rest[0] in "\x07\x9c" else end
