"""Which commits are possible in a state, and what must hold after each of them.

`system` steps are what fledge does by itself: enabled for long enough, they happen. `world` steps are people, models'
whims and faults, each bounded by the configuration. `deadline` steps are safety nets (30 minutes) that must never be
the only way forward. A crash can come between any two commits.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from tests.model.spec.configurations import Event
from tests.model.spec.rules import Rules
from tests.model.spec.state import (
    LIVE,
    NOWHERE,
    OFFERED,
    SETTLED,
    Condition,
    Key,
    Row,
    RowKey,
    Run,
    Session,
    State,
    Turn,
)

By = Literal["system", "world", "deadline"]
MAX_REPEATS = 2
"""How often a step may be repeated. Any limit does; a low one keeps the search small."""


class Step(NamedTuple):
    by: By
    label: str
    effect: Callable[[State], None]


class Next(NamedTuple):
    """A step that was taken, and the state it leads to."""

    by: By
    label: str
    key: Key


class Model(Rules):
    """The steps of one tree of runs."""

    def initial(self) -> State:
        size = len(self.parents)
        events = {str(event): times for event, times in self.configuration.events.items()}
        state = State([Run() for _ in range(size)], [Session() for _ in range(size)], left=events)
        for i in self.configuration.planning:
            state.runs[i].is_planning = True
        if "api" in self.options:
            for i in self.children(0):
                state.runs[i].phase, state.sessions[i].messages = "queued", ("task",)
        else:
            state.sessions[0].messages = ("task",)
        return state

    def next(self, key: Key) -> Iterator[Next]:
        now = State.of(key)
        if now.violation:
            return
        for by, label, effect in self._steps(now):
            state = State.of(key)
            effect(state)
            self._check_limits(state)
            yield Next(by, label, state.key())

    def _steps(self, now: State) -> Iterator[Step]:
        yield from self._steps_of_program(now) if "api" in self.options else self._steps_of_main(now)
        for i in self.runs:
            yield from self._steps_of_run(now, i)
        if now.kills_pending:
            yield Step("system", f"kill goes on: run {now.kills_pending[0]}", self._kill_next)
        if self._may(now, "crash"):
            yield self._event("crash", "kill -9 and restart", self._crash)
        for i in self.runs:
            yield from self._events_of_run(now, i)
        main = now.sessions[0]
        if self._may(now, "stop") and main.turn and main.is_driven and not now.kills_pending:
            yield self._event("stop", "/stop in main", self._stop_main)
        if self._may(now, "say") and main.exists:
            yield self._event("say", "a person says something to main", self._say)
        if self._may(now, "gone") and main.exists:
            yield self._event("gone", "the requester session main is deleted", self._delete_main)

    def _may(self, now: State, event: Event, i: int | None = None) -> bool:
        """True if the event may still happen, to run i if one is named."""
        return now.left.get(event, 0) > 0 and (i is None or i in self.configuration.targets.get(event, ()))

    def _event(self, event: Event, label: str, effect: Callable[[State], None]) -> Step:
        def spend(state: State) -> None:
            state.left[event] -= 1
            effect(state)

        return Step("world", label, spend)

    # ---- main, or the program that is the requester

    def _steps_of_main(self, now: State) -> Iterator[Step]:
        main = now.sessions[0]
        if not main.exists:
            return
        if main.turn is None and (main.messages or self.unread_in(now, 0)):
            yield from self._openings_of_main(now)
        if main.turn and not main.is_driven:
            yield Step("system", "main: the open turn without a reply is due again", self._resume_main_turn)
        if main.turn and main.is_driven:
            yield from self._steps_of_turn(now, 0, main.turn)

    def _openings_of_main(self, now: State) -> Iterator[Step]:
        """The turns that may open: for everything that waits, or under followup for one message or completion. Which of
        a message and a completion is older is not known here, so either may lead."""
        followups = [mode == "followup" for mode in (self.configuration.people, self.mode_of(0))]
        if "people" not in self.fixes or not any(followups):
            yield Step("system", "main: idle, drains its inbox, turn opened", self._open_main_turn)
            return
        if now.sessions[0].messages:
            effect = partial(self._open_for_messages, one=followups[0])
            yield Step("system", "main: idle, a turn for what people said", effect)
        unread = self.unread_in(now, 0)
        for keys in [[key] for key in unread] if followups[1] else [unread][: len(unread)]:
            label = f"main: idle, a turn for {len(keys)} completions"
            yield Step("system", label, partial(self._open_for_completions, keys=keys))

    def _open_main_turn(self, state: State) -> None:
        waiting = len(state.sessions[0].messages) + len(self.unread_in(state, 0))
        if waiting > 1 and "followup" in (self.configuration.people, self.mode_of(0)):
            self.violate(state, "P10", f"a turn opens for {waiting} at once under followup")
        self.consume_inbox(state, 0)
        self._begin_main_turn(state)

    def _open_for_messages(self, state: State, one: bool) -> None:
        main = state.sessions[0]
        main.messages = main.messages[1:] if one else ()
        self._begin_main_turn(state)

    def _open_for_completions(self, state: State, keys: list[RowKey]) -> None:
        for key in keys:
            self.consume(state, 0, key)
        self._begin_main_turn(state)

    def _begin_main_turn(self, state: State) -> None:
        main = state.sessions[0]
        main.turn, main.is_driven = Turn("model", 0, main.generation), True
        for i in self.children(0):
            if state.runs[i].phase == "none":
                state.runs[i].is_killed = False  # An earlier /stop says nothing about what this turn spawns.

    def _resume_main_turn(self, state: State) -> None:
        state.sessions[0].is_driven = True
        if state.runs[0].is_killed:
            why = "the turn that /stop ended is due again (drained items, no reply) and asks the model"
            self.violate(state, "P5", why)

    def _steps_of_program(self, now: State) -> Iterator[Step]:
        for key in self.unread_in(now, 0):
            if self._may(now, "read"):
                label = f"program reads the result of run {key.run}"
                yield self._event("read", label, partial(self._read_result, key=key))
            if "api" in self.fixes:
                label = f"result of run {key.run} unread at expiry: undelivered"
                yield Step("system", label, partial(self._give_up_result, key=key))

    def _read_result(self, state: State, key: RowKey) -> None:
        state.rows[key] = state.rows[key]._replace(status="consumed", inbox=0, times_read=1)
        if state.runs[key.run].phase in OFFERED:
            state.runs[key.run].phase = "cleanup_pending"

    def _give_up_result(self, state: State, key: RowKey) -> None:
        state.rows[key] = state.rows[key]._replace(status="undelivered", inbox=0, times_read=0)
        state.runs[key.run].phase = "cleanup_pending"

    # ---- a run, by itself

    def _steps_of_run(self, now: State, i: int) -> Iterator[Step]:
        run, session = now.runs[i], now.sessions[i]
        is_free = self.slots_held(now) < self.configuration.width
        if run.phase == "queued" and is_free and not run.has_old_driver:
            yield Step("system", f"run {i}: claims a slot (attempt {run.attempt})", partial(self._claim, i=i))
        if run.phase == "running" and run.is_driven and run.stop == "no" and session.turn:
            yield from self._steps_of_turn(now, i, session.turn)
        if run.has_old_driver:
            yield Step("system", f"run {i}: the superseded driver exits", partial(self._exit_old_driver, i=i))
        if run.phase == "ending" and run.stop == "no":
            if run.is_driven:
                label = f"run {i}: start within the grace cancels the provisional error"
                yield Step("world", label, partial(self._start_again, i=i))
            effect = partial(self.end, i=i, outcome="error", text="none")
            yield Step("system", f"run {i}: grace over, ends with error", effect)
        if run.stop == "stopping":
            yield from self._steps_of_stopping(now, i)
        if run.phase == "waiting" and run.condition and run.condition.wanted:
            yield Step("deadline", f"run {i}: yield deadline (30 min)", partial(self.wake, i=i))
        if run.is_send_turn and run.condition and run.condition.wanted and not run.is_overdue:
            label = f"run {i}: yield deadline (30 min) in the turn of a send"
            yield Step("deadline", label, partial(self._pass_deadline, i=i))
        yield from self._steps_of_delivery(now, i)
        yield from self._steps_of_cleanup(now, i)
        has_ended = run.outcome is not None and run.phase not in LIVE and run.stop != "stopping"
        if has_ended and session.exists and session.messages:
            label = f"session {i}: a turn for the message, reply to the sender"
            yield Step("system", label, partial(self._answer_send, i=i))
        if run.phase == "spawning" and "reserve" in self.fixes:
            turn = now.sessions[self.parents[i]].turn
            if not (turn and turn.stage == "preparing" and turn.child == i):
                label = f"run {i}: reservation without a caller expires"
                yield Step("system", label, partial(self.withdraw, i=i))

    def _pass_deadline(self, state: State, i: int) -> None:
        state.runs[i].is_overdue = True

    def _claim(self, state: State, i: int) -> None:
        run, session = state.runs[i], state.sessions[i]
        if run.is_killed and run.stop != "no":
            self.violate(state, "P5", f"run {i} starts a model step after its kill")
        elif run.is_killed:
            self.violate(state, "P5", f"run {i}, admitted beside the kill, starts a model step")
        run.phase, run.is_driven = "running", True
        if session.turn is None:
            self.consume_inbox(state, i)
            session.turn = Turn("model", 0, session.generation)
        elif session.turn.stage == "model":
            self.consume_inbox(state, i)

    def _exit_old_driver(self, state: State, i: int) -> None:
        state.runs[i].has_old_driver = False

    def _start_again(self, state: State, i: int) -> None:
        state.runs[i].phase = "running"

    def _steps_of_stopping(self, now: State, i: int) -> Iterator[Step]:
        turn = now.sessions[i].turn
        if now.runs[i].is_driven:
            if turn and turn.stage == "model":
                label = f"run {i}: late complete in the stopping window"
                yield Step("world", label, partial(self._complete_late, i=i))
            if "stopping" not in self.fixes:
                label = f"run {i}: its driver, aborted by the kill, commits a terminal error in the window"
                yield Step("system", label, partial(self._abort, i=i))
        yield Step("system", f"run {i}: driver acknowledges / 5 s pass", partial(self._stop, i=i))

    def _complete_late(self, state: State, i: int) -> None:
        run = state.runs[i]
        run.completed_late = True
        if run.ended_hook_ran or not state.sessions[i].exists:
            why = "late complete wins after cleanup has already run (ended hook told killed, session removed)"
            self.violate(state, "P1", f"run {i}'s {why}")
        run.outcome = None
        self.end(state, i, "ok", "full")

    def _abort(self, state: State, i: int) -> None:
        state.runs[i].outcome = None
        self.end(state, i, "error", "aborted")

    def _stop(self, state: State, i: int) -> None:
        run = state.runs[i]
        run.stop, run.is_driven, state.sessions[i].turn = "stopped", False, None
        if "stopping" in self.fixes:
            self.end_killed(state, i)

    # ---- delivery and cleanup

    def _steps_of_delivery(self, now: State, i: int) -> Iterator[Step]:
        """Rows of run i whose requester is gone: given up, or moved to the next requester up."""
        if now.runs[i].phase in ("none", "spawning", "ending", "archived", "gone"):
            return
        for key, row in now.rows.items():
            if key.run != i or row.status != "unread":
                continue
            if row.inbox == NOWHERE or (row.inbox == 0 and not now.sessions[0].exists):
                label = f"run {i}: requester missing: deferred, then given up"
                yield Step("system", label, partial(self._give_up, key=key))
            elif row.inbox and (now.runs[row.inbox].phase in SETTLED or not now.sessions[row.inbox].exists):
                label = f"run {i}: requester run settled: row bubbles"
                yield Step("system", label, partial(self._bubble, key=key))

    def _give_up(self, state: State, key: RowKey) -> None:
        run = state.runs[key.run]
        if run.phase == "announcing":
            run.phase = "announce_deferred"
            return
        state.rows[key] = state.rows[key]._replace(status="undelivered", inbox=NOWHERE, times_read=0)
        if run.phase == "announce_deferred":
            run.phase = "cleanup_pending"

    def _bubble(self, state: State, key: RowKey) -> None:
        state.rows[key] = state.rows[key]._replace(inbox=self.requester(state, key.run))

    def _steps_of_cleanup(self, now: State, i: int) -> Iterator[Step]:
        run, session = now.runs[i], now.sessions[i]
        keeps_session = i in self.configuration.deleted and "unread" in self.fixes and bool(session.messages)
        if run.phase == "cleanup_pending" and not keeps_session:
            yield Step("system", f"run {i}: cleanup done", partial(self._clean_up, i=i))
        has_unread = any(row.status == "unread" and i in (key.run, row.inbox) for key, row in now.rows.items())
        is_clear = run.is_settled and not has_unread and not session.messages
        may_archive = run.phase == "completed" and run.unsettled == 0 and "sweep" in self.options
        if may_archive and (is_clear or "sweep" not in self.fixes):
            yield Step("system", f"sweeper archives run {i}", partial(self._archive, i=i))

    def _clean_up(self, state: State, i: int) -> None:
        run, session = state.runs[i], state.sessions[i]
        run.ended_hook_ran = True
        is_undelivered = any(key.run == i and row.status == "undelivered" for key, row in state.rows.items())
        run.phase = "completed_giveup" if is_undelivered else "completed"
        if i not in self.configuration.deleted:
            return
        session.exists = False
        if "send" in session.messages:
            self.violate(state, "P1", f"session {i} is deleted with an accepted send unread")
        for key in self.unread_in(state, i):
            why = f"session {i} is deleted with run {key.run}'s unconsumed result in its inbox"
            self.violate(state, "P1", why)

    def _archive(self, state: State, i: int) -> None:
        state.runs[i].phase = "archived"
        if any(self.is_live(state, j) for j in self.descendants(i)):
            self.violate(state, "P8", f"run {i} archived with a live descendant")
        if self.unread_in(state, i):
            self.violate(state, "P8", f"run {i} archived with an unconsumed result in its inbox")
        if any(row.status == "unread" and key.run == i for key, row in state.rows.items()):
            self.violate(state, "P8", f"run {i} archived with its own result unread")

    def _answer_send(self, state: State, i: int) -> None:
        """A turn in the session of a run that has ended; it is no attempt."""
        if state.runs[i].is_killed and "send_after_end" not in state.sessions[i].messages:
            self.violate(state, "P5", f"an old message in killed run {i}'s inbox starts a turn there")
        self.consume_inbox(state, i)
        if "refresh" not in self.fixes:
            for key, row in state.rows.items():
                if key.run == i and row.status == "unread":
                    state.rows[key] = row._replace(content="send_reply", times_read=0)

    # ---- an open turn that is driven

    def _steps_of_turn(self, now: State, i: int, turn: Turn) -> Iterator[Step]:
        if turn.stage == "model" and "spins" in self.options:
            label = f"{self._who(i)}: model repeats a step that changes nothing"
            yield Step("system", label, partial(self._repeat, i=i, repeats=turn.repeats + 1))
        match turn.stage:
            case "model" if i == 0:
                yield from self._steps_of_main_model(now)
            case "model":
                yield from self._steps_of_model(now, i)
            case "call":
                yield from self._steps_of_call(now, i, turn.child)
            case "preparing":
                yield from self._steps_of_preparing(now, i, turn.child)

    def _repeat(self, state: State, i: int, repeats: int) -> None:
        session = state.sessions[i]
        if "progress" not in self.fixes:
            return
        if repeats < MAX_REPEATS and session.turn:
            session.turn = session.turn._replace(repeats=repeats)
        elif i:
            self.end(state, i, "error", "none")
        else:
            self._close_main_turn(state)

    def _who(self, i: int) -> str:
        return f"run {i}" if i else "main"

    def _is_interrupted(self, now: State, i: int) -> bool:
        people = self.configuration.people if i == 0 and "people" in self.fixes else self.mode_of(i)
        completion = self.mode_of(i) == "interrupt" and self.unread_in(now, i)
        return bool(completion or (people == "interrupt" and now.sessions[i].messages))

    def _steps_of_main_model(self, now: State) -> Iterator[Step]:
        uncalled = [j for j in self.children(0) if now.runs[j].phase == "none"]
        if uncalled:
            label = "main: model replies with a spawn call"
            yield Step("system", label, partial(self._call_spawn, i=0, child=uncalled[0]))
        else:
            yield Step("system", "main: replies, turn closed", self._close_main_turn)
        if self._is_interrupted(now, 0):
            yield Step("system", "main: interrupted, drains", partial(self.consume_at_boundary, i=0))

    def _close_main_turn(self, state: State) -> None:
        state.sessions[0].turn, state.sessions[0].is_driven = None, False

    def _steps_of_model(self, now: State, i: int) -> Iterator[Step]:
        run = now.runs[i]
        children = self.children(i)
        uncalled = [j for j in children if now.runs[j].phase == "none"]
        called = len(children) - len(uncalled)
        may_delegate = not run.is_send_turn and not ("wakes" in self.fixes and run.wakes >= self.configuration.wakes)
        if uncalled and may_delegate:
            label = f"run {i}: model replies with a spawn call"
            yield Step("system", label, partial(self._call_spawn, i=i, child=uncalled[0]))
        if called or not children:
            yield Step("system", f"run {i}: final text", partial(self.end, i=i, outcome="ok", text="full"))
            if "empty" in self.options:
                yield Step("world", f"run {i}: answers NO_REPLY", partial(self.end, i=i, outcome="ok", text="empty"))
            if "skip" in self.options and not children:
                yield Step(
                    "world", f"run {i}: answers ANNOUNCE_SKIP", partial(self.end, i=i, outcome="ok", text="skip")
                )
            if "error" in self.options:
                yield Step(
                    "world", f"run {i}: authoritative error", partial(self.end, i=i, outcome="error", text="none")
                )
        if self._may(now, "provisional"):
            yield self._event("provisional", f"run {i}: provisional provider error", partial(self._falter, i=i))
        if self._may(now, "yield") and (may_delegate or ("at_once" in self.fixes and not run.is_send_turn)):
            for wanted in range(1, min(called, 2) + 1):
                effect = partial(self._yield, i=i, wanted=wanted)
                yield self._event("yield", f"run {i}: yields for {wanted}", effect)
        if self._is_interrupted(now, i):
            yield Step("system", f"run {i}: interrupted, drains", partial(self.consume_at_boundary, i=i))

    def _call_spawn(self, state: State, i: int, child: int) -> None:
        self._move_turn(state, i, "call", child)

    def _move_turn(self, state: State, i: int, stage: Literal["model", "call", "preparing"], child: int = 0) -> None:
        turn = state.sessions[i].turn
        assert turn
        state.sessions[i].turn = Turn(stage, child, turn.generation)

    def _falter(self, state: State, i: int) -> None:
        state.runs[i].phase = "ending"

    def _yield(self, state: State, i: int, wanted: int) -> None:
        run, session = state.runs[i], state.sessions[i]
        # Completions that are unread now count as settled since the yield.
        condition = Condition(wanted, run.unsettled + len(self.unread_in(state, i)))
        if "at_once" in self.fixes and self.holds(run, condition):
            self.consume_inbox(state, i)
            self._move_turn(state, i, "model")
            return
        if "wakes" in self.fixes and run.wakes >= self.configuration.wakes:
            return  # Refused, with the reason; the turn goes on.
        run.phase, run.is_driven, session.turn = "waiting", False, None
        run.condition = Condition(wanted, run.unsettled)
        if "evaluate" in self.fixes:
            run.condition = condition
            self.evaluate(state, i)
            if run.condition is None:
                self.violate(state, "P11", f"run {i} is woken, and a wake spent, though it waited for nothing")
            elif session.messages:
                run.phase, run.is_send_turn = "queued", True

    def _steps_of_call(self, now: State, i: int, child: int) -> Iterator[Step]:
        who = self._who(i)
        yield Step("system", f"{who}: run {child} admitted (spawning)", partial(self._admit, i=i, child=child))
        if self._is_interrupted(now, i):
            effect = partial(self._interrupt, i=i, child=child)
            yield Step("system", f"{who}: interrupted before the call started", effect)

    def _admit(self, state: State, i: int, child: int) -> None:
        session, run = state.sessions[i], state.runs[child]
        assert session.turn
        is_stopped = session.generation != session.turn.generation or not session.exists
        if is_stopped or (self._active(state, i) >= self.configuration.cap and "no_cap" not in self.options):
            run.phase, run.is_settled = "gone", True
            self._move_turn(state, i, "model")
            return
        run.phase, run.is_settled = "spawning", False
        if i:
            state.runs[i].unsettled += 1
        self._move_turn(state, i, "preparing", child)

    def _active(self, state: State, i: int) -> int:
        """How many children of session i take a place."""
        return sum(
            self.is_live(state, j) or state.runs[j].unsettled > 0 or state.runs[j].phase == "awaiting_approval"
            for j in self.children(i)
        )

    def _interrupt(self, state: State, i: int, child: int) -> None:
        if state.runs[child].phase == "none" or "reserve" in self.fixes:
            self.withdraw(state, child)
        self.consume_at_boundary(state, i)
        self._move_turn(state, i, "model")

    def _steps_of_preparing(self, now: State, i: int, child: int) -> Iterator[Step]:
        who = self._who(i)
        if now.runs[child].phase != "spawning":
            label = f"{who}: the call returns an error (run {child} was killed)"
            yield Step("system", label, partial(self._return_call, i=i))
            return
        yield Step("system", f"{who}: run {child} prepared, accepted", partial(self._accept, i=i, child=child))
        if "spawn_fails" in self.options:
            yield Step("world", f"{who}: preparing run {child} fails", partial(self._fail_spawn, i=i, child=child))
        if self._is_interrupted(now, i):
            effect = partial(self._interrupt, i=i, child=child)
            yield Step("system", f"{who}: interrupted while run {child} is prepared", effect)

    def _accept(self, state: State, i: int, child: int) -> None:
        state.runs[child].phase, state.sessions[child].messages = "queued", ("task",)
        self._return_call(state, i)

    def _fail_spawn(self, state: State, i: int, child: int) -> None:
        self.withdraw(state, child)
        self._return_call(state, i)

    def _return_call(self, state: State, i: int) -> None:
        """The step boundary after a call: what joins the turn is read."""
        self._move_turn(state, i, "model")
        self.consume_at_boundary(state, i)

    # ---- people and faults

    def _events_of_run(self, now: State, i: int) -> Iterator[Step]:
        run, session = now.runs[i], now.sessions[i]
        is_active = run.phase in LIVE or run.phase == "awaiting_approval"
        has_live = any(self.is_live(now, j) for j in self.descendants(i))
        may_kill = self._may(now, "kill", i) and run.phase not in ("none", "gone") and (is_active or has_live)
        if may_kill and not run.is_killed and not now.kills_pending:
            yield self._event("kill", f"person kills run {i} ({run.phase})", partial(self.kill, i=i))
        if self._may(now, "resume", i) and self._may_resume(now, i):
            yield self._event("resume", f"person resumes run {i}", partial(self._resume, i=i))
        is_steerable = run.phase in ("queued", "running", "waiting", "ending") and run.stop == "no"
        if self._may(now, "steer", i) and is_steerable:
            yield self._event("steer", f"controller steers run {i} ({run.phase})", partial(self._steer, i=i))
        takes_sends = run.phase not in ("none", "gone", "spawning") and session.exists
        if self._may(now, "send", i) and takes_sends and not (run.stop == "stopping" and "stopping" in self.fixes):
            yield self._event("send", f"send to run {i} ({run.phase})", partial(self._send, i=i))
        has_run = run.phase in ("running", "waiting", "ending") or (
            run.phase == "queued" and (run.attempt > 1 or session.turn is not None)
        )
        if self._may(now, "timeout", i) and has_run and run.stop == "no":
            yield self._event("timeout", f"run timeout of run {i} ({run.phase})", partial(self._time_out, i=i))
        if self._may(now, "budget", i) and run.phase == "running" and run.stop == "no":
            yield self._event("budget", f"budget of run {i} spent", partial(self._spend_budget, i=i))
        if run.phase == "awaiting_approval":
            if self._may(now, "approve"):
                yield self._event("approve", f"plan of run {i} approved", partial(self._approve, i=i))
            if self._may(now, "reject"):
                yield self._event("reject", f"plan of run {i} rejected", partial(self._reject, i=i))
            by: By = "world" if "no_expiry" in self.options else "system"
            yield Step(by, f"plan of run {i} expires, told", partial(self._expire, i=i))
        has_failed = run.outcome in ("error", "killed") and run.phase != "archived" and run.stop != "stopping"
        if self._may(now, "foreign", i) and has_failed:
            label = f"foreign runtime's late complete for run {i} ({run.phase})"
            yield self._event("foreign", label, partial(self._complete_foreign, i=i))

    def _say(self, state: State) -> None:
        state.sessions[0].messages += ("send",)

    def _kill_next(self, state: State) -> None:
        i, *others = state.kills_pending
        state.kills_pending = tuple(others)
        self.kill_one(state, i)

    def _crash(self, state: State) -> None:
        """Every driver is gone; a reservation whose caller will call again is deleted, any other is withdrawn."""
        for i, (run, session) in enumerate(zip(state.runs, state.sessions, strict=True)):
            session.is_driven = run.is_driven = run.has_old_driver = False
            if run.phase == "running":
                run.phase = "queued"
            turn = session.turn
            if turn and turn.stage == "preparing" and state.runs[turn.child].phase == "spawning":
                state.runs[turn.child].phase = "none"
                if i:
                    run.unsettled -= 1
                self._move_turn(state, i, "call", turn.child)
        for i in self.runs:
            if state.runs[i].phase == "spawning":
                self.withdraw(state, i)

    def _steer(self, state: State, i: int) -> None:
        run, session = state.runs[i], state.sessions[i]
        run.attempt += 1
        run.has_old_driver, run.is_driven = run.is_driven, False
        run.phase, run.condition, run.is_send_turn = "queued", None, False
        session.messages += ("steer",)
        if "reserve" in self.fixes or (session.turn and session.turn.stage == "model"):
            self.close_calls(state, i)

    def _may_resume(self, now: State, i: int) -> bool:
        """A run that was killed, failed or timed out and is cleaned up, under a requester that was not killed. It needs
        a place of its parent's, and so does each parent above that had settled."""
        run, p = now.runs[i], self.parents[i]
        if run.outcome not in ("killed", "error", "timeout") or not now.sessions[i].exists:
            return False
        if run.phase not in ("completed", "completed_giveup"):
            return False
        if p and now.runs[p].is_killed:
            return False
        while "resume" in self.fixes and now.runs[i].is_settled:
            if self._active(now, p) >= self.configuration.cap:
                return False
            if p == 0:
                break
            i, p = p, self.parents[p]
        return True

    def _resume(self, state: State, i: int) -> None:
        run, session = state.runs[i], state.sessions[i]
        run.phase, run.outcome, run.stop, run.skipped = "queued", None, "no", None
        run.is_killed, run.ended_hook_ran = False, False
        for key, row in state.rows.items():
            if key.run == i and row.status == "undelivered":
                state.rows[key] = row._replace(status="dismissed")  # The new attempt has an announce of its own.
        self.revive(state, i)
        session.messages += ("resume",)
        for j in self.descendants(i):
            if state.runs[j].phase == "none":
                state.runs[j].is_killed = False  # The kill says nothing about what is spawned from now on.
        if "resume" in self.fixes:
            run.attempt += 1
            self.unsettle(state, i)

    def _send(self, state: State, i: int) -> None:
        run = state.runs[i]
        state.sessions[i].messages += ("send" if run.outcome is None else "send_after_end",)
        if run.phase == "waiting":
            run.phase, run.is_send_turn = "queued", True

    def _time_out(self, state: State, i: int) -> None:
        self.close_calls(state, i)
        run = state.runs[i]
        run.has_old_driver, run.is_driven, run.is_send_turn = run.is_driven, False, False
        self.end(state, i, "timeout", "none")

    def _spend_budget(self, state: State, i: int) -> None:
        self.kill_all(state, self.descendants(i))
        state.sessions[i].generation += 1
        self.close_calls(state, i)
        self.end(state, i, "error", "none")

    def _approve(self, state: State, i: int) -> None:
        state.runs[i].is_planning = False
        self._answer_plan(state, i, "approved", attempts=1)

    def _reject(self, state: State, i: int) -> None:
        self._answer_plan(state, i, "rejected", attempts=1 if "plan" in self.fixes else 0)

    def _answer_plan(self, state: State, i: int, answer: Literal["approved", "rejected"], attempts: int) -> None:
        self.withdraw_plan(state, i)
        state.runs[i].attempt += attempts
        state.runs[i].phase = "queued"
        state.sessions[i].messages += (answer,)
        self.unsettle(state, i)

    def _expire(self, state: State, i: int) -> None:
        self.withdraw_plan(state, i)
        run = state.runs[i]
        run.outcome, run.phase, run.is_planning = "error", "announcing", False
        self.add_row(state, i, "expired")
        self.settle(state, i)

    def _complete_foreign(self, state: State, i: int) -> None:
        run = state.runs[i]
        p = self.parents[i]
        if "silent" in self.fixes and p and state.runs[p].is_killed:
            if not run.is_killed:  # Its requester may be resumed, and reads it then.
                state.rows[RowKey(i, run.attempt, "late")] = Row("suppressed", p, "text", 0)
            return
        if "kinds" not in self.fixes or run.phase in OFFERED:
            is_announced_again = "revive" in self.fixes and run.phase in OFFERED
            if run.ended_hook_ran and not is_announced_again:
                why = f"run {i} leaves {run.phase} again: cleanup and the ended hook run twice"
                self.violate(state, "P1", why)
            run.phase, run.outcome = "announcing", "ok"
        self.add_row(state, i, "late")

    def _stop_main(self, state: State) -> None:
        main = state.sessions[0]
        turn = main.turn
        main.generation += 1
        main.is_driven = False
        if "stopturn" in self.fixes:
            main.turn = None
        else:
            state.runs[0].is_killed = True
        self.kill_all(state, self.descendants(0))
        if turn and turn.stage != "model" and state.runs[turn.child].phase == "none":
            self.withdraw(state, turn.child)

    def _delete_main(self, state: State) -> None:
        main = state.sessions[0]
        main.exists, main.turn, main.messages, main.is_driven = False, None, (), False
        for i in self.children(0):
            if state.runs[i].phase == "spawning":
                state.runs[i].phase = "gone"

    # ---- what must hold

    def _check_limits(self, state: State) -> None:
        """After every commit."""
        width, cap = self.configuration.width, self.configuration.cap
        running = sum(run.phase == "running" for run in state.runs[1:])
        if running > width:
            self.violate(state, "P4", f"{running} running, lane width {width}")
        in_flight = sum(run.is_driven + run.has_old_driver for run in state.runs[1:])
        if "physical" in self.options and in_flight > width:
            self.violate(state, "P4", f"{in_flight} model calls in flight, lane width {width}")
        for i in range(len(self.parents)):
            children = self.children(i)
            active = sum(self.is_live(state, j) or state.runs[j].phase == "awaiting_approval" for j in children)
            if active > cap:
                self.violate(state, "P4", f"{active} active children of {i}, cap {cap}")

    def unfinished(self, state: State) -> str:
        """What is left to do; empty if everything rests, or a person is awaited."""
        for i in self.runs:
            run = state.runs[i]
            if run.phase not in SETTLED and run.phase not in ("none", "awaiting_approval"):
                return f"run {i} stays {run.phase} (outcome {run.outcome}, counter {run.unsettled})"
            if run.phase in SETTLED - {"gone"} and not run.is_settled:
                return f"run {i} is {run.phase} but never settled for its parent (counter {run.unsettled})"
        for key, row in state.rows.items():
            if row.status == "unread":
                return f"row {tuple(key)} unconsumed"
        if state.sessions[0].turn is not None:
            return "main turn open"
        for i, session in enumerate(state.sessions):
            if session.messages and session.exists and (i == 0 or state.runs[i].phase != "none"):
                return f"message unread in session {i}"
        return ""
