"""Read-only views: a session's children, its status, unanswered turns and undelivered results.

One place for tools, slash commands, command line and pages, so that all of them show the same. What one session sees of
others is in `visibility`.
"""

from typing import Final

import msgspec

from fledge.core import doing, inbox
from fledge.core.announce import DeliveryTrace
from fledge.core.asking import CUT
from fledge.core.cluster import count_drivers
from fledge.core.doing import awaited_children
from fledge.core.keys import NAME_CHARS, list_kind
from fledge.core.prompts import BLOCK_ROWS, ChildRow, child_row, children_block, flattened
from fledge.core.run import Instant, Run, Running, Undelivered, Waiting
from fledge.core.standing import FailingTurn, State, StatusView, UnansweredTurn
from fledge.core.targets import number_in, pick, unknown_number
from fledge.core.transcript import Replied, from_body, rows_read
from fledge.core.turn import Wait
from fledge.errors import NotFound
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.transcripts import of_turn
from fledge.store.base import InboxRow, Session, Tx

MODEL_FROM: Final = 20
"""How many of the newest entries are looked at for the model that ran."""


# ---- runs ------------------------------------------------------------------------------------------------------------


def child_rows(tx: Tx, session: str) -> list[ChildRow]:
    """A session's children as lists show them, in the order of their spawn."""
    runs = map(tx.runs.load, tx.runs.children(session))
    return [_row(tx, run) for run in runs if run.phase.name != "archived"]


def _row(tx: Tx, run: Run) -> ChildRow:
    spec = tx.runs.spec(run.key)
    return row_of(tx, run, spec.label, spec.task)


def row_of(tx: Tx, run: Run, label: str, task: str = "") -> ChildRow:
    """The run as lists show it, with this label and task."""
    unsettled = tx.sessions.counts(run.key).unsettled
    return child_row(run, tx.runs.number(run.key), label, task, unsettled, progress_of(tx, run))


def progress_of(tx: Tx, run: Run) -> Instant | None:
    """When the driver of a run that was reported as stuck last committed a step; None for any other run, where it is
    not needed."""
    driver = tx.drivers.get(run.key) if isinstance(run.phase, Running) and run.phase.stuck_at is not None else None
    return None if driver is None else driver.progress_at


def children_shown(tx: Tx, session: str, now: Instant) -> str:
    """The block about a session's children in its prompt; empty if it has none. However many there are, few are
    read."""
    if not tx.sessions.counts(session).spawned:
        return ""
    page = tx.lists.children(session, BLOCK_ROWS)
    rows = [_row(tx, tx.runs.load(key)) for key in page.keys]
    active = sum(row.is_active for row in rows)
    return children_block(rows, now, (page.active - active, page.done - (len(rows) - active)))


def name_of(tx: Tx, session: str) -> str:
    """The name of a session for people: the label of its run, else its key."""
    label = "" if tx.runs.find(session) is None else tx.runs.spec(session).label
    return flattened(label, NAME_CHARS) or session


def controller_of(tx: Tx, run: Run) -> str:
    """The session that may steer and kill a run."""
    return tx.runs.spec(run.key).controller or run.terms.parent


def rows_below(tx: Tx, session: str) -> list[ChildRow]:
    """Everything below a session's children, level by level; reached through archived ones too."""
    rows: list[ChildRow] = []
    sessions = tx.runs.children(session)
    for key in sessions:
        rows += child_rows(tx, key)
        sessions += tx.runs.children(key)
    return rows


def active_children(tx: Tx, session: str) -> list[str]:
    """Children of a session that are not over, or have something below them that is not, oldest first."""
    active = tx.lists.children(session, 0).active
    return tx.lists.children(session, active).keys


def would_end(tx: Tx, root: str) -> list[str]:
    """The sessions that a kill of this run would end now, each before those below it: live runs, and turns that answer
    a message after their run's end."""
    found: list[str] = []
    todo = [root]
    while todo:
        key = todo.pop()
        run = tx.runs.find(key)
        if run is not None and (run.ended is None or tx.turns.get(key) is not None):
            found.append(key)
        todo.extend(reversed(tx.runs.children(key)))
    return found


def is_below(tx: Tx, session: str, target: str) -> bool:
    """True if the session spawned the target, directly or through others."""
    return any(above.key == session for above in tx.sessions.lineage(target)[1:])


def find_run(tx: Tx, session: str, word: str) -> str:
    """The run below this session that a word means. NotFound says whether it is unknown or ambiguous.

    A session key, a whole run id, however old, and the number of a child find a run that is in no list any more too.
    """
    found = _exactly(tx, session, word)
    if found is not None and is_below(tx, session, found):
        return found
    return pick(word, child_rows(tx, session), rows_below(tx, session)).key


def find_child(tx: Tx, session: str, word: str) -> str:
    """As `find_run`, of the session's own children alone."""
    found = _exactly(tx, session, word)
    if found is not None and tx.runs.load(found).terms.parent == session:
        return found
    return pick(word, child_rows(tx, session)).key


def _exactly(tx: Tx, session: str, word: str) -> str | None:
    """The run with this session key or whole run id, or the child with this number; None: the word is none of these.
    NotFound: no child has the number, or none any more."""
    token, spawned = word.strip(), tx.sessions.counts(session).spawned
    number = number_in(token, spawned)
    if number is not None:
        found = tx.runs.numbered(session, number)
        if found is None:
            raise unknown_number(number, spawned)
        return found
    known = tx.runs.named(token)
    if known is not None:
        return known[0]
    return None if tx.runs.find(token) is None else token


_trace = msgspec.json.Decoder(DeliveryTrace).decode


def tries(tx: Tx, run: str) -> list[tuple[Instant, DeliveryTrace]]:
    """Every try at delivering something of this run, and when it was made, oldest first."""
    return [(at, _trace(trace)) for at, trace in tx.deliveries.of(run)]


def unanswered(tx: Tx, now: Instant) -> list[UnansweredTurn]:
    """Turns that have read something and have had no answer for half an hour or more, the longest first."""
    late = [turn for turn in tx.turns.failing() if inbox.is_unanswered(turn.opened_at, now)]
    return [
        UnansweredTurn(
            session=turn.session,
            turn=turn.turn,
            since_at=turn.opened_at,
            tries=turn.failures,
            rows=rows_read(of_turn(tx, turn)),
        )
        for turn in late
    ]


def failing(tx: Tx, session: str) -> FailingTurn | None:
    """How the open turn of this session fails; None if it does not."""
    turn = tx.turns.get(session)
    if turn is None or turn.failed is None:
        return None
    place = tx.queue.place(session)
    return FailingTurn(
        tries=turn.failures,
        reason=turn.failed.reason,
        next_at=None if place is None else place.due_at,
        ends_at=turn.failed.ends_at,
    )


def unanswered_in(tx: Tx, session: str, now: Instant) -> str:
    """That this session has read something and could not answer it for half an hour or more; empty if it has not."""
    return next((late.words(now) for late in unanswered(tx, now) if late.session == session), "")


def why_undelivered(tx: Tx, row: InboxRow) -> str:
    """Why a result was given up."""
    run = tx.runs.find(row.source or "")
    if run is not None and isinstance(run.delivery, Undelivered):
        return run.delivery.error
    return "no requester is left"


def count_undelivered(tx: Tx) -> int:
    """How many results and messages are undelivered."""
    return len(tx.inbox.undelivered()) + len(tx.outbox.undelivered())


def undelivered_key(tx: Tx, session: str, word: str) -> str:
    """The key that a word means on the undelivered list: of a message or a run there, or of a run below this
    session."""
    key = word.strip()
    listed = tx.outbox.get(key) is not None or any(row.source == key for row in tx.inbox.undelivered())
    return key if listed else find_run(tx, session, word)


# ---- one session -----------------------------------------------------------------------------------------------------


def model_that_ran(tx: Tx, key: str) -> str:
    """The model that answered last, as it named itself; empty if none has."""
    last = _last_reply(tx, key)
    return "" if last is None else last.model


def _last_reply(tx: Tx, key: str) -> Replied | None:
    """The newest reply that names its model."""
    entries = tx.transcripts.tail(key, MODEL_FROM, ("user", "tool", "event", "note"))
    bodies = (from_body(entry.body) for entry in reversed(entries))
    return next((body for body in bodies if isinstance(body, Replied) and body.model), None)


def times(row: ChildRow | None, now: Instant | None) -> dict[str, int | None]:
    """When a child began and ended, and how long it has worked."""
    if row is None or row.started_at is None:
        return {}
    until = now if row.ended_at is None else row.ended_at
    return {
        "started_at": to_ms(row.started_at),
        "ended_at": None if row.ended_at is None else to_ms(row.ended_at),
        "runtime_ms": None if until is None else max(0, to_ms(until) - to_ms(row.started_at)),
    }


def to_ms(at: Instant) -> int:
    return int(at * 1000)


def session_status(tx: Tx, key: str, rules: Rules, now: Instant) -> StatusView:
    """How a session stands. NotFound if there is none."""
    session = tx.sessions.get(key)
    if session is None:
        raise NotFound(f"no session {key}")
    run, spent, rows = tx.runs.find(key), tx.transcripts.used(key), child_rows(tx, key)
    row = None if run is None else row_of(tx, run, session.facts.label)
    last = _last_reply(tx, key)
    wait: Wait | Waiting | None = tx.turns.wait(key)
    if run is not None and isinstance(run.phase, Waiting):
        wait = run.phase
    counts, state = tx.sessions.counts(key), _state(tx, session)
    active = sum(child.is_active for child in rows)
    fails = failing(tx, key)
    route = tx.routes.get(key)
    queue = rules.queue if route is None else rules.queues.get(route.address.channel, rules.queue)
    return StatusView(
        session_key=key,
        agent_id=session.facts.agent_id,
        kind=list_kind(key),
        state="waiting" if wait is not None and state == "idle" else state,
        label=session.facts.label,
        run_id="" if row is None else row.run_id,
        run_status="" if row is None else row.status_text(now),
        **times(row, now),
        model="" if last is None else last.model,
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
        tokens_cached=spent.tokens_cached or None,
        cost_usd=spent.cost_usd,
        context_tokens=None if last is None or not last.usage else sum(last.usage.values()),
        queue_mode=queue.mode,
        people_mode=queue.people,
        unread=len(tx.inbox.unread(key)),
        children_active=active,
        children_done=len(rows) - active,
        questions=sum(asked.state == "waiting" for asked in tx.approvals.of(key)),
        waits_for="" if wait is None else awaited_children(counts.spawned, counts.unsettled, wait.until_settled),
        waits_until=None if wait is None or wait.due_at is None else int(wait.due_at * 1000),
        note=CUT if last is not None and last.cut and tx.turns.get(key) is None else "",
        unanswered=unanswered_in(tx, key, now),
        failing="" if fails is None else fails.words(now),
    )


def is_driven(tx: Tx, drives: bool, now: Instant) -> bool:
    """True if a process drives what is stored: this one (`drives`), or another one that shares the store."""
    return drives or count_drivers(tx.engines.all(), now) > 0


def waits_for(tx: Tx, key: str, now: Instant) -> str:
    """The condition that a conversation waits for after a yield, in words; empty if it does not wait."""
    wait, counts = tx.turns.wait(key), tx.sessions.counts(key)
    return "" if wait is None else doing.waits_for(wait, counts.spawned, counts.unsettled, now)


def _state(tx: Tx, session: Session) -> State:
    if session.deleted:
        return "deleted"
    driver = tx.drivers.get(session.key)
    if driver is not None and driver.release_at is None:
        return "working"
    if tx.turns.get(session.key) is not None or tx.turns.wait(session.key) is not None:
        return "waiting"
    return "idle" if tx.queue.place(session.key) is None else "queued"
