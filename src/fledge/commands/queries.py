"""The verbs that only read rows, besides pages (`listing`): `runs.info`, `runs.tree`, `sessions.*`, `overview`, and the
lists of things that wait for a person. All of them need a store and a clock, but no engine, so they are answered also
in a folder that no process drives."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from fledge.api import entries, spans
from fledge.api import views as api
from fledge.api.entries import EntriesPage
from fledge.api.values import Forest, GivenUp, Message, Plan, Question, RunInfo
from fledge.api.views import session_key, with_kills_as
from fledge.commands import looking
from fledge.commands.listing import RowReader, budget_of, session_state
from fledge.commands.looking import MOST_SHOWN, session_meant, session_of
from fledge.commands.params import AskerParams, InSession, InWorkspace, NamedSession, Nothing, One, SessionKeyParam
from fledge.commands.table import Moment, Params, query
from fledge.commands.values import (
    Below,
    ChildAtWork,
    Ends,
    Overview,
    RanWith,
    RunRow,
    RunWorkspace,
    Story,
    Target,
    Try,
)
from fledge.core.announce import announce_key, announce_outcome
from fledge.core.entries import HistoryEntry
from fledge.core.keys import NAME_CHARS, main_key
from fledge.core.params import formerly
from fledge.core.prompts import flattened, in_list_order
from fledge.core.run import Instant, Run
from fledge.core.spans import Spans
from fledge.core.standing import Above, FailingTurn, Limit, limits, next_due
from fledge.core.targets import is_everybody
from fledge.core.transcript import rows_read
from fledge.core.value import Value
from fledge.errors import BadInput, NotFound
from fledge.orchestrator import transcripts, views
from fledge.store.base import SessionFacts, Tx

MOST_ROWS: Final = 100_000
"""The most runs or entries of one answer."""
MOST_ENTRIES: Final = 500
"""The most entries of one page of typed values."""
MOST_ENDS: Final = 1000
"""The most rows of `runs.ends`."""
"""How many characters of its label or task name a subagent."""

# ---- runs ------------------------------------------------------------------------------------------------------------


class Listed(Params):
    """The runs to list."""

    requester: SessionKeyParam = "main"
    status: Annotated[
        str, Meta(max_length=64, description="active, done, a phase, or an outcome; `error`: killed ones, too")
    ] = ""


@query("runs.list", formerly="subagents.list")
def subagents_list(at: Moment, params: Listed) -> list[RunInfo]:
    """The runs of a requester, oldest first."""
    return api.runs(at.tx, session_key(params.requester, "requester"), params.status or None, kills_as="error")


class Tree(Params):
    """The session below which runs are wanted, and how many."""

    requester: Annotated[
        str, Meta(max_length=256, description="a session; empty: all conversations and programs"), formerly("root")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="runs in all, level by level from the top")] = MOST_SHOWN


@query("runs.tree", formerly="subagents.tree")
def subagents_tree(at: Moment, params: Tree) -> Forest:
    """The runs below a session, each with its children, oldest first. `leftOut`, here and in each run, counts the
    children that the limit left out, done ones before active ones: call this with that run as `requester` for more."""
    roots = [session_key(params.requester, "requester")] if params.requester else at.tx.sessions.roots()
    found = api.forest(at.tx, roots, params.limit)
    return replace(found, runs=[with_kills_as(run, "error") for run in found.runs])


@query("runs.info", formerly="subagents.info")
def subagents_info(at: Moment, params: One) -> Story:
    """One run in full, with its children and its timeline."""
    tx, now = at.tx, at.now
    key = looking.found(tx, params)
    run, ran = tx.runs.load(key), tx.turns.last_ran(key)
    below = api.forest(tx, [key], MOST_SHOWN)
    shown = replace(api.run_info(tx, key), children=tuple(below.runs), left_out=below.left_out)
    told = announce_key(key, run.run_id, "outcome")
    questions = tuple(api.question(tx, one) for one in tx.approvals.of(key)[-MOST_SHOWN:])
    handover = api.handed_over(tx, key)
    return Story(
        now_at=now,
        run=with_kills_as(shown, "error"),
        timeline=tuple(api.timeline(tx.events.of(key))),
        tries=tuple(Try(at=tried_at, trace=trace) for tried_at, trace in views.tries(tx, key)),
        announced=announce_outcome(run),
        text=api.result(tx, key).text,
        stats=api.stats_of(tx, run),
        models=tuple(transcripts.models_of(tx, key)),
        ran=None
        if ran is None
        else RanWith(model=ran.model, thinking=ran.thinking, tools=ran.tools, boxed=ran.boxed, folder=ran.workspace),
        timeout_s=run.terms.timeout_s or 0.0,
        budget=budget_of(tx, key),
        spawned=tx.sessions.counts(key).spawned,
        unanswered=tuple(late for late in views.unanswered(tx, now) if told in late.rows),
        failing=tuple(_failing(tx, key, run.terms.parent, told)),
        questions=questions,
        question=next((one for one in questions if one.state == "waiting"), None),
        limits=_limits(tx, run),
        workspace=_workspace(tx, key),
        artifacts=handover.artifacts,
        more_artifacts=handover.more,
        due=next_due(run),
    )


def _failing(tx: Tx, key: str, parent: str, row: str) -> Iterator[FailingTurn]:
    """The failing turns of a run's session and of the session above it, if that turn has read this row."""
    own, above, turn = views.failing(tx, key), views.failing(tx, parent), tx.turns.get(parent)
    if own is not None:
        yield own
    if above is not None and turn is not None and row in rows_read(transcripts.of_turn(tx, turn)):
        yield above


def _limits(tx: Tx, run: Run) -> tuple[Limit, ...]:
    spec, account = tx.runs.spec(run.key), tx.budgets.get(run.key)
    above = [
        Above(name=one.facts.label or one.key, budget=found.budget)
        for one in tx.sessions.lineage(run.key)[1:]
        if (found := tx.budgets.get(one.key)) is not None
    ]
    return limits(spec.asked, spec.agent_id, run.terms.timeout_s, None if account is None else account.budget, above)


def _workspace(tx: Tx, key: str) -> RunWorkspace:
    session, kind = tx.sessions.get(key), tx.runs.spec(key).asked.get("workspace", "inherit")
    facts = SessionFacts() if session is None else session.facts
    return RunWorkspace(kind=kind, folder=facts.workspace, cwd=facts.cwd, is_sandboxed=facts.boxed)


@query("runs.row")
def runs_row(at: Moment, params: One) -> RunRow:
    """The row of one run, as `runs.query` has it."""
    listed = at.tx.lists.run(looking.found(at.tx, params))
    assert listed is not None
    return RowReader(at).row(listed)


@query("runs.ends")
def runs_ends(at: Moment, params: One) -> Ends:
    """The runs that `runs.kill` of this target would end now: the run and those below it; for `all`, every run of the
    session that is not over. Nothing is ended."""
    tx, reader = at.tx, RowReader(at)
    ending = [key for named in _named(tx, params) for key in views.would_end(tx, named)]
    listed = [one for key in ending[:MOST_ENDS] if (one := tx.lists.run(key)) is not None]
    return Ends(rows=tuple(map(reader.row, listed)), left_out=max(0, len(ending) - MOST_ENDS))


def _named(tx: Tx, params: One) -> list[str]:
    """The runs that a kill of this target names."""
    if not is_everybody(params.target):
        return [looking.found(tx, params)]
    session = session_of(tx, params)
    if session != main_key() and not looking.is_begun(tx, session):
        raise NotFound(f"no session {session}")
    return views.active_children(tx, session)


SpanMs = Annotated[int, Meta(ge=0, description="milliseconds since the epoch")]


class SpansOf(One):
    """`runs.spans`."""

    since: SpanMs | None = field(default=None, name="from")
    until: SpanMs | None = field(default=None, name="to")


@query("runs.spans")
def runs_spans(at: Moment, params: SpansOf) -> Spans:
    """The life of a run as spans on a time axis, in lanes, with marks. With `from` or `to`, only those that touch that
    time."""
    since, until = (None if one is None else one / 1000 for one in (params.since, params.until))
    if since is not None and until is not None and until < since:
        raise BadInput("to", "must not be before from", params.until)
    return spans.spans(at.tx, looking.found(at.tx, params), since, until)


@query("plans.list")
def plans_list(at: Moment, params: Nothing) -> list[Plan]:
    """Plans that await an answer, oldest first."""
    return api.plans(at.tx)


# ---- sessions --------------------------------------------------------------------------------------------------------


class SessionsFind(AskerParams):
    """`sessions.find`."""

    target: Annotated[
        str,
        Meta(
            max_length=256,
            description="`main`, a session key, a conversation's name, or a word for a run; empty: the asker's own",
        ),
    ] = ""


class SessionFound(Value):
    """A session."""

    session_key: str


@query("sessions.find")
def sessions_find(at: Moment, params: SessionsFind) -> SessionFound:
    """The session that a word means."""
    return SessionFound(session_meant(at.tx, params.target, session_of(at.tx, params)))


class SessionsHistory(NamedSession):
    """`sessions.history`."""

    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100
    after: Annotated[int, Meta(ge=0, description="only entries numbered above it")] | None = None
    before: Annotated[int, Meta(ge=1, description="only entries numbered below it; with the view `entries`")] | None = (
        None
    )
    tools: Annotated[bool, Meta(description="messages: tool results, too; entries have them always")] = False
    view: Annotated[
        Literal["messages", "entries"], Meta(description="messages are text; entries are typed values, page by page")
    ] = "messages"


@query("sessions.history")
def sessions_history(at: Moment, params: SessionsHistory) -> list[Message] | EntriesPage:
    """The newest entries of a transcript, oldest first; with `after`, only those numbered above it. With the view
    `entries`, a page of typed values: the newest, the newest below `before`, or the oldest above `after`."""
    if params.before is not None and params.after is not None:
        raise BadInput("before", "cannot be given together with after", params.before)
    if params.before is not None and params.view == "messages":
        raise BadInput("before", "needs the view entries", params.before)
    if params.view == "entries" and params.limit > MOST_ENTRIES:
        raise BadInput("limit", f"must be at most {MOST_ENTRIES} with the view entries", params.limit)
    key = _known(at.tx, params)
    if params.view == "entries":
        return entries.page(at.tx, key, params.limit, params.before, params.after)
    return api.transcript(at.tx, key, params.limit, params.after or 0, params.tools)


class SessionsEntry(NamedSession):
    """`sessions.entry`."""

    seq: Annotated[int, Meta(ge=1, description="the entry's number")]


@query("sessions.entry")
def sessions_entry(at: Moment, params: SessionsEntry) -> HistoryEntry:
    """One entry of a transcript, whole: nothing is cut, and completions have their results."""
    return entries.entry(at.tx, _known(at.tx, params), params.seq)


def _known(tx: Tx, params: NamedSession) -> str:
    """The key of the session that is named. NotFound: there is none."""
    key = params.key
    if tx.sessions.get(key) is None:
        raise NotFound(f"no session {key}")
    return key


@query("sessions.below")
def sessions_below(at: Moment, params: InSession) -> Below:
    """The present work of a conversation: its turn, the subagents at work below it, and the words that name its
    subagents in slash commands."""
    tx, now, session = at.tx, at.now, params.key
    turn, used = tx.turns.get(session), tx.transcripts.used(session)
    asking = {one.session for one in looking.asked_below(tx, session)}
    return Below(
        now_at=now,
        state=session_state(tx, session),
        opened_at=None if turn is None else turn.opened_at,
        waits=session in asking,
        unanswered=views.unanswered_in(tx, session, now),
        failing=views.failing(tx, session),
        tokens_in=used.tokens_in or 0,
        tokens_out=used.tokens_out or 0,
        cost_usd=used.cost_usd,
        children=tuple(_at_work(tx, session, 1, asking, now)),
        targets=tuple(_targets(tx, session, now)),
    )


def _at_work(tx: Tx, session: str, depth: int, asking: set[str], now: Instant) -> Iterator[ChildAtWork]:
    for row in views.child_rows(tx, session):
        if row.is_active:
            used = tx.transcripts.used(row.key)
            yield ChildAtWork(
                session_key=row.key,
                label=flattened(row.label or row.task, NAME_CHARS),
                state=row.standing_text(now),
                depth=depth,
                tokens=(used.tokens_in or 0) + (used.tokens_out or 0),
                waits=row.key in asking or row.status == "awaiting approval",
                started_at=row.started_at,
            )
            yield from _at_work(tx, row.key, depth + 1, asking, now)


def _targets(tx: Tx, session: str, now: Instant) -> Iterator[Target]:
    """The words that name a session's subagents, with their status, for completion. A label that several have names
    none of them: each of these is offered by its number."""
    rows = in_list_order(views.child_rows(tx, session))
    times = Counter(row.label for row in rows)
    for row in rows:
        name, stands = flattened(row.label, NAME_CHARS), row.status_text(now)
        if name and times[row.label] == 1:
            yield Target(word=name, meaning=stands)
        elif name:
            yield Target(word=str(row.number), meaning=f"{name}: {stands}")


# ---- what waits for a person -----------------------------------------------------------------------------------------


class OverviewOf(InSession):
    """`overview`."""

    limit: Annotated[int, Meta(ge=0, le=MOST_SHOWN, description="runs below the conversation")] = MOST_SHOWN


@query("overview")
def overview(at: Moment, params: OverviewOf) -> Overview:
    """The present work of a conversation, or of the main one if this has not begun, and everything in the folder that
    waits for a person."""
    tx, now = at.tx, at.now
    shown = looking.begun_or_main(tx, params.key)
    fails = views.failing(tx, shown)
    state = views.waits_for(tx, shown, now) or "idle"
    if tx.turns.get(shown) is not None:
        state = "a turn is open" + ("" if fails is None else f", {fails.words(now)}")
    below, unfinished = api.forest(tx, [shown], params.limit), looking.unfinished_roots(tx)
    return Overview(
        now_at=now,
        is_driven=views.is_driven(tx, at.drives, now),
        is_unfinished=bool(unfinished) and not tx.approvals.open(),
        session_key=shown,
        elsewhere=sum(tx.sessions.counts(root).unsettled for root in unfinished if root != shown),
        state=state,
        unread=len(tx.inbox.unread(shown)),
        runs=tuple(below.runs),
        left_out=below.left_out,
        unanswered=tuple(views.unanswered(tx, now)),
        questions=tuple(api.questions(tx)),
        plans=tuple(api.plans(tx)),
        undelivered=views.count_undelivered(tx),
    )


class ApprovalsParams(Params):
    """`approvals.list`."""

    decided: Annotated[
        bool, Meta(description="list decided questions instead, with the person or rule that decided")
    ] = False


@query("approvals.list")
def approvals_list(at: Moment, params: ApprovalsParams) -> list[Question]:
    """Tool calls that wait for a person, oldest first; with `decided`, the newest ones that no longer wait, newest
    first."""
    return api.decided_questions(at.tx) if params.decided else api.questions(at.tx)


@query("undelivered.list")
def undelivered_list(at: Moment, params: Nothing) -> list[GivenUp]:
    """Undelivered results, then messages that could not be sent, each kind oldest first."""
    return api.undelivered(at.tx)


@query("documents.pending")
def documents_pending(at: Moment, params: InWorkspace) -> list[str]:
    """The documents of a workspace that are left out of prompts until a person accepts them."""
    return list(transcripts.left_out_documents(at.tx, params.workspace))
