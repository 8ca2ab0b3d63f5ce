"""Makes the values of the API from rows: runs, results, plans, questions, messages. Reads only; nothing here waits or
changes a row."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from fledge.api.output_type import read_as
from fledge.api.values import Forest, GivenUp, Message, Plan, Question, Result, RunInfo, Status, TimelineEvent
from fledge.core.announce import Completion, announce_key
from fledge.core.entries import attachments, completions
from fledge.core.events import Admitted, Event, people_words, reason
from fledge.core.file_change import FileChange
from fledge.core.freeze import Stats
from fledge.core.handover import Handover
from fledge.core.keys import parse_key
from fledge.core.lifecycle import born, transition
from fledge.core.prompts import is_stuck
from fledge.core.route import address_of
from fledge.core.run import PHASES, AnnounceDeferred, AwaitingApproval, Completed, Instant, Ok, Queued, Run, on_wire
from fledge.core.schema import fit
from fledge.core.transcript import (
    Body,
    Line,
    Noted,
    Replied,
    Resulted,
    Spoken,
    Told,
    awaits_rest,
    from_body,
    joined,
    last_step,
)
from fledge.errors import BadInput, NotFound
from fledge.orchestrator.outbox import message_of
from fledge.orchestrator.views import controller_of, progress_of, why_undelivered
from fledge.store.base import (
    Approval,
    ChildrenPage,
    Entry,
    InboxRow,
    ListedRun,
    OutboxPost,
    RunFilter,
    RunMark,
    RunWalk,
    SessionFacts,
    Tx,
)

T = TypeVar("T")
LOOK_BACK: Final = 100_000
"""The most entries of a transcript that are read at once."""
MOST_RUNS: Final = 1000
"""The most runs of a requester that are listed."""
BATCH: Final = 200
MOST_DECIDED: Final = 200
"""The most decided questions that are listed."""
STATUSES: Final = ("active", "done", *(phase.name for phase in PHASES), "ok", "error", "timeout", "killed", "unknown")
"""The statuses by which a list of runs can be filtered: `active` and `done`, the phases, the outcomes."""


def session_key(name: str, field: str) -> str:
    """The whole session key for `main`, for the name of a session of the main agent, or for a whole key."""
    if not isinstance(name, str) or not name.strip():
        raise BadInput(field, "must be a session's name or key", name)
    word = name.strip()
    whole = word if word.lower() == "main" or word.lower().startswith("agent:") else f"agent:main:{word}"
    try:
        return str(parse_key(whole))
    except BadInput as error:
        words = "must be a name of letters, digits and . _ @ + -, or a key such as agent:main:main"
        raise BadInput(field, error.expected if whole is word else words, name) from None


def named(tx: Tx, name: str) -> str:
    """The session key of the run with this run id, of any attempt, or with this session key. Raises NotFound if there
    is none."""
    known = tx.runs.named(name)
    if known is not None:
        return known[0]
    if tx.runs.find(name) is None:
        raise NotFound(f"no run {name!r}: give a run id or a session key as spawn returned it")
    return name


def is_readable(run: Run) -> bool:
    """True once the outcome may be read: it is fixed, and not held back until the runs below have settled."""
    held = isinstance(run.phase, AnnounceDeferred) and run.phase.reason == "descendants-active"
    return run.ended is not None and not held


def is_at_rest(tx: Tx, session: str) -> bool:
    """True if nothing is left to do: no turn is open, nothing is unread or queued, no heartbeat is wanted, and all runs
    below have settled.

    A heartbeat that waits for the hours in which heartbeats may run does not count, nor do the rows that it will read.
    """
    beat = tx.heartbeats.get(session)
    idle = (
        tx.turns.get(session) is None and tx.queue.place(session) is None and tx.sessions.counts(session).unsettled == 0
    )
    if beat is not None and beat.held == "quiet-hours":
        return idle
    return idle and (beat is None or beat.due_at is None) and not tx.inbox.unread(session, 1)


def is_settled(tx: Tx, key: str) -> bool:
    """True once the run is settled for its parent: nothing more will come from it or from the runs below it. A plan
    that waits for an answer counts as settled."""
    return tx.runs.load(key).concluded and tx.sessions.counts(key).unsettled == 0


def result(tx: Tx, key: str, output_type: type[T] | None = None) -> Result[T]:
    """The result of the run so far; `pending` until its outcome may be read."""
    run = tx.runs.load(key)
    ended = run.ended
    if ended is None or not is_readable(run):
        label = tx.runs.spec(key).label
        return Result(status="pending", run_id=run.run_id, session_key=key, label=label, phase=run.phase.name)
    told = _completion(tx, run)
    text = "" if ended.result is None else tx.texts.get(ended.result)
    value: Any = UNSET
    value_error, schema = None, tx.runs.spec(key).output_schema
    if isinstance(ended.outcome, Ok) and not (schema is None and output_type is None):
        value, value_error = read_value(text, schema, output_type)
    return Result(
        status=_status(ended.outcome.status),
        text=text,
        error=ended.outcome.error,
        ended_reason=on_wire(ended.outcome)[1],
        outcome=ended.outcome,
        value_=value,
        value_error=value_error,
        stats=told.stats,
        run_id=run.run_id,
        session_key=key,
        label=told.label,
        artifacts=tuple(f"{told.handover.folder}/{one.name}" for one in told.handover.artifacts),
        worktree=told.handover.worktree,
        phase=run.phase.name,
        started_at=ended.started_at,
        ended_at=ended.ended_at,
    )


def _status(word: str) -> Status:
    return next(status for status in get_args(Status) if status == word)


def read_value(text: str, schema: dict[str, Any] | None, output_type: type[T] | None) -> tuple[Any, str | None]:
    """The answer in a text, checked by the schema and decoded as the type; or what is wrong with it."""
    if output_type is str and schema is None:
        return text, None
    fitted = fit(schema or {}, text)
    if fitted.error is not None:
        return None, fitted.error
    return read_as(Any if output_type is None else output_type, fitted.text)


def handed_over(tx: Tx, key: str) -> Handover:
    """The files that a run handed over; none while its outcome may not be read."""
    run = tx.runs.load(key)
    return _completion(tx, run).handover if is_readable(run) else Handover()


def _completion(tx: Tx, run: Run) -> Completion:
    """The completion that was announced for the run; it outlives the session. For a run that was not announced, it is
    made now."""
    row = tx.inbox.get(announce_key(run.key, run.run_id, "outcome"))
    if row is not None:
        return msgspec.json.decode(row.body, type=Completion)
    assert run.ended is not None
    return Completion(
        kind="outcome",
        child_session_key=run.key,
        run_id=run.run_id,
        outcome=run.ended.outcome,
        label=tx.runs.spec(run.key).label,
        stats=stats_of(tx, run),
    )


def stats_of(tx: Tx, run: Run) -> Stats:
    """The tokens and the cost of all attempts of the run so far, and its run time once it has ended."""
    used, took_s = tx.transcripts.used(run.key), None if run.ended is None else run.ended.elapsed_s
    return Stats(took_s, used.tokens_in, used.tokens_out, used.cost_usd, used.tokens_cached)


def forest(tx: Tx, roots: Sequence[str], limit: int) -> Forest:
    """At most about `limit` runs below these sessions, taken level by level, active ones first, then the newest. So the
    runs that are left out are deep in the tree, or ended long ago."""
    pages: dict[str, ChildrenPage] = {}
    level = list(roots)
    while level:
        below: list[str] = []
        for session in level:
            page = tx.lists.children(session, limit, newest=True)
            above = tx.lists.archived_above(session)
            pages[session] = replace(page, keys=[*page.keys, *above], done=page.done + len(above))
            below += pages[session].keys
            limit -= len(pages[session].keys)
        level = below

    def shown(session: str) -> list[RunInfo]:
        listed = [one for key in pages[session].keys if (one := tx.lists.run(key)) is not None]
        return [
            replace(run_info(tx, one.key), children=tuple(shown(one.key)), left_out=beyond(one.key))
            for one in sorted(listed, key=lambda one: (one.mark.at, one.mark.number))
        ]

    def beyond(session: str) -> int:
        page = pages[session]
        return page.active + page.done - len(page.keys)

    return Forest(runs=[run for root in roots for run in shown(root)], left_out=sum(map(beyond, roots)))


def run_info(tx: Tx, key: str) -> RunInfo:
    """The run as lists show it."""
    run, spec, ran, used = tx.runs.load(key), tx.runs.spec(key), tx.turns.last_ran(key), tx.transcripts.used(key)
    ended, events = run.ended, tx.events.of(key)
    retry, origin = run.phase.retry if isinstance(run.phase, Queued) else None, address_of(spec.origin)
    return RunInfo(
        session_key=key,
        run_id=run.run_id,
        number=tx.runs.number(key),
        label=spec.label,
        task=spec.task,
        status=run.phase.name if ended is None else ended.outcome.status,
        phase=run.phase.name,
        error=None if ended is None else ended.outcome.error,
        ended_reason=None if ended is None else on_wire(ended.outcome)[1],
        requester=run.terms.parent,
        depth=run.terms.depth,
        attempt=run.attempt,
        plan=run.plan,
        delivery=None if run.delivery is None else run.delivery.word,
        created_at=events[0].at,
        started_at=run.started_at,
        ended_at=None if ended is None else ended.ended_at,
        unsettled=tx.sessions.counts(key).unsettled,
        mode=run.terms.mode,
        cleanup=run.terms.cleanup,
        controller=controller_of(tx, run),
        model="" if ran is None else ran.model,
        tokens=(used.tokens_in or 0) + (used.tokens_out or 0),
        cost_usd=used.cost_usd,
        stuck=is_stuck(run, progress_of(tx, run)),
        queued_at=events[-1].at if isinstance(run.phase, Queued) and retry is None else None,
        retry_at=None if retry is None else retry.at,
        retry_reason="" if retry is None else retry.reason,
        archive_at=run.phase.due_at if isinstance(run.phase, Completed) else None,
        origin="" if origin is None else origin.words,
    )


def with_kills_as(run: RunInfo, status: Literal["error", "killed"]) -> RunInfo:
    """The run and those below it, with this status for each that was killed: `error` on the wire, where `endedReason`
    is `killed`, and `killed` in the library."""
    below = tuple(with_kills_as(one, status) for one in run.children)
    return replace(run, status=status if run.ended_reason == "killed" else run.status, children=below)


def runs(
    tx: Tx, requester: str, status: str | None = None, kills_as: Literal["error", "killed"] = "killed"
) -> list[RunInfo]:
    """The runs of a requester, oldest first; those of one status, if one is given. Only the status `archived` shows
    archived runs. Of more than `MOST_RUNS`, the active and the newest ones. A run that was killed has the status
    `kills_as`, and is found by it and by `killed`."""
    if status is not None and status not in STATUSES:
        raise BadInput("status", f"must be one of {', '.join(STATUSES)}", status)
    if status == "archived":
        archived = [key for key in tx.runs.children(requester) if tx.runs.load(key).phase.name == "archived"]
        return [with_kills_as(run_info(tx, key), kills_as) for key in archived[-MOST_RUNS:]]
    listed = ((one.mark, with_kills_as(run_info(tx, one.key), kills_as)) for one in _newest(tx, requester))
    fitting = (
        (mark, run)
        for mark, run in listed
        if status in (None, run.status, run.phase, "active" if run.ended_at is None else "done")
        or (status == "killed" and run.ended_reason == "killed")
    )
    found = sorted(islice(fitting, MOST_RUNS), key=lambda one: (one[0].at, one[0].number))
    return [run for _, run in found]


def _newest(tx: Tx, requester: str) -> Iterator[ListedRun]:
    """The runs of a requester: the active ones first, then the others, the newest first."""
    halves: tuple[RunFilter, ...] = ("active", "done")
    for name in halves:
        mark: RunMark | None = None
        while batch := tx.lists.runs(RunWalk(filter=name, requester=requester), mark, BATCH):
            yield from batch
            mark = batch[-1].mark


def timeline(events: Sequence[Event]) -> list[TimelineEvent]:
    """The events of a run, each with the phase after it."""
    first = events[0]
    assert isinstance(first, Admitted)
    run = born(first)
    told = [_happened(first, run)]
    for event in events[1:]:
        run = transition(run, event).run
        told.append(_happened(event, run))
    return told


def _happened(event: Event, run: Run) -> TimelineEvent:
    return TimelineEvent(
        at=event.at,
        name=type(event).__name__,
        phase=run.phase.name,
        attempt=run.attempt,
        words=people_words(event),
        reason=reason(event),
    )


def messages(tx: Tx, key: str, after: int, limit: int) -> list[Message]:
    """The entries of a transcript numbered above `after`.

    A reply that the token limit cut is held back until its rest is there, so that a reader who continues after the last
    entry gets both as one. If no turn is open any more, no rest will come, and the reply is shown.
    """
    entries = tx.transcripts.entries(key, after, limit)
    until = last_shown(tx, key, [Line(entry.seq, from_body(entry.body)) for entry in entries[-3:]])
    return shown(entry for entry in entries if entry.seq <= until)


def last_shown(tx: Tx, key: str, newest: Sequence[Line]) -> int:
    """The number of the last entry that may be shown, given the newest three: a reply that was cut is held back while
    its turn may add the rest."""
    if awaits_rest(newest) and tx.turns.get(key) is not None:
        return last_step(newest)[0] - 1
    return newest[-1].seq if newest else 0


def transcript(tx: Tx, key: str, limit: int, after: int = 0, tools: bool = False) -> list[Message]:
    """The newest entries of a transcript that are numbered above `after`, oldest first; tool results only with
    `tools`. Entries before the newest `LOOK_BACK` are left out."""
    found = messages(tx, key, max(after, tx.transcripts.last(key) - LOOK_BACK), LOOK_BACK)
    return [message for message in found if tools or message.role != "tool"][-limit:]


def shown(entries: Iterable[Entry]) -> list[Message]:
    """Entries of a transcript as messages; a reply that the token limit cut and its rest are one message."""
    return [_message(entry.seq, entry.at, body) for entry, body in joined((e, from_body(e.body)) for e in entries)]


def _message(seq: int, at: Instant, body: Body) -> Message:
    message = partial(Message, seq=seq, at=at, text=body.text)
    match body:
        case Spoken(kind=kind, row=row, files=files):
            run_id = row.rpartition(":")[2] if kind == "send" else ""
            return message(role="user", kind=kind, run_id=run_id, attachments=attachments(files))
        case Told():
            return message(role="event", completions=completions(body))
        case Replied(calls=calls, cut=is_cut):
            called = tuple(f"{call.name} {call.arguments}" for call in calls)
            return message(role="assistant", calls=called, is_cut=is_cut)
        case Resulted(name=name):
            return message(role="tool", kind=name)
        case Noted():
            return message(role="note")


def questions(tx: Tx) -> list[Question]:
    """The calls that wait for a person, oldest first."""
    return [question(tx, one) for one in tx.approvals.open()]


def question(tx: Tx, approval: Approval) -> Question:
    """The question to a person about a tool call, as a value."""
    key = approval.session
    session, run, ran = tx.sessions.get(key), tx.runs.find(key), tx.turns.last_ran(key)
    facts = SessionFacts() if session is None else session.facts
    folder = facts.workspace if ran is None else ran.workspace
    return Question(
        id=approval.id,
        session_key=key,
        tool=approval.tool,
        arguments=approval.arguments,
        digest=approval.digest,
        asked_at=approval.asked_at,
        expires_at=approval.expires_at,
        always="" if approval.offer is None else approval.offer.shown,
        for_subagents=approval.offer is not None and approval.offer.children,
        state=approval.state,
        answered_by=approval.answered_by,
        words=approval.words,
        rule=approval.rule,
        why=approval.why,
        change=_change(tx, approval) if approval.state == "waiting" else None,
        run_id="" if run is None else run.run_id,
        label=facts.label,
        lineage=labels_above(tx, key),
        cwd=os.path.join(folder, facts.cwd) if facts.cwd else folder,
        is_sandboxed=ran is not None and ran.boxed,
    )


def _change(tx: Tx, approval: Approval) -> FileChange | None:
    """The change of a file that the call would make; it stands in the entry of the call."""
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(approval.session, approval.entry - 1, 1)]
    return next((body.calls[approval.index].change for body in bodies if isinstance(body, Replied)), None)


def labels_above(tx: Tx, key: str) -> tuple[str, ...]:
    """The labels of the sessions above this one, or their keys where they have none; the conversation first."""
    return tuple(one.facts.label or one.key for one in reversed(tx.sessions.lineage(key)[1:]))


def decided_questions(tx: Tx) -> list[Question]:
    """The newest questions that no longer wait: answered by a person or a rule, expired, or void."""
    return [question(tx, one) for one in tx.approvals.decided(MOST_DECIDED)]


def plans(tx: Tx) -> list[Plan]:
    """The plans that await an answer, oldest first."""
    return [waits for key in tx.runs.awaiting() if (waits := plan(tx, key)) is not None]


def plan(tx: Tx, key: str) -> Plan | None:
    """The plan of this run, if one awaits its answer."""
    run = tx.runs.load(key)
    if not isinstance(run.phase, AwaitingApproval):
        return None
    text = "" if run.phase.plan is None else tx.texts.get(run.phase.plan)
    return Plan(
        session_key=key,
        run_id=run.run_id,
        label=tx.runs.spec(key).label,
        text=text,
        expires_at=run.phase.due_at,
        asked_at=run.phase.due_at - run.terms.approval_s,
        requester=run.terms.parent,
        lineage=labels_above(tx, key),
    )


def undelivered(tx: Tx) -> list[GivenUp]:
    """Undelivered results, and messages that could not be sent, each kind oldest first."""
    return [*(_given_up(tx, row) for row in tx.inbox.undelivered()), *map(_not_sent, tx.outbox.undelivered())]


def _given_up(tx: Tx, row: InboxRow) -> GivenUp:
    told = msgspec.json.decode(row.body, type=Completion)
    run = tx.runs.find(told.child_session_key)
    return GivenUp(
        key=told.child_session_key,
        session_key=told.child_session_key,
        run_id=told.run_id,
        kind=row.kind,
        label=told.label or told.task,
        status=told.outcome.status,
        reason=why_undelivered(tx, row),
        text="" if row.text is None else tx.texts.get(row.text),
        arrived_at=row.arrived_at,
        to=row.session or ("" if run is None else run.terms.parent),
        tries=len(tx.deliveries.of(told.child_session_key)),
        kept_until_at=None if run is None else run.phase.due_at or row.arrived_at + run.terms.undelivered_s,
    )


def _not_sent(post: OutboxPost) -> GivenUp:
    message = message_of(post)
    to = "" if message is None else f"{message.to} on {message.channel}"
    return GivenUp(
        key=post.key,
        session_key=(post.run or "") if message is None else message.session_key,
        run_id="",
        kind=post.kind,
        label=to,
        status="undelivered",
        reason=post.error,
        text="" if message is None else message.text,
        arrived_at=None if message is None else message.posted_at,
        to=to,
        tries=post.tries,
        kept_until_at=post.due_at,
    )
