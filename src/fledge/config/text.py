"""Settings as text: JSON5 in, plain values out; an error names the line and column.

The standard library reads plain JSON; only a text that needs JSON5 takes the time for it. This file does not know the
settings.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from fledge.core.redact import error_words
from fledge.errors import BadInput

MAX_CHARS = 256 * 1024
"""JSON5 is read at about 150 000 characters a second, so a larger file could hold up a start for minutes."""
_POSITION = re.compile(r".*?:(\d+) (.*) at column (\d+)", re.DOTALL)


def decoded(text: str, source: str) -> object:
    """The value of the text. Refused, naming source, line and column where there are some: text that is empty,
    too long, nested too deep, no JSON5, or gives a key of one object twice.
    """
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise BadInput(source, "is empty; {} stands for all defaults")
    if len(text) > MAX_CHARS:
        raise BadInput(source, f"must be at most {MAX_CHARS} characters", len(text))

    def unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise BadInput(source, "must give each key of an object once", key)
            found[key] = value
        return found

    try:
        try:
            value: object = json.loads(text, object_pairs_hook=unique)
        except ValueError:
            import json5  # slow, so it is used only if the text is no plain JSON

            value = json5.loads(text, object_pairs_hook=unique)
    except RecursionError:
        raise BadInput(source, "is nested too deep to be read") from None
    except ValueError as error:
        raise _syntax_error(error_words(error), source) from None
    return value


def utf8(raw: bytes, path: Path) -> str:
    """The text in the bytes of a file. Refused: bytes that are not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(str(path), f"must be UTF-8 text, byte {error.start} is not") from None


def value_of(text: str) -> object:
    """The value of a single setting, or of a line in a profile: the JSON5 value if it is one, else the text itself."""
    try:
        return decoded(text, "setting")
    except BadInput:
        return text.strip()


def _syntax_error(problem: str, source: str) -> BadInput:
    found = _POSITION.fullmatch(problem)
    if found is None:
        return BadInput(source, f"must be JSON5: {problem.partition(':')[0].lower()}")
    line, what, column = found.groups()
    what = what.replace("\n", "\\n")
    return BadInput(f"{source} line {line} column {column}", f"must be JSON5: {what[:1].lower()}{what[1:]}")
