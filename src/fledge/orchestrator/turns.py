"""The commits of a driver: claim, step, end. Every write of a driver is fenced by the epoch it was given at the claim,
so a driver that was superseded changes nothing.

The claim also answers a snapshot of the session: what a driver must know before it can ask its model. Long transcripts
and large families are not part of it; the driver reads those when it needs them.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import inbox as inbox_rules
from fledge.core import policy, transcript
from fledge.core.asking import CUT, Fail, Failure, Falter, Pause, after_failure, program_pause_s
from fledge.core.exchange import Asked
from fledge.core.freeze import NO_REPLY, classify_reply, freeze, one_line, to_valid_utf8
from fledge.core.route import address_of, is_apart
from fledge.core.run import Ending, Instant, Queued, Retry, Run, Running, Stopping, WaitsFor
from fledge.core.schema import Fit, fit
from fledge.core.transcript import (
    NO_ANSWER,
    Body,
    Line,
    Noted,
    Replied,
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
    Due,
    FailedTry,
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
from fledge.core.value import Value
from fledge.errors import NotFound, Stopped
from fledge.orchestrator import budget, effects, exchanges, heartbeat, inbox, messages, outbox, transcripts
from fledge.orchestrator.commit import Commit, Lease, check_driver
from fledge.orchestrator.inbox import ConversationInbox, RunInbox
from fledge.orchestrator.spawn import generations_of
from fledge.store.base import Driver, QueuePlace, Session, Spec, Tx, Wishes

# ---- the snapshot that a claim answers -------------------------------------------------------------------------------


class TurnSnapshot(Value, kw_only=True):
    """A session as it was when its turn was claimed."""

    session: Session
    run: Run | None
    """Its run, over or not: a child that answers a message after its run's end is still that child."""
    spec: Spec | None
    """The parameters of its run; None for a conversation."""
    is_budgeted: bool
    """It, or something above it, has a budget account."""
    has_children: bool
    wishes: tuple[Wishes, ...]
    """The wishes of the requests that its turn answers."""
    by_person: bool = False
    """Its turn began with a message of a person or a program."""
    lines: list[Line] | None = None
    """Its whole transcript; None if there is more than this commit has written."""


def snapshot_of(tx: Tx, key: str, answers_all: bool = True, lines: list[Line] | None = None) -> TurnSnapshot:
    """A snapshot of the session. Its turn answers the requests that it has read itself, and with `answers_all` those
    that earlier turns read before they yielded. Raises `NotFound` if the session was never opened."""
    session, run, turn = tx.sessions.row(key).session, tx.runs.find(key), tx.turns.get(key)
    return TurnSnapshot(
        session=session,
        run=run,
        spec=None if run is None else tx.runs.spec(key),
        is_budgeted=tx.budgets.any() and any(tx.budgets.get(above.key) for above in tx.sessions.lineage(key)),
        has_children=tx.sessions.counts(key).spawned > 0,
        wishes=tuple(
            [
                asked.wishes
                for asked in tx.requests.of(key)
                if answers_all or (turn is not None and asked.turn == turn.turn)
            ]
        ),
        by_person=turn is not None and turn.by_person,
        lines=lines,
    )


# ---- claim, step, end ------------------------------------------------------------------------------------------------


class Drive(Value):
    """A driver's hold on a session."""

    session: str
    epoch: int
    turn: int
    run: Run | None
    """The live run; None for a conversation, or a turn that answers a message after a run's end."""
    generations: dict[str, int]
    snapshot: TurnSnapshot
    """The session when it was claimed."""
    more: bool = False
    """Not all that may enter fitted into the claim's commit."""
    interrupts: int = 0
    """How many of its steps were cancelled, as far as it knows: a write for an older step is refused."""
    heartbeat: str = ""
    """Heartbeat cause of the turn when it was claimed; empty for a normal turn."""
    failed: FailedTry | None = None
    """The try before this one, if it failed."""

    @property
    def lease(self) -> Lease:
        """The fence of its writes."""
        return Lease(self.epoch, self.interrupts)


class Taken(Value):
    """The turn of a claimed session, which has not read its rows yet."""

    epoch: int
    turn: OpenTurn
    run: Run | None = None
    heartbeat: str = ""


TurnContinues = Literal["on", "over"]
"""After the final reply: `on` if the driver has more to do, else `over`."""
FailureCause = Literal["error", "budget", "limit"]
"""Why a turn cannot go on."""


class ModelFailed(Struct, frozen=True):
    """The next state of a turn that no model could answer: it is over, it is tried again in so many seconds without
    this driver, or this driver may try again within the grace of a provisional error."""

    state: Literal["over", "later", "grace"]
    in_s: float = 0.0


def claim_all(c: Commit, places: Collection[QueuePlace], owner: str) -> list[Drive]:
    """Claim each of these that is still queued: others were killed or ended between looking and claiming."""
    c.tx.prefetch_claims(places)
    drives = (claim(c, place, owner) for place in places if c.tx.queue.place(place.session) is not None)
    return [drive for drive in drives if drive is not None]


def claim(c: Commit, place: QueuePlace, owner: str) -> Drive | None:
    """Take the lease, open the turn (or go on with the open one) and read what waits; None if there was nothing."""
    session, kind = place.session, kind_of(c, place.session)
    resumed = c.tx.turns.get(session) is not None
    if resumed:
        _expire_questions(c, session)
    taken = kind.claim(c, place, owner)
    if taken is None:
        return None
    # Rows are read only after all results of a step are in, and the rest of a reply that was cut.
    midway = resumed and _is_midway(c, session)
    rows = 0 if midway else inbox.consume_waiting(c, session, at_boundary=resumed)
    more = rows >= inbox_rules.ROWS_A_COMMIT
    lines = c.written.get(session)
    known = lines if lines and lines[0].seq == 1 and not more else None
    snapshot = snapshot_of(c.tx, session, exchanges.owed(c, session) == "nothing", known)
    turn = taken.turn
    return Drive(
        session,
        taken.epoch,
        turn.turn,
        taken.run,
        turn.generations,
        snapshot,
        more,
        heartbeat=taken.heartbeat,
        failed=turn.failed,
    )


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


def at_work(c: Commit, session: str, tools_s: float = 0.0) -> None:
    """The driver is at work, perhaps with tools that may take so long: meanwhile its run is not stuck."""
    c.tx.drivers.progress(session, c.at, step_open=True, patient_until=c.at + tools_s if tools_s else None)


def fence(c: Commit, drive: Drive) -> None:
    """The driver may open and write a step. StaleWrite: superseded, or interrupted; Stopped: its run was killed."""
    check_driver(c, drive.session, drive.epoch, drive.interrupts)
    run = c.find(drive.session)
    if run is not None and type(run.phase) is Ending and isinstance(run.phase.cause, Stopping):
        raise Stopped(f"{drive.session} was killed: no further step")


def progressed(c: Commit, session: str, tools_s: float = 0.0) -> None:
    """A step, or a part of one, is committed: the counts of crashes and pauses are reset, and its driver is no suspect
    any more."""
    at_work(c, session, tools_s)
    kind_of(c, session).progressed(c, session)
    driver = c.tx.drivers.get(session)
    if driver is not None and driver.suspect:
        c.tx.drivers.trust(session)
        c.hints.look = True


def finish(c: Commit, drive: Drive, reply: Replied | str, result: str | None = None, begun: str = "") -> TurnContinues:
    """The final reply. `on`: completions were unread, they are in the transcript now, and the same attempt goes on.

    `result` is the text to freeze where it differs from the reply's; `begun` is the text of the cut reply that this one
    continues.
    """
    check_driver(c, drive.session, drive.epoch, drive.interrupts)
    reply = Replied(to_valid_utf8(reply)) if isinstance(reply, str) else reply
    return kind_of(c, drive.session).finish(c, drive, reply, result, begun)


def fail(c: Commit, drive: Drive, error: str, cause: FailureCause = "error") -> float:
    """The attempt cannot go on; a conversation's turn stays open and is due again after its backoff, until its patience
    is over. Answers in how many seconds; 0: it is over.

    At the end of a budget or limit a run hands over partial work, and a conversation's turn is closed with a notice.
    """
    check_driver(c, drive.session, drive.epoch, drive.interrupts)
    return kind_of(c, drive.session).fail(c, drive, to_valid_utf8(error), cause)


def model_failed(c: Commit, drive: Drive, failure: Failure) -> ModelFailed:
    """No model could answer. A run pauses, or ends with a provisional error when its patience is over, or fails at once
    where waiting is useless; a conversation's turn is due again, or after the pause that its provider asks for."""
    return kind_of(c, drive.session).model_failed(c, drive, failure)


def needs_program(c: Commit, drive: Drive, reason: str) -> float:
    """The run needs what only a program can bring: it pauses, and looks again for as long as it takes. Answers in how
    many seconds. A turn after its end, which a message began, is due again as any that failed."""
    return kind_of(c, drive.session).needs_program(c, drive, reason)


def judge_yield(c: Commit, drive: Drive, terms: policy.YieldTerms) -> Literal["wait", "read"] | policy.Refusal:
    """Whether a yield has to wait or finds its completions unread. A refusal: with nothing to wait for, and from the
    tenth wake on."""
    fence(c, drive)
    return kind_of(c, drive.session).judge_yield(c, drive, terms)


def wait(c: Commit, drive: Drive, terms: policy.YieldTerms) -> None:
    """Yield, where `judge_yield` says `wait`: the turn is over, and its run or conversation waits for its children."""
    kind_of(c, drive.session).wait(c, drive, terms)


def ask(c: Commit, drive: Drive, due_at: Instant) -> None:
    """Wait for a person's answers without a slot; the first question expires then."""
    kind_of(c, drive.session).ask(c, drive.session, due_at)


def answered(c: Commit, session: str) -> None:
    """Every question of the turn is answered: it goes on."""
    kind_of(c, session).answered(c, session)


def left(c: Commit, session: str, epoch: int) -> None:
    """The driver is gone, for any reason: its slot is free, and its open turn is driven again.

    After a stop this is the acknowledgement; after an end it changes nothing; in the middle of a step it is a lost
    lease that counts as no crash, because the process lives.
    """
    driver = c.tx.drivers.get(session)
    if driver is not None and driver.epoch == epoch:
        lost(c, driver, crashed=False)


def lost(c: Commit, driver: Driver, crashed: bool) -> None:
    """A lease is lost: the session is driven again under a new epoch, or its kill is decided."""
    known = c.tx.sessions.get(driver.session)
    if known is not None and known.epoch == driver.epoch:
        kind_of(c, driver.session).lost(c, driver, crashed)
    else:
        c.release(driver.session, driver.epoch)


def let_go(c: Commit, drive: Drive) -> None:
    """End a heartbeat's turn that has nothing to do, without asking its model."""
    check_driver(c, drive.session, drive.epoch, drive.interrupts)
    heartbeat.hide(c, drive.session)
    _close(c, drive, TurnEnd("nothing", "nothing to look after"))


def wait_passed(c: Commit, session: str) -> bool:
    """Let time end a conversation's wait; False if nothing was due any more."""
    before = c.tx.turns.wait(session)
    after = effects.move_turn(c, session, WaitPassed())
    return after is not None and after.wait != before


PAUSED_A_COMMIT: Final = 100


def program_came(c: Commit, brings: Callable[[Spec], bool], after: str = "") -> str | None:
    """End the pauses of runs that wait for what this process brings. Looks at `PAUSED_A_COMMIT` sessions that pause,
    by key, those behind `after`; answers the last one, or None when it has seen them all."""
    paused = c.tx.queue.paused(c.at, after, PAUSED_A_COMMIT)
    for key in paused:
        run = c.find(key)
        match None if run is None else run.phase:
            case Queued(retry=Retry(waits_for="program")) if brings(c.tx.runs.spec(key)):
                effects.apply(c, key, ev.ProgramCame(at=c.at))
    return paused[-1] if len(paused) == PAUSED_A_COMMIT else None


# ---- attempts: turns of a live run, whose end is the run's signal ----------------------------------------------------


class Attempt:
    """A turn of a live run: its end is a signal to the run."""

    @staticmethod
    def claim(c: Commit, place: QueuePlace, owner: str) -> Taken | None:
        session = place.session
        epoch, run, turn = c.tx.queue.claim(place, owner, c.at), c.run(session), c.tx.turns.get(session)
        if isinstance(run.phase, Queued):
            run = effects.apply(c, session, ev.Claimed(at=c.at, epoch=epoch)).run
        if turn is None:
            turn = c.tx.turns.open(session, generations_of(c, session), c.at)
        return Taken(epoch, turn, run)

    @staticmethod
    def as_said(c: Commit, session: str, reply: Replied) -> Replied:
        """The reply as it stands in the transcript: marked where it answers a send while the run waits, because then
        it is no part of the result."""
        return replace(reply, aside=True) if RunInbox.is_aside(c, session) else reply

    @staticmethod
    def lacks_words(c: Commit, turn: OpenTurn, bodies: Sequence[Body]) -> bool:
        """True if these entries of the turn have no words although a caller waits for some. The result of an attempt
        without words is what it said or did before (`_left_behind`)."""
        return False

    @staticmethod
    def fitted(c: Commit, session: str, text: str) -> Fit | None:
        """The text of a final reply held against the output schema; None if there is none, or this is no result."""
        schema = c.tx.runs.spec(session).output_schema
        if schema is None or c.run(session).plan == "planning" or classify_reply(text) in ("silent", "skip"):
            return None
        return None if RunInbox.is_aside(c, session) else fit(schema, text)

    @staticmethod
    def progressed(c: Commit, session: str) -> None:
        run = c.run(session)
        if (run.crashes or run.failing is not None) and isinstance(run.phase, Running):
            effects.apply(c, session, ev.Progressed(at=c.at))

    @staticmethod
    def finish(c: Commit, drive: Drive, reply: Replied, result: str | None, begun: str) -> TurnContinues:
        session, whole = drive.session, begun + reply.text
        said = Attempt.as_said(c, session, reply)
        entry = transcripts.write(c, session, said)
        if said.aside:
            _answer_aside(c, session, entry, whole)
        elif c.tx.exchanges.answering(session) and not c.facts(session)["unread"]:
            messages.exchanges_answered(c, session, whole)
        text = whole if result is None else result
        frozen = freeze(text, "") if text.strip() else _left_behind(c, session)
        run = _signal(c, session, c.run(session).attempt, _finished(c, session, frozen, reply.cut))
        return "on" if isinstance(run.phase, Running) else "over"

    @staticmethod
    def fail(c: Commit, drive: Drive, error: str, cause: FailureCause) -> float:
        partial = None if cause == "error" else transcripts.progress_so_far(c, drive.session)
        _signal(c, drive.session, c.run(drive.session).attempt, ev.Errored(error, cause, partial))
        return 0.0

    @staticmethod
    def model_failed(c: Commit, drive: Drive, failure: Failure) -> ModelFailed:
        run = c.run(drive.session)
        fence(c, drive)
        if isinstance(run.phase, Ending) and failure.may_pass:
            return ModelFailed("grace")
        match after_failure(failure, run.failing, c.at, c.rules.patience_s, drive.session):
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
        is_aside = RunInbox.is_aside(c, run.key)
        return policy.judge_yield(
            terms.asked or "all", run.wakes, facts["unsettled"], facts["settled"], facts["unread"], is_aside
        )

    @staticmethod
    def wait(c: Commit, drive: Drive, terms: policy.YieldTerms) -> None:
        run, facts = c.run(drive.session), c.facts(drive.session)
        event = ev.Yielded(
            at=c.at,
            attempt=run.attempt,
            asked=terms.asked or "all",
            wait_s=policy.YIELD_S if terms.wait_s is None else terms.wait_s,
            next_run_id=c.ids.unique(),
            **facts,
        )
        effects.apply(c, run.key, event)

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
        at, attempt, next_id = c.at, run.attempt, c.ids.unique()
        event: ev.DriverStopped | ev.LeaseLost
        if not crashed and isinstance(run.phase, Ending) and isinstance(run.phase.cause, Stopping):
            event = ev.DriverStopped(at=at, attempt=attempt, next_run_id=next_id, **facts)  # as the kill told it to
        else:
            step_open = crashed and driver.step_open
            event = ev.LeaseLost(at=at, attempt=attempt, next_run_id=next_id, step_open=step_open, **facts)
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


def _finished(c: Commit, session: str, frozen: str, is_cut: bool = False) -> ev.Finished:
    """The end of an attempt with this text, which is kept where it is more than a token."""
    said = classify_reply(frozen)
    return ev.Finished(said, c.tx.texts.keep(session, frozen) if said == "text" else None, is_cut)


def _signal(c: Commit, session: str, attempt: int, end: ev.End) -> Run:
    """Tell the run how an attempt of it ended."""
    event = ev.AttemptEnded(at=c.at, attempt=attempt, end=end, next_run_id=c.ids.unique(), **c.facts(session))
    return effects.apply(c, session, event).run


def falter(
    c: Commit, drive: Drive, error: str, aborted: bool = False, cause: Literal["error", "limit"] = "error"
) -> None:
    """A provisional error: the executor may recover within its grace, and keeps its slot."""
    check_driver(c, drive.session, drive.epoch, drive.interrupts)
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
    check_driver(c, drive.session, drive.epoch, drive.interrupts)
    run = c.run(drive.session)
    effects.apply(c, drive.session, ev.AttemptStarted(at=c.at, attempt=run.attempt, next_run_id=c.ids.unique()))


def completed_late(c: Commit, session: str, attempt: int, text: str) -> None:
    """A foreign runtime finished after its outcome was fixed: announced once, as late, unless the run is archived.

    Not fenced: its driver is long superseded. A result of an older attempt is ignored.
    """
    run = c.find(session)
    if run is not None and run.ended is not None:
        _signal(c, session, attempt, _finished(c, session, freeze(to_valid_utf8(text), "")))


def _answer_aside(c: Commit, session: str, entry: int, text: str) -> None:
    """Send the answer of a waiting run to the senders of the messages it read: other sessions, and an address on a
    channel. It is no part of its result. Without words the senders learn that there was no answer, when its turn is
    closed."""
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
    """A turn that answers: it ends with a reply."""

    @staticmethod
    def claim(c: Commit, place: QueuePlace, owner: str) -> Taken | None:
        session = place.session
        before, turn = c.tx.turns.state(session), c.tx.turns.get(session)
        epoch = c.tx.queue.claim(place, owner, c.at)
        opens = turn or c.tx.turns.next(session, generations_of(c, session), c.at)
        after = effects.move_turn(c, session, TurnClaimed(opens), before)
        if after is None or after.open is None:
            return None
        beat = "" if turn is None else turn.heartbeat
        if turn is None and after.wait is None:
            beat = heartbeat.begin(c, session, inbox.entering(c, session))
        return Taken(epoch, opens, heartbeat=beat)

    @staticmethod
    def as_said(c: Commit, session: str, reply: Replied) -> Replied:
        return reply

    @staticmethod
    def lacks_words(c: Commit, turn: OpenTurn, bodies: Sequence[Body]) -> bool:
        """A heartbeat needs none, nor does a talk between agents once it has had its first answer."""
        if turn.heartbeat or not transcript.lacks_words(bodies):
            return False
        answering = c.tx.exchanges.answering(turn.session)
        return not is_apart(turn.origin) or any(isinstance(one.stage, Asked) for one in answering)

    @staticmethod
    def fitted(c: Commit, session: str, text: str) -> Fit | None:
        return None

    @staticmethod
    def progressed(c: Commit, session: str) -> None:
        turn = c.tx.turns.get(session)
        if turn is not None and (turn.crashes or turn.failed is not None):
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
            if Talk.lacks_words(c, turn, bodies):
                return _gave_no_answer(c, drive, turn, bodies)
            text = last_visible(bodies)
        messages.exchanges_answered(c, drive.session, text, exchanges.owed(c, drive.session))
        if not heartbeat.answered(c, turn, text):
            outbox.reply(c, turn, entry, f"{text}\n\n[{CUT}]" if reply.cut else text)
        return _close(c, drive, REPLIED)

    @staticmethod
    def fail(c: Commit, drive: Drive, error: str, cause: FailureCause) -> float:
        if cause != "error":
            # Trying again could not end otherwise: the next message finds out whether there is more to spend.
            _close(c, drive, TurnEnd("failed", error))
            outbox.tell(c, drive.session, f"{cause}:{drive.session}:{drive.turn}", f"the turn ended: {error}")
            return 0.0
        return _try_again(c, drive, error, 0.0, c.rules.patience_s)

    @staticmethod
    def model_failed(c: Commit, drive: Drive, failure: Failure) -> ModelFailed:
        check_driver(c, drive.session, drive.epoch, drive.interrupts)
        reason = to_valid_utf8(failure.message)
        return ModelFailed("later", _try_again(c, drive, reason, failure.retry_after_s or 0.0, None))

    @staticmethod
    def needs_program(c: Commit, drive: Drive, reason: str) -> float:
        return fail(c, drive, reason)

    @staticmethod
    def judge_yield(c: Commit, drive: Drive, terms: policy.YieldTerms) -> Literal["wait", "read"] | policy.Refusal:
        session, facts = drive.session, c.facts(drive.session)
        turn, is_aside = c.tx.turns.get(session), ConversationInbox.is_aside(c, session)
        # Completions that only another turn may read count as still to come.
        elsewhere = 0 if inbox.readable_completions(c, session) else facts["unread"]
        wakes = 0 if turn is None else turn.wakes
        unsettled = facts["unsettled"] + elsewhere
        return policy.judge_yield(terms.asked or "all", wakes, unsettled, facts["settled"], facts["unread"], is_aside)

    @staticmethod
    def wait(c: Commit, drive: Drive, terms: policy.YieldTerms) -> None:
        """Messages that the turn has read are answered once the wait is over. If the session does not read completions
        any longer, the turn ends in silence."""
        session, turn, facts = drive.session, c.tx.turns.get(drive.session), c.facts(drive.session)
        if turn is None or inbox.receiver_of(c, session).session != session:
            finish(c, drive, NO_REPLY)
            return
        asked, earlier = terms.asked or "all", c.tx.turns.wait(session)
        waits = Wait(
            until_settled=policy.wait_until(asked, facts["unsettled"], facts["settled"], facts["unread"]),
            due_at=c.at + (policy.YIELD_S if terms.wait_s is None else terms.wait_s),
            asked=str(asked),
            origin=turn.origin or ("" if earlier is None else earlier.origin),
            wakes=turn.wakes,
        )
        effects.move_turn(c, session, TurnYielded(waits))

    @staticmethod
    def ask(c: Commit, session: str, due_at: Instant) -> None:
        effects.move_turn(c, session, TurnAsked(due_at))

    @staticmethod
    def answered(c: Commit, session: str) -> None:
        effects.move_turn(c, session, TurnAnswered())

    @staticmethod
    def lost(c: Commit, driver: Driver, crashed: bool) -> None:
        if c.tx.turns.get(driver.session) is None:
            c.release(driver.session, driver.epoch)
        else:
            effects.move_turn(c, driver.session, TurnLost(crashed and driver.step_open))


def kind_of(c: Commit, session: str) -> type[Attempt] | type[Talk]:
    """The kind of the session's turns, for the driver."""
    return Talk if c.live_run(session) is None else Attempt


def _try_again(c: Commit, drive: Drive, reason: str, wait_s: float, patience_s: float | None) -> float:
    """A conversation's turn has failed for this reason. Answers in how many seconds it is tried again; 0: it is given
    up."""
    session, turn = drive.session, c.tx.turns.get(drive.session)
    if turn is not None and turn.drained:
        _tell_unanswered(c, turn, reason)
    failures = 1 if turn is None else turn.failures + 1
    pause_s = max(inbox_rules.backoff_s(failures), min(wait_s, inbox_rules.BACKOFF_MAX_S))
    after = effects.move_turn(c, session, TurnFailed(reason, pause_s, patience_s))
    match None if after is None else after.at:
        case Due(from_at=float() as next_at, open=OpenTurn()):
            return next_at - c.at
        case _:
            return 0.0


def _close(c: Commit, drive: Drive, end: TurnEnd) -> TurnContinues:
    """A conversation's turn is over."""
    effects.move_turn(c, drive.session, TurnOver(end))
    return "over"


def _gave_no_answer(c: Commit, drive: Drive, turn: OpenTurn, bodies: Sequence[Body]) -> TurnContinues:
    """The turn ends without words. The completions that it read are forwarded as they are, and a sender gets a
    notice that there was no answer."""
    session = drive.session
    text = inbox.forward_read(c, turn, bodies)
    if text:
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


def _tell_unanswered(c: Commit, turn: OpenTurn, reason: str) -> None:
    """After half an hour of failed tries, tell people once that something was read and not answered."""
    if inbox_rules.is_unanswered(turn.opened_at, c.at):
        key = f"unanswered:{turn.session}:{turn.turn}"
        words = f"{turn.session} has read something and could not answer it for half an hour: {one_line(reason, 200)}"
        inbox.notice(c, turn.session, key, words)
        outbox.tell(c, turn.session, key, words)
