"""Any order of moves over a tree of runs, with crashes in between: nothing lost, nothing twice, everything settles."""

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fledge.core import events as ev
from fledge.core.inbox import QueueSettings
from fledge.core.policy import YieldTerms
from fledge.core.progress import StepLimits
from fledge.core.run import Killed
from fledge.orchestrator import control, effects, recover, spawn, steps, turns
from fledge.testing import world
from tests.effort import effort
from tests.model.world import CAP, LIMITS, MAIN, World
from tests.statements import proves

PICK = st.integers(0, 1_000_000)


class TreeOfRuns(RuleBasedStateMachine):
    def new_world(self, **rules: Any) -> World:
        """The world that an example plays in; another one for another store."""
        return World(**rules)

    @initialize(
        mode=st.sampled_from(["collect", "steer", "followup", "steer-backlog", "interrupt"]),
        children=st.integers(0, 2),
        workers=st.integers(0, 2),
        main_replies=st.booleans(),
        plan=st.booleans(),
    )
    def start(self, mode: Any, children: int, workers: int, main_replies: bool, plan: bool) -> None:
        """Start from a small tree, so that most moves have something to move."""
        world = self.world = self.new_world(queue=QueueSettings(mode=mode, people=mode))
        world.commit(lambda c: control.send(c, MAIN, "go"))
        world.claim()
        for _ in range(children):
            world.commit(lambda c: spawn.spawn(c, world.request(world.drives[MAIN], plan=plan)))
        while world.claim():
            pass
        for drive in [drive for drive in world.drives.values() if drive.run is not None][:1]:
            for _ in range(workers):
                world.commit(partial(spawn.spawn, request=world.request(drive)))
        if main_replies:
            main = world.drives[MAIN]
            world.commit(lambda c: turns.finish(c, main, "it is under way"))
            world.exit(main)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.close()

    # ---- choosing

    def _drive(self, pick: int) -> turns.Drive | None:
        keys = self.world.driven()
        # Children first: a main session that has replied has nothing left to do.
        keys = [key for key in keys if key != MAIN or pick % 4 == 0] or keys
        return self.world.current(self.world.drives[keys[pick % len(keys)]]) if keys else None

    def _child(self, pick: int) -> turns.Drive | None:
        drive = self._drive(pick)
        return drive if drive is not None and drive.run is not None else None

    def _key(self, pick: int) -> str | None:
        runs = self.world.runs()
        return runs[pick % len(runs)].key if runs else None

    # ---- spawning

    @rule(
        pick=PICK,
        plan=st.booleans(),
        cleanup=st.sampled_from(["keep", "delete"]),
        mode=st.sampled_from(["run", "run", "session"]),
        expects=st.booleans(),
        timeout=st.sampled_from([0.0, 20.0]),
    )
    def spawn(self, pick: int, plan: bool, cleanup: Any, mode: Any, expects: bool, timeout: float) -> None:
        drive = self._drive(pick)
        if drive is not None:
            request = self.world.request(
                drive, plan=plan, cleanup=cleanup, mode=mode, expects=expects, timeout_s=timeout
            )
            self.world.attempt(lambda c: spawn.spawn(c, request))

    @rule(pick=PICK)
    def reserve(self, pick: int) -> None:
        drive = self._drive(pick)
        if drive is not None:
            run = self.world.attempt(lambda c: spawn.reserve(c, self.world.request(drive)))
            if run is not None:
                self.world.reservations[run.key] = drive

    @precondition(lambda self: self.world.reservations)
    @rule(pick=PICK, works=st.booleans())
    def prepare(self, pick: int, works: bool) -> None:
        keys = list(self.world.reservations)
        key = keys[pick % len(keys)]
        drive = self.world.reservations.pop(key)
        if self.world.read(lambda tx: tx.runs.find(key)) is None:
            return
        if not works or self.world.attempt(lambda c: spawn.prepared(c, key, drive.generations)) is None:
            self.world.commit(lambda c: spawn.failed(c, key, "no space"))

    # ---- driving

    @rule()
    def claim(self) -> None:
        self.world.claim()

    @rule(pick=PICK, text=st.sampled_from(["an answer", "an answer", "NO_REPLY", "ANNOUNCE_SKIP", ""]))
    def finish(self, pick: int, text: str) -> None:
        drive = self._drive(pick)
        if drive is not None and self.world.has_open_calls(drive) and not self.world.take_up(drive):
            return
        if drive is not None and self.world.attempt(lambda c: turns.finish(c, drive, text)) == "over":
            self.world.exit(drive)

    @rule(pick=PICK, cause=st.sampled_from(["error", "budget"]))
    def fail(self, pick: int, cause: Any) -> None:
        drive = self._drive(pick)
        if drive is not None:
            self.world.attempt(lambda c: turns.fail(c, drive, "broke", cause))

    @rule(pick=PICK)
    def step(self, pick: int) -> None:
        drive = self._drive(pick)
        if drive is not None:
            self.world.attempt(lambda c: world.step(c, drive, [("tool", "output")]))

    @rule(pick=PICK, recovers=st.booleans())
    def falter(self, pick: int, recovers: bool) -> None:
        drive = self._child(pick)
        if drive is not None:
            self.world.attempt(lambda c: turns.falter(c, drive, "overloaded"))
            if recovers:
                self.world.attempt(lambda c: turns.recovered(c, drive))

    @rule(pick=PICK, asked=st.sampled_from([None, "all", "any", 1, 2, 3]), wait_s=st.sampled_from([None, 10.0]))
    def wait(self, pick: int, asked: Any, wait_s: float | None) -> None:
        drive = self._drive(pick)
        if drive is not None and not self.world.has_open_calls(drive):
            terms = YieldTerms(asked, wait_s)
            if self.world.attempt(lambda c: world.wait(c, drive, terms)) == "over":
                self.world.exit(drive)

    @rule(pick=PICK, digest=st.sampled_from(["look", "look", "list"]))
    def step_that_repeats(self, pick: int, digest: str) -> None:
        """With limits so low that they are met."""
        drive = self._drive(pick)
        if drive is not None and not self.world.has_open_calls(drive):
            self.world.call(drive, digest, StepLimits(max_steps=6, max_repeated=2))

    @rule(pick=PICK)
    def ask_a_person(self, pick: int) -> None:
        drive = self._drive(pick)
        if drive is not None and not self.world.has_open_calls(drive):
            self.world.ask(drive)

    @rule(pick=PICK, allow=st.booleans())
    def a_person_answers(self, pick: int, allow: bool) -> None:
        asked = self.world.read(lambda tx: tx.approvals.open())
        if asked:
            question = asked[pick % len(asked)].id
            self.world.attempt(lambda c: steps.answer(c, question, allow, "a person"))

    @precondition(lambda self: self.world.ghosts)
    @rule(pick=PICK)
    def superseded_driver_writes(self, pick: int) -> None:
        ghost = self.world.ghosts[pick % len(self.world.ghosts)]
        before = self.world.read(lambda tx: tx.transcripts.entries(ghost.session, limit=100_000))
        assert self.world.attempt(lambda c: turns.finish(c, ghost, "too late")) is None
        assert self.world.read(lambda tx: tx.transcripts.entries(ghost.session, limit=100_000)) == before

    @rule(pick=PICK)
    def driver_exits(self, pick: int) -> None:
        keys = list(self.world.drives)
        if keys:
            self.world.exit(self.world.drives[keys[pick % len(keys)]])

    # ---- directing

    @rule(pick=PICK)
    def steer(self, pick: int) -> None:
        key = self._key(pick)
        if key is not None:
            self.world.attempt(lambda c: control.steer(c, key, "rather this"))

    @rule(pick=PICK)
    def send(self, pick: int) -> None:
        key = self._key(pick)
        if key is not None:
            self.world.attempt(lambda c: control.send(c, key, "by the way", MAIN))

    @rule(pick=PICK)
    def kill(self, pick: int) -> None:
        key = self._key(pick)
        if key is not None:
            self.world.attempt(lambda c: control.kill(c, key))

    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        killed = [run.key for run in self.world.runs() if run.ended and isinstance(run.ended.outcome, Killed)]
        if killed:
            key = killed[pick % len(killed)]
            self.world.attempt(lambda c: spawn.resume(c, key, "", LIMITS, lambda agent_id: CAP))

    @rule()
    def stop_main(self) -> None:
        self.world.attempt(lambda c: control.stop(c, MAIN))

    @rule()
    def talk_to_main(self) -> None:
        self.world.attempt(lambda c: control.send(c, MAIN, "and now?"))

    @rule(pick=PICK, approve=st.booleans())
    def answer_plan(self, pick: int, approve: bool) -> None:
        key = self._key(pick)
        if key is not None:
            self.world.attempt(lambda c: control.answer_plan(c, key, approve, "as you like"))

    @rule(pick=PICK, again=st.booleans())
    def take_up_undelivered(self, pick: int, again: bool) -> None:
        key = self._key(pick)
        if key is not None:
            self.world.attempt(lambda c: control.retry(c, key) if again else control.dismiss(c, key))

    @rule(pick=PICK)
    def late_complete(self, pick: int) -> None:
        """A foreign runtime's end, unfenced, after the outcome was fixed."""
        key = self._key(pick)
        run = None if key is None else self.world.read(lambda tx: tx.runs.find(key))
        if run is not None and run.ended is not None:

            def late(c: Any) -> None:
                text = c.tx.texts.keep(run.key, f"late {run.version}")
                end = ev.Finished("text", text)
                effects.apply(
                    c, run.key, ev.AttemptEnded(at=c.at, attempt=run.attempt, end=end, next_run_id=c.ids.unique())
                )

            self.world.attempt(late)

    @precondition(lambda self: len(self.world.runs()) >= 3)
    @rule()
    def requester_is_deleted(self) -> None:
        self.world.attempt(lambda c: control.delete_session(c, MAIN))

    # ---- time and faults

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 16.0, 31.0, 400.0, 2000.0, 90_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.world.let_time_act()

    @rule(pick=PICK)
    def an_effect_is_repeated(self, pick: int) -> None:
        key = self._key(pick)
        if key is not None:
            self.world.attempt(lambda c: recover.cleaned(c, key, None))

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @invariant()
    def what_must_always_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.check()


TreeOfRuns.TestCase.settings = effort(examples=60, steps=45)
TestTreeOfRuns = TreeOfRuns.TestCase
proves("0.lost.2", "A result leaves only into a transcript or into the visible undelivered list")(TestTreeOfRuns)
proves("0.ends.5", "In any order of moves and crashes, everything comes to rest")(TestTreeOfRuns)
proves("0.timeline.3", "A run's state is the fold of its events")(TestTreeOfRuns)
proves("2.phases.22")(TestTreeOfRuns)
proves("2.phases.36", "After a crash a cleanup is repeated, and repeating it changes nothing")(TestTreeOfRuns)
proves("2.hops.1")(TestTreeOfRuns)
proves("2.nested.1")(TestTreeOfRuns)
proves("4.yield.10", "The run itself is never announced while descendants are unsettled")(TestTreeOfRuns)
