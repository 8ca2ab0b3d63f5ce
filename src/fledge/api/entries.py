"""A page of a transcript as typed values, read from rows; and a single entry, uncut.

A page is read by entry numbers, forwards or backwards, with a few neighbouring entries: its cost does not depend on the
length of the transcript. Reads only.
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
"""How many entries before a page are read with it: a reply that the token limit cut stands at most a few entries before
its rest."""
AHEAD: Final = 200
"""How many entries after a page are read with it, at most: the results of a reply's calls stand before the next
reply."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""The largest page, in bytes: it has fewer entries than were asked for, but at least one, if they would be larger."""
SCANNED: Final = 20_000
"""The most events, of all runs, that are searched for the lines of one page."""


class EntriesPage(NamedValue):
    """Entries of a transcript, oldest first, with the lines between them."""

    entries: tuple[HistoryEntry, ...]
    first: int = 0
    """The number of the first entry, to be given as `before` for the previous page; 0 if the page is empty."""
    last: int = 0
    older: bool = False
    """True if there are entries before the first."""
    newer: bool = False
    """True if there are entries after the last."""


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
    """One entry, uncut; completions have their results. Raises NotFound if no entry has this number."""
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
    """The place and the decoded body of each entry."""
    return [(EntryPlace(one.seq, one.at), from_body(one.body)) for one in found]


def _kept(tx: Tx, text_id: str) -> str:
    """The text with this id; empty if there is no id, or once the text was removed with its run."""
    try:
        return tx.texts.get(text_id) if text_id else ""
    except NotFound:
        return ""


def _within(found: list[Entry], from_newest: bool) -> list[Entry]:
    """As many of these entries as one page has room for, at least one."""
    room = PAGE_BYTES
    kept: list[Entry] = []
    for one in reversed(found) if from_newest else found:
        room -= min(len(one.body), core.WORDS_BYTES)
        if room < 0 and kept:
            break
        kept.append(one)
    return kept[::-1] if from_newest else kept


def _ahead(tx: Tx, key: str, last: int) -> list[Entry]:
    """The entries after `last`: at least `NEIGHBOURS`, then up to and including the next reply. The results of calls
    that the page shows are among them."""
    found: list[Entry] = []
    for one in tx.transcripts.entries(key, last, AHEAD):
        found.append(one)
        if one.kind == "assistant" and len(found) > NEIGHBOURS:
            break
    return found


def asked_about(tx: Tx, key: str, first: int, last: int) -> dict[tuple[int, int], CallAsked]:
    """The questions about calls of these entries, by the entry and the index of the call."""
    found = tx.approvals.of(key, first, last)
    return {(one.entry, one.index): convert(one, CallAsked, from_attributes=True) for one in found}


def _lines(tx: Tx, key: str, since: float, until: float) -> list[LineEntry]:
    """The lines of that time, oldest first: how the session's run and its children were steered, killed and so on."""
    runs = dict.fromkeys(one.run for one in tx.events.around(key, core.LINES, since, until, SCANNED))
    made = [one for run in runs for one in core.lines(tx.events.of(run), run, tx.runs.spec(run).label)]
    return sorted((one for one in made if since <= one.at < until), key=lambda one: one.at)
