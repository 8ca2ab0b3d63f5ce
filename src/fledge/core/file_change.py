"""The change that a tool call makes in a file, as lines for the person who is asked about it, and the record of the
content that it replaced. `core/diff.py` makes both.
"""

from typing import Final, Literal

from fledge.core.freeze import one_line
from fledge.core.value import Value

WHY_CHARS: Final = 300

LineMark = Literal["kept", "removed", "added", "gap"]
SIGNS: Final[dict[LineMark, str]] = {"kept": " ", "removed": "-", "added": "+", "gap": "…"}


class ChangeLine(Value):
    """One line of a change."""

    mark: LineMark
    """`kept`: an unchanged line. `gap`: unchanged lines that are not shown; the text has their number."""
    text: str


class FileChange(Value, kw_only=True, omit_defaults=True):
    """What a tool call would change in a file."""

    path: str
    note: str = ""
    """What the lines do not say: the file is new, or its content is not shown, and why."""
    lines: tuple[ChangeLine, ...] = ()
    """Empty: the note says why, and the arguments of the call show what is written."""
    hides: bool = False
    """An added line hides a secret of the file, so the arguments must be shown, too."""
    digest: str = ""
    """Digest of the change, secrets included: a person's answer applies only to this change."""


class Replaced(Value, kw_only=True, omit_defaults=True):
    """The content of a file that a tool call has replaced."""

    path: str
    """From the top of the workspace."""
    is_new: bool = False
    """There was no such file."""
    size: int = 0
    sha256: str = ""
    """Of the content as it was; empty for a file of more than 10 MiB."""
    kept: str = ""
    """The digest under which it is kept, with its secrets hidden: another one than `sha256` if it had any. Empty if it
    is not kept: it is new, too large or binary."""


def refused_change(why: str) -> FileChange:
    """Stands for the change of a call that would be refused now. No change has its digest."""
    return FileChange(path="", note=f"it would be refused now: {one_line(why, WHY_CHARS)}", digest="refused")


def change_lines(change: FileChange) -> list[str]:
    """The change as lines of text, each with its sign."""
    note = [f"({change.note})"] if change.note else []
    return [*note, *(f"{SIGNS[line.mark]}{line.text}" for line in change.lines)]


def shown_by(change: FileChange) -> tuple[str, ...]:
    """The arguments of a call that its change shows whole."""
    return ("content", "old", "new") if change.lines and not change.hides else ()
