"""Any schedule: nothing lost, nothing twice, every run ends, limits hold, wherever the process dies.

A seed that fails is played again, step by step, by `python -m tests.sim SEED --trace`.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fledge.core.exchange import Exchange
from fledge.core.run import Instant
from fledge.errors import StaleWrite
from fledge.store.base import Counts, Driver, EntryKind, Heartbeat, Place, Post, RowKind, RowState, Used
from tests.sim.play import Play, play
from tests.sim.schedule import schedule
from tests.sim.watch import Posted, Spy

SEEDS = 200 * int(os.environ.get("FLEDGE_SOAK", "0")) or 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_and_everything_ends_whatever_happens(seed: int) -> None:
    report = play(seed)
    assert report.wrong == [], f"python -m tests.sim {seed} --trace"


def test_a_seed_is_played_the_same_way_every_time() -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        for seed in (2, 3):
            play(seed, story.append)
    assert len(stories[0]) > 300
    assert stories[0] == stories[1]


# ---- every check can fail --------------------------------------------------------------------------------------------


class LosesRows(Spy):
    def put_row(
        self, key: str, session: str | None, kind: RowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        return kind == "outcome" or super().put_row(key, session, kind, source, body, at, **more)


class TellsTwice(Spy):
    def close_row(self, key: str, state: RowState, at: Instant) -> bool:
        return state == "consumed" or self._tx.close_row(key, state, at)


class ForgetsToCount(Spy):
    def child_settled(self, session: str) -> Counts:
        return self._tx.counts(session)


class KnowsNoWidths(Spy):
    def claimable(self, widths: dict[str, int], at: Instant, limit: int) -> list[Place]:
        return self._tx.claimable(dict.fromkeys(widths, 99), at, limit)


class FencesNothing(Spy):
    def fence(self, session: str, epoch: int) -> Driver:
        try:
            return self._tx.fence(session, epoch)
        except StaleWrite:
            return Driver(session, epoch, "", "subagent", False, 0.0, 0.0, 0, False, None)


class LosesResults(Spy):
    def append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        return super().append(session, at, [entry for entry in entries if entry[0] != "tool"] or entries[:0], used)


class LosesPosts(Spy):
    def post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        if not key.startswith("hook:subagent_spawned:"):
            return super().post(key, kind, run, body, due_at, **more)
        self._noted.posted[key] = Posted(kind, "", body, due_at, 0)
        return True


class CallsNoHooks(Spy):
    def post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        return key.startswith("hook:subagent_ended:") or super().post(key, kind, run, body, due_at, **more)


class TriesOnce(Spy):
    def due_posts(self, at: Instant, limit: int) -> list[Post]:
        return [post for post in self._tx.due_posts(at, limit) if not post.tries]


class ChangesBodies(Spy):
    def due_posts(self, at: Instant, limit: int) -> list[Post]:
        posts = self._tx.due_posts(at, limit)
        return [replace(post, body=_changed(post.body)) if post.tries else post for post in posts]


def _changed(body: str) -> str:
    return body.replace('"text":"', '"text":"again: ')


class KnowsNoOrder(Spy):
    def post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        new = super().post(key, kind, run, body, due_at, **{**more, "lane": ""})
        if new:
            self._noted.posted[key] = replace(self._noted.posted[key], lane=more.get("lane", ""))
        return new


class ForgetsWhatWasLost(Spy):
    def undelivered_posts(self, lane: str | None = None) -> list[Post]:
        return []


class MakesUpForBeats(Spy):
    def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        before = self._tx.heartbeat(heartbeat.session)
        if before is not None and before.beat_at is not None and heartbeat.beat_at not in (None, before.beat_at):
            heartbeat = replace(heartbeat, beat_at=before.beat_at + 25.0)
        super().save_heartbeat(heartbeat)


class SkipsBeats(Spy):
    def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        wanted = heartbeat.cause == "interval" and heartbeat.due_at is not None
        super().save_heartbeat(replace(heartbeat, cause="", due_at=None, reason="") if wanted else heartbeat)


class LosesLateWords(Spy):
    def put_row(
        self, key: str, session: str | None, kind: RowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        return kind == "late" or super().put_row(key, session, kind, source, body, at, **more)


class CountsNoHops(Spy):
    def hops_made(self, root: str) -> int:
        return 0


class ForgetsExchanges(Spy):
    def answering(self, session: str) -> list[Exchange]:
        return []


@pytest.mark.parametrize(
    ("spy", "words", "first"),
    [
        (LosesRows, ".", 0),
        (TellsTwice, "is told more than once", 0),
        (ForgetsToCount, r"counts \d unsettled, there are \d", 0),
        (KnowsNoWidths, r"lane \w+ has \d drivers", 0),
        (FencesNothing, "is written to by", 0),
        (LosesResults, r"was begun \d times", 0),
        (LosesPosts, "post hook:.* is nowhere", 5),
        (CallsNoHooks, "was not told that .* ended", 5),
        (TriesOnce, "it waits: post", 5),
        (ChangesBodies, "came with 2 bodies", 18),
        (KnowsNoOrder, "things arrived in the order", 8),
        (ForgetsWhatWasLost, "are not told of it", 8),
        (MakesUpForBeats, "after the beat at .* the next is at", 3),
        (SkipsBeats, "its time came, and nothing came of it", 3),
        (LosesLateWords, "is told to have failed", 143),
        (CountsNoHops, r"2\d messages came of", 26),
        (ForgetsExchanges, "still waits for", 5),
    ],
    ids=lambda case: case.__name__ if isinstance(case, type) else "",
)
def test_a_store_that_breaks_a_promise_is_found_out(spy: type[Spy], words: str, first: int) -> None:
    """From `first` on: one of the first schedules in which it shows."""
    found = (Play(schedule(seed), spy=spy).run().wrong for seed in range(first, first + 40))
    wrong = next((wrong for wrong in found if wrong), [])
    assert re.search(words, "\n".join(wrong)), "forty schedules, and nobody noticed"
