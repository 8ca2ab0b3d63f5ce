"""Stores that break a promise, each in one way: whoever watches for it must find them out."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from fledge.core.exchange import Exchange
from fledge.core.progress import Progress
from fledge.core.run import Instant, Waiting
from fledge.core.turn import OpenTurn, Wait
from fledge.errors import StaleWrite
from fledge.store.base import Counts, Driver, EntryKind, HeartbeatRow, InboxRowKind, OutboxPost, QueuePlace, Used
from tests.sim.people import MAIN, OTHER
from tests.sim.watch import Posted, Spy


class LosesRows(Spy):
    def inbox_put(
        self, key: str, session: str | None, kind: InboxRowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        return kind == "outcome" or super().inbox_put(key, session, kind, source, body, at, **more)


class TellsTwice(Spy):
    def inbox_consume(self, key: str, at: Instant) -> bool:
        return True


class ForgetsToCount(Spy):
    def sessions_child_settled(self, session: str) -> Counts:
        return self._tx.sessions.counts(session)


class KnowsNoWidths(Spy):
    def queue_claimable(self, widths: dict[str, int], at: Instant, limit: int) -> list[QueuePlace]:
        return self._tx.queue.claimable(dict.fromkeys(widths, 99), at, limit)


class FencesNothing(Spy):
    def drivers_fence(self, session: str, epoch: int) -> Driver:
        try:
            return self._tx.drivers.fence(session, epoch)
        except StaleWrite:
            return Driver(session, epoch, "", "subagent", False, 0.0, 0.0, False, None)


class LosesResults(Spy):
    def transcripts_append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        return super().transcripts_append(
            session, at, [entry for entry in entries if entry[0] != "tool"] or entries[:0], used
        )


class LosesPosts(Spy):
    def outbox_post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        if not key.startswith("hook:subagent_spawned:"):
            return super().outbox_post(key, kind, run, body, due_at, **more)
        self._noted.posted[key] = Posted(kind, "", body, due_at, 0)
        return True


class CallsNoHooks(Spy):
    def outbox_post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        return key.startswith("hook:subagent_ended:") or super().outbox_post(key, kind, run, body, due_at, **more)


class TriesOnce(Spy):
    def outbox_due(self, at: Instant, limit: int) -> list[OutboxPost]:
        return [post for post in self._tx.outbox.due(at, limit) if not post.tries]


class ChangesBodies(Spy):
    def outbox_due(self, at: Instant, limit: int) -> list[OutboxPost]:
        posts = self._tx.outbox.due(at, limit)
        return [replace(post, body=_changed(post.body)) if post.tries else post for post in posts]


def _changed(body: str) -> str:
    return body.replace('"text":"', '"text":"again: ')


class KnowsNoOrder(Spy):
    def outbox_post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        new = super().outbox_post(key, kind, run, body, due_at, **{**more, "lane": ""})
        if new:
            self._noted.posted[key] = replace(self._noted.posted[key], lane=more.get("lane", ""))
        return new


class ForgetsWhatWasLost(Spy):
    def outbox_undelivered(self, lane: str | None = None) -> list[OutboxPost]:
        return []


class MakesUpForBeats(Spy):
    def heartbeats_save(self, heartbeat: HeartbeatRow) -> None:
        before = self._tx.heartbeats.get(heartbeat.session)
        if before is not None and before.beat_at is not None and heartbeat.beat_at not in (None, before.beat_at):
            heartbeat = replace(heartbeat, beat_at=before.beat_at + 25.0)
        super().heartbeats_save(heartbeat)


class BeatsTwice(Spy):
    def heartbeats_save(self, heartbeat: HeartbeatRow) -> None:
        before = self._tx.heartbeats.get(heartbeat.session)
        over = before is not None and before.cause == "interval" and not heartbeat.cause
        if over and heartbeat.beat_at is not None:
            heartbeat = replace(heartbeat, cause="interval", due_at=heartbeat.beat_at - 10.0)
        super().heartbeats_save(heartbeat)


class SkipsBeats(Spy):
    def heartbeats_save(self, heartbeat: HeartbeatRow) -> None:
        wanted = heartbeat.cause == "interval" and heartbeat.due_at is not None
        super().heartbeats_save(replace(heartbeat, cause="", due_at=None, reason="") if wanted else heartbeat)


class LosesLateWords(Spy):
    def inbox_put(
        self, key: str, session: str | None, kind: InboxRowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        return kind == "late" or super().inbox_put(key, session, kind, source, body, at, **more)


class CountsNoHops(Spy):
    def exchanges_hops_made(self, root: str) -> int:
        return 0


class ForgetsExchanges(Spy):
    def exchanges_answering(self, session: str) -> list[Exchange]:
        return []


class AnnouncesTwice(Spy):
    def inbox_put(
        self, key: str, session: str | None, kind: InboxRowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        if kind == "outcome":
            super().inbox_put(f"{key}:again", session, kind, source, body, at, **more)
        return super().inbox_put(key, session, kind, source, body, at, **more)


class TellsTheWrongOne(Spy):
    def transcripts_append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        completions = any(kind == "event" for kind, _ in entries)
        return super().transcripts_append(OTHER if completions and session == MAIN else session, at, entries, used)


class KeepsSlots(Spy):
    def drivers_release(self, session: str, epoch: int) -> None:
        run = self._tx.runs.find(session)
        if run is None or not isinstance(run.phase, Waiting):
            self._tx.drivers.release(session, epoch)


class SleepsOn(Spy):
    def sessions_counts(self, session: str) -> Counts:
        counts = self._tx.sessions.counts(session)
        run = self._tx.runs.find(session)
        return replace(counts, unsettled=99) if run and isinstance(run.phase, Waiting) else counts


class CountsNoSteps(Spy):
    def turns_save(self, turn: OpenTurn) -> None:
        super().turns_save(replace(turn, progress=Progress()))


class RaisesNoGeneration(Spy):
    def sessions_raise_generation(self, key: str) -> int:
        return 0


class LosesLastWords(Spy):
    def outbox_post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        return key.startswith("final:") or super().outbox_post(key, kind, run, body, due_at, **more)


class ForgetsWhereTurnsBegin(Spy):
    def turns_get(self, session: str) -> OpenTurn | None:
        turn = self._tx.turns.get(session)
        return None if turn is None else replace(turn, opened_after=0)

    def turns_save(self, turn: OpenTurn) -> None:
        known = self._tx.turns.get(turn.session)
        super().turns_save(turn if known is None else replace(turn, opened_after=known.opened_after))


class ForgetsYields(Spy):
    def turns_save_wait(self, session: str, wait: Wait | None) -> None:
        pass


class ForgetsWakes(Spy):
    def queue_put(self, session: str, lane: str, spawner: str, suspect: bool, due_at: Instant | None = None) -> None:
        wait = self._tx.turns.wait(session)
        if wait is None or not wait.over:
            self._tx.queue.put(session, lane, spawner, suspect, due_at)


class NeverLooks(Spy):
    def sessions_counts(self, session: str) -> Counts:
        counts = self._tx.sessions.counts(session)
        return counts if self._tx.turns.wait(session) is None else replace(counts, unsettled=9)


class NeverGivesUp(Spy):
    def outbox_give_up(self, key: str, error: str, until: Instant, at: Instant) -> None:
        post = self._tx.outbox.get(key)
        if post is not None and post.tries < 2:
            self._tx.outbox.failed(key, error, at + 1.0)
        else:
            super().outbox_give_up(key, error, until, at)
