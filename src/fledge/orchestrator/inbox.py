"""The inbox of a session: rows go in when something arrives, and into the transcript, each once, in the commit that
appends them.

A completion is one row from the commit that fixed the outcome on. It is put into an inbox, perhaps moved to another,
and consumed once, or it is given up and stands on the undelivered list. When and in what order rows may enter is
decided in `core.inbox`. Messages to the outside go through `outbox`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import inbox as rules
from fledge.core import policy, transcript
from fledge.core.announce import (
    LABEL_CHARS,
    LEAST_BYTES,
    LINE_CHARS,
    TURN_BYTES,
    Audience,
    Collected,
    Completion,
    DeliveryTrace,
    Tried,
    announce_key,
    collect,
    forwarded,
    room_beside,
    whole_bytes,
)
from fledge.core.freeze import Stats, one_line, summary
from fledge.core.handover import Handover
from fledge.core.heartbeat import MAX_NOTICES, is_worth_noticing
from fledge.core.prompts import NamedRun
from fledge.core.route import INTERNAL, Address, RouteSource, answer_to, is_apart, is_same_place, joined, origin_of
from fledge.core.run import SERVING, Instant, Killed, Ok, Path, Run, Running, TextId, Undelivered
from fledge.core.schema import fit
from fledge.core.transcript import (
    NOTHING_CARRIED,
    Body,
    Carried,
    CompletionRead,
    Replied,
    Spoken,
    Told,
    carried_body,
    from_carried_body,
)
from fledge.core.turn import Arrived, Looked, OpenTurn, RowsLeft, TurnEnd, TurnFacts
from fledge.core.value import Value
from fledge.errors import NotFound, Refused
from fledge.orchestrator import exchanges, outbox, transcripts
from fledge.orchestrator.commit import Commit, added
from fledge.orchestrator.views import name_of
from fledge.store.base import COMPLETIONS, InboxRow, InboxRowKind

# ---- into the inbox --------------------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode

ORDERS = ("task", "steer", "approval")
"""Messages to a run, which nobody but the run reads: suppressed when it ends, unread again if it is resumed."""
PASSING = ("wake", "notice")
"""Messages that are void once the run they belong to has ended."""


class Receiver(Value):
    """The session that receives a result. None: there is none left, or a kill lies on the way."""

    session: str | None
    killed: str | None = None
    """The killed run on the way, in whose inbox the result is suppressed."""


def receiver_of(c: Commit, parent: str) -> Receiver:
    """The nearest session of parent and its ancestors that still reads.

    A run-mode requester counts as gone from the commit that fixes its outcome; a killed one suppresses all results
    below it.
    """
    for session in c.tx.sessions.lineage(parent):
        run = c.find(session.key)
        if run is not None and run.ended is not None and run.terms.mode == "run":
            if isinstance(run.ended.outcome, Killed):
                return Receiver(None, killed=session.key)
        elif not session.deleted:
            return Receiver(session.key)
    return Receiver(None)


def silent_children(c: Commit, session: str) -> list[NamedRun]:
    """Children that ended without anything to tell; each is named to its parent once."""
    return named(c, c.tx.runs.name_silent(session))


def named(c: Commit, runs: Iterable[str]) -> list[NamedRun]:
    """Runs with their labels; a forgotten run has its key alone."""
    return [NamedRun(run, "" if c.find(run) is None else c.tx.runs.spec(run).label) for run in runs]


# ---- two kinds of inboxes --------------------------------------------------------------------------------------------


NOWHERE: Final[tuple[str, RouteSource]] = ("", "fallback")
"""The origin, and how it was found, of rows whose answer goes to no channel."""


class RunInbox:
    """The inbox of a live run. It reads rows as part of its work; its reply is its result, and goes to no channel."""

    @staticmethod
    def standing(c: Commit, session: str) -> rules.RequesterState:
        return rules.standing_of_run(c.run(session))

    @staticmethod
    def aim(c: Commit, session: str, run: Run, thread: Address | None) -> tuple[str, RouteSource]:
        return NOWHERE

    @staticmethod
    def queue_at(c: Commit, session: str, origin: str) -> rules.QueueSettings:
        return c.rules.queue

    @staticmethod
    def send_mode(queue: rules.QueueSettings) -> rules.QueueMode:
        """It hears every message at its next step."""
        return "interrupt" if queue.mode == "interrupt" else "steer"

    @staticmethod
    def may_interrupt(c: Commit, session: str) -> bool:
        run = c.run(session)
        return run.terms.wakeable and isinstance(run.phase, Running)

    @staticmethod
    def is_aside(c: Commit, session: str) -> bool:
        """True while its turn answers a message in the middle of a wait for its children."""
        phase = c.run(session).phase
        return isinstance(phase, SERVING) and phase.serving is not None

    @staticmethod
    def unread(c: Commit, session: str) -> list[InboxRow]:
        """It hears of its children in the order in which it made them."""
        return c.tx.inbox.unread_by_child(session, WINDOW)

    @staticmethod
    def readable(turn: OpenTurn, completions: list[InboxRow]) -> list[InboxRow]:
        return completions

    @staticmethod
    def addressed(c: Commit, turn: OpenTurn, rows: list[InboxRow]) -> OpenTurn:
        return turn


class ConversationInbox:
    """The inbox of a session that takes turns: a conversation, or a child after its run's end. A program's inbox is one
    too, and is read through handles."""

    @staticmethod
    def standing(c: Commit, session: str) -> rules.RequesterState:
        return rules.standing_of_turn(c.tx.turns.state(session))

    @staticmethod
    def aim(c: Commit, session: str, run: Run, thread: Address | None) -> tuple[str, RouteSource]:
        """Where the answer to this run's completion should go: to the address that the session is bound to, else to
        the origin of the task; nowhere if that is the child's own thread, where the result is posted anyway."""
        route = c.tx.routes.get(session)
        if route is not None and route.kind == "bound":
            return origin_of(route.address), "bound"
        origin = c.tx.runs.spec(run.key).origin if session == run.terms.parent else ""
        answered = None if thread is None else answer_to(origin, None if route is None else route.address)
        heard = is_same_place(thread, answered)
        return (INTERNAL if heard else origin), "fallback"

    @staticmethod
    def queue_at(c: Commit, session: str, origin: str) -> rules.QueueSettings:
        """The settings of the origin's channel, else of the channel of the session's route."""
        address = outbox.address_for(c, session, origin) if c.rules.queues else None
        return c.rules.queue if address is None else c.rules.queues.get(address.channel, c.rules.queue)

    @staticmethod
    def send_mode(queue: rules.QueueSettings) -> rules.QueueMode:
        return queue.people

    @staticmethod
    def may_interrupt(c: Commit, session: str) -> bool:
        run = c.find(session)
        return run is None or run.terms.wakeable

    @staticmethod
    def is_aside(c: Commit, session: str) -> bool:
        return c.tx.turns.wait(session) is not None

    @staticmethod
    def unread(c: Commit, session: str) -> list[InboxRow]:
        return c.tx.inbox.unread(session, WINDOW)

    @staticmethod
    def readable(turn: OpenTurn, completions: list[InboxRow]) -> list[InboxRow]:
        """The completions that the open turn may answer."""
        items = [waiting_item(row, "steer") for row in completions]
        keys = {taken.key for taken in rules.take(items, True, turn.origin)}
        return [row for row in completions if row.key in keys]

    @staticmethod
    def addressed(c: Commit, turn: OpenTurn, rows: list[InboxRow]) -> OpenTurn:
        """The reply goes to the origin of these rows; a message turns a heartbeat's turn into a normal one."""
        is_first = turn.drained == len(rows)
        by_person = turn.by_person or (is_first and any(row.kind == "send" and row.source is None for row in rows))
        origin, route = next(((row.origin, row.route) for row in rows if row.origin), ("", "fallback"))
        if not origin and all(row.kind == "send" and row.source is not None for row in rows):
            origin = INTERNAL
        after = joined(turn.origin, origin, is_first=is_first)
        if after != turn.origin:
            turn = replace(turn, origin=after, route=route if after == origin else "fallback")
        is_spoken = turn.heartbeat and not all(is_quiet(c, row) for row in rows)
        is_sent = any(row.kind == "send" for row in rows)
        return replace(
            turn,
            by_person=by_person,
            heartbeat="" if is_spoken else turn.heartbeat,
            wakes=0 if is_sent else turn.wakes,
        )


def inbox_of(c: Commit, session: str) -> type[RunInbox] | type[ConversationInbox]:
    """The kind of the session's inbox."""
    return ConversationInbox if c.live_run(session) is None else RunInbox


# ---- writing rows ----------------------------------------------------------------------------------------------------


def announce(c: Commit, run: Run, kind: ev.RowKind, text: TextId | None) -> None:
    """Write the completion row into the inbox of the session that receives it, and wake that session."""
    key = announce_key(run.key, run.run_id, kind)
    target = receiver_of(c, run.terms.parent)
    completion = _completion(c, run, kind, text)
    body = _encode(completion).decode()
    thread = _tell_thread(c, completion, text) if kind == "outcome" else None
    session = target.session
    origin, route = NOWHERE if session is None else inbox_of(c, session).aim(c, session, run, thread)
    path = _path(c, target.session, origin)
    # While a hook is asked for its address, the row is in no inbox; `aimed` puts it there.
    asked = kind == "outcome" and route == "fallback" and _ask(c, run, target.session, origin)
    place = None if asked else target.session or target.killed
    if not c.tx.inbox.put(key, place, kind, run.key, body, c.at, text=text, path=path, origin=origin, route=route):
        c.tx.inbox.rewrite(key, body, text)
        return
    if asked:
        return
    if target.killed is not None:
        c.tx.inbox.suppress(key, c.at)
        if kind == "outcome":
            c.then(run.key, ev.RowSuppressed(at=c.at))
    else:
        _arrived(c, key, kind, run.key, target.session, origin)


def _tell_thread(c: Commit, completion: Completion, text: TextId | None) -> Address | None:
    """Say a child's last words, or how it came out, in the thread that it is bound to; answers the thread."""
    route = c.tx.routes.get(completion.child_session_key)
    if route is None or route.kind != "bound":
        return None
    outbox.final(c, route.address, replace(completion, result="" if text is None else c.tx.texts.get(text)))
    return route.address


def _ask(c: Commit, run: Run, session: str | None, origin: str) -> bool:
    """Ask the hook `subagent_delivery_target` for an address: only of an expected completion for a session that takes
    turns."""
    if session is None or not run.terms.expects or not outbox.has_listeners(c, "subagent_delivery_target"):
        return False
    return c.tx.turns.state(session) is not None and outbox.ask_target(c, run, session, origin)


def is_aiming(c: Commit, key: str) -> bool:
    """True while a completion of this run is in no inbox, because a hook is asked for its address."""
    return any(row.session is None and row.state == "unread" for row in c.tx.inbox.of_run(key))


def aimed(c: Commit, key: str, address: Address | None) -> None:
    """A listener has answered the question for an address, with one or with none.

    The first address counts. Without one the completion goes to its usual address, once every listener has answered.
    """
    run = c.find(key)
    if run is None or (address is None and outbox.is_target_asked(c, key)):
        return
    for row in _unread_outcomes(c, key):
        if row.session is None:
            if address is not None:
                c.tx.inbox.aim(row.key, origin_of(address), "hook")
                row = replace(row, origin=origin_of(address), route="hook")
            target = receiver_of(c, run.terms.parent)
            readdress_row(c, row, target, _path(c, target.session, row.origin))


def _unread_outcomes(c: Commit, run: str) -> list[InboxRow]:
    """Unread rows that announce the outcome of the run, in an inbox or in none."""
    return [row for row in c.tx.inbox.of_run(run) if row.kind == "outcome" and row.state == "unread"]


def _arrived(c: Commit, key: str, kind: InboxRowKind, source: str, session: str | None, origin: str) -> None:
    if session is not None:
        if c.rules.deliver == "send" and post_completion(c, key, session):
            c.then(session, Looked())  # it may be what the session waits for
            return
        arrived(c, session, mode_of(c, session, "completion", origin), quiet=not is_awaited(c, source))
        if kind == "outcome" and is_program(c, session) and not c.run(source).terms.program:
            c.then(source, ev.HandedToProgram(at=c.at))
    elif kind == "outcome":
        c.then(source, ev.RequesterLost(at=c.at))
    else:
        c.tx.inbox.give_up(key, c.at)


def is_program(c: Commit, session: str | None) -> bool:
    """True of a program's inbox, which is read through handles."""
    known = None if session is None else c.tx.sessions.get(session)
    return known is not None and known.kind == "program"


def _completion(c: Commit, run: Run, kind: ev.RowKind, text: TextId | None) -> Completion:
    spec = c.tx.runs.spec(run.key)
    ended = run.ended
    used = c.tx.transcripts.used(run.key)
    runtime_s = None if ended is None else ended.elapsed_s
    outcome = Ok() if ended is None or kind == "late" else ended.outcome
    answers = kind in ("outcome", "late") and isinstance(outcome, Ok) and spec.output_schema is not None
    words = "" if text is None or not answers else c.tx.texts.get(text)
    return Completion(
        kind=kind,
        child_session_key=run.key,
        run_id=run.run_id,
        outcome=outcome,
        label=spec.label,
        task=spec.task[:2000],
        stats=Stats(runtime_s, used.tokens_in, used.tokens_out, used.cost_usd, used.tokens_cached),
        handover=(c.tx.sessions.handover(run.key) if kind in ("outcome", "late") else None) or Handover(),
        plan=run.plan,
        schema_error=fit(spec.output_schema or {}, words).error if answers else None,
    )


def refresh(c: Commit, run: Run, text: TextId | None) -> None:
    """Let the unread outcome row say something else."""
    for row in _unread_outcomes(c, run.key):
        c.tx.inbox.rewrite(row.key, _encode(_completion(c, run, "outcome", text)).decode(), text)


def readdress(c: Commit, run: Run, to: str | None = None) -> None:
    """Put the unread outcome row into the inbox of the session that receives it now, or of `to`; without one the run
    learns that its requester is lost."""
    target = receiver_of(c, run.terms.parent) if to is None else Receiver(to)
    for row in _unread_outcomes(c, run.key):
        readdress_row(c, row, target, _path(c, target.session, row.origin))


def open_rows(c: Commit, run: str, kind: ev.RowKind) -> list[str]:
    """Keys of the run's rows of this kind that are unread or undelivered."""
    return [row.key for row in c.tx.inbox.of_run(run) if row.kind == kind]


def close_rows(c: Commit, run: str, kind: ev.RowKind, close: Callable[[str, Instant], object]) -> None:
    """Close the run's rows of this kind that are unread or undelivered, in this way."""
    for key in open_rows(c, run, kind):
        close(key, c.at)


def notice(c: Commit, session: str, key: str, words: str) -> bool:
    """Put a notice of the system into a session's inbox, once per key and not twice in a row; False if it was not put.
    A deleted session and a program get none."""
    known = c.tx.sessions.get(session)
    if known is None or known.deleted or known.kind == "program":
        return False
    last = c.tx.inbox.newest_unread(session, "notice")
    if not is_worth_noticing(words, last[0].body if last else None):
        return False
    if not put_message(c, session, key, "notice", None, words):
        return False
    wake(c, session, quiet=True)
    return True


def put_message(
    c: Commit,
    session: str,
    key: str,
    kind: Literal["send", "notice"],
    source: str | None,
    words: str,
    origin: str = "",
    carried: Carried = NOTHING_CARRIED,
) -> bool:
    """Put a message into an inbox; beyond `messages.queue.cap` messages are dropped as `messages.queue.drop` says.
    False if the message was there.

    Refused, under `new`, while `messages.queue.cap` of them wait.
    """
    if not c.tx.inbox.put(key, session, kind, source, words, c.at, origin=origin, carried=carried_body(carried)):
        return False
    transcripts.hold_files(c, session, carried)
    queue = c.rules.queue
    cap = min(queue.cap, MAX_NOTICES) if kind == "notice" else queue.cap
    if c.tx.inbox.count_waiting(session, kind, origin) > cap:
        if rules.refuses_latest(kind, queue.drop):
            name = name_of(c.tx, session)
            raise Refused("rate_limited", f"{queue.cap} messages wait for {name} already: messages.queue.cap")
        waiting = [row.key for row in c.tx.inbox.unread(session) if row.kind == kind and row.origin == origin]
        for old in waiting[:-cap]:
            c.tx.inbox.drop(old, None if queue.drop == "summarize" else c.at)
            exchanges.drop_row(c, old, f"it gave way to newer messages to {name_of(c.tx, session)}: messages.queue.cap")
            c.tx.requests.end(old, TurnEnd("dropped"), c.at)
            c.moved(session)
    return True


# ---- inboxes of sessions that end ------------------------------------------------------------------------------------


def hand_over(c: Commit, key: str) -> None:
    """The session stops reading: its completions go to its own requester, orders to its run are suppressed, messages
    stay."""
    if not c.tx.inbox.has_unread(key):
        return
    left = _without_orders(c, key)
    completions = [row for row in left if row.announces]
    target = receiver_of(c, key) if completions else Receiver(None)
    for row in completions:
        readdress_row(c, row, target, "queued")
    if len(left) > len(completions):
        c.then(key, RowsLeft())


def _without_orders(c: Commit, key: str) -> list[InboxRow]:
    """The unread rows of a session whose run is over. Orders to the run are suppressed."""
    rows = c.tx.inbox.unread(key)
    for row in rows:
        if row.kind in ORDERS:
            c.tx.inbox.suppress(row.key, c.at)
        elif row.kind in PASSING:
            c.tx.inbox.void(row.key, c.at)
    return [row for row in rows if row.kind not in (*ORDERS, *PASSING)]


def readdress_row(c: Commit, row: InboxRow, target: Receiver, path: Path) -> None:
    """Move a row, with its key, to another session's inbox; without a session it is undelivered, or suppressed by a
    kill."""
    if target.killed is not None:
        c.tx.inbox.readdress(row.key, target.killed)
        _suppress_row(c, row)
        return
    c.tx.inbox.readdress(row.key, target.session, path)
    _arrived(c, row.key, row.kind, row.source or "", target.session, row.origin)


def _suppress_row(c: Commit, row: InboxRow) -> None:
    c.tx.inbox.suppress(row.key, c.at)
    if row.kind == "outcome" and row.source is not None:
        c.then(row.source, ev.RowSuppressed(at=c.at))


def read_on(c: Commit, key: str) -> None:
    """The session outlives its run: orders to the run are suppressed, everything else gets a turn."""
    _without_orders(c, key)
    c.then(key, RowsLeft())


def suppress(c: Commit, run: Run) -> None:
    """A kill suppresses the run's inbox: no row in it is read, and senders of messages get an error."""
    for row in c.tx.inbox.unread(run.key):
        _suppress_row(c, row)
        if not row.announces:
            words = f"{name_of(c.tx, run.key)} was killed before it read your message"
            if not exchanges.drop_row(c, row.key, words) and row.kind == "send" and row.source is not None:
                notice(c, row.source, f"void:{row.key}", words)


def revive(c: Commit, key: str) -> None:
    """The run goes on: rows that its end suppressed are unread again, and results among them are announced again. A
    plan's row is not: its answer or the kill of its run has withdrawn it."""
    for row in c.tx.inbox.suppressed(key):
        if row.kind != "plan":
            c.tx.inbox.revive(row.key)
            if row.kind == "outcome" and row.source is not None:
                c.then(row.source, ev.Revived(at=c.at))


# ---- waking and reading ----------------------------------------------------------------------------------------------


def _path(c: Commit, session: str | None, origin: str) -> Path:
    """How a row will reach this session, from how the session stands now."""
    if session is None:
        return "queued"
    state = inbox_of(c, session).standing(c, session)
    return rules.path_to(state, mode_of(c, session, "completion", origin))


def arrived(c: Commit, session: str, mode: rules.QueueMode, quiet: bool = False) -> None:
    """A completion or a message with this queue mode has arrived: it calls off the step of a busy session, if its mode
    says so, and is read at once; else it waits, and the session is woken."""
    if mode != "interrupt" or not interrupt(c, session):
        wake(c, session, quiet)


def interrupt(c: Commit, session: str) -> bool:
    """Cancel the step under way: its open calls are closed, waiting rows enter, the same turn and attempt go on.

    False, and nothing changes, if no driver is at work (a turn that waits for a person, or for its next try, has no
    step), for a foreign runtime, whose work is one step, and if no waiting row may join this turn.
    """
    driver = c.tx.drivers.get(session)
    if driver is None or driver.release_at is not None or c.tx.turns.get(session) is None:
        return False
    if not inbox_of(c, session).may_interrupt(c, session):
        return False
    if not _entering(c, session, _waiting(c, session), at_boundary=True):
        return False
    transcripts.close_calls(c, session, "interrupted")
    c.tx.drivers.interrupt(session)
    consume_waiting(c, session, at_boundary=True)
    c.hints.interrupted = added(c.hints.interrupted, (session, driver.epoch, driver.interrupts + 1))
    return True


def wake(c: Commit, session: str, quiet: bool = False) -> None:
    """A row has arrived in the inbox of a session that takes turns: a turn for it becomes due. A `quiet` row
    (`is_quiet`) asks for a heartbeat instead. A live run reads at its own boundaries, a program through its
    handles."""
    c.then(session, Arrived(quiet, hurries=bool(c.tx.inbox.newest_unread(session, "send"))))


# ---- out of the inbox ------------------------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(Completion).decode

WINDOW = 5 * rules.ROWS_A_COMMIT
"""How many waiting rows a drain looks at: those it may take, and as many behind them as could stand whole."""


def waiting_item(row: InboxRow, mode: rules.QueueMode = "collect") -> rules.WaitingItem:
    """The facts about a row that scheduling needs."""
    match row.kind:
        case "outcome" | "plan" | "expired" | "late":
            return rules.WaitingItem(row.key, "completion", row.arrived_at, row.origin, mode)
        case kind:
            return rules.WaitingItem(row.key, kind, row.arrived_at, row.origin, mode)


def waiting_items(c: Commit, session: str, rows: Sequence[InboxRow]) -> list[rules.WaitingItem]:
    """Rows of an inbox for scheduling, each with its queue mode, which rows of one kind and origin share."""
    modes: dict[tuple[InboxRowKind, str], rules.QueueMode] = {}
    items = []
    for row in rows:
        mode = modes.get((row.kind, row.origin))
        if mode is None:
            mode = modes[row.kind, row.origin] = _mode_of(c, session, row)
        items.append(waiting_item(row, mode))
    return items


def mode_of(c: Commit, session: str, kind: Literal["completion", "send"], origin: str) -> rules.QueueMode:
    """The queue mode of a completion or a message for this session. Messages between agents have turns of their own in
    any mode."""
    if kind == "completion" and not c.rules.queues:
        return c.rules.queue.mode
    inbox = inbox_of(c, session)
    queue = inbox.queue_at(c, session, origin)
    if kind == "completion":
        return queue.mode
    return "steer" if is_apart(origin) else inbox.send_mode(queue)


def _mode_of(c: Commit, session: str, row: InboxRow) -> rules.QueueMode:
    if row.announces is not None:
        return mode_of(c, session, "completion", row.origin)
    return mode_of(c, session, "send", row.origin) if row.kind == "send" else "collect"


def consume_waiting(c: Commit, session: str, at_boundary: bool) -> int:
    """Consume what may enter the session now, at the start of a turn or at a step boundary; answers how many rows."""
    rows = _waiting(c, session) if c.tx.inbox.has_unread(session) else []
    if not rows:
        return 0
    c.tx.prefetch_completions(rows)
    taken = _entering(c, session, rows, at_boundary)
    consume(c, session, taken, at_boundary, _behind(taken, rows))
    return len(taken)


def _waiting(c: Commit, session: str) -> list[InboxRow]:
    """The rows that may enter now, in the order of the transcript. While the session waits for its children, no
    completion may."""
    inbox = inbox_of(c, session)
    if inbox.is_aside(c, session):
        return [row for row in c.tx.inbox.unread(session) if not row.announces][:WINDOW]
    return inbox.unread(c, session)


def entering(c: Commit, session: str) -> list[InboxRow]:
    """The rows that a turn which opens now would read first."""
    return _entering(c, session, _waiting(c, session), at_boundary=False)


def is_quiet(c: Commit, row: InboxRow) -> bool:
    """True if no caller expects an answer to the row: a notice, or a completion of a fire-and-forget run."""
    return row.kind == "notice" or (row.announces is not None and not is_awaited(c, row.source))


def unread_facts(c: Commit, session: str) -> TurnFacts:
    """Facts about the unread rows of a conversation, and when a turn may begin for them."""
    sends = c.tx.inbox.newest_unread(session, "send")
    first = c.tx.inbox.unread(session, 1)
    if not first:
        return TurnFacts(at=c.at)
    if not sends and is_quiet(c, first[0]) and all(is_quiet(c, row) for row in c.tx.inbox.unread(session, WINDOW)):
        return TurnFacts(at=c.at, quiet=True)
    every = waiting_items(c, session, [*first, *c.tx.inbox.newest_unread(session), *sends])
    queue = ConversationInbox.queue_at(c, session, every[0].origin)
    messages_at = rules.drain_at(waiting_items(c, session, sends), queue, c.at) if sends else None
    return TurnFacts(at=c.at, rows_at=rules.drain_at(every, queue, c.at), messages_at=messages_at)


def _entering(c: Commit, session: str, rows: list[InboxRow], at_boundary: bool) -> list[InboxRow]:
    if len(rows) == 1 and not at_boundary:
        return rows  # a turn opens with the oldest row, whatever it is
    turn = c.tx.turns.get(session) if at_boundary and rows else None
    taken = rules.take(waiting_items(c, session, rows), at_boundary, turn.origin if turn else "")
    keys = {item.key for item in taken}
    return [row for row in rows if row.key in keys]


def consume_completions(c: Commit, session: str) -> int:
    """Consume the unread completions that the live turn may read, whatever the queue mode says: it has nothing else to
    do, or would end without them."""
    rows = readable_completions(c, session)
    taken = rows[: rules.ROWS_A_COMMIT]
    consume(c, session, taken, at_boundary=True, behind=_behind(taken, rows))
    return len(taken)


def readable_completions(c: Commit, session: str) -> list[InboxRow]:
    """Unread completions that may enter the session's open turn."""
    rows, turn = [row for row in _waiting(c, session) if row.announces], c.tx.turns.get(session)
    return rows if turn is None or not rows else inbox_of(c, session).readable(turn, rows)


def _behind(taken: list[InboxRow], rows: list[InboxRow]) -> list[InboxRow]:
    """Completions that the same turn will read in its next commits, because this one is full."""
    if len(taken) < rules.ROWS_A_COMMIT:
        return []
    last = taken[-1]
    return [row for row in rows[rows.index(last) + 1 :] if row.announces and row.origin == last.origin]


def consume(c: Commit, session: str, rows: list[InboxRow], at_boundary: bool, behind: Sequence[InboxRow] = ()) -> None:
    """Move rows into the transcript, each once, and tell the runs that they announce.

    The newest completions of a turn stand whole, up to 64 KiB; `behind` are newer ones that it will read next.
    """
    if not rows:
        return
    completions: list[InboxRow] = []
    messages: list[InboxRow] = []
    for row in rows:
        (completions if row.kind in COMPLETIONS else messages).append(row)
    bodies: list[Body] = []
    summarised: set[str] = set()
    told_bytes = 0
    if completions:
        whole = [_whole(c, session, row) for row in completions]
        collected = _collected(c, session, whole, behind)
        summarised = {completions[at].key for at in collected.summarised}
        told_bytes = collected.whole_bytes
        bodies.append(_entry(c, session, completions, whole, collected, at_boundary))
    bodies += _left_out(c, session, messages)
    for row in messages:
        carried = from_carried_body(row.carried)
        bodies.append(Spoken(row.body, row.key, row.kind, row.source or "", carried.images, carried.files))
    transcripts.write(c, session, *bodies)
    _drained(c, session, rows, told_bytes)
    for row in rows:
        if not c.tx.inbox.consume(row.key, c.at):
            raise NotFound(f"row {row.key} was already taken")
        if row.kind in ("send", "approval"):  # either may be a message that a caller waits for
            c.tx.requests.take_up(row.key, c.at)
        kind = row.announces
        if kind is not None and row.source is not None:
            path = _path_taken(c, session, row, at_boundary)
            if traced(c, session, row, path, "summarised" if row.key in summarised else "whole"):
                c.then(row.source, ev.RowConsumed(at=c.at, row=kind, path=path))


def _drained(c: Commit, session: str, rows: list[InboxRow], told_bytes: int) -> None:
    """The open turn, if there is one, has taken these rows."""
    turn = c.tx.turns.get(session)
    if turn is None:
        return
    turn = replace(turn, drained=turn.drained + len(rows), told_bytes=turn.told_bytes + told_bytes)
    c.tx.turns.save(inbox_of(c, session).addressed(c, turn, rows))


def post_completion(c: Commit, key: str, session: str) -> bool:
    """Post a completion to the requester's channel and consume it, in this commit; False if there is no channel. A
    completion whose words were posted to the same thread before is only consumed."""
    row = c.tx.inbox.get(key)
    if row is None or row.state != "unread" or row.announces is None or c.tx.turns.state(session) is None:
        return False
    address = outbox.address_for(c, session, row.origin)
    if address is None and row.origin != INTERNAL:
        return False
    completion = replace(_whole(c, session, row), audience="posted")
    collected = collect([completion], c.rules.style, c.ids.nonce(), inline_chars=c.rules.inline_chars)
    transcripts.write(c, session, _entry(c, session, [row], [completion], collected, at_boundary=False))
    c.tx.inbox.consume(key, c.at)
    is_known = traced(c, session, row, "direct", "summarised" if collected.summarised else "whole")
    if address is not None:
        outbox.result(c, session, address, row, completion)
    if row.source is not None and is_known:
        c.then(row.source, ev.RowConsumed(at=c.at, row=row.announces, path="direct"))
    return True


def completions_read(c: Commit, session: str, bodies: Sequence[Body]) -> list[Completion]:
    """The completions in these entries, except those that people were shown already."""
    read = [c.tx.inbox.get(key) for key in transcript.completions_read(bodies)]
    rows = [row for row in read if row is not None and row.origin != INTERNAL]
    return [_whole(c, session, row) for row in rows if c.tx.outbox.get(f"result:{row.key}") is None]


def forward_read(c: Commit, turn: OpenTurn, bodies: Sequence[Body]) -> str:
    """Post the completions in these entries of a turn as they are, because it has no words for them, and append them to
    the transcript. Answers the text; empty if there are none."""
    completions = completions_read(c, turn.session, bodies)
    if not completions:
        return ""
    text = forwarded(completions, c.rules.style, c.rules.inline_chars)
    entry = transcripts.write(c, turn.session, Replied(text))
    outbox.forward(c, turn, entry, text, completions)
    return text


def _left_out(c: Commit, session: str, messages: list[InboxRow]) -> list[Body]:
    """Entries about dropped messages, written with the messages that are read now."""
    entries: list[Body] = []
    for origin in dict.fromkeys(row.origin for row in messages if row.kind in ("send", "notice")):
        dropped = c.tx.inbox.dropped(session, origin)
        if dropped:
            entries.append(Spoken(rules.left_out([row.body for row in dropped], c.rules.queue.cap), kind="dropped"))
        for row in dropped:
            c.tx.inbox.line_told(row.key, c.at)
    return entries


def _path_taken(c: Commit, session: str, row: InboxRow, at_boundary: bool) -> Path:
    """How a row really arrived: a row that should have been steered and missed its boundary was queued."""
    if at_boundary:
        return rules.path_to("busy", _mode_of(c, session, row))
    return "queued" if row.path == "steered" else row.path


def _collected(c: Commit, session: str, completions: list[Completion], behind: Sequence[InboxRow]) -> Collected:
    turn = c.tx.turns.get(session)
    room = TURN_BYTES - (0 if turn is None else turn.told_bytes)
    style, inline_chars = c.rules.style, c.rules.inline_chars
    if len(behind) * LEAST_BYTES >= room:
        room = 0
    elif behind:
        room = room_beside((_whole_bytes(c, session, row) for row in behind), room)
    return collect(completions, style, c.ids.nonce(), max(0, room), inline_chars)


def _whole_bytes(c: Commit, session: str, row: InboxRow) -> int:
    return c.tx.inbox.measured(row, lambda: whole_bytes(_whole(c, session, row), c.rules.style, c.rules.inline_chars))


def _whole(c: Commit, session: str, row: InboxRow) -> Completion:
    """A completion with its result, for the audience of this session."""
    audience: Audience = "main" if is_awaited(c, row.source) else "quiet"
    if row.origin == INTERNAL:
        audience = "posted"
    elif c.find(session) is not None:
        audience = "nested"
    text = "" if row.text is None else c.tx.texts.get(row.text)
    return replace(_decode(row.body), result=text, audience=audience)


def _entry(
    c: Commit,
    session: str,
    rows: list[InboxRow],
    completions: list[Completion],
    collected: Collected,
    at_boundary: bool,
) -> Told:
    typed = [_read(row, completion) for row, completion in zip(rows, completions, strict=True)]
    prefix = rules.opening(_mode_of(c, session, rows[0])) if at_boundary else ""
    text = f"{prefix} {collected.text}" if prefix else collected.text
    return Told(text, tuple(typed), collected.summarised)


def _read(row: InboxRow, completion: Completion) -> CompletionRead:
    handover = completion.handover
    return CompletionRead(
        row=row.key,
        run=row.source,
        status=completion.outcome.status,
        kind=completion.kind,
        run_id=completion.run_id,
        label=one_line(completion.label or completion.task, LABEL_CHARS),
        error=one_line(completion.outcome.error or "", LINE_CHARS),
        summary=summary(completion.result),
        stats=completion.stats,
        artifacts=handover.artifacts,
        more_artifacts=handover.more,
        text=row.text or "",
        text_bytes=len(completion.result.encode()),
    )


def is_awaited(c: Commit, run: str | None) -> bool:
    """False of a fire-and-forget run, whose requester does not wait for its completions."""
    known = c.find(run or "")
    return known is None or known.terms.expects


def traced(c: Commit, session: str, row: InboxRow, path: Path, form: Literal["whole", "summarised"] = "whole") -> bool:
    """Record how a completion was delivered; False if its run is forgotten."""
    run = c.find(row.source or "")
    tried = _delivered(path, run is None or run.terms.expects, run is not None and run.terms.program)
    c.trace(row.source or "", _trace(c, row.key, session, tried, path, form, route=row.route))
    return run is not None


@cache
def _delivered(path: Path, expects: bool, to_program: bool) -> tuple[Tried, ...]:
    """The phases of a delivery that took this path."""
    phases = rules.delivery_phases("idle" if path == "direct" else "busy", expects)
    tried = tuple([Tried(phase, "deferred") for phase in phases[:-1]])
    return tried if to_program else (*tried, Tried(phases[-1], "delivered", path))


def tried_in_vain(c: Commit, run: Run, result: Literal["deferred", "failed"], why: str) -> None:
    """Record a try at announcing a run's outcome that reached no session."""
    phases = rules.delivery_phases("program" if run.terms.program else "gone", run.terms.expects)
    tried = tuple(Tried(phase, result, why) for phase in (phases if result == "failed" else phases[:1]))
    c.trace(run.key, _trace(c, announce_key(run.key, run.run_id, "outcome"), run.terms.parent, tried, why=why))


def _trace(
    c: Commit,
    key: str,
    requester: str,
    tried: tuple[Tried, ...],
    path: Path | None = None,
    form: Literal["whole", "summarised"] = "whole",
    route: RouteSource = "fallback",
    why: str = "",
) -> DeliveryTrace:
    depth: Literal["nested", "main"] = "main" if c.find(requester) is None else "nested"
    return DeliveryTrace(
        key=key, requester=requester, depth=depth, route=route, tried=tried, path=path, form=form, why=why
    )


# ---- the undelivered list --------------------------------------------------------------------------------------------


def tell_undelivered(c: Commit, session: str) -> None:
    """Tell a conversation of the results of its tree that were given up, each once, also those of when it was away."""
    for row in c.tx.inbox.undelivered():
        run = c.find(row.source or "")
        if run is None or not isinstance(run.delivery, Undelivered):
            continue
        if receiver_of(c, run.terms.parent).session == session:
            name = name_of(c.tx, run.key)
            words = f"{name} could not be delivered: {run.delivery.error}. It is in the undelivered list."
            notice(c, session, f"giveup:{run.key}:{run.run_id}", words)
            outbox.tell(c, session, f"giveup:{run.key}:{run.run_id}", words)


def undelivered_rows(c: Commit, run: str) -> list[InboxRow]:
    """Undelivered rows of this run that announce no outcome: late results and expired plans."""
    return [row for row in c.tx.inbox.of_run(run) if row.state == "undelivered" and row.kind != "outcome"]


def offer_again(c: Commit, run: Run, to: str | None = None) -> bool:
    """Put such rows into the inbox of the session that receives them now, or of `to`; False if there are none."""
    rows = undelivered_rows(c, run.key)
    target = receiver_of(c, run.terms.parent) if to is None else Receiver(to)
    for row in rows:
        c.tx.inbox.reopen(row.key)
        readdress_row(c, row, target, "queued")
    return bool(rows)


def dismiss_rows(c: Commit, run: str) -> bool:
    """Take such rows off the list; False if there are none."""
    rows = undelivered_rows(c, run)
    for row in rows:
        c.tx.inbox.dismiss(row.key, c.at)
    return bool(rows)


def expire_rows(c: Commit, run: Run) -> None:
    """Move unread rows of a settled run to the undelivered list once a program has had its time, and off it after the
    retention."""
    for row in c.tx.inbox.of_run(run.key):
        program = is_program(c, row.session)
        state = policy.outlived(row.state == "undelivered", c.at - row.arrived_at, program, run.terms.undelivered_s)
        if state == "undelivered":
            c.tx.inbox.give_up(row.key, c.at)
        elif state == "dismissed":
            c.tx.inbox.dismiss(row.key, c.at)
