"""A tool call in people's words: on one line where its work is shown, and whole where a person is asked to allow it.

Arguments are JSON that a model wrote. What cannot be read as an object with each name once is shown as it stands:
nobody may allow something else than what they saw. Making the text printable is left to whoever shows it.
"""

import json
from typing import Any, Final

from fledge.core.freeze import one_line

LINE_CHARS: Final = 160
SPEAKING: Final = ("command", "path", "url", "query", "pattern", "label", "task", "message")
"""Arguments that say most about a call, the first of them first."""
COMMAND: Final = ("exec", "command")
"""The tool whose call is a command line, and the argument that holds it: a person reads that as it would be typed."""


def call_line(tool: str, arguments: str) -> str:
    """The call on one short line: the tool, and the argument that says most."""
    given = _given(arguments)
    if given is None:
        return one_line(f"{tool} {arguments}", LINE_CHARS)
    texts = {name: value for name, value in given.items() if isinstance(value, str) and value.strip()}
    chosen = next((name for name in SPEAKING if name in texts), next(iter(texts), ""))
    return one_line(f"{tool} {texts.get(chosen, '')}", LINE_CHARS)


def whole_call_text(tool: str, arguments: str) -> str:
    """The whole call: a command line as it would be typed, then every other argument on lines of its own."""
    given = _given(arguments)
    if given is None:
        return f"{tool} {arguments}"
    lines: list[str] = [tool]
    if tool == COMMAND[0] and isinstance(given.get(COMMAND[1]), str):
        lines = [given.pop(COMMAND[1])]
    return "\n".join([*lines, *(line for name, value in given.items() for line in _argument(name, value))])


def _argument(name: str, value: Any) -> list[str]:
    """An argument as lines. The lines of a text are marked, so that none of them passes for another argument."""
    named = one_line(name, LINE_CHARS)
    if isinstance(value, str) and ("\n" in value or "\r" in value):
        return [f"{named}:", *(f"| {line}" for line in value.splitlines())]
    return [f"{named}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"]


def _given(arguments: str) -> dict[str, Any] | None:
    """The arguments by name; None if they are no JSON object, or one that has a name twice."""
    try:
        read = json.loads(arguments or "{}", object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a name stands there twice")
    return read
