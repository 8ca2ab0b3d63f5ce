"""A page of a transcript as typed values, read from rows; and one entry whole.

A page is read by number, upwards or downwards, with a few neighbours: what it costs does not depend on how long the
transcript is. Reads only.
"""

import math
from collections.abc import Iterable
from typing import Final

from msgspec import convert
from msgspec.structs import replace

from fledge.api.views import last_shown
from fledge.core import entries as core
from fledge.core.entries import CallAsked, CompletionsEntry, EntryPlace, HistoryEntry, LineEntry
from fledge.core.transcript import Body, Line, from_body
from fledge.core.value import NamedValue
from fledge.errors import NotFound
from fledge.store.base import Entry, Tx

NEIGHBOURS: Final = 8
"""So many entries before a page are read: a reply that was cut stands at most a few entries before its rest."""
AHEAD: Final = 200
"""At most so many behind it: the results of a reply's calls stand before the next reply."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""A page has fewer entries than were asked for if they would be larger than this."""
SCANNED: Final = 20_000
"""At most so many events of all runs are looked at for the lines of one page."""


class EntriesPage(NamedValue):
    """Entries of a transcript, oldest first, with the lines between them."""

    entries: tuple[HistoryEntry, ...]
    first: int = 0
    """The number of the first entry: ask for what is before it. 0: the page is empty."""
    last: int = 0
    older: bool = False
    """There are entries before the first."""
    newer: bool = False
    """There are entries behind the last."""


def page(tx: Tx, key: str, limit: int, before: int | None = None, after: int | None = None) -> EntriesPage:
    """The newest entries of a transcript; the newest of those numbered below `before`; or the oldest of those numbered
    above `after`."""
    if after is None:
        found = tx.transcripts.tail(key, limit, before=before)
    else:
        found = tx.transcripts.entries(key, after, limit)
    found = _within(found, from_newest=after is None)
    if not found:
        return EntriesPage(entries=())
    older = tx.transcripts.tail(key, NEIGHBOURS, before=found[0].seq)
    newer = _ahead(tx, key, found[-1].seq)
    known = placed((*older, *found, *newer))
    until = last_shown(tx, key, [Line(place.seq, body) for place, body in known[-3:]])
    first, last = found[0].seq, min(found[-1].seq, until)
    shown = core.entries(known, first, last, asked_about(tx, key, first, last))
    lines = _lines(tx, key, found[0].at if older else -math.inf, newer[0].at if newer else math.inf)
    return EntriesPage(
        entries=tuple(core.merged(shown, lines)), first=first, last=last, older=bool(older), newer=bool(newer)
    )


def entry(tx: Tx, key: str, seq: int) -> HistoryEntry:
    """One entry whole, completions with their results. NotFound: there is none of this number."""
    known = [*tx.transcripts.tail(key, NEIGHBOURS, before=seq), *tx.transcripts.entries(key, seq - 1, 1)]
    known += _ahead(tx, key, seq)
    found = core.entries(placed(known), seq, seq, asked_about(tx, key, seq, seq), whole=True)
    if not found:
        raise NotFound(f"no entry {seq} in {key}")
    shown = found[0]
    if not isinstance(shown, CompletionsEntry):
        return shown
    whole = (replace(one, result=_kept(tx, one.result_id)) for one in shown.completions)
    return replace(shown, completions=tuple(whole))


def placed(found: Iterable[Entry]) -> list[tuple[EntryPlace, Body]]:
    """Entries, read: the place and the body of each."""
    return [(EntryPlace(one.seq, one.at), from_body(one.body)) for one in found]


def _kept(tx: Tx, text_id: str) -> str:
    """A text, empty once it is gone with its run."""
    try:
        return tx.texts.get(text_id) if text_id else ""
    except NotFound:
        return ""


def _within(found: list[Entry], from_newest: bool) -> list[Entry]:
    """As many as have room in one page, at least one."""
    room = PAGE_BYTES
    kept: list[Entry] = []
    for one in reversed(found) if from_newest else found:
        room -= min(len(one.body), core.WORDS_BYTES)
        if room < 0 and kept:
            break
        kept.append(one)
    return kept[::-1] if from_newest else kept


def _ahead(tx: Tx, key: str, last: int) -> list[Entry]:
    """What follows the entry `last`, up to and with the next reply: the results of calls that the page shows."""
    found: list[Entry] = []
    for one in tx.transcripts.entries(key, last, AHEAD):
        found.append(one)
        if one.kind == "assistant" and len(found) > NEIGHBOURS:
            break
    return found


def asked_about(tx: Tx, key: str, first: int, last: int) -> dict[tuple[int, int], CallAsked]:
    """The questions about calls of these entries, by the place of the call."""
    found = tx.approvals.of(key, first, last)
    return {(one.entry, one.index): convert(one, CallAsked, from_attributes=True) for one in found}


def _lines(tx: Tx, key: str, since: float, until: float) -> list[LineEntry]:
    """What was done to the session's run and to its children in that time, oldest first."""
    runs = dict.fromkeys(one.run for one in tx.events.around(key, core.LINES, since, until, SCANNED))
    made = [one for run in runs for one in core.lines(tx.events.of(run), run, tx.runs.spec(run).label)]
    return sorted((one for one in made if since <= one.at < until), key=lambda one: one.at)
