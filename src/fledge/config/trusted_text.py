"""The text of trusted project files, kept in the user's folder so that a later change can be shown as a difference.

One private file for each trusted version, named by its digest. Its size is bounded: a file that does not fit is not
kept, and the difference says so. Nothing here decides what is trusted: the digest of the bytes in `places` does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from fledge.core.printable import printable
from fledge.plain_file import read_plain, write_private

FOLDER = "trusted"
KEPT_BYTES = 256 * 1024
"""The most bytes that are kept of one version of a project's files."""
COMPARED_LINES = 2000
"""Versions of a file with more lines together are not compared: that takes time that grows with their square."""
SHOWN_LINES = 200
SHOWN_CHARS = 160

Files = Sequence[tuple[str, bytes]]
"""Names and contents."""


def keep(user: Path, digest: str, files: Files) -> None:
    """Keep the text of these files, as far as it fits, under the digest of all of them."""
    kept: dict[str, str | None] = {}
    room = KEPT_BYTES
    for name, raw in files:
        kept[name] = raw.decode("utf-8", "replace") if len(raw) <= room else None
        room -= len(raw) if kept[name] is not None else 0
    write_private(_path(user, digest), json.dumps(kept))


def forget(user: Path, digest: str) -> None:
    """Remove the text that is kept under this digest, if there is one."""
    _path(user, digest).unlink(missing_ok=True)


def difference(user: Path, digest: str, files: Files) -> list[str]:
    """Lines that show how these files differ from the text kept under the digest, safe to print, bounded in number."""
    held = _held(user, digest)
    if held is None:
        return [f"the trusted version was not kept; the files are now: {', '.join(name for name, _ in files)}"]
    now = {name: raw.decode("utf-8", "replace") for name, raw in files}
    lines = [line for name in sorted({*held, *now}) for line in _changed(name, held, now)]
    more = len(lines) - SHOWN_LINES
    return [_shown(line) for line in lines[:SHOWN_LINES]] + ([f"… and {more} more lines"] if more > 0 else [])


def _changed(name: str, held: Mapping[str, str | None], now: Mapping[str, str]) -> Iterator[str]:
    from difflib import unified_diff  # needed only to explain a change

    old, new = held.get(name, ""), now.get(name, "")
    if old == new:
        return
    if old is None:
        yield f"{name}: its trusted text was too long to be kept, so a change of it cannot be shown"
        return
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > COMPARED_LINES:
        yield f"{name}: changed, and too long to compare"
        return
    names = (f"{name} (as trusted)" if name in held else "(new)", f"{name} (now)" if name in now else "(removed)")
    yield from unified_diff(before, after, *names, n=2, lineterm="")
    if before == after:
        yield f"{name}: only line ends changed"


def _shown(line: str) -> str:
    """The line without terminal control characters; a long line is cut, and its length is added."""
    text = printable(line.expandtabs(4))
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"


def _held(user: Path, digest: str) -> dict[str, str | None] | None:
    try:
        return msgspec.json.decode(read_plain(_path(user, digest), 8 * KEPT_BYTES), type=dict[str, str | None])
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _path(user: Path, digest: str) -> Path:
    return user / FOLDER / f"{digest}.json"
