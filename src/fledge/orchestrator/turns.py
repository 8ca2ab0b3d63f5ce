"""What a driver may do: claim, step, end. Every write of a driver is fenced by the epoch it was given at the claim, so
a driver that was superseded changes nothing.

The claim also answers a snapshot of the session: what a driver must know before it can think. Long transcripts and
large families are not part of it; the driver reads those when it needs them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import inbox as inbox_rules
from fledge.core import policy, transcript
from fledge.core.announce import forwarded
from fledge.core.asking import CUT, Fail, Failure, Falter, Pause, after_failure, program_pause_s
from fledge.core.exchange import Asked
from fledge.core.freeze import NO_REPLY, classify_reply, freeze, one_line, to_valid_utf8
from fledge.core.route import address_of, is_apart
from fledge.core.run import Ending, Instant, Queued, Retry, Run, Running, Stopping, WaitsFor
from fledge.core.transcript import (
    NO_ANSWER,
    Body,
    Line,
    Noted,
    Replied,
    Resulted,
    follows_cut,
    is_spoken_to,
    last_output,
    last_said,
    last_visible,
    open_calls,
    rows_read,
)
from fledge.core.turn import (
    FORWARDED,
    REPLIED,
    OpenTurn,
    TurnAnswered,
    TurnAsked,
    TurnClaimed,
    TurnEnd,
    TurnFailed,
    TurnLost,
    TurnOver,
    TurnProgressed,
    TurnYielded,
    Wait,
    WaitPassed,
)
from fledge.errors import NotFound, Refused, Stopped
from fledge.orchestrator import budget, effects, exchanges, heartbeat, inbox, messages, outbox, transcripts
from fledge.orchestrator.commit import Commit, Lease, check_lease
from fledge.orchestrator.spawn import generations_of
from fledge.store.base import Driver, QueuePlace, Session, Spec, Tx, Wishes

# ---- the snapshot that a claim answers -------------------------------------------------------------------------------


class TurnSnapshot(Struct, frozen=True, gc=False, kw_only=True):
    """A session as it was when its turn was claimed."""

    session: Session
    run: Run | None
    """Its run, over or not: a child that answers a message after its run's end is still that child."""
    spec: Spec | None
    """What was asked of its run; None of a conversation."""
    is_budgeted: bool
    """It, or something above it, has a budget account."""
    has_children: bool
    wishes: list[Wishes]
    """What those want that its turn serves."""
    by_person: bool = False
    """Its turn began with what a person or a program said."""
    lines: list[Line] | None = None
    """Its whole transcript; None if there is more than this commit has written."""


def snapshot_of(tx: Tx, key: str, answers_all: bool = True, lines: list[Line] | None = None) -> TurnSnapshot | None:
    """What is known of this session; None if there is none. Its turn serves what it has read itself, and if it
    `answers_all` what earlier turns read before they yielded too."""
    session = tx.sessions.get(key)
    if session is None:
        return None
    run, turn = tx.runs.find(key), tx.turns.get(key)
    return TurnSnapshot(
        session=session,
        run=run,
        spec=None if run is None else tx.runs.spec(key),
        is_budgeted=tx.budgets.any() and any(tx.budgets.get(above.key) for above in tx.sessions.lineage(key)),
        has_children=tx.sessions.counts(key).spawned > 0,
        wishes=[
            asked.wishes
            for asked in tx.requests.of(key)
            if answers_all or (turn is not None and asked.turn == turn.turn)
        ],
        by_person=turn is not None and turn.by_person,
        lines=lines,
    )


# ---- claim, step, end ------------------------------------------------------------------------------------------------


class Drive(Struct, frozen=True):
    """A driver's hold on a session."""

    session: str
    epoch: int
    turn: int
    run: Run | None
    """The live run; None for a conversation, or a turn that answers a message after a run's end."""
    generations: dict[str, int]
    more: bool = False
    """Not all that may enter fitted into the claim's commit."""
    interrupts: int = 0
    """How many of its steps were called off, as far as it knows: what it writes for an older one is refused."""
    snapshot: TurnSnapshot | None = None
    """What the claim knew of the session."""
    heartbeat: str = ""
    """Why nobody spoke for this turn, when it was claimed; empty for one that somebody did."""

    @property
    def lease(self) -> Lease:
        """What its writes are fenced by."""
        return Lease(self.epoch, self.interrupts)


TurnContinues = Literal["on", "over"]
"""Whether the driver has more to do after it said its last word."""
FailureCause = Literal["error", "budget", "limit"]
"""Why a turn cannot go on."""


class ModelFailed(Struct, frozen=True):
    """What becomes of a turn that no model could answer: it is over, it is tried again in so many seconds without this
    driver, or this driver may try again within the grace of a provisional error."""

    state: Literal["over", "later", "grace"]
    in_s: float = 0.0


def claim_all(c: Commit, places: Iterable[QueuePlace], owner: str) -> list[Drive]:
    """Claim each of these that is still queued: others were killed or ended between looking and claiming."""
    drives = (claim(c, place, owner) for place in places if c.tx.queue.place(place.session) is not None)
    return [drive for drive in drives if drive is not None]


def claim(c: Commit, place: QueuePlace, owner: str) -> Drive | None:
    """Take the lease, open the turn (or go on with the open one) and read what waits; None if there was nothing."""
    session = place.session
    before = c.tx.turns.state(session)
    epoch = c.tx.queue.claim(place, owner, c.at)
    run, beat = c.find(session), ""
    resumed = before.open is not None
    opens = before.open or c.tx.turns.next(session, generations_of(c, session), c.at)
    if resumed:
        _expire_questions(c, session)
    if run is not None and kind_of(c, session) is Attempt:
        if isinstance(run.phase, Queued):
            run = effects.apply(c, session, ev.Claimed(at=c.at, epoch=epoch)).run
        if not resumed:
            c.tx.turns.open(session, opens.generations, c.at)
    else:
        run = None
        after = effects.move_turn(c, session, TurnClaimed(opens), before)
        if after.open is None:
            return None
        opens = after.open
        if resumed:
            beat = opens.heartbeat
        elif after.wait is None:
            beat = heartbeat.begin(c, session, inbox.entering(c, session))
    # What came in is read only after all results of a step are in, and the rest of a reply that was cut.
    midway = resumed and _is_midway(c, session)
    taken = 0 if midway else inbox.consume_waiting(c, session, at_boundary=resumed)
    more = taken >= inbox_rules.ROWS_A_COMMIT
    lines = c.written.get(session)
    known = lines if lines and lines[0].seq == 1 and not more else None
    snapshot = snapshot_of(c.tx, session, run is not None or exchanges.owed(c, session) == "nothing", known)
    return Drive(session, epoch, opens.turn, run, opens.generations, more, snapshot=snapshot, heartbeat=beat)


def _is_midway(c: Commit, session: str) -> bool:
    lines = transcripts.lines(c.tx, session)
    return bool(open_calls(lines)) or follows_cut(lines)


def _expire_questions(c: Commit, session: str) -> None:
    for asked in c.tx.approvals.of(session):
        if asked.state == "waiting" and asked.expires_at <= c.at:
            c.tx.approvals.move(session, asked.entry, asked.index, "expired")


def read_more(c: Commit, drive: Drive) -> bool:
    """Read what did not fit into the claim's commit, before the first step; True if there may be still more."""
    c.tx.drivers.fence(drive.session, drive.epoch)
    return inbox.consume_waiting(c, drive.session, at_boundary=False) >= inbox_rules.ROWS_A_COMMIT


def step(c: Commit, drive: Drive, entries: list[tuple[Literal["assistant", "tool"], str]]) -> int:
    """Commit a step: its entries, then what may enter at this boundary. Refused while the run is stopping."""
    fence(c, drive)
    for kind, text in entries:
        done = Replied(to_valid_utf8(text)) if kind == "assistant" else Resulted(0, 0, "", "step", to_valid_utf8(text))
        transcripts.write(c, drive.session, done)
    taken = inbox.consume_waiting(c, drive.session, at_boundary=True)
    progressed(c, drive.session)
    return taken


def at_work(c: Commit, session: str, tools_s: float = 0.0) -> None:
    """The driver is at work, perhaps with tools that may take so long: meanwhile its run is not stuck."""
    c.tx.drivers.progress(session, c.at, step_open=True, patient_until=c.at + tools_s if tools_s else None)


def fence(c: Commit, drive: Drive) -> None:
    """The driver may open and write a step. StaleWrite: superseded, or interrupted; Stopped: its run was killed."""
    check_lease(c, drive.session, drive.lease)
    run = c.find(drive.session)
    if run is not None and isinstance(run.phase, Ending) and isinstance(run.phase.cause, Stopping):
        raise Stopped(f"{drive.session} was killed: no further step")


def progressed(c: Commit, session: str, tools_s: float = 0.0) -> None:
    """A step, or a part of one, is committed: crashes and pauses before it count no more, and its driver is no
    suspect."""
    at_work(c, session, tools_s)
    kind_of(c, session).progressed(c, session)
    driver = c.tx.drivers.get(session)
    if driver is not None and driver.suspect:
        c.tx.drivers.trust(session)
        c.hints.look = True


def finish(c: Commit, drive: Drive, reply: Replied | str, result: str | None = None, begun: str = "") -> TurnContinues:
    """The final reply. `on`: completions were unread, they are in the transcript now, and the same attempt goes on.

    `result` is what is frozen where that is not the reply's own words; `begun` is the text of the reply that this one
    is the rest of.
    """
    check_lease(c, drive.session, drive.lease)
    reply = Replied(to_valid_utf8(reply)) if isinstance(reply, str) else reply
    return kind_of(c, drive.session).finish(c, drive, reply, result, begun)


def fail(
    c: Commit, drive: Drive, error: str, cause: Literal["error", "budget", "limit"] = "error", wait_s: float = 0.0
) -> float:
    """The attempt cannot go on; a conversation's turn stays open and is due again after its backoff, or after `wait_s`
    if its provider asks for that. Answers in how many seconds; 0: it is over.

    At a budget's or a limit's end a run hands over partial work, and a conversation's turn is closed, which is told.
    """
    check_lease(c, drive.session, drive.lease)
    return kind_of(c, drive.session).fail(c, drive, error, cause, wait_s)


def model_failed(c: Commit, drive: Drive, failure: Failure, patience_s: float) -> ModelFailed:
    """No model could answer. A run pauses, or ends with a provisional error when its patience is over, or fails at once
    where waiting is useless; a conversation's turn is due again."""
    return kind_of(c, drive.session).model_failed(c, drive, failure, patience_s)


def needs_program(c: Commit, drive: Drive, reason: str) -> float:
    """The run needs what only a program can bring: it pauses, and looks again for as long as it takes. Answers in how
    many seconds. A turn after its end, which a message began, is due again as any that failed."""
    return kind_of(c, drive.session).needs_program(c, drive, reason)


def judge_yield(c: Commit, drive: Drive, terms: policy.YieldTerms) -> Literal["wait", "read"] | policy.Refusal:
    """Whether a yield has to wait or finds its completions unread. A refusal: with nothing to wait for, and from the
    tenth wake on."""
    fence(c, drive)
    return kind_of(c, drive.session).judge_yield(c, drive, terms)


def wait(c: Commit, drive: Drive, terms: policy.YieldTerms) -> TurnContinues:
    """Yield. `over`: the turn has ended, and its run or conversation waits for its children. `on`: what it would have
    waited for was unread, and is in the transcript now. Refused as `judge_yield` says."""
    verdict = judge_yield(c, drive, terms)
    if isinstance(verdict, policy.Refusal):
        raise Refused(verdict.status, verdict.reason)
    if verdict == "read":
        inbox.consume_completions(c, drive.session)
        return "on"
    return kind_of(c, drive.session).wait(c, drive, terms)


def ask(c: Commit, drive: Drive, due_at: Instant) -> None:
    """Wait for a person's answers without a slot; the first question expires then."""
    kind_of(c, drive.session).ask(c, drive.session, due_at)


def answered(c: Commit, session: str) -> None:
    """Every question of the turn is answered: it goes on."""
    kind_of(c, session).answered(c, session)


def left(c: Commit, session: str, epoch: int) -> None:
    """The driver is gone, whatever the reason: its slot is free, and what it left open is taken up again.

    After a stop this is the acknowledgement; after an end it changes nothing; in the middle of a step it is a lost
    lease that counts as no crash, because the process lives.
    """
    driver = c.tx.drivers.get(session)
    if driver is not None and driver.epoch == epoch:
        lost(c, driver, crashed=False)


def lost(c: Commit, driver: Driver, crashed: bool) -> None:
    """A lease is lost: the session is driven again under a new epoch, or its kill is decided."""
    session = driver.session
    known, kind = c.tx.sessions.get(session), kind_of(c, session)
    is_at_work = kind is Attempt or c.tx.turns.get(session) is not None
    if is_at_work and known is not None and known.epoch == driver.epoch:
        kind.lost(c, driver, crashed)
    else:
        c.release(session, driver.epoch)


def let_go(c: Commit, drive: Drive, why: str) -> None:
    """End a heartbeat's turn that has nothing to do, without asking its model."""
    check_lease(c, drive.session, drive.lease)
    heartbeat.hide(c, drive.session)
    _close(c, drive, TurnEnd("nothing", why))


def wait_passed(c: Commit, session: str) -> bool:
    """Let time end a conversation's wait; False if nothing was due any more."""
    before = c.tx.turns.wait(session)
    return effects.move_turn(c, session, WaitPassed()).wait != before


def program_came(c: Commit, brings: Callable[[Spec], bool], after: str = "", limit: int = 100) -> str | None:
    """End the pauses of runs that wait for what this process brings. Looks at so many that pause, behind this session;
    answers the last one, or None when it has seen them all."""
    paused = c.tx.queue.paused(c.at, after, limit)
    for key in paused:
        run = c.find(key)
        match None if run is None else run.phase:
            case Queued(retry=Retry(waits_for="program")) if brings(c.tx.runs.spec(key)):
                effects.apply(c, key, ev.ProgramCame(at=c.at))
    return paused[-1] if len(paused) == limit else None


# ---- attempts: turns of a live run, whose end is the run's signal ----------------------------------------------------


class Attempt:
    """A turn of a live run: what ends it is a signal to the run."""

    @staticmethod
    def progressed(c: Commit, session: str) -> None:
        run = c.run(session)
        if (run.crashes or run.failing) and isinstance(run.phase, Running):
            effects.apply(c, session, ev.Progressed(at=c.at))

    @staticmethod
    def finish(c: Commit, drive: Drive, reply: Replied, result: str | None, begun: str) -> TurnContinues:
        session, aside = drive.session, inbox.is_aside(c, drive.session)
        whole = begun + reply.text
        entry = transcripts.write(c, session, replace(reply, aside=True) if aside else reply)
        if aside:
            _answer_aside(c, session, entry, whole)
        elif c.tx.exchanges.answering(session) and not c.facts(session).unread:
            messages.exchanges_answered(c, session, whole)
        text = whole if result is None else result
        frozen = freeze(text, "") if text.strip() else _left_behind(c, session)
        words = classify_reply(frozen)
        text_id = c.tx.texts.keep(session, frozen) if words == "text" else None
        run = _signal(c, drive, ev.Finished(words, text_id, reply.cut))
        return "on" if isinstance(run.phase, Running) else "over"

    @staticmethod
    def fail(c: Commit, drive: Drive, error: str, cause: FailureCause, wait_s: float) -> float:
        partial = None if cause == "error" else transcripts.progress_so_far(c, drive.session)
        _signal(c, drive, ev.Errored(to_valid_utf8(error), cause, partial))
        return 0.0

    @staticmethod
    def model_failed(c: Commit, drive: Drive, failure: Failure, patience_s: float) -> ModelFailed:
        run = c.run(drive.session)
        fence(c, drive)
        if isinstance(run.phase, Ending) and failure.may_pass:
            return ModelFailed("grace")
        match after_failure(failure, run.failing, c.at, patience_s, drive.session):
            case Pause(until_at=until_at, since_at=since_at, reason=reason):
                _pause(c, run, until_at, since_at, reason)
                return ModelFailed("later", until_at - c.at)
            case Falter(error=error):
                budget.release(c, drive.session)
                falter(c, drive, error, cause="limit")
                return ModelFailed("grace")
            case Fail(error=error):
                fail(c, drive, error)
                return ModelFailed("over")
            case follows:
                assert_never(follows)

    @staticmethod
    def needs_program(c: Commit, drive: Drive, reason: str) -> float:
        fence(c, drive)
        run = c.run(drive.session)
        pause_s = program_pause_s(run.failing)
        _pause(c, run, c.at + pause_s, c.at, reason, "program")
        return pause_s

    @staticmethod
    def judge_yield(c: Commit, drive: Drive, terms: policy.YieldTerms) -> Literal["wait", "read"] | policy.Refusal:
        run, facts = c.run(drive.session), c.facts(drive.session)
        if not isinstance(run.phase, Running):
            return policy.Refusal("error", f"{run.key} is {run.phase.name}: it cannot yield")
        is_aside = inbox.is_aside(c, run.key)
        return policy.judge_yield(
            terms.asked or "all", run.wakes, facts.unsettled, facts.settled, facts.unread, is_aside
        )

    @staticmethod
    def wait(c: Commit, drive: Drive, terms: policy.YieldTerms) -> TurnContinues:
        run, facts = c.run(drive.session), c.facts(drive.session)
        event = ev.Yielded(
            at=c.at,
            attempt=run.attempt,
            asked=terms.asked or "all",
            wait_s=policy.YIELD_S if terms.wait_s is None else terms.wait_s,
            next_run_id=c.ids.unique(),
            unsettled=facts.unsettled,
            settled=facts.settled,
            unread=facts.unread,
            messages=facts.messages,
        )
        effects.apply(c, run.key, event)
        return "over"

    @staticmethod
    def ask(c: Commit, session: str, due_at: Instant) -> None:
        run = c.run(session)
        effects.apply(c, session, ev.PersonAsked(at=c.at, attempt=run.attempt, due_at=due_at))

    @staticmethod
    def answered(c: Commit, session: str) -> None:
        effects.apply(c, session, ev.PersonAnswered(at=c.at))

    @staticmethod
    def lost(c: Commit, driver: Driver, crashed: bool) -> None:
        c.release(driver.session, driver.epoch)
        run, facts = c.run(driver.session), c.facts(driver.session)
        event = ev.LeaseLost(
            at=c.at,
            attempt=run.attempt,
            next_run_id=c.ids.unique(),
            step_open=crashed and driver.step_open,
            unsettled=facts.unsettled,
            settled=facts.settled,
            unread=facts.unread,
            messages=facts.messages,
        )
        effects.apply(c, run.key, event)


def _pause(
    c: Commit, run: Run, until_at: Instant, since_at: Instant, reason: str, waits_for: WaitsFor = "model"
) -> None:
    event = ev.Paused(
        at=c.at,
        attempt=run.attempt,
        until_at=until_at,
        since_at=since_at,
        reason=to_valid_utf8(reason),
        waits_for=waits_for,
    )
    effects.apply(c, run.key, event)


def _signal(c: Commit, drive: Drive, end: ev.End) -> Run:
    run = c.run(drive.session)
    facts = c.facts(drive.session)
    event = ev.AttemptEnded(
        at=c.at,
        attempt=run.attempt,
        end=end,
        next_run_id=c.ids.unique(),
        unsettled=facts.unsettled,
        settled=facts.settled,
        unread=facts.unread,
        messages=facts.messages,
    )
    return effects.apply(c, drive.session, event).run


def falter(
    c: Commit, drive: Drive, error: str, aborted: bool = False, cause: Literal["error", "limit"] = "error"
) -> None:
    """A provisional error: the executor may recover within its grace, and keeps its slot."""
    check_lease(c, drive.session, drive.lease)
    run = c.run(drive.session)
    event = ev.AttemptFaltered(
        at=c.at,
        attempt=run.attempt,
        next_run_id=c.ids.unique(),
        error=to_valid_utf8(error),
        aborted=aborted,
        cause=cause,
    )
    effects.apply(c, drive.session, event)


def recovered(c: Commit, drive: Drive) -> None:
    """The executor goes on after a provisional error."""
    check_lease(c, drive.session, drive.lease)
    run = c.run(drive.session)
    effects.apply(c, drive.session, ev.AttemptStarted(at=c.at, attempt=run.attempt, next_run_id=c.ids.unique()))


def completed_late(c: Commit, session: str, attempt: int, text: str) -> None:
    """A foreign runtime finished after its outcome was fixed: told once, as late, unless it was archived meanwhile.

    Not fenced: its driver is long superseded. What belongs to an older attempt counts for nothing.
    """
    run = c.find(session)
    if run is None or run.ended is None:
        return
    frozen = freeze(to_valid_utf8(text), "")
    words = classify_reply(frozen)
    text_id = c.tx.texts.keep(session, frozen) if words == "text" else None
    facts = c.facts(session)
    event = ev.AttemptEnded(
        at=c.at,
        attempt=attempt,
        end=ev.Finished(words, text_id),
        next_run_id=c.ids.unique(),
        unsettled=facts.unsettled,
        settled=facts.settled,
        unread=facts.unread,
        messages=facts.messages,
    )
    effects.apply(c, session, event)


def _answer_aside(c: Commit, session: str, entry: int, text: str) -> None:
    """Tell those who spoke to a waiting run what it says to them, which is no part of its result: other sessions, and
    somebody on a channel. Without words they learn that there was no answer, when its turn is closed."""
    if classify_reply(text) == "empty":
        return
    messages.exchanges_answered(c, session, text, "earlier")
    turn = c.tx.turns.get(session)
    rows = () if turn is None else rows_read(transcripts.of_turn(c.tx, turn))
    origins = [row.origin for key in rows if (row := c.tx.inbox.get(key)) is not None and row.kind == "send"]
    origin = next((origin for origin in origins if address_of(origin) is not None), None)
    if turn is not None and origin is not None:
        outbox.reply(c, replace(turn, origin=origin), entry, text)


def _left_behind(c: Commit, session: str) -> str:
    """The result of an attempt whose final reply has no words: its last ones before that, else its last tool output."""
    lines = transcripts.lines(c.tx, session)
    return freeze(last_said(lines), last_output(lines))


# ---- talks: turns of a conversation, or of a child after its run's end -----------------------------------------------


class Talk:
    """A turn that answers: what ends it is a reply."""

    @staticmethod
    def progressed(c: Commit, session: str) -> None:
        turn = c.tx.turns.get(session)
        if turn is not None and turn.crashes:
            effects.move_turn(c, session, TurnProgressed())

    @staticmethod
    def finish(c: Commit, drive: Drive, reply: Replied, result: str | None, begun: str) -> TurnContinues:
        text = heartbeat.spoken(c, drive.session, begun + reply.text)
        entry = transcripts.write(c, drive.session, reply if begun else replace(reply, text=text))
        turn = c.tx.turns.get(drive.session)
        if turn is None:
            raise NotFound(f"{drive.session} has no open turn")
        if classify_reply(text) == "empty" and not turn.heartbeat:
            bodies = transcripts.of_turn(c.tx, turn)
            if lacks_words(c, turn, bodies):
                return _gave_no_answer(c, drive, turn, bodies)
            text = last_visible(bodies)
        messages.exchanges_answered(c, drive.session, text, exchanges.owed(c, drive.session))
        if not heartbeat.answered(c, turn, text):
            outbox.reply(c, turn, entry, f"{text}\n\n[{CUT}]" if reply.cut else text)
        return _close(c, drive, REPLIED)

    @staticmethod
    def fail(c: Commit, drive: Drive, error: str, cause: FailureCause, wait_s: float) -> float:
        turn = c.tx.turns.get(drive.session)
        if cause != "error":
            # Trying again could not end otherwise: the next message finds out whether there is more to spend.
            _close(c, drive, TurnEnd("failed", error))
            outbox.tell(c, drive.session, f"{cause}:{drive.session}:{drive.turn}", f"the turn ended: {error}")
            return 0.0
        if turn is not None and turn.drained:
            _tell_unanswered(c, turn, error)
        failures = 1 if turn is None else turn.failures + 1
        delay_s = max(inbox_rules.backoff_s(failures), min(wait_s, inbox_rules.BACKOFF_MAX_S))
        effects.move_turn(c, drive.session, TurnFailed(delay_s))
        return delay_s

    @staticmethod
    def model_failed(c: Commit, drive: Drive, failure: Failure, patience_s: float) -> ModelFailed:
        delay_s = fail(c, drive, failure.error, wait_s=failure.retry_after_s or 0.0)
        return ModelFailed("later", delay_s) if failure.may_pass else ModelFailed("over")

    @staticmethod
    def needs_program(c: Commit, drive: Drive, reason: str) -> float:
        return fail(c, drive, reason)

    @staticmethod
    def judge_yield(c: Commit, drive: Drive, terms: policy.YieldTerms) -> Literal["wait", "read"] | policy.Refusal:
        session, facts = drive.session, c.facts(drive.session)
        turn, is_aside = c.tx.turns.get(session), inbox.is_aside(c, session)
        # What only another turn may read is still to come.
        elsewhere = 0 if inbox.readable_completions(c, session) else facts.unread
        wakes = 0 if turn is None else turn.wakes
        unsettled = facts.unsettled + elsewhere
        return policy.judge_yield(terms.asked or "all", wakes, unsettled, facts.settled, facts.unread, is_aside)

    @staticmethod
    def wait(c: Commit, drive: Drive, terms: policy.YieldTerms) -> TurnContinues:
        """What the turn has read is answered once the wait is over. One whose session reads no completions any more
        has answered with silence."""
        session, turn, facts = drive.session, c.tx.turns.get(drive.session), c.facts(drive.session)
        if turn is None or inbox.receiver_of(c, session).session != session:
            return finish(c, drive, NO_REPLY)
        asked, earlier = terms.asked or "all", c.tx.turns.wait(session)
        waits = Wait(
            until_settled=policy.wait_until(asked, facts.unsettled, facts.settled, facts.unread),
            due_at=c.at + (policy.YIELD_S if terms.wait_s is None else terms.wait_s),
            asked=str(asked),
            origin=turn.origin or ("" if earlier is None else earlier.origin),
            wakes=turn.wakes,
        )
        effects.move_turn(c, session, TurnYielded(waits))
        return "over"

    @staticmethod
    def ask(c: Commit, session: str, due_at: Instant) -> None:
        effects.move_turn(c, session, TurnAsked(due_at))

    @staticmethod
    def answered(c: Commit, session: str) -> None:
        effects.move_turn(c, session, TurnAnswered())

    @staticmethod
    def lost(c: Commit, driver: Driver, crashed: bool) -> None:
        effects.move_turn(c, driver.session, TurnLost(crashed and driver.step_open))


def kind_of(c: Commit, session: str) -> type[Attempt] | type[Talk]:
    """What the session's turns are: the one place that asks whether its run is live."""
    return Attempt if inbox.is_attempt(c, session) else Talk


def _close(c: Commit, drive: Drive, end: TurnEnd) -> TurnContinues:
    """A conversation's turn is over."""
    effects.move_turn(c, drive.session, TurnOver(end))
    return "over"


def lacks_words(c: Commit, turn: OpenTurn, bodies: Sequence[Body]) -> bool:
    """True if these entries of a conversation's turn have no words for people although somebody waits for some.

    Nobody does in a heartbeat, and once a talk between agents has had its first answer.
    """
    if turn.heartbeat or not transcript.lacks_words(bodies):
        return False
    return not is_apart(turn.origin) or any(
        isinstance(one.stage, Asked) for one in c.tx.exchanges.answering(turn.session)
    )


def _gave_no_answer(c: Commit, drive: Drive, turn: OpenTurn, bodies: Sequence[Body]) -> TurnContinues:
    """The turn ends without words. The completions that it read are handed on as they are, and whoever spoke to it is
    told that there was no answer."""
    session = drive.session
    completions = inbox.completions_read(c, session, bodies)
    if completions:
        text = forwarded(completions, c.rules.style, c.rules.inline_chars)
        transcripts.write(c, session, Replied(text))
        outbox.forward(c, turn, text, completions)
        messages.exchanges_answered(c, session, text)
        for owed in c.tx.requests.of(session):
            if owed.turn != turn.turn:
                c.tx.requests.end(owed.row, FORWARDED, c.at)
    if not is_spoken_to(bodies):
        return _close(c, drive, FORWARDED)
    transcripts.write(c, session, Noted(NO_ANSWER))
    address = outbox.address_for(c, session, turn.origin)
    if address is not None:
        outbox.say(c, session, address, f"no-answer:{session}:{turn.turn}", NO_ANSWER)
    return _close(c, drive, TurnEnd("no-answer", NO_ANSWER))


def _tell_unanswered(c: Commit, turn: OpenTurn, error: str) -> None:
    """After half an hour of tries in vain, once: people are told that something was read and not answered."""
    if inbox_rules.unanswered(turn.opened_at, c.at).shown == "unanswered":
        key = f"unanswered:{turn.session}:{turn.turn}"
        words = f"{turn.session} has read something and could not answer it for half an hour: {one_line(error, 200)}"
        inbox.notice(c, turn.session, key, words)
        outbox.tell(c, turn.session, key, words)
