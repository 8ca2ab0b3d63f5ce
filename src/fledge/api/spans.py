"""The spans of a run, made from rows: its timeline, its entries from a period, its children, its tries at delivery.
Reads only, and a bounded number of rows of each kind."""

import math
from bisect import bisect_right
from typing import Final

from fledge.api.entries import AHEAD, asked_about, placed
from fledge.core import entries as core
from fledge.core.run import Instant
from fledge.core.spans import Span, Spans
from fledge.core.spans import spans as spans_of
from fledge.orchestrator.views import tries
from fledge.store.base import Tx

MOST_READ: Final = 2000
"""The most entries that are read: the newest of the period."""
MOST_CHILDREN: Final = 500
"""The most children that have a span: the newest."""


def spans(tx: Tx, key: str, since: Instant | None, until: Instant | None) -> Spans:
    """The spans of a run that touch the time from `since` to `until`; without those, of its whole life."""
    found = tx.transcripts.tail(key, MOST_READ, before=None if until is None else _number_at(tx, key, until) + AHEAD)
    shown = (
        core.entries(placed(found), 0, found[-1].seq, asked_about(tx, key, found[0].seq, found[-1].seq))
        if found
        else []
    )
    children = [_child(tx, child) for child in tx.runs.children(key)[-MOST_CHILDREN:]]
    return spans_of(tx.events.of(key), shown, children, tries(tx, key), since, until)


def _number_at(tx: Tx, key: str, at: Instant) -> int:
    """The number of the first entry that is newer than this time; one above the last if there is none."""

    def time_of(number: int) -> Instant:
        found = tx.transcripts.entries(key, number - 1, 1)
        return found[0].at if found else math.inf

    return bisect_right(range(1, tx.transcripts.last(key) + 1), at, key=time_of) + 1


def _child(tx: Tx, key: str) -> Span:
    run, spec = tx.runs.load(key), tx.runs.spec(key)
    return Span(
        lane="children",
        started_at=tx.events.of(key)[0].at,
        ended_at=None if run.ended is None else run.ended.ended_at,
        name=spec.label or spec.task[:80],
        status=run.phase.name if run.ended is None else run.ended.outcome.status,
        run_id=run.run_id,
        session_key=key,
    )
