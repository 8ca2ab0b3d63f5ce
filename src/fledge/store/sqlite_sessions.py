"""The verbs on sessions, their children's counts, transcripts and turns, in SQL, built on those on runs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fledge.core.effects import Owes
from fledge.core.progress import Progress
from fledge.core.route import Found
from fledge.core.run import Instant, Waiting
from fledge.errors import NotFound, Refused
from fledge.store.base import (
    Counts,
    Entry,
    EntryKind,
    Session,
    SessionFacts,
    SessionKind,
    Turn,
    Used,
)
from fledge.store.sqlite_runs import ACTIVE, LAST, RunVerbs, to_json

_decode_facts = msgspec.json.Decoder(SessionFacts).decode
_decode_progress = msgspec.json.Decoder(Progress).decode
_decode_generations = msgspec.json.Decoder(dict[str, int]).decode

_TURN = (
    "session, turn, generations, drained, failures, crashes, opened_at, told_bytes, origin, heartbeat, by_person,"
    " opened_after, route, progress"
)
SESSION = "key, kind, parent, depth, facts, state, epoch, generation, created_at"
_SESSIONS = f"""
SELECT {SESSION}, last_at FROM sessions
WHERE key >= ? AND key < ? AND state = 'open' ORDER BY last_at DESC, key LIMIT ?
"""

_APPEND = "UPDATE sessions SET last_entry = last_entry + ?, last_at = ? WHERE key = ? RETURNING last_entry"
_APPEND_USED = """
UPDATE sessions SET last_entry = last_entry + ?1, last_at = ?2, tokens_in = coalesce(tokens_in, 0) + ?3,
  tokens_out = coalesce(tokens_out, 0) + ?4, cost_usd = coalesce(cost_usd + ?5, cost_usd, ?5),
  tokens_cached = coalesce(tokens_cached, 0) + coalesce(?6, 0)
WHERE key = ?7 RETURNING last_entry, tokens_in, tokens_out, cost_usd, tokens_cached
"""
_USED = "SELECT tokens_in, tokens_out, cost_usd, tokens_cached FROM sessions WHERE key = ?"


class SessionVerbs(RunVerbs):
    """Sessions, their children's counts, transcripts and turns."""

    def open_session(
        self, key: str, kind: SessionKind, parent: str | None, depth: int, facts: SessionFacts, at: Instant
    ) -> None:
        """Insert the session unless it exists; one that was deleted is open again."""
        made = self._db.execute(
            "INSERT INTO sessions (key, kind, parent, depth, facts, created_at, last_at) VALUES (?,?,?,?,?,?,?)"
            " ON CONFLICT (key) DO NOTHING",
            (key, kind, parent, depth, to_json(facts), at, at),
        )
        if made.rowcount:
            self._known.made_session(Session(key, kind, parent, depth, facts, False, 0, 0, at))
            return
        self._known.sessions.pop(key, None)
        gone = "SELECT key FROM sessions WHERE key = ? AND state = 'deleted'"
        for table in ("entries", "images"):
            self._db.execute(f"DELETE FROM {table} WHERE session = ({gone})", (key,))
        self._db.execute(
            "UPDATE sessions SET state = 'open', last_at = created_at WHERE key = ? AND state = 'deleted'", (key,)
        )

    def session(self, key: str) -> Session | None:
        """The session, deleted or not."""
        sessions = self._known.sessions
        if key not in sessions:
            row = self._one(f"SELECT {SESSION} FROM sessions WHERE key = ?", key)
            sessions[key] = None if row is None else read_session(row)
        return sessions[key]

    def sessions(self, agent_id: str | None = None, limit: int = 1000) -> list[tuple[Session, Instant]]:
        """Open sessions by the time of their last entry."""
        # Keys of one agent lie together: from `agent:<id>:` up to the character behind the colon.
        first, end = ("agent:", "agent;") if agent_id is None else (f"agent:{agent_id}:", f"agent:{agent_id};")
        rows = self._db.execute(_SESSIONS, (first, end, limit))
        return [(read_session(row[:-1]), row[-1]) for row in rows]

    def roots(self) -> list[str]:
        """Sessions without a parent."""
        return self._column("SELECT key FROM sessions WHERE depth = 0 AND state = 'open' ORDER BY created_at, key")

    def change_session(self, key: str, facts: SessionFacts, kind: SessionKind | None = None) -> None:
        """Replace what is known of the session."""
        self._known.sessions.pop(key, None)
        self._db.execute(
            "UPDATE sessions SET facts = ?, kind = coalesce(?, kind) WHERE key = ?", (to_json(facts), kind, key)
        )

    def delete_session(self, key: str, keep_transcript: bool = False) -> None:
        """Drop transcript and turns; keep the row as a mark."""
        self._known.sessions.pop(key, None)
        self._known.turns.pop(key, None)
        self._known.used.pop(key, None)
        self._db.execute(
            "UPDATE sessions SET state = 'deleted', tokens_in = NULL, tokens_out = NULL, cost_usd = NULL,"
            " tokens_cached = NULL WHERE key = ?",
            (key,),
        )
        if not keep_transcript:
            self._db.execute("DELETE FROM entries WHERE session = ?", (key,))
            self._db.execute("DELETE FROM images WHERE session = ?", (key,))
        self._db.execute("DELETE FROM turns WHERE session = ?", (key,))
        for table in ("routes", "heartbeats"):
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (key,))

    def lineage(self, key: str) -> list[Session]:
        """The session and its ancestors, nearest first."""
        found: list[Session] = []
        seen: set[str] = set()
        next_key: str | None = key
        while next_key is not None and next_key not in seen:
            seen.add(next_key)
            session = self.session(next_key)
            if session is None:
                break
            found.append(session)
            next_key = session.parent
        return found

    def raise_generation(self, key: str) -> int:
        """One generation later."""
        self._known.sessions.pop(key, None)
        row = self._one("UPDATE sessions SET generation = generation + 1 WHERE key = ? RETURNING generation", key)
        if row is None:
            raise NotFound(f"no session {key}")
        return int(row[0])

    def counts(self, session: str) -> Counts:
        """Its children, spawned and unsettled."""
        counts = self._known.counts
        if session not in counts:
            row = self._one("SELECT spawned, unsettled FROM children WHERE session = ?", session)
            counts[session] = Counts(0, 0) if row is None else Counts(*row)
        return counts[session]

    def child_admitted(self, session: str) -> Counts:
        """One more spawned, one more unsettled."""
        row = self._one(
            "INSERT INTO children (session, spawned, unsettled) VALUES (?, 1, 1)"
            " ON CONFLICT DO UPDATE SET spawned = spawned + 1, unsettled = unsettled + 1 RETURNING spawned, unsettled",
            session,
        )
        return self._counted(session, row)

    def child_unsettled(self, session: str) -> Counts:
        """A settled child is unsettled again."""
        return self._count("unsettled + 1", session)

    def child_settled(self, session: str) -> Counts:
        """One unsettled child fewer."""
        return self._count("unsettled - 1", session)

    def _count(self, change: str, session: str) -> Counts:
        row = self._one(
            f"UPDATE children SET unsettled = {change} WHERE session = ? RETURNING spawned, unsettled", session
        )
        if row is None:
            raise NotFound(f"no children of {session}")
        return self._counted(session, row)

    def _counted(self, session: str, row: tuple[int, int]) -> Counts:
        counts = self._known.counts[session] = Counts(*row)
        return counts

    def unsettled_children(self, session: str, limit: int) -> list[str]:
        """Children that have not settled for this session."""
        return self._column(
            f"SELECT key FROM runs INDEXED BY runs_active WHERE parent = ? AND {ACTIVE}"
            " AND (busy = 1 OR phase <> 'awaiting_approval') ORDER BY created_at, id LIMIT ?",
            session,
            limit,
        )

    def name_silent_children(self, session: str) -> list[str]:
        """Children that ended without anything to tell and were not named before."""
        silent = "parent = ? AND delivery = 'skipped' AND silence_told = 0 AND outcome <> 'error'"
        found = self._column(f"SELECT key FROM runs WHERE {silent} ORDER BY id", session)
        if found:
            self._db.execute(f"UPDATE runs SET silence_told = 1 WHERE {silent}", (session,))
        return found

    def waits_until(self, session: str) -> int | None:
        """The number of settled children its waiting run wants."""
        run = self.find_run(session)
        return run.phase.until_settled if run is not None and isinstance(run.phase, Waiting) else None

    def append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        """Append entries under the session's own numbering, and add what was used."""
        if used is None:
            row = self._one(_APPEND, len(entries), at, session)
        else:
            figures = (used.tokens_in, used.tokens_out, used.cost_usd, used.tokens_cached)
            row = self._one(_APPEND_USED, len(entries), at, *figures, session)
            if row is not None:
                self._known.used[session] = Used(*row[1:])
            if used.cost_usd:
                self._cost_above(session, used.cost_usd)
        if row is None:
            raise NotFound(f"no session {session}")
        last: int = row[0]
        for seq, (kind, body) in enumerate(entries, last - len(entries) + 1):
            self._db.execute("INSERT INTO entries VALUES (?,?,?,?,?)", (session, seq, at, kind, body))
        return last

    def _cost_above(self, session: str, cost_usd: float) -> None:
        """Everybody above has so much more below."""
        above = [one.key for one in self.lineage(session)[1:]]
        if above:
            places = ",".join("?" * len(above))
            self._db.execute(
                f"UPDATE sessions SET below_usd = coalesce(below_usd, 0) + ? WHERE key IN ({places})",
                (cost_usd, *above),
            )

    def used(self, session: str) -> Used:
        """What was added up."""
        used = self._known.used
        if session not in used:
            row = self._one(_USED, session)
            used[session] = Used() if row is None else Used(*row)
        return used[session]

    def entries(self, session: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A page of the transcript."""
        rows = self._db.execute(
            "SELECT seq, at, kind, body FROM entries WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?",
            (session, after, limit),
        )
        return [Entry(*row) for row in rows]

    def hold_images(self, session: str, digests: Sequence[str]) -> None:
        """Insert a row for each image that the session does not hold yet."""
        self._uses("images")
        rows = [(session, digest) for digest in digests]
        self._db.executemany("INSERT INTO images (session, sha256) VALUES (?,?) ON CONFLICT DO NOTHING", rows)

    def holds_images(self, session: str) -> bool:
        """Whether it has a row there."""
        if self._is_unused("images"):
            return False
        return self._one("SELECT 1 FROM images WHERE session = ? LIMIT 1", session) is not None

    def images(self) -> set[str]:
        """Every digest that has a row."""
        return set(self._column("SELECT DISTINCT sha256 FROM images"))

    def last_entry(self, session: str) -> int:
        """The session's counter of entries."""
        row = self._one("SELECT last_entry FROM sessions WHERE key = ?", session)
        return 0 if row is None else int(row[0])

    def tail(
        self, session: str, limit: int, without: Sequence[EntryKind] = (), before: int | None = None
    ) -> list[Entry]:
        """The newest entries, oldest first."""
        left_out = "".join(f" AND kind <> '{kind}'" for kind in without)
        rows = self._db.execute(
            f"SELECT seq, at, kind, body FROM entries WHERE session = ? AND seq < ?{left_out}"
            " ORDER BY seq DESC LIMIT ?",
            (session, LAST if before is None else before, limit),
        )
        return [Entry(*row) for row in rows][::-1]

    def last_spoken_at(self, session: str) -> Instant | None:
        """The time of the newest `Spoken` that came as a message without a source."""
        row = self._one(
            "SELECT at FROM entries WHERE session = ? AND kind = 'user' AND body ->> 'kind' = 'send'"
            " AND body ->> 'source' IS NULL ORDER BY seq DESC LIMIT 1",
            session,
        )
        return None if row is None else row[0]

    def open_turn(self, session: str, generations: dict[str, int], at: Instant) -> Turn:
        """Open the session's next turn."""
        if self.turn(session) is not None:
            raise Refused("error", f"a turn of {session} is open")
        row = self._one(
            "UPDATE sessions SET last_turn = last_turn + 1 WHERE key = ? RETURNING last_turn, last_entry", session
        )
        if row is None:
            raise NotFound(f"no session {session}")
        self._db.execute(
            "INSERT INTO turns (session, turn, state, generations, opened_at, opened_after) VALUES (?,?,'open',?,?,?)",
            (session, row[0], to_json(generations), at, row[1]),
        )
        turn = self._known.turns[session] = Turn(session, row[0], generations, 0, 0, 0, at, opened_after=row[1])
        return turn

    def turn(self, session: str) -> Turn | None:
        """The open turn, if any."""
        turns = self._known.turns
        if session not in turns:
            row = self._one(f"SELECT {_TURN} FROM turns WHERE session = ? AND state = 'open'", session)
            turns[session] = None if row is None else _turn(row)
        return turns[session]

    def failing_turns(self) -> list[Turn]:
        """Open turns that took rows and were driven in vain."""
        sql = f"SELECT {_TURN} FROM turns WHERE state = 'open' AND drained > 0 AND failures > 0"
        return [_turn(row) for row in self._db.execute(f"{sql} ORDER BY opened_at, session")]

    def drained(self, session: str, count: int, told_bytes: int = 0) -> None:
        """The open turn has taken this many more rows."""
        turn = self._known.turns.get(session)
        if turn is not None:
            self._known.turns[session] = replace(
                turn, drained=turn.drained + count, told_bytes=turn.told_bytes + told_bytes
            )
        self._db.execute(
            "UPDATE turns SET drained = drained + ?, told_bytes = told_bytes + ? WHERE session = ? AND state = 'open'",
            (count, told_bytes, session),
        )

    def begun_by_person(self, session: str) -> None:
        """The open turn began with a person's words."""
        self._known.turns.pop(session, None)
        self._db.execute("UPDATE turns SET by_person = 1 WHERE session = ? AND state = 'open'", (session,))

    def set_origin(self, session: str, origin: str, route: Found = "fallback") -> None:
        """The open turn answers what came from there."""
        self._known.turns.pop(session, None)
        self._db.execute(
            "UPDATE turns SET origin = ?, route = ? WHERE session = ? AND state = 'open'", (origin, route, session)
        )

    def turn_failed(self, session: str, failures: int, crashes: int) -> None:
        """Remember how often the open turn was driven in vain."""
        self._known.turns.pop(session, None)
        self._db.execute(
            "UPDATE turns SET failures = ?, crashes = ? WHERE session = ? AND state = 'open'",
            (failures, crashes, session),
        )

    def turn_stepped(self, session: str, progress: Progress) -> None:
        """Remember how far the open turn has come."""
        turn = self._known.turns.get(session)
        if turn is not None:
            self._known.turns[session] = replace(turn, progress=progress)
        self._db.execute(
            "UPDATE turns SET progress = ? WHERE session = ? AND state = 'open'", (to_json(progress), session)
        )

    def close_turn(self, session: str, ended: str, at: Instant, owes: Owes = "nothing") -> None:
        """Close the open turn, if any."""
        turn = self.turn(session)
        self._known.turns[session] = None
        if owes == "nothing" and self.counts(session).spawned:
            self._db.execute(
                "UPDATE turns SET ended = 'answered later' WHERE session = ? AND ended = 'yielded'", (session,)
            )
        self._db.execute(
            "UPDATE turns SET state = 'closed', ended = ?, closed_at = ? WHERE session = ? AND state = 'open'",
            (ended, at, session),
        )
        if owes == "all" or (owes == "earlier" and turn is None) or self._is_unused("commissions"):
            return
        self._db.execute(
            "UPDATE commissions SET ended = ?, ended_at = ?, entry = (SELECT last_entry FROM sessions WHERE key = ?)"
            " WHERE session = ? AND ended_at IS NULL AND turn >= ?",
            (ended, at, session, session, 0 if owes == "nothing" or turn is None else turn.turn),
        )

    def owed_origin(self, session: str) -> str | None:
        """The newest turn that yielded."""
        if not self.counts(session).spawned:
            return None  # it had nobody to wait for
        sql = "SELECT origin FROM turns WHERE session = ? AND ended = 'yielded' ORDER BY turn DESC LIMIT 1"
        row = self._one(sql, session)
        return None if row is None else str(row[0])


def _turn(row: Sequence[Any]) -> Turn:
    session, number, generations, *counted, by_person, opened_after, route, progress = row
    turn = Turn(session, number, _decode_generations(generations), *counted)
    known = Progress() if progress is None else _decode_progress(progress)
    return replace(turn, by_person=bool(by_person), opened_after=opened_after, route=route, progress=known)


def read_session(row: Sequence[Any]) -> Session:
    key, kind, parent, depth, facts, state, epoch, generation, created_at = row
    return Session(key, kind, parent, depth, _decode_facts(facts), state == "deleted", epoch, generation, created_at)
