"""Stores that break a promise, each in one way: whoever watches for it must find them out."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from fledge.core.exchange import Exchange
from fledge.core.progress import Progress
from fledge.core.run import Instant, Waiting
from fledge.errors import StaleWrite
from fledge.store.base import Counts, Driver, EntryKind, Heartbeat, Place, Post, RowKind, RowState, Turn, Used
from tests.sim.people import MAIN, OTHER
from tests.sim.watch import Posted, Spy


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
            return Driver(session, epoch, "", "subagent", False, 0.0, 0.0, False, None)


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


class BeatsTwice(Spy):
    def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        before = self._tx.heartbeat(heartbeat.session)
        over = before is not None and before.cause == "interval" and not heartbeat.cause
        if over and heartbeat.beat_at is not None:
            heartbeat = replace(heartbeat, cause="interval", due_at=heartbeat.beat_at - 10.0)
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


class AnnouncesTwice(Spy):
    def put_row(
        self, key: str, session: str | None, kind: RowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        if kind == "outcome":
            super().put_row(f"{key}:again", session, kind, source, body, at, **more)
        return super().put_row(key, session, kind, source, body, at, **more)


class TellsTheWrongOne(Spy):
    def append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        completions = any(kind == "event" for kind, _ in entries)
        return super().append(OTHER if completions and session == MAIN else session, at, entries, used)


class KeepsSlots(Spy):
    def release(self, session: str, epoch: int) -> None:
        run = self._tx.find_run(session)
        if run is None or not isinstance(run.phase, Waiting):
            self._tx.release(session, epoch)


class SleepsOn(Spy):
    def child_settled(self, session: str) -> Counts:
        counts = self._tx.child_settled(session)
        run = self._tx.find_run(session)
        return replace(counts, unsettled=99) if run and isinstance(run.phase, Waiting) else counts


class CountsNoSteps(Spy):
    def turn_stepped(self, session: str, progress: Progress) -> None:
        return


class RaisesNoGeneration(Spy):
    def raise_generation(self, key: str) -> int:
        return 0


class LosesLastWords(Spy):
    def post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        return key.startswith("final:") or super().post(key, kind, run, body, due_at, **more)


class ForgetsWhereTurnsBegin(Spy):
    def turn(self, session: str) -> Turn | None:
        turn = self._tx.turn(session)
        return None if turn is None else replace(turn, opened_after=0)


class ForgetsYields(Spy):
    def owed_origin(self, session: str) -> str | None:
        return None


class NeverGivesUp(Spy):
    def give_up_post(self, key: str, error: str, until: Instant, at: Instant) -> None:
        post = self._tx.find_post(key)
        if post is not None and post.tries < 2:
            self._tx.post_failed(key, error, at + 1.0, at)
        else:
            super().give_up_post(key, error, until, at)
