"""Words on standard input beside a prompt: `cat log | fledge run "explain"`. They are read from a pipe or a file alone,
and at most 1 MiB of them, so that a command in a script, a job or a test never waits for an input that nobody meant."""

import codecs
import os
import select
import stat
import sys
from typing import Final, NamedTuple

from fledge.commands.params import MOST_WORDS
from fledge.core.prompts import with_piped
from fledge.errors import BadInput

MOST_BYTES: Final = 1024 * 1024
SILENCE_S: Final = 2.0
"""For so long a pipe may give nothing before it is left alone."""


class Piped(NamedTuple):
    """The text on standard input."""

    text: str = ""
    is_cut: bool = False
    """There is more, which was not read."""
    is_silent: bool = False
    """It is a pipe that gave nothing, and was left alone."""


def read_piped(waits: bool) -> Piped:
    """Read standard input if it is a pipe or a file. `waits`: however long a pipe gives nothing. Raises BadInput if it
    is not text."""
    descriptor = _descriptor()
    if descriptor is None:
        return Piped()
    if not waits and not select.select([descriptor], [], [], SILENCE_S)[0]:
        return Piped(is_silent=True)
    data = bytearray()
    while len(data) <= MOST_BYTES and (piece := os.read(descriptor, 65536)):
        data += piece
    is_cut = len(data) > MOST_BYTES
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(bytes(data[:MOST_BYTES]), final=not is_cut)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BadInput("standard input", "must be text in UTF-8; --attach FILE gives any file")
    return Piped(text, is_cut)


def quoted(prompt: str, piped: Piped) -> tuple[str, Piped]:
    """The prompt with the text behind it, and the part of the text that has room in a message."""
    whole = with_piped(prompt, piped.text, piped.is_cut)
    if len(whole) > MOST_WORDS:
        beside = len(with_piped(prompt, piped.text, is_cut=True)) - len(piped.text.rstrip())
        piped = piped._replace(text=piped.text[: max(0, MOST_WORDS - beside)], is_cut=True)
        whole = with_piped(prompt, piped.text, is_cut=True)
    return whole, piped


def _descriptor() -> int | None:
    """Standard input, if it is a pipe or a file."""
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):  # it is closed
        return None
    return descriptor if stat.S_ISFIFO(kind) or stat.S_ISREG(kind) else None
