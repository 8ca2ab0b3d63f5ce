"""Words of models and children as a terminal may be given them: nothing in them moves a cursor, changes a colour, turns
the direction of a line, or hides.
"""

import json
import re
from typing import Final

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)

_UNSAFE_IN_JSON: Final = re.compile(_UNSAFE.pattern.replace("\x00-\x08\x0b-\x1f", ""))
"""Control characters below the blank are escaped in JSON already, or stand between its values."""


def printable(text: str) -> str:
    """The text with a sign for each control character and the number of each that turns directions or is invisible;
    lines and tabs stay."""
    return _UNSAFE.sub(lambda found: _shown(ord(found[0])), text.replace("\r\n", "\n"))


def _shown(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"


def printable_json(text: str) -> str:
    """JSON that means the same, with the same characters escaped."""
    return _UNSAFE_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def whole_call(tool: str, arguments: str) -> str:
    """A tool call on one line, as a person is asked to allow it: whole, because a person must see all of what they
    allow."""
    return f"{tool} {printable(arguments).replace(chr(10), ' ')}"


def quoted_lines(text: str) -> str:
    """Lines that follow a person's question, each marked, so that none passes for a line of fledge's own."""
    return "".join(f"\n  | {line}" for line in text.splitlines())
