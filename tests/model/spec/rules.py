"""What happens inside one commit: rows are written, moved and read, runs settle, wake, end and are killed.

These are the rules of §2 and §4 of docs/contract.md. A rule that `FIXES` names can be taken out: the model then does
what the first draft of the contract said (findings.md tells what goes wrong). Which commits are possible is decided in
`steps`.
"""

from collections.abc import Collection
from typing import Literal

from tests.model.spec.configurations import Configuration, Mode
from tests.model.spec.state import (
    LIVE,
    NOWHERE,
    OFFERED,
    SETTLED,
    Condition,
    Content,
    Kind,
    Outcome,
    Row,
    RowKey,
    Run,
    State,
    Turn,
)

FIXES = {
    "unread": "a final text with a child's result unread is not an end; a send that missed the last boundary gets its"
    " own turn after the end",
    "handover": "a run's end hands the results in its inbox to its requester, a kill suppresses them, in the same"
    " commit; control messages are void",
    "settled": "a killed, skipped or failed-to-spawn child is settled for its parent too",
    "evaluate": "entering waiting (by a yield, or again after a send's turn) evaluates the condition in that commit",
    "stopping": "kill of a driven run goes to ending (stopping), refuses sends, settles once; only a complete end wins,"
    " never waits, never is a plan",
    "silent": "a late complete below the killed run is not announced",
    "slot": "a provisional ending keeps its slot; steer, kill and timeout keep it until the old driver exits or 5 s",
    "plan": "a plan row leaves the phase alone; a rejection is a new attempt; an answer or kill withdraws an unread"
    " plan row",
    "kinds": "keys carry the kind; a late complete refreshes an unread row, else is a row of its own kind and leaves"
    " the phase alone",
    "wakes": "at the last wake spawns, and yields that would wait, are refused; one closing wake follows when all have"
    " settled",
    "refresh": "a send's turn never refreshes the announced row",
    "api": "an unread API result is given up into undelivered",
    "onekill": "kill is one commit over the subtree, not one commit per run",
    "reserve": "a reservation is withdrawn with its caller's call, and that settles it",
    "stopturn": "/stop closes the turn for good; consumed-but-unanswered does not reopen a stopped turn",
    "sweep": "the sweeper also waits for every row of or in the run's session",
    "people": "what people say to a conversation follows a queue mode of its own: steer and interrupt join the turn at"
    " its next step, followup is one turn each, collect one turn for all; so does a completion under followup",
    "at_once": "a yield whose condition holds already does not wait: the same attempt reads what is unread, or is told"
    " that there is nothing to wait for",
    "before": "the end of a send's turn evaluates condition and deadline before it looks at messages",
    "progress": "an attempt or turn that only repeats its steps ends; such a turn is closed for good",
    "resume": "a killed run that is resumed is a new attempt, unsettled for its parents again, and admitted like a"
    " spawn",
    "revive": "what a kill suppressed, and what an end left unread, is unread again in the run that is resumed",
}
"""The rules that were found missing or wrong in the first draft, by the names of findings.md, and those added since."""


JOINS: frozenset[Mode] = frozenset({"steer", "interrupt"})
"""Queue modes in which something joins the turn under way."""
Text = Literal["full", "empty", "skip", "none", "aborted"]
"""How an attempt ends: with its text, NO_REPLY, ANNOUNCE_SKIP, no text, or aborted by a kill."""
CONTENT: dict[Text, Content] = {
    "full": "text",
    "empty": "fallback",
    "skip": "text",
    "none": "text",
    "aborted": "aborted",
}


class Rules:
    """The rules, for one tree of runs. Every method changes the state it is given as one part of one commit."""

    def __init__(self, configuration: Configuration, fixes: Collection[str]) -> None:
        unknown = set(fixes) - FIXES.keys()
        if unknown:
            raise ValueError(f"no such fix: {', '.join(sorted(unknown))} (there are {', '.join(FIXES)})")
        self.configuration = configuration
        self.fixes = frozenset(fixes)
        self.parents = configuration.parents
        self.options = frozenset(configuration.options)
        self.runs = range(1, len(self.parents))

    # ---- questions

    def children(self, i: int) -> list[int]:
        return [j for j in self.runs if self.parents[j] == i]

    def descendants(self, i: int) -> list[int]:
        found = []
        for child in self.children(i):
            found += [child, *self.descendants(child)]
        return found

    def is_live(self, state: State, i: int) -> bool:
        run = state.runs[i]
        return run.phase in LIVE or (run.phase == "cleanup_pending" and run.stop == "stopping")

    def unread_in(self, state: State, i: int) -> list[RowKey]:
        return [key for key, row in state.rows.items() if row.status == "unread" and row.inbox == i]

    def slots_held(self, state: State) -> int:
        return sum(1 for run in state.runs[1:] if self._holds_slot(run))

    def _holds_slot(self, run: Run) -> bool:
        if run.phase == "running":
            return True
        is_driven = run.has_old_driver or (run.phase == "ending" and run.is_driven) or run.stop == "stopping"
        return "slot" in self.fixes and is_driven

    def requester(self, state: State, i: int) -> int:
        """The session that gets run i's result: its parent's, or the next one up that is not gone."""
        p = self.parents[i]
        while p:
            parent = state.runs[p]
            has_ended = parent.phase in SETTLED or ("handover" in self.fixes and parent.outcome is not None)
            if state.sessions[p].exists and not has_ended:
                break
            if parent.is_killed:
                self.violate(state, "P5", f"kill of run {p} was not silent: run {i}'s result bubbles past it")
            p = self.parents[p]
        return p if state.sessions[p].exists else NOWHERE

    # ---- rows

    def violate(self, state: State, broken: str, why: str) -> None:
        """Note a broken property, unless one was noted before."""
        state.violation = state.violation or f"{broken}: {why}"

    def consume_inbox(self, state: State, i: int) -> None:
        """Read everything that waits for session i."""
        state.sessions[i].messages = ()
        for key in self.unread_in(state, i):
            self.consume(state, i, key)

    def mode_of(self, i: int) -> Mode:
        """The queue mode of completions for session i."""
        return self.configuration.modes.get(i, "collect")

    def consume_at_boundary(self, state: State, i: int) -> None:
        """The open turn of session i reads what joins it. A live run hears every send."""
        session = state.sessions[i]
        hears = i > 0 or "people" not in self.fixes or self.configuration.people in JOINS
        if i == 0 and session.messages and hears != (self.configuration.people in JOINS):
            mode = self.configuration.people
            self.violate(state, "P10", f"a message joins the turn under way, though people's queue mode is {mode}")
        if hears:
            session.messages = ()
        for key in self.unread_in(state, i) if self.mode_of(i) in JOINS else ():
            self.consume(state, i, key)

    def consume(self, state: State, i: int, key: RowKey) -> None:
        row, child = state.rows[key], state.runs[key.run]
        if row.times_read >= 1:
            self.violate(state, "P2", f"row {tuple(key)} consumed twice")
        state.rows[key] = Row("consumed", i, row.content, row.times_read + 1)
        if row.content == "send_reply":
            self.violate(state, "P9", f"the announced result of run {key.run} is the reply to a later send")
        if row.content == "aborted":
            self.violate(
                state,
                "P1",
                f"kill was not silent: the abort the kill itself caused is announced as run {key.run}'s error",
            )
        is_open = child.phase == "awaiting_approval" and child.attempt == key.attempt
        if key.kind == "plan" and not is_open and "kinds" in self.fixes:
            self.violate(state, "P9", f"a plan of run {key.run} is announced after it was answered or killed")
        if key.kind == "plan" and "plan" in self.fixes:
            return
        if child.phase in OFFERED:
            child.phase = "cleanup_pending"
        elif (key.kind == "plan" or child.is_planning) and child.phase in (
            "awaiting_approval",
            "queued",
            "running",
            "waiting",
            "ending",
        ):
            # The draft: "Consuming commits, per item: … child run → cleanup_pending".
            self.violate(
                state,
                "P8",
                f"consuming the plan row moves run {key.run} from {child.phase} to cleanup_pending with no decision",
            )
            child.phase = "cleanup_pending"

    def add_row(self, state: State, i: int, kind: Kind, content: Content = "text") -> None:
        """Write run i's row for its requester. A late complete refreshes the outcome's row while that is unread."""
        attempt = state.runs[i].attempt
        outcome_key = RowKey(i, attempt, "done")
        unread = state.rows.get(outcome_key)
        if kind == "late" and unread is not None and unread.status == "unread":
            state.rows[outcome_key] = Row("unread", unread.inbox, content, 0)
            return
        key = RowKey(i, attempt, kind if "kinds" in self.fixes else "done")
        if key in state.rows:
            why = f"key announce:v1:{i}:{attempt} already used: the {kind} row of run {i} is never written"
            self.violate(state, "P1", why)
            return
        state.rows[key] = Row("unread", self.requester(state, i), content, 0)

    def hand_over(self, state: State, i: int, suppressed: bool) -> None:
        """Run i has ended: the rows in its inbox go to its requester, or nowhere; control messages are void."""
        if "handover" not in self.fixes:
            return
        session = state.sessions[i]
        sends = () if suppressed else tuple(m for m in session.messages if m in ("send", "send_after_end"))
        if state.left.get("resume"):  # else nobody would read them again, and the search need not know them
            session.left_unread += tuple(m for m in session.messages if m not in sends)
        session.messages = sends
        for key in self.unread_in(state, i):
            row = state.rows[key]
            if suppressed:
                state.rows[key] = row._replace(status="suppressed")
                child = state.runs[key.run]
                if child.phase in OFFERED:
                    child.phase, child.skipped = "cleanup_pending", "suppressed"
            else:
                state.rows[key] = row._replace(inbox=self.requester(state, key.run))

    def revive(self, state: State, i: int) -> None:
        """Run i goes on: the messages and results that its end left unread are unread again."""
        session = state.sessions[i]
        lost = [key for key, row in state.rows.items() if (row.status, row.inbox) == ("suppressed", i)]
        results = [key for key in lost if key.kind != "plan"]
        if "revive" not in self.fixes:
            if results or session.left_unread:
                what = f"{len(results)} results and {len(session.left_unread)} messages"
                self.violate(state, "P1", f"run {i} goes on without {what} that its end left unread")
            return
        session.messages, session.left_unread = session.left_unread + session.messages, ()
        for key in results:
            state.rows[key] = state.rows[key]._replace(status="unread")
            child = state.runs[key.run]
            if child.skipped == "suppressed" and child.phase in ("cleanup_pending", "completed"):
                child.phase, child.skipped = "announcing", None

    def withdraw_plan(self, state: State, i: int) -> None:
        if "plan" in self.fixes:
            for key, row in state.rows.items():
                if key.run == i and key.kind == "plan" and row.status == "unread":
                    state.rows[key] = row._replace(status="suppressed")

    # ---- settling and waking

    def settle(self, state: State, i: int) -> None:
        """Settle run i for its parent if it may be: count the parent down, evaluate its condition, go on upwards."""
        run = state.runs[i]
        if run.is_settled or run.unsettled > 0:
            return
        if run.outcome is None and run.phase not in ("gone", "awaiting_approval"):
            return
        if run.stop == "stopping" and "stopping" in self.fixes:
            return
        if "settled" not in self.fixes and not any(key.run == i for key in state.rows):
            return  # The draft: "once its outcome and inbox row are committed".
        run.is_settled = True
        p = self.parents[i]
        if not p:
            return
        parent = state.runs[p]
        parent.unsettled -= 1
        if parent.unsettled < 0:
            self.violate(state, "P7", f"run {i} is counted down twice")
            parent.unsettled = 0
        self.evaluate(state, p)
        if parent.outcome is not None:
            self.settle(state, p)

    def unsettle(self, state: State, i: int) -> None:
        run, p = state.runs[i], self.parents[i]
        if run.is_settled:
            run.is_settled = False
            if p:
                state.runs[p].unsettled += 1
                self.unsettle(state, p)

    def evaluate(self, state: State, i: int) -> None:
        """Wake run i if it waits and its condition holds."""
        run = state.runs[i]
        if run.phase != "waiting" or run.condition is None:
            return
        if self.holds(run, run.condition):
            self.wake(state, i)

    def holds(self, run: Run, condition: Condition) -> bool:
        settled_since = condition.unsettled_before - run.unsettled
        return run.unsettled == 0 or (condition.wanted > 0 and settled_since >= condition.wanted)

    def wake(self, state: State, i: int) -> None:
        run = state.runs[i]
        if run.is_killed and run.stop != "no":
            return
        is_closing = "wakes" in self.fixes and run.unsettled == 0
        if run.wakes >= self.configuration.wakes and not is_closing:
            return
        run.wakes += 1
        run.attempt += 1
        run.phase, run.condition, run.is_send_turn, run.is_overdue = "queued", None, False, False
        if "wake_copies" in self.options:  # A mutant: the wake carries the results, and the rows stay.
            for key in self.unread_in(state, i):
                row = state.rows[key]
                state.rows[key] = row._replace(times_read=row.times_read + 1)

    # ---- ending

    def end(self, state: State, i: int, outcome: Outcome, text: Text) -> None:
        """The attempt's committed end: decided, frozen, announced. Some final texts are no end yet."""
        run, session = state.runs[i], state.sessions[i]
        is_stopping = run.stop == "stopping"
        if outcome == "ok" and self._goes_on(state, i, text):
            return
        if outcome == "ok" and not is_stopping:
            if any(self.is_live(state, j) for j in self.descendants(i)):
                self.violate(state, "P7", f"run {i} announced as complete while a descendant lives")
            if self.unread_in(state, i):
                self.violate(state, "P7", f"run {i} ends as complete with its child's result unread in its inbox")
        session.turn = None
        run.is_driven = False
        run.stop = "stopped" if run.is_killed else "no"
        run.outcome = outcome
        run.condition = None
        is_below_kill = self.parents[i] != 0 and state.runs[self.parents[i]].is_killed
        if is_stopping and (
            ("stopping" in self.fixes and run.is_planning) or ("silent" in self.fixes and is_below_kill)
        ):
            self.end_killed(state, i)
            return
        if run.is_planning and outcome == "ok":
            run.outcome, run.phase = None, "awaiting_approval"
            self.add_row(state, i, "plan")
            if "plan_blocks" not in self.options:
                self.settle(state, i)
            return
        run.skipped = None
        if text == "skip":
            run.skipped = "announce-skip"
        elif text == "empty" and not run.fallback_attempt:
            run.skipped = "silent"
        if run.skipped:
            run.phase = "cleanup_pending"
        else:
            run.phase = "announcing"
            self.add_row(state, i, "done", CONTENT[text])
        self.hand_over(state, i, suppressed=False)
        self.settle(state, i)

    def _goes_on(self, state: State, i: int, text: Text) -> bool:
        """True if a final text is no end: the run waits (again), or reads what is unread."""
        run, session = state.runs[i], state.sessions[i]
        is_stopping = run.stop == "stopping"
        if run.is_send_turn and not is_stopping:
            session.turn, run.is_driven, run.phase, run.is_send_turn = None, False, "waiting", False
            self._wait_again(state, i)
            return True
        if run.unsettled > 0 and not (is_stopping and "stopping" in self.fixes):
            if is_stopping:
                run.stop, run.outcome = "no", None  # The draft: final text while descendants are unsettled → waiting.
            session.turn, run.is_driven, run.phase, run.condition = None, False, "waiting", Condition(0, 0)
            if text == "full":
                run.fallback_attempt = run.attempt
            self._opens_send_turn(state, i)
            return True
        if "unread" in self.fixes and not is_stopping and session.turn and self.unread_in(state, i):
            if text == "full":
                run.fallback_attempt = run.attempt
            self.consume_inbox(state, i)
            session.turn = Turn("model", 0, session.turn.generation)
            return True
        return False

    def _wait_again(self, state: State, i: int) -> None:
        """A send's turn is over: the run is woken, answers the next message, or waits on."""
        run = state.runs[i]
        is_over = run.is_overdue or (run.condition is not None and self.holds(run, run.condition))
        if "evaluate" not in self.fixes:
            self._opens_send_turn(state, i)
        elif is_over and "before" in self.fixes:
            self.wake(state, i)
        elif not self._opens_send_turn(state, i):
            self.evaluate(state, i)
        elif is_over:
            self.violate(state, "P11", f"a message puts off the wake of run {i}, whose wait is over")

    def _opens_send_turn(self, state: State, i: int) -> bool:
        """A send that missed the last boundary gets a turn of its own."""
        run = state.runs[i]
        if "unread" in self.fixes and state.sessions[i].messages:
            run.phase, run.is_send_turn = "queued", True
            return True
        return False

    def end_killed(self, state: State, i: int) -> None:
        run = state.runs[i]
        run.outcome, run.phase, run.skipped = "killed", "cleanup_pending", "suppressed"
        self.hand_over(state, i, suppressed=True)
        self.settle(state, i)

    def withdraw(self, state: State, i: int) -> None:
        """Run i was called for and never prepared: its reservation, if there is one, is given back."""
        run = state.runs[i]
        if run.phase == "none":
            run.phase, run.is_settled = "gone", True
        elif run.phase == "spawning":
            run.phase = "gone"
            self.settle(state, i)

    def close_calls(self, state: State, i: int) -> None:
        """Session i's turn is over, its open call with it."""
        turn = state.sessions[i].turn
        if turn and turn.stage != "model" and (state.runs[turn.child].phase == "none" or "reserve" in self.fixes):
            self.withdraw(state, turn.child)
        state.sessions[i].turn = None

    # ---- killing

    def kill(self, state: State, i: int) -> None:
        """The run and all below it, in one commit; without `onekill` the others follow one by one."""
        tree = [i, *self.descendants(i)]
        if "onekill" in self.fixes:
            self.kill_all(state, tree)
        else:
            first, *others = tree[::-1] if self.configuration.children_first else tree
            self.kill_one(state, first)
            state.kills_pending = tuple(others)

    def kill_all(self, state: State, tree: list[int]) -> None:
        for j in tree:
            state.runs[j].is_killed = True
        for j in tree:
            self.kill_one(state, j)

    def kill_one(self, state: State, i: int) -> None:
        run, session = state.runs[i], state.sessions[i]
        session.generation += 1
        run.is_killed = True
        if run.phase in ("none", "gone"):
            return
        if run.outcome is not None and run.phase not in LIVE:
            self.hand_over(state, i, suppressed=True)
            return
        if run.phase not in LIVE and run.phase != "awaiting_approval":
            return
        run.condition, run.is_send_turn = None, False
        self.withdraw_plan(state, i)
        if not run.is_driven or run.phase not in ("running", "ending"):
            run.stop, session.turn = "stopped", None
            self.end_killed(state, i)
            return
        run.stop = "stopping"
        if "stopping" in self.fixes:
            run.phase = "ending"
        else:
            run.phase, run.outcome = "cleanup_pending", "killed"
        self.hand_over(state, i, suppressed=True)
        self.settle(state, i)
