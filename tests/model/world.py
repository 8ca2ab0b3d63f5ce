"""A tree of runs on a real SQLite file, moved one commit at a time, with the invariants that must hold after each.

No engine and no asyncio: the machine itself decides who is claimed, who ends and when the process dies, so that every
order of commits can come up. `World.settle` then lets time run on until nothing is left to do.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.lifecycle import replay
from fledge.core.progress import StepLimits
from fledge.core.run import Ended, Killed, Ok, Run, Terms, Waiting
from fledge.core.transcript import CallEntry, Replied, Resulted, open_calls
from fledge.errors import Refused, StaleWrite
from fledge.orchestrator import cluster, control, effects, heartbeat, recover, spawn, steps, transcripts, turns
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.turns import Drive
from fledge.store.base import Spec, Tx
from fledge.store.unit import Unit
from fledge.testing import InlineStore, ManualClock, SeededIds
from tests.empty import empty_store
from tests.store.remembered import check_remembered

T = TypeVar("T")
MAIN = "agent:main:main"
CAP = 3
WIDTHS = {"main": 1, "subagent": 2}
LIMITS = policy.Limits(max_depth=3, max_children=CAP)


class World:
    """The system under test, the drivers that exist in its process, and what a person remembers of it."""

    def __init__(
        self, widths: dict[str, int] | None = None, open_store: Callable[[], InlineStore] | None = None, **rules: Any
    ) -> None:
        self.folder = empty_store("fledge-model-")
        self._open_store = open_store or (lambda: InlineStore(self.folder))
        self.clock, self.ids = ManualClock(), SeededIds(7)
        self.rules = Rules(widths=widths or WIDTHS, **rules)
        self.drives: dict[str, Drive] = {}
        self.ghosts: list[Drive] = []
        self.outcomes: dict[str, Ended] = {}
        self.ended_ids: dict[str, str] = {}
        """The run id with which each came out like that."""
        self.rows: dict[str, str] = {}
        self.reservations: dict[str, Drive] = {}
        self.generation = 0
        self.open()
        self.commit(lambda c: spawn.open_conversation(c, MAIN))

    def open(self) -> None:
        self.store = self._open_store()
        self.generation += 1
        self.owner = f"process-{self.generation}"
        while self.commit(lambda c: cluster.take_over(c, self.owner)).more:
            pass

    def close(self) -> None:
        self.store.close_now()
        shutil.rmtree(self.folder)

    def crash(self) -> None:
        """kill -9 and a new process: every driver is gone, nothing else is."""
        self.store.close_now()
        self.drives.clear()
        self.ghosts.clear()
        self.reservations.clear()
        self.open()

    def commit(self, decide: Callable[[Commit], T]) -> T:

        def job(tx: Tx) -> T:
            c = Commit(tx, self.clock.now(), self.ids, self.rules)
            result = decide(c)
            effects.settle(c)
            return result

        return self.store.run(job)

    def read(self, look: Callable[[Tx], T]) -> T:
        return self.store.run(look)

    def attempt(self, decide: Callable[[Commit], T]) -> T | None:
        """A move that rules may refuse; a refusal changes nothing, which the invariants then see."""
        try:
            return self.commit(decide)
        except (Refused, StaleWrite):
            return None

    # ---- what the process does

    def driven(self) -> list[str]:
        """Sessions whose driver still may write."""
        return [key for key, drive in self.drives.items() if self._is_current(drive)]

    def _is_current(self, drive: Drive) -> bool:
        try:
            self.read(lambda tx: tx.drivers.fence(drive.session, drive.epoch))
        except StaleWrite:
            return False
        return True

    def claim(self) -> bool:
        """Claim whoever is first; False if nobody may be claimed now."""
        places = self.read(lambda tx: tx.queue.claimable(self.rules.widths, self.clock.now(), 1))
        if not places:
            return False
        drive = self.commit(lambda c: turns.claim(c, places[0], self.owner))
        if drive is not None:
            old = self.drives.pop(drive.session, None)
            if old is not None:
                self.ghosts.append(old)
            self.drives[drive.session] = drive
        return True

    def exit(self, drive: Drive) -> None:
        """The driver's task is gone, as the engine would report it."""
        self.commit(lambda c: turns.left(c, drive.session, drive.epoch))
        held = self.drives.get(drive.session)
        if held is not None and held.epoch == drive.epoch:
            del self.drives[drive.session]

    def request(self, drive: Drive, **terms: Any) -> spawn.SpawnRequest:
        return spawn.SpawnRequest(
            spec=Spec(task="work", label="w"),
            terms=Terms(parent=drive.session, **terms),
            limits=LIMITS,
            generations=drive.generations,
        )

    def ask(self, drive: Drive) -> None:
        """The model wants something that needs a person; there is nothing else to do, so the turn waits for them."""
        reply = Replied("may I?", (CallEntry("call", "exec", "{}", "asked"),))
        if self.attempt(lambda c: steps.replied(c, drive, reply, 0, 60.0)) is not None:
            self.take_up(drive)

    def call(self, drive: Drive, name: str, limits: StepLimits) -> None:
        """One step that calls this tool, which answers the same each time; at a limit it is the turn's last."""
        reply = Replied("", (CallEntry("call", name, "{}"),))
        lines = self.attempt(lambda c: steps.replied(c, drive, reply, 0, 60.0))
        if lines is None:
            return
        entry = next(line.seq for line in reversed(lines) if line.body == reply)
        results, end = [Resulted(entry, 0, "call", name, "the same")], steps.StepEnd(reply, (), limits)
        goes = self.attempt(lambda c: steps.resulted(c, drive, results, 0, end))
        if goes is not None and goes.over:
            self.exit(drive)

    def take_up(self, drive: Drive) -> bool:
        """A driver that finds calls open: their results are written if all are decided, else it waits on. False if
        there is nothing more to do for it."""

        def decide(c: Commit) -> bool:
            calls = open_calls(transcripts.lines(c.tx, drive.session))
            answers = {place: one.state for place, one in steps.answers(c.tx, drive.session, calls).items()}
            if "waiting" in answers.values():
                steps.ask(c, drive)
                return False
            results = [Resulted(x.entry, x.index, "call", "exec", "done") for x in calls]
            reply = Replied("", tuple(x.call for x in calls))
            return not steps.resulted(c, drive, results, 0, steps.StepEnd(reply)).over

        goes_on = self.attempt(decide)
        if goes_on is False:
            self.exit(drive)
        return bool(goes_on)

    def has_open_calls(self, drive: Drive) -> bool:
        return bool(self.read(lambda tx: open_calls(transcripts.lines(tx, drive.session))))

    def let_time_act(self) -> bool:
        keys = self.read(lambda tx: tx.runs.due(self.clock.now(), 1000))
        moved = [self.commit(partial(recover.come_due, key=key)) for key in keys]
        beats = self.read(lambda tx: tx.heartbeats.due(self.clock.now(), 1000))
        moved += [self.commit(partial(heartbeat.come_due, session=session)) for session in beats]
        return any(moved)

    # ---- looking

    def runs(self) -> list[Run]:
        return self.read(lambda tx: [tx.runs.load(key) for key in walk(tx, MAIN)])

    def settle(self) -> None:
        """Only what the system does by itself, and people who answer: everything must come to rest."""
        for _ in range(400):
            for key in list(self.drives):
                self._wind_up(self.drives[key])
            for key in self.read(_awaiting):
                self.commit(partial(control.answer_plan, key=key, approve=True, words="APPROVED: proceed"))
            for asked in self.read(lambda tx: tx.approvals.open()):
                self.attempt(partial(steps.answer, approval_id=asked.id, allow=True, answered_by="a person"))
            if not self.claim() and not self.let_time_act():
                next_at = self.read(lambda tx: tx.next_due(self.clock.now()))
                if self.at_rest() or (next_at is None and not self.drives):
                    break
                if next_at is not None:
                    self.clock.advance(max(0.0, next_at - self.clock.now()) + 0.001)
            self.check()
        assert self.at_rest(), [(run.key, run.phase) for run in self.runs()]

    def _wind_up(self, drive: Drive) -> None:
        drive = self.current(drive)
        if not self._is_current(drive):
            self.exit(drive)
            return
        run = self.read(lambda tx: tx.runs.find(drive.session))
        if run is not None and run.phase.name == "ending" and run.ended is None:
            self.exit(drive)  # its executor gives up: a stop is acknowledged, a grace runs out
        elif self.has_open_calls(drive):
            self.take_up(drive)
        elif self.attempt(lambda c: turns.finish(c, drive, "done")) == "over":
            self.exit(drive)

    def current(self, drive: Drive) -> Drive:
        """The drive as its driver knows it once it has read on after an interrupt."""
        driver = self.read(lambda tx: tx.drivers.get(drive.session))
        return drive if driver is None else replace(drive, interrupts=driver.interrupts)

    def at_rest(self) -> bool:
        def look(tx: Tx) -> bool:
            runs = [tx.runs.load(key) for key in walk(tx, MAIN)]
            settled = all(run.phase.name in ("completed", "completed_giveup", "archived") for run in runs)
            sessions = [MAIN, *(run.key for run in runs)]
            read = all(not tx.inbox.unread(key, 1) for key in sessions)
            return settled and read and tx.turns.get(MAIN) is None

        return self.read(look)

    # ---- what must always hold

    def check(self) -> None:
        self.read(self._check)
        self._remembered()

    def _remembered(self) -> None:
        """What the writer keeps from one commit to the next is what is stored."""
        check_remembered(self.store._tx, Tx(Unit(self.store._db)))

    def _check(self, tx: Tx) -> None:
        runs = [tx.runs.load(key) for key in walk(tx, MAIN)]
        for run in runs:
            assert replay(tx.events.of(run.key)) == run, "the row is the fold of its events"
            self._one_outcome(tx, run)
        for key in [MAIN, *(run.key for run in runs)]:
            self._counted(tx, key)
        self._caps(tx, runs)
        self._rows(tx, [MAIN, *(run.key for run in runs)])

    def _one_outcome(self, tx: Tx, run: Run) -> None:
        known, now = self.outcomes.get(run.key), run.ended
        if known is not None and run.run_id != self.ended_ids[run.key]:
            assert isinstance(known.outcome, Killed), f"{run.key} works again, but it was not killed"
            del self.outcomes[run.key], self.ended_ids[run.key]
            known = None
        if known is None and now is not None and isinstance(now.outcome, Ok):
            killed = any(isinstance(event, ev.KillOrdered) for event in tx.events.of(run.key))
            below = tx.sessions.counts(run.key).unsettled
            assert killed or not below, f"{run.key} came out ok with {below} unsettled below it"
        if known is not None and now != known:
            assert now is not None, f"{run.key} lost its outcome"
            assert isinstance(now.outcome, Ok), "only a late complete may refresh an unread outcome"
        if now is not None:
            self.outcomes[run.key], self.ended_ids[run.key] = now, run.run_id

    def _counted(self, tx: Tx, key: str) -> None:
        children = [tx.runs.load(child) for child in tx.runs.children(key)]
        unsettled = sum(not _is_settled(tx, child) for child in children)
        assert tx.sessions.counts(key).unsettled == unsettled, (
            f"{key} counts {tx.sessions.counts(key)}, but {unsettled} are unsettled"
        )
        run = tx.runs.find(key)
        if run is not None and isinstance(run.phase, Waiting):
            counts = tx.sessions.counts(key)
            assert not policy.holds(run.phase.until_settled, counts.unsettled, counts.settled), f"{key} sleeps for ever"

    def _caps(self, tx: Tx, runs: list[Run]) -> None:
        places: dict[str, int] = {}
        for run in runs:
            active = not _is_settled(tx, run) or run.phase.name == "awaiting_approval"
            places[run.terms.parent] = places.get(run.terms.parent, 0) + active
        assert all(count <= CAP for count in places.values()), places
        now = self.clock.now()
        live = [d for d in tx.drivers.all() if d.release_at is None or d.release_at > now]
        for lane, width in self.rules.widths.items():
            assert sum(d.lane == lane for d in live) <= width, f"{lane} is over its width"

    def _rows(self, tx: Tx, sessions: list[str]) -> None:
        """Every completion that was ever written is somewhere as long as its run is, and in at most one transcript,
        once."""
        told: dict[str, int] = {}
        for session in sessions:
            for entry in tx.transcripts.entries(session, limit=100_000):
                if entry.kind == "event":
                    for item in msgspec.json.decode(entry.body)["completions"]:
                        told[item["row"]] = told.get(item["row"], 0) + 1
        assert all(count == 1 for count in told.values()), told
        for key in [*self.rows, *told]:
            row = tx.inbox.get(key)
            if row is None:
                known = next((run for run in self.outcomes if key.startswith(f"announce:v1:{run}:")), "")
                closed = key in told or self.rows.get(key, "unread") not in ("unread", "undelivered")
                assert closed, f"row {key} was deleted"
                assert tx.runs.find(known) is None, f"row {key} was deleted before its run"
                continue
            assert (key in told) <= (row.state == "consumed"), f"{key} is told but {row.state}"
            before = self.rows.get(key, "unread")
            assert before == row.state or before in ("unread", "undelivered"), f"{key}: {before} → {row.state}"
            self.rows[key] = row.state
        for run in (tx.runs.find(session) for session in sessions):
            if run is not None:
                for row in tx.inbox.of_run(run.key):
                    self.rows.setdefault(row.key, row.state)
                self._announced(tx, run)

    def _announced(self, tx: Tx, run: Run) -> None:
        if run.phase.name == "announcing":
            assert any(row.kind == "outcome" for row in tx.inbox.of_run(run.key)), f"{run.key} announces without a row"
        if run.ended is not None and isinstance(run.ended.outcome, Killed):
            open_rows = [row for row in tx.inbox.of_run(run.key) if row.kind != "late"]
            assert not open_rows, f"the kill of {run.key} is not silent: {open_rows}"


def _is_settled(tx: Tx, run: Run) -> bool:
    """Computed from scratch, for comparison with the counters."""
    return run.concluded and all(_is_settled(tx, tx.runs.load(child)) for child in tx.runs.children(run.key))


def _awaiting(tx: Tx) -> list[str]:
    return [key for key in walk(tx, MAIN) if tx.runs.load(key).phase.name == "awaiting_approval"]


def walk(tx: Tx, root: str) -> Iterator[str]:
    """All runs below a session, parents first."""
    for key in tx.runs.children(root):
        yield key
        yield from walk(tx, key)
