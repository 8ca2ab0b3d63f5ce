"""The change of a file as a diff: lines with three unchanged ones around each change.

Its work is bounded: lines that occur once in both texts are matched first, small regions between them by their longest
common subsequence, and once `MOST_WORK` is used up the rest counts as removed and added. That is still a correct diff,
only a longer one.

Secrets of the file are hidden in the lines. The words of the call itself are never hidden from the person who answers
for them: a file that is written whole is shown as the call has it, and where an edit adds a line with a hidden secret,
`hides` is set, and the arguments are shown, too.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from fledge.core.file_change import ChangeLine, FileChange, LineMark, Replaced
from fledge.core.redact import hidden, redacted, secrets

MOST_BYTES: Final = 1 << 20
"""The largest content that is kept and compared."""
MOST_SHOWN: Final = 256 * 1024
"""The longest diff, in characters."""
MOST_WORK: Final = 1_000_000
"""How many comparisons of lines a diff may take."""
_UNENDED: Final = "\x00"
"""No compared text holds this sign: a file with it is binary."""
CONTEXT: Final = 3
"""How many unchanged lines are shown around a change."""


def file_change(path: str, before: bytes | None, size: int, after: bytes, own_words: bool) -> FileChange:
    """The change of a file of `size` bytes from `before` (None: there is no such file) to `after`. `own_words`: the
    call holds all of `after`."""
    if before is None:
        return FileChange(path=path, note="a new file", digest=_digest(["new"]))
    old, new = _text(before), _text(after)
    if old is None or new is None or size > MOST_BYTES:
        why = "too large to compare" if max(size, len(after)) > MOST_BYTES else "binary"
        return _unshown(path, before, size, why)
    if before == after:
        return FileChange(path=path, note="the file holds exactly this already", digest=_digest(["same"]))
    old_lines, new_lines = _lines(old, new), _lines(new, old)
    old_shown, new_shown = _lines(_hidden(old), new), new_lines if own_words else _lines(_hidden(new), old)
    raw: list[str] = []
    shown: list[ChangeLine] = []
    hidden_in: set[LineMark] = set()
    for mark, at, count in _hunks(old_lines, new_lines):
        text, given = (new_shown[at], new_lines[at]) if mark == "added" else (old_shown[at], old_lines[at])
        if mark == "gap":
            text = given = f"{count} unchanged lines"
        if text != given:
            hidden_in.add(mark)
        raw.append(mark if mark == "gap" else f"{mark} {given}")
        shown.append(ChangeLine(mark, _as_shown(text, mark)))
    if sum(len(line.text) + 1 for line in shown) > MOST_SHOWN:
        return _unshown(path, before, size, "too large to compare")
    note = "secrets of the file are not shown" if hidden_in else ""
    return FileChange(
        path=path,
        note="replaces an empty file" if not before else note,
        lines=tuple(shown),
        hides="added" in hidden_in,
        digest=_digest(raw),
    )


def replaced(path: str, before: bytes | None, size: int) -> tuple[Replaced, bytes | None]:
    """The record of a file that a call has replaced (`before` is None: there was none), and its content as it is to be
    kept, without secrets; None if there is nothing to keep."""
    if before is None:
        return Replaced(path=path, is_new=True), None
    text = None if size > MOST_BYTES else _text(before)
    sha256 = hashlib.sha256(before).hexdigest() if len(before) == size else ""
    return Replaced(path=path, size=size, sha256=sha256), None if text is None else redacted(text).encode()


def _unshown(path: str, before: bytes, size: int, why: str) -> FileChange:
    note = f"replaces a file of {_size(size)} that is not shown ({why})"
    return FileChange(path=path, note=note, digest=_digest([str(size), hashlib.sha256(before).hexdigest()]))


def _size(count: int) -> str:
    for unit, below in (("MB", 1_000_000), ("kB", 1000)):
        if count >= below:
            return f"{count / below:.1f} {unit}"
    return f"{count} bytes"


def _text(data: bytes) -> str | None:
    """The content as text; None if it is too large or binary."""
    if len(data) > MOST_BYTES or b"\x00" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _digest(lines: list[str]) -> str:
    return hashlib.sha256(msgspec.json.encode(lines)).hexdigest()


def _hidden(text: str) -> str:
    """The text with its secrets hidden, line by line: it has as many lines as before."""
    spans = []
    for start, end in secrets(text):
        while (stop := text.find("\n", start, end)) >= 0:
            spans.append((start, stop))
            start = stop + 1
        spans.append((start, end))
    return hidden(text, (span for span in spans if span[0] < span[1]))


def _lines(text: str, other: str) -> list[str]:
    """The lines of a text. The last one is marked if no line break follows it, but one ends the other text."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    elif other.endswith("\n"):
        lines[-1] += _UNENDED
    return lines


def _as_shown(line: str, mark: LineMark) -> str:
    """The line with words for a missing line break, and of a changed one with a sign for a carriage return: a change of
    line ends must be seen."""
    if line.endswith("\r"):
        line = line[:-1] + ("" if mark == "kept" else "␍")
    return line.replace(_UNENDED, " (no line break at the end)")


# ---- comparing -------------------------------------------------------------------------------------------------------

EqualLines = tuple[int, int, int]
"""Equal lines: where they begin in the old and in the new text, and how many they are."""


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[LineMark, int, int]]:
    """The marks of a diff: each with the place of its line (of an added one in the new text), or of a gap the number of
    lines."""
    in_old = in_new = 0
    for old_at, new_at, count in [*_blocks(old, new), (len(old), len(new), 0)]:
        yield from (("removed", at, 1) for at in range(in_old, old_at))
        yield from (("added", at, 1) for at in range(in_new, new_at))
        # Before the first change and after the last one, only one side of the equal lines is near a change.
        first = old_at + (CONTEXT if in_old or in_new or old_at or new_at else 0)
        last = old_at + count - (CONTEXT if old_at + count < len(old) or new_at + count < len(new) else 0)
        if last - first > 1:
            yield from (("kept", at, 1) for at in range(old_at, first))
            yield "gap", first, last - first
            yield from (("kept", at, 1) for at in range(last, old_at + count))
        else:
            yield from (("kept", at, 1) for at in range(old_at, old_at + count))
        in_old, in_new = old_at + count, new_at + count


def _blocks(old: Sequence[str], new: Sequence[str]) -> list[EqualLines]:
    """The equal lines of two texts, in order."""
    found: list[EqualLines] = []
    room = MOST_WORK
    regions = [(0, len(old), 0, len(new))]
    while regions:
        old_at, old_end, new_at, new_end = regions.pop()
        same = 0
        while old_at + same < old_end and new_at + same < new_end and old[old_at + same] == new[new_at + same]:
            same += 1
        found.append((old_at, new_at, same))
        old_at, new_at = old_at + same, new_at + same
        same = 0
        while old_at < old_end and new_at < new_end and old[old_end - 1] == new[new_end - 1]:
            old_end, new_end, same = old_end - 1, new_end - 1, same + 1
        found.append((old_end, new_end, same))
        room -= old_end - old_at + new_end - new_at
        if old_at == old_end or new_at == new_end or room < 0:
            continue
        anchors = _anchors(old, new, old_at, old_end, new_at, new_end)
        for old_anchor, new_anchor in anchors:
            regions.append((old_at, old_anchor, new_at, new_anchor))
            old_at, new_at = old_anchor, new_anchor
        work = (old_end - old_at) * (new_end - new_at)
        if anchors:
            regions.append((old_at, old_end, new_at, new_end))
        elif work <= room:
            room -= work
            found += _common(old[old_at:old_end], new[new_at:new_end], old_at, new_at)
    return _merged(sorted(block for block in found if block[2]))


def _merged(blocks: list[EqualLines]) -> list[EqualLines]:
    """The blocks, with those that follow each other at once made one."""
    merged: list[EqualLines] = []
    for old_at, new_at, count in blocks:
        if merged and (old_at, new_at) == (merged[-1][0] + merged[-1][2], merged[-1][1] + merged[-1][2]):
            old_at, new_at, before = merged.pop()
            count += before
        merged.append((old_at, new_at, count))
    return merged


def _anchors(
    old: Sequence[str], new: Sequence[str], old_at: int, old_end: int, new_at: int, new_end: int
) -> list[tuple[int, int]]:
    """The places of lines that occur once in each region, as many of them as stand in the same order."""
    in_old, in_new = Counter(old[old_at:old_end]), Counter(new[new_at:new_end])
    once = {new[at]: at for at in range(new_at, new_end) if in_new[new[at]] == 1}
    places = [(at, once[old[at]]) for at in range(old_at, old_end) if in_old[old[at]] == 1 and old[at] in once]
    ends: list[int] = []
    """The smallest place in the new text at which an ordered chain of each length ends."""
    chains: list[tuple[int, int, int]] = []
    """Of each pair: its place in both texts, and which pair stands before it in its chain."""
    last: list[int] = []
    for one, other in places:
        length = bisect_left(ends, other)
        chains.append((one, other, last[length - 1] if length else -1))
        ends[length : length + 1] = [other]
        last[length : length + 1] = [len(chains) - 1]
    ordered: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        one, other, at = chains[at]
        ordered.append((one, other))
    return ordered[::-1]


def _common(old: Sequence[str], new: Sequence[str], old_at: int, new_at: int) -> Iterator[EqualLines]:
    """The longest common subsequence of two short regions, line by line."""
    longest = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for one in reversed(range(len(old))):
        for other in reversed(range(len(new))):
            longest[one][other] = (
                longest[one + 1][other + 1] + 1
                if old[one] == new[other]
                else max(longest[one + 1][other], longest[one][other + 1])
            )
    one = other = 0
    while one < len(old) and other < len(new):
        if old[one] == new[other]:
            yield old_at + one, new_at + other, 1
            one, other = one + 1, other + 1
        elif longest[one + 1][other] >= longest[one][other + 1]:
            one += 1
        else:
            other += 1
