"""What must hold: while a play goes on (limits, counters, folds), and when everything has come to rest (G1 to G6).

Computed from scratch out of rows and the play's ledger, never from the counters and shortcuts that are under test.
"""

from collections import Counter
from collections.abc import Iterable

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.announce import announce_key
from fledge.core.freeze import freeze
from fledge.core.inbox import QueueSettings
from fledge.core.lifecycle import born, replay, transition
from fledge.core.run import (
    Delivered,
    Ending,
    Failed,
    Instant,
    Killed,
    Ok,
    Run,
    Skipped,
    Stopping,
    Undelivered,
    Waiting,
)
from fledge.core.transcript import Replied, Resulted, from_body, joined
from fledge.orchestrator.spawn_params import NATIVE
from fledge.store.base import InboxRow, Tx
from tests.sim.people import PROGRAM, ROOTS, walk
from tests.sim.schedule import Schedule
from tests.sim.watch import Noted

FINAL = ("completed", "completed_giveup", "archived")
KINDS: tuple[ev.RowKind, ...] = ("outcome", "plan", "expired", "late")


# ---- at every commit -------------------------------------------------------------------------------------------------


def limits_exceeded(tx: Tx, schedule: Schedule, noted: Noted, now: Instant) -> list[str]:
    """Lanes over their width, slots of those who wait, suspects side by side, parents with too many children."""
    wrong: list[str] = []
    held = [driver for driver in tx.drivers.all() if driver.release_at is None or driver.release_at > now]
    for lane, count in Counter(driver.lane for driver in held).items():
        if count > schedule.rules.widths.get(lane, 1):
            wrong.append(f"lane {lane} has {count} drivers")
    if sum(driver.suspect for driver in held) > 1:
        wrong.append("suspects are driven side by side")
    for driver in held:
        run = tx.runs.find(driver.session) if driver.release_at is None else None
        if run is not None and isinstance(run.phase, Waiting):
            wrong.append(f"{run.key} waits and holds a slot")
    most = schedule.config.agents.defaults.subagents.max_children_per_agent
    for parent in noted.crowded - {PROGRAM}:
        active = [run for run in map(tx.runs.load, tx.runs.children(parent)) if _takes_a_place(tx, run)]
        if len(active) > most:
            wrong.append(f"{parent} has {len(active)} active children of {most}")
    return wrong


def steps_exceeded(schedule: Schedule, ledger: Noted, noted: Noted) -> list[str]:
    """Turns that take more steps than they may; steps that were called off do not count."""
    most = schedule.steps.max_steps
    if not most or not noted.steps:
        return []
    called_off = ledger.called_off_steps | noted.called_off_steps
    counted = Counter(
        (session, turn) for session, turn, entry in ledger.steps | noted.steps if (session, entry) not in called_off
    )
    turns = {(session, turn) for session, turn, _ in noted.steps}
    return [f"{key[0]} takes step {counted[key]} of {most} in one turn" for key in turns if counted[key] > most]


def misplaced(tx: Tx, noted: Noted) -> list[str]:
    """Completions that were told to somebody else than the nearest requester that is there."""
    wrong: list[str] = []
    for key, sessions in noted.told.items():
        row = tx.inbox.get(key)
        if row is None or row.announces is None or row.source is None:
            continue
        requester = _requester(tx, row.source)
        if requester is not None and sessions != [requester]:
            wrong.append(f"row {key} is told in {sessions} instead of {requester}")
    return wrong


def _requester(tx: Tx, key: str) -> str | None:
    """Whom a run is told to now; None if that is not to be known any more."""
    run = tx.runs.find(key)
    while run is not None:
        above, session = tx.runs.find(run.terms.parent), tx.sessions.get(run.terms.parent)
        gone = above is not None and above.ended is not None and above.terms.mode == "run"
        if session is not None and not session.deleted and not gone:
            return session.key
        run = above
    return None


def begun_below_a_kill(tx: Tx, noted: Noted) -> list[str]:
    """Runs that were admitted though somebody above them is being stopped."""
    above = [(key, tx.runs.find(session.key)) for key in noted.admitted for session in tx.sessions.lineage(key)[1:]]
    stopping = [(key, run.key) for key, run in above if run is not None and _is_stopping(run)]
    return [f"{key} was admitted below {killed}, which was killed" for key, killed in stopping]


def _is_stopping(run: Run) -> bool:
    return isinstance(run.phase, Ending) and isinstance(run.phase.cause, Stopping)


def _takes_a_place(tx: Tx, run: Run) -> bool:
    return not is_settled(tx, run) or run.phase.name == "awaiting_approval"


def is_settled(tx: Tx, run: Run) -> bool:
    """Its outcome is fixed, or its plan waits, and so it is for all below."""
    return run.concluded and all(is_settled(tx, tx.runs.load(child)) for child in tx.runs.children(run.key))


def overlooked(tx: Tx, schedule: Schedule, now: Instant) -> list[str]:
    """What could be done now, though whoever should do it has nothing else to do."""
    claimable = [place.session for place in tx.queue.claimable(schedule.rules.widths, now, 99)]
    due = [*tx.runs.due(now, 99), *tx.heartbeats.due(now, 99), *tx.requests.overdue(now, 99)]
    return [f"{key} could be claimed" for key in claimable] + [f"{key} is due" for key in due]


def sound(tx: Tx) -> list[str]:
    """What is wrong with counters and folds at any time."""
    wrong: list[str] = []
    runs = [tx.runs.load(key) for key in walk(tx)]
    for run in runs:
        if replay(tx.events.of(run.key)) != run:
            wrong.append(f"{run.key} is not the fold of its events")
        if isinstance(run.phase, Waiting):
            counts = tx.sessions.counts(run.key)
            if policy.holds(run.phase.until_settled, counts.unsettled, counts.settled):
                wrong.append(f"{run.key} sleeps though what it waits for is there")
    for key in (*ROOTS, *(run.key for run in runs)):
        unsettled = sum(not is_settled(tx, tx.runs.load(child)) for child in tx.runs.children(key))
        if tx.sessions.counts(key).unsettled != unsettled:
            wrong.append(f"{key} counts {tx.sessions.counts(key).unsettled} unsettled, there are {unsettled}")
    return wrong


def could_go_on(tx: Tx, schedule: Schedule, now: Instant, under_way: set[str]) -> set[tuple[str, int]]:
    """What waits though nothing holds it up, each with a number that changes when it was taken up in between: posts
    that are due and not on their way, words that an idle conversation could read."""
    posts = [post for post in tx.outbox.due(now, 100) if post.state == "waiting" and post.key not in under_way]
    found = {(f"post {post.key}", post.tries) for post in posts}
    drivers = Counter(driver.lane for driver in tx.drivers.all())
    roots = [tx.sessions.get(key) for key in ROOTS]
    claims = sum(session.epoch for session in roots if session is not None)
    for session in roots:
        if session is None or session.kind == "program" or session.deleted:
            continue
        key, place = session.key, tx.queue.place(session.key)
        full = place is not None and drivers[place.lane] >= schedule.rules.widths.get(place.lane, 1)
        later = place is not None and place.due_at is not None and place.due_at > now
        if full or later or tx.turns.get(key) is not None or tx.drivers.get(key) is not None:
            continue
        # A slot that is free at this moment may have been others' ever since.
        turn = session.epoch if place is None else claims
        found |= {(f"{key} to read {row.key}", turn) for row in tx.inbox.unread(key) if row.kind == "send"}
    return found


# ---- at rest ---------------------------------------------------------------------------------------------------------


def restless(tx: Tx) -> list[str]:
    """What is still going on."""
    runs = [tx.runs.load(key) for key in walk(tx)]
    found = [f"{run.key} is {run.phase.name}" for run in runs if run.phase.name not in FINAL]
    for key in (*ROOTS, *(run.key for run in runs)):
        if tx.turns.get(key) is not None:
            found.append(f"{key} has an open turn")
        if tx.queue.place(key) is not None:
            found.append(f"{key} is queued")
        found += [f"{key} has not read {row.key}" for row in tx.inbox.unread(key)]
        if tx.turns.wait(key) is not None:
            found.append(f"{key} has yielded, and still waits")
        beat = tx.heartbeats.get(key)
        if beat is not None and beat.cause:
            found.append(f"{key} is to have a heartbeat")
    if tx.outbox.count_waiting():
        found.append(f"{tx.outbox.count_waiting()} posts wait")
    return found + [f"{driver.session} has a driver" for driver in tx.drivers.all()]


def judge(tx: Tx, ledger: Noted) -> list[str]:
    """Everything that is wrong once all is at rest."""
    wrong = sound(tx) + restless(tx)
    runs = {key: tx.runs.load(key) for key in walk(tx)}
    lost = set(ledger.admitted) - ledger.forgotten - set(runs)
    wrong += [f"{key} was admitted and is nowhere" for key in sorted(lost)]
    labels = Counter(ledger.labels[key] for key in runs)
    wrong += [f"{label} was spawned {count} times" for label, count in labels.items() if count > 1]
    for run in runs.values():
        wrong += _one_run(tx, run, runs, ledger)
    wrong += _once(tx, ledger)
    for key in (*ROOTS, *runs):
        wrong += transcript_faults(tx, key)
    wrong += [f"a question still waits: {asked}" for asked in tx.approvals.open()]
    return wrong + _purses(tx, (*ROOTS, *runs))


def _one_run(tx: Tx, run: Run, runs: dict[str, Run], ledger: Noted) -> list[str]:
    """Every run ended, and its completion is accounted for."""
    if run.ended is None or run.delivery is None:
        return [f"{run.key} never ended: {run.phase}"]
    wrong: list[str] = []
    events = tx.events.of(run.key)
    rows = _rows(tx, events)
    outcome = rows.get(announce_key(run.key, run.run_id, "outcome"))
    match run.delivery:
        case Delivered():
            if outcome is None or outcome.state != "consumed":
                wrong.append(f"{run.key} is delivered, but its row is {outcome and outcome.state}")
        case Undelivered():
            if outcome is None or outcome.state not in ("undelivered", "dismissed"):
                wrong.append(f"{run.key} is undelivered, but its row is {outcome and outcome.state}")
        case Skipped(reason="suppressed"):
            expired = rows.get(announce_key(run.key, run.run_id, "expired"))
            reasons = isinstance(run.ended.outcome, Killed) or expired or _silenced(tx, run, events, runs)
            if not reasons or (outcome is not None and outcome.state != "suppressed"):
                wrong.append(f"{run.key} was suppressed without a reason: {outcome}")
        case Skipped():
            if outcome is not None or not isinstance(run.ended.outcome, Ok):
                wrong.append(f"{run.key} was skipped, but has a row or failed: {outcome}")
    for row in rows.values():
        if row.state in ("unread", "void"):
            wrong.append(f"row {row.key} is {row.state}")
        if row.state == "suppressed" and not _may_be_silent(tx, run, row, events, runs):
            wrong.append(f"row {row.key} is suppressed, and nothing on the timeline says why")
        if row.state == "consumed" and not run.terms.program and len(ledger.told.get(row.key, ())) != 1:
            wrong.append(f"row {row.key} is consumed, and in transcripts {ledger.told.get(row.key)}")
        if row.state != "consumed" and row.key in ledger.told:
            wrong.append(f"row {row.key} is {row.state}, and in transcripts {ledger.told[row.key]}")
    own = f"announce:v1:{run.key}:"
    strays = [key for key in ledger.told if key.startswith(own) and key not in rows and not key.endswith(":wake")]
    wrong += [f"row {key} is told, and is no attempt's only one of its kind" for key in strays]
    return wrong + _answer(tx, run)


def _rows(tx: Tx, events: list[ev.Event]) -> dict[str, InboxRow]:
    """Every completion of a run: one for each id it ever had and each kind at most."""
    first = events[0]
    assert isinstance(first, ev.Admitted)
    run = born(first)
    ids = {run.run_id}
    for event in events[1:]:
        run = transition(run, event).run
        ids.add(run.run_id)
    keys = [announce_key(run.key, run_id, kind) for run_id in sorted(ids) for kind in KINDS]
    return {row.key: row for row in map(tx.inbox.get, keys) if row is not None}


def _silenced(tx: Tx, run: Run, events: Iterable[ev.Event], runs: dict[str, Run]) -> bool:
    """A kill is on its own timeline, or on that of somebody above."""
    if any(isinstance(event, ev.KillOrdered | ev.RowSuppressed) for event in events):
        return True
    above = runs.get(run.terms.parent)
    while above is not None:
        if any(isinstance(event, ev.KillOrdered) for event in tx.events.of(above.key)):
            return True
        above = runs.get(above.terms.parent)
    return False


def _may_be_silent(tx: Tx, run: Run, row: InboxRow, events: list[ev.Event], runs: dict[str, Run]) -> bool:
    if row.kind == "plan":
        answered = any(isinstance(event, ev.PlanApproved | ev.PlanRejected) for event in events)
        expired = isinstance(run.ended and run.ended.outcome, Failed)
        return answered or expired or _silenced(tx, run, events, runs)
    return _silenced(tx, run, events, runs)


def _answer(tx: Tx, run: Run) -> list[str]:
    """What is told of a run that came out well is something its model said."""
    session = tx.sessions.get(run.key)
    assert run.ended is not None
    if session is None or session.deleted or run.ended.result is None or not isinstance(run.ended.outcome, Ok):
        return []
    if tx.runs.spec(run.key).runtime != NATIVE:
        return []  # what another runtime says late stands in no transcript; `leaving` knows what it said
    text = tx.texts.get(run.ended.result)
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(run.key, limit=1_000_000)]
    whole = joined((None, body) for body in bodies)
    said = {freeze(body.text, "") for _, body in whole if isinstance(body, Replied)}
    outputs = [body.text for body in bodies if isinstance(body, Resulted)]
    if text in said or any(text == freeze("", output) for output in outputs):
        return []
    return [f"{run.key} is told to have said {text[:80]!r}"]


def _once(tx: Tx, ledger: Noted) -> list[str]:
    """Nothing is in two places or twice in one; a message that was accepted was read, or its reader was ended."""
    wrong = [f"row {row} is in {sessions}" for row, sessions in ledger.told.items() if len(sessions) != 1]
    sent = Counter(ledger.sent.values())
    for key, session in ledger.sent.items():
        row = tx.inbox.get(key)
        state = None if row is None else row.state
        if state == "consumed":
            if ledger.told.get(key) != [session]:
                wrong.append(f"message {key} is read, and in transcripts {ledger.told.get(key)}")
        elif state in ("void", "suppressed"):
            if not _reader_ended(tx, session):
                wrong.append(f"message {key} is {state}, and its reader {session} is there")
        elif state == "dropped":
            if sent[session] <= QueueSettings().cap:
                wrong.append(f"message {key} gave way, and {session} never had too many")
        else:
            wrong.append(f"message {key} is {state}")
    return wrong


def _reader_ended(tx: Tx, session: str) -> bool:
    known, run = tx.sessions.get(session), tx.runs.find(session)
    killed = run is not None and any(isinstance(event, ev.KillOrdered) for event in tx.events.of(session))
    return killed or known is None or known.deleted


def transcript_faults(tx: Tx, session: str) -> list[str]:
    """Results without calls, calls without results, or two for one."""
    wrong: list[str] = []
    calls: dict[tuple[int, int], str] = {}
    results: Counter[tuple[int, int]] = Counter()
    for entry in tx.transcripts.entries(session, limit=1_000_000):
        match from_body(entry.body):
            case Replied(calls=made):
                calls |= {(entry.seq, index): call.name for index, call in enumerate(made)}
            case Resulted(entry=of, index=index, name=name):
                results[of, index] += 1
                if calls.get((of, index)) != name:
                    wrong.append(f"{session}: entry {entry.seq} answers no call before it")
    for call, name in calls.items():
        if results[call] != 1:
            wrong.append(f"{session}: {name} at {call} has {results[call]} results")
    return wrong


def _purses(tx: Tx, sessions: Iterable[str]) -> list[str]:
    found = [purse for purse in map(tx.budgets.get, sessions) if purse is not None]
    return [f"{purse.session} still reserves {purse.reserved}" for purse in found if purse.reserved != policy.Spent()]
