"""The model's `World` with the words that tests of single behaviours need: who is spawned, started, finished, and what
the rows then say. One scene is one store without an engine; nothing moves by itself."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.core import events as ev
from fledge.core.announce import DeliveryTrace
from fledge.core.policy import YieldTerms
from fledge.core.run import Ended, Run, Terms
from fledge.core.turn import TurnEnd
from fledge.errors import FledgeError, Refused
from fledge.orchestrator import control, effects, recover, spawn, turns
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.turns import Drive, TurnContinues
from fledge.store.base import Counts, Entry, InboxRow, Session, Spec
from fledge.testing import world
from tests.model.world import LIMITS, MAIN, World

PROGRAM = "agent:main:script"
NOBODY = "agent:main:subagent:nobody"

TABLES = (
    *("sessions", "entries", "inbox", "runs", "attempts"),
    *("run_events", "texts", "active", "lanes", "outbox", "deliveries"),
)


class Scene(World):
    # ---- moving

    def main(self, words: str = "go") -> Drive:
        """Somebody talks to main, and its turn begins."""
        self.commit(lambda c: control.send(c, MAIN, words))
        return self.start(MAIN)

    def spawn(self, parent: Drive, **terms: Any) -> str:
        """A child of this driver, accepted and queued."""
        return self.commit(lambda c: spawn.spawn(c, self.request(parent, **terms))).key

    def reserve(self, parent: Drive, **terms: Any) -> str:
        """A child of this driver whose preparation has only begun."""
        return self.commit(lambda c: spawn.reserve(c, self.request(parent, **terms))).key

    def crash_three_times(self, key: str) -> None:
        """Its turn is open each time; nothing else is driven meanwhile."""
        for _ in range(3):
            if key not in self.drives:
                self.start(key)
            self.crash()

    def start(self, key: str) -> Drive:
        """Let sessions be claimed in order until this one is; a queue's debounce is waited for."""
        if key in self.drives and key not in self.driven():
            del self.drives[key]
        while key not in self.drives:
            if not self.claim():
                if self._heartbeat(key):
                    continue
                place = self.read(lambda tx: tx.queue.place(key))
                assert place is not None, f"{key} is not queued"
                assert place.due_at is not None, f"{key} cannot be claimed"
                assert place.due_at > self.clock.now(), f"{key} cannot be claimed"
                self.clock.advance(place.due_at - self.clock.now())
        return self.drives[key]

    def _heartbeat(self, key: str) -> bool:
        """Wait for the wake of this session, if one is wanted."""
        beat = self.read(lambda tx: tx.heartbeats.get(key))
        if beat is None or beat.due_at is None:
            return False
        self.clock.advance(max(0.0, beat.due_at - self.clock.now()))
        return self.let_time_act()

    def begin(self, parent: Drive, **terms: Any) -> Drive:
        """A child of this driver that runs."""
        return self.start(self.spawn(parent, **terms))

    def orchestrator(self, **terms: Any) -> Drive:
        """Main has spawned a child and has replied; the child runs."""
        main = self.main()
        key = self.spawn(main, **terms)
        self.finish(main, "it is under way")
        return self.start(key)

    def finish(self, drive: Drive, text: str = "done") -> TurnContinues:
        """The final reply; its driver exits if there is nothing more to do."""
        goes = self.commit(lambda c: turns.finish(c, drive, text))
        if goes == "over":
            self.exit(drive)
        return goes

    def step(self, drive: Drive, *said: str) -> int:
        """A committed step with these words of the assistant; answers how many rows entered at its end."""
        return self.commit(lambda c: world.step(c, drive, [("assistant", words) for words in said]))

    def fail(self, drive: Drive, error: str = "no model", cause: Any = "error") -> None:
        self.commit(lambda c: turns.fail(c, drive, error, cause))
        self.exit(drive)

    def wait(self, drive: Drive, asked: Any = None, wait_s: float | None = None) -> TurnContinues:
        """The driver yields; it exits if it has to wait."""
        goes = self.commit(lambda c: world.wait(c, drive, YieldTerms(asked, wait_s)))
        if goes == "over":
            self.exit(drive)
        return goes

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        while self.let_time_act():
            pass

    def read_main(self, reply: str = "NO_REPLY") -> list[str]:
        """Main takes a turn over what waits for it, and says this; answers the runs it was told of."""
        before = len(self.entries(MAIN))
        self.finish(self.start(MAIN), reply)
        return self.told(MAIN, before)

    def kill(self, key: str) -> Killing:
        return self.commit(lambda c: control.kill(c, key))

    def stop(self, key: str = MAIN) -> Killing:
        return self.commit(lambda c: control.stop(c, key))

    def delete(self, key: str = MAIN) -> None:
        self.commit(lambda c: control.delete_session(c, key))

    def send(self, key: str, message: str = "by the way", source: str | None = MAIN) -> str:
        return self.commit(lambda c: control.send(c, key, message, source))

    def steer(self, key: str, message: str = "rather this") -> Run:
        return self.commit(lambda c: control.steer(c, key, message))

    def answer(self, key: str, approve: bool, words: str = "") -> Run:
        return self.commit(lambda c: control.answer_plan(c, key, approve, words))

    def read_result(self, key: str) -> str | None:
        return self.commit(lambda c: control.read_result(c, key))

    def come_due(self, key: str) -> bool:
        return self.commit(lambda c: recover.come_due(c, key))

    def complete_late(self, key: str, words: str) -> None:
        """A foreign runtime's complete, after the outcome was fixed."""
        run = self.run(key)

        def end(c: Any) -> None:
            said = ev.Finished("text", c.tx.texts.keep(key, words))
            effects.apply(c, key, ev.AttemptEnded(at=c.at, attempt=run.attempt, end=said, next_run_id=c.ids.unique()))

        self.commit(end)

    # ---- looking

    def run(self, key: str) -> Run:
        return self.read(lambda tx: tx.runs.load(key))

    def phase(self, key: str) -> str:
        return self.run(key).phase.name

    def ended(self, key: str) -> Ended:
        ended = self.run(key).ended
        assert ended is not None, f"{key} has not ended"
        return ended

    def session(self, key: str) -> Session:
        found = self.read(lambda tx: tx.sessions.get(key))
        assert found is not None, f"no session {key}"
        return found

    def counts(self, key: str) -> Counts:
        return self.read(lambda tx: tx.sessions.counts(key))

    def unread(self, key: str) -> list[InboxRow]:
        return self.read(lambda tx: tx.inbox.unread(key))

    def row(self, key: str) -> InboxRow:
        found = self.read(lambda tx: tx.inbox.get(key))
        assert found is not None, f"no row {key}"
        return found

    def outcome_row(self, key: str) -> InboxRow:
        return self.row(f"announce:v1:{key}:{self.run(key).run_id}")

    def entries(self, key: str) -> list[Entry]:
        return self.read(lambda tx: tx.transcripts.entries(key, limit=100_000))

    def said(self, key: str) -> list[str]:
        """The words of the transcript, oldest first."""
        return [msgspec.json.decode(entry.body)["text"] for entry in self.entries(key)]

    def told(self, key: str, after: int = 0) -> list[str]:
        """The runs a transcript was told of, in order."""
        events = [msgspec.json.decode(e.body) for e in self.entries(key)[after:] if e.kind == "event"]
        return [item["run"] for event in events for item in event["completions"]]

    def text(self, text_id: str | None) -> str | None:
        return None if text_id is None else self.read(lambda tx: tx.texts.get(text_id))

    def result(self, key: str) -> str | None:
        return self.text(self.ended(key).result)

    def claimable(self) -> list[str]:
        places = self.read(lambda tx: tx.queue.claimable(self.rules.widths, self.clock.now(), 99))
        return [place.session for place in places]

    def sql(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        """What the file itself says, beside the store."""
        db = sqlite3.connect(Path(self.folder) / "fledge.db")
        try:
            return db.execute(query, args).fetchall()
        finally:
            db.close()

    def inbox(self, key: str) -> list[tuple[str, str]]:
        """Kind and state of every row of this inbox, in order of arrival."""
        rows = self.sql("SELECT kind, state FROM inbox WHERE session = ? ORDER BY seq", key)
        return [(kind, state) for kind, state in rows]

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table."""
        return {table: sorted(self.sql(f"SELECT * FROM {table}"), key=repr) for table in TABLES}

    def traces(self, row_key: str) -> list[DeliveryTrace]:
        found = self.sql("SELECT trace FROM deliveries WHERE row_key = ? ORDER BY seq", row_key)
        return [msgspec.json.decode(trace, type=DeliveryTrace) for (trace,) in found]

    def ended_as(self, key: str, turn: int) -> str | None:
        """How a turn was closed, if it was the last; None while it is open."""
        now = self.read(lambda tx: tx.turns.get(key))
        ((last, ended),) = self.sql("SELECT last_turn, ended FROM sessions WHERE key = ?", key)
        if now is not None and now.turn == turn:
            return None
        assert turn == (last if now is None else last - 1), "only the last one is known"
        return msgspec.json.decode(ended, type=TurnEnd).description


def scene_fixture() -> Iterator[Scene]:
    """A scene whose invariants are checked before it is struck."""
    scene = Scene()
    try:
        yield scene
        scene.check()
    finally:
        scene.close()


def for_a_program(scene: Scene) -> Drive:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    request = spawn.SpawnRequest(spec=Spec(task="work"), terms=Terms(parent=PROGRAM), limits=LIMITS)
    return scene.start(scene.commit(lambda c: spawn.spawn(c, request)).key)


PHASES = (
    *("spawning", "queued", "running", "waiting", "grace", "stopping", "announcing", "announce_deferred"),
    *("awaiting_approval", "completed", "completed_giveup", "archived"),
)
"""Where a child may stand; `grace` and `stopping` are the two kinds of `ending`."""


def child_in(scene: Scene, phase: str) -> str:
    """A child of main in this phase; `grace` and `stopping` are the two kinds of `ending`."""
    main = scene.main()
    if phase == "spawning":
        return scene.reserve(main)
    key = scene.spawn(main, plan=phase == "awaiting_approval")
    if phase == "queued":
        return key
    drive = scene.start(key)
    if phase not in ("running", "announcing", "announce_deferred", "completed_giveup"):
        scene.finish(main, "it is under way")
    match phase:
        case "waiting":
            scene.begin(drive)
            scene.wait(drive)
        case "grace":
            scene.commit(lambda c: turns.falter(c, drive, "overloaded"))
        case "stopping":
            scene.kill(key)
        case "announcing" | "awaiting_approval":
            scene.finish(drive, "words")
        case "announce_deferred" | "completed_giveup":
            scene.finish(drive, "words")
            scene.delete()
            if phase == "completed_giveup":
                for wait_s in (1.0, 2.0, 4.0):
                    scene.pass_time(wait_s)
        case "completed" | "archived":
            scene.finish(drive, "words")
            scene.read_main()
            if phase == "archived":
                scene.pass_time(3600.0)
        case _:
            pass
    assert scene.phase(key) == ("ending" if phase in ("grace", "stopping") else phase)
    return key


@contextmanager
def refused(scene: Scene, status: str, reason: str) -> Iterator[None]:
    """What happens inside is refused with exactly these words, and no row of any table has changed."""
    before = scene.dump()
    with pytest.raises(FledgeError, match=f"^{re.escape(reason)}$") as error:
        yield
    found = error.value
    assert (found.status if isinstance(found, Refused) else "bad input") == status
    assert scene.dump() == before
