"""The verbs that answer pages of runs and sessions, and how each row is made. A page costs the same however many runs
are finished.

A search, an agent or a subtree is found by going through the list, at most `LOOKED_AT` runs for one page. The page then
ends early, and its cursor says where the next one continues.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fledge.api import views as api
from fledge.commands.params import Count
from fledge.commands.table import Moment, Params, query
from fledge.commands.values import BudgetUse, FilterCounts, RunDelivery, RunPage, RunRow, SessionPage, SessionRow
from fledge.core.announce import announce_key
from fledge.core.doing import DoingFacts, doing, error_words
from fledge.core.freeze import one_line
from fledge.core.params import also_called, formerly
from fledge.core.prompts import is_stuck
from fledge.core.run import (
    AnnounceDeferred,
    AwaitingApproval,
    EndedReason,
    Instant,
    Run,
    Running,
    Skipped,
    Undelivered,
    on_wire,
)
from fledge.core.spans import marks
from fledge.core.transcript import CallEntry, Line, from_body, open_calls
from fledge.errors import BadInput
from fledge.orchestrator import views
from fledge.store.base import Approval, ListedRun, ListedSession, RunMark, RunWalk, Session, Tx

TASK_CHARS: Final = 200
FIRST_CHARS: Final = 80
"""How many characters of a session's first words its row has."""
LOOKED_AT: Final = 2000
"""The most runs or sessions that are gone through for one page."""
BATCH: Final = 200
PLACES: Final = 1000
"""The most places of a lane's queue that are counted; a session further behind has the place 0."""
MARKS: Final = 20
"""The most marks in the row of a run; the newest are kept."""
STEP_ENTRIES: Final = 64
"""How many of the newest entries are looked at for calls under way."""
UNREAD: Final = 1000
PageCursor = Annotated[str, Meta(max_length=400, description="`next` of the page before")]
EpochMs = Annotated[int, Meta(ge=0, le=10**15, description="milliseconds since the epoch")]
_CURSOR: Final = re.compile(r"([ad]?)(?:(\d{1,12}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?):(\d{1,18}))?")
T = TypeVar("T")
M = TypeVar("M")


# ---- which runs ------------------------------------------------------------------------------------------------------


class RunsQuery(Params):
    """`runs.query`."""

    filter: Annotated[
        Literal["all", "active", "waiting", "stuck", "failed", "undelivered"],
        Meta(description="`waiting`: for a person"),
    ] = "all"
    search: Annotated[str, Meta(max_length=256, description="words in label or task, whatever their case")] = ""
    below: Annotated[
        str, Meta(max_length=256, description="only below this session, at any depth"), also_called("root")
    ] = ""
    requester: Annotated[str, Meta(max_length=256, description="only runs of this session's own")] = ""
    agent: Annotated[str, Meta(max_length=64, description="only of this agent"), also_called("agentId")] = ""
    since: Annotated[EpochMs | None, Meta(description="only admitted then or later")] = None
    until: Annotated[EpochMs | None, Meta(description="only admitted earlier")] = None
    sort: Annotated[
        Literal["created", "active"], Meta(description="the newest first; `active`: the active ones before the others")
    ] = "created"
    cursor: PageCursor = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


@query("runs.query")
def runs_query(at: Moment, params: RunsQuery) -> RunPage:
    """A page of runs, the newest first, each as one flat row with its present activity or wait; and the number of runs
    that each filter finds. In the order `created`, a run that changes between two pages is neither left out nor shown
    twice."""
    tx = at.tx
    below = api.session_key(params.below, "below") if params.below else ""
    above = tx.lists.run(below) if below else None
    walk = RunWalk(
        filter=params.filter,
        root=below if above is None else above.root,
        requester=api.session_key(params.requester, "requester") if params.requester else "",
        since=_instant(params.since),
        until=_instant(params.until),
    )
    found, following = _ordered(tx, params, walk, _fitting(tx, params, "" if above is None else below))
    rows = RowReader(at)
    counts = tx.lists.counts(walk.root, walk.requester)
    return RunPage(
        rows=tuple(map(rows.row, found)),
        counts=FilterCounts(**msgspec.structs.asdict(counts)),
        next=following,
        now_at=at.now,
        is_driven=rows.is_driven,
        feed_cursor=tx.events.last(),
    )


def _instant(ms: int | None) -> Instant | None:
    """The first instant that is shown as this millisecond: on the wire times are rounded."""
    return None if ms is None else (ms - 0.5) / 1000


def _fitting(tx: Tx, wanted: RunsQuery, below: str) -> Callable[[ListedRun], bool] | None:
    """The test for the conditions that the store does not check: search, agent, subtree. None: there are none."""
    words = wanted.search.casefold().strip()
    if not words and not wanted.agent and not below:
        return None

    def fits(one: ListedRun) -> bool:
        spec = tx.runs.spec(one.key)
        return (
            (not wanted.agent or spec.agent_id == wanted.agent)
            and (not words or words in spec.label.casefold() or words in spec.task.casefold())
            and (not below or views.is_below(tx, below, one.key))
        )

    return fits


def _ordered(
    tx: Tx, wanted: RunsQuery, walk: RunWalk, fits: Callable[[ListedRun], bool] | None
) -> tuple[list[ListedRun], str]:
    """The runs of one page in the wanted order, and the cursor of the next page."""
    half, behind = _read_cursor(wanted.cursor)
    walks = {"": walk}
    if wanted.sort == "active" and wanted.filter == "all":
        walks = {"d": replace(walk, filter="done")}
        if half != "d":
            walks = {"a": replace(walk, filter="active"), **walks}
    found: list[ListedRun] = []
    for name, each in walks.items():
        if len(found) == wanted.limit:
            return found, name if tx.lists.runs(each, None, 1) else ""
        batch = partial(tx.lists.runs, each)
        more, mark = _walked(batch, lambda one: one.mark, behind, wanted.limit - len(found), fits)
        found += more
        if mark is not None:
            return found, f"{name}{mark.at!r}:{mark.number}"
        behind = None
    return found, ""


def _walked(
    batch: Callable[[M | None, int], list[T]],
    mark_of: Callable[[T], M],
    behind: M | None,
    limit: int,
    fits: Callable[[T], bool] | None,
) -> tuple[list[T], M | None]:
    """At most `limit` items that fit, and the mark behind which there may be more; None: there are no more. `batch`
    reads items behind a mark, as many as it is asked for."""
    found: list[T] = []
    mark, looked_at = behind, 0
    size = limit + 1 if fits is None else BATCH
    while True:
        read = batch(mark, size)
        for one in read:
            if fits is None or fits(one):
                if len(found) == limit:
                    return found, mark
                found.append(one)
            mark = mark_of(one)
        looked_at += len(read)
        if len(read) < size:
            return found, None
        if looked_at >= LOOKED_AT:
            return found, mark


def _read_cursor(text: str) -> tuple[str, RunMark | None]:
    """The half of the order `active` (`a`: active runs, `d`: done ones; empty in other orders), and the mark behind
    which the page begins; None: at the beginning."""
    read = _CURSOR.fullmatch(text)
    if read is None:
        raise BadInput("cursor", "must be `next` of an earlier page", text)
    half, at, number = read.groups()
    return half, None if at is None else RunMark(float(at), int(number))


# ---- one run ---------------------------------------------------------------------------------------------------------


class RowReader:
    """Makes rows of runs in one look at the store; facts that several rows need are read once."""

    def __init__(self, at: Moment) -> None:
        self._tx, self._now = at.tx, at.now
        self.is_driven = views.is_driven(at.tx, at.drives, at.now)
        self._questions: dict[str, list[Approval]] = {}
        for one in at.tx.approvals.open():
            self._questions.setdefault(one.session, []).append(one)
        self._places = cache(lambda lane: _places(at.tx, lane))

    def row(self, listed: ListedRun) -> RunRow:
        """The row of a run."""
        tx, key, root = self._tx, listed.key, listed.root
        run, spec, ran = tx.runs.load(key), tx.runs.spec(key), tx.turns.last_ran(key)
        used, counts = tx.transcripts.used(key), tx.sessions.counts(key)
        driver, queued, ended = tx.drivers.get(key), tx.queue.place(key), run.ended
        place = None if queued is None else self._places(queued.lane).get(key)
        asked = self._questions.get(key, [])
        status, ended_reason = wire_status(run)
        timeline = tx.events.of(key)
        marked, running = marks(timeline), run.phase if isinstance(run.phase, Running) else None
        facts = DoingFacts(
            is_driven=self.is_driven,
            spawned=counts.spawned,
            unsettled=counts.unsettled,
            ahead=None if place is None else place - 1,
            entered_at=timeline[-1].at,
            calls=calls_under_way(tx, key) if running else (),
            stepped_at=driver.progress_at if running and driver else None,
            is_stuck=is_stuck(run, views.progress_of(tx, run)),
            asks=tuple(one.tool for one in asked),
            asked_at=asked[0].asked_at if asked else None,
            asks_until=min((one.expires_at for one in asked), default=None),
        )
        return RunRow(
            run_id=run.run_id,
            session_key=key,
            number=tx.runs.number(key),
            ordinal=listed.mark.number,
            label=spec.label,
            task=spec.task[:TASK_CHARS],
            agent_id=spec.agent_id,
            model="" if ran is None else ran.model,
            phase=run.phase.name,
            status=status,
            ended_reason=ended_reason,
            error="" if ended is None else error_words(ended.outcome),
            parent=None if run.terms.parent == root else run.terms.parent,
            root=root,
            requester=run.terms.parent,
            depth=run.terms.depth,
            attempt=run.attempt,
            crashes=sum(one.name == "crashed" for one in marked),
            marks=marked[-MARKS:],
            created_at=listed.mark.at,
            started_at=run.started_at,
            ended_at=None if ended is None else ended.ended_at,
            tokens_in=used.tokens_in or 0,
            tokens_out=used.tokens_out or 0,
            tokens_cached=used.tokens_cached or 0,
            cost_usd=used.cost_usd,
            cost_below_usd=tx.sessions.cost_below(key),
            budget=budget_of(tx, key),
            lane=driver.lane if driver is not None else queued.lane if queued is not None else run.terms.lane,
            place=place or 0,
            now=doing(run, facts, self._now),
            stuck_at=running.stuck_at if running and facts.is_stuck else None,
            delivery=self._delivery(run),
            children=counts.spawned,
            unsettled=counts.unsettled,
            question_id=asked[0].id if asked else "",
            plan_id=run.run_id if isinstance(run.phase, AwaitingApproval) else "",
            is_active=ended is None or counts.unsettled > 0,
        )

    def _delivery(self, run: Run) -> RunDelivery | None:
        if run.ended is None:
            return None
        tries = len(self._tx.deliveries.of(run.key))
        if isinstance(run.phase, AnnounceDeferred):
            return RunDelivery(state="deferred", tries=run.phase.tries, why=run.phase.reason)
        match run.delivery:
            case None:
                return RunDelivery(state="pending", tries=tries)
            case Skipped(reason=reason):
                return RunDelivery(state="skipped", tries=tries, why=reason)
            case Undelivered(error=error):
                return RunDelivery(state="undelivered", tries=tries, why=error)
            case _:
                row = self._tx.inbox.get(announce_key(run.key, run.run_id, "outcome"))
                return RunDelivery(state="delivered", tries=tries, delivered_at=None if row is None else row.closed_at)


def _places(tx: Tx, lane: str) -> dict[str, int]:
    """The places in the queue of a lane by session, from 1 on."""
    return {key: place for place, key in enumerate(tx.queue.lane_order(lane, PLACES), 1)}


def wire_status(run: Run) -> tuple[str, EndedReason | None]:
    """The outcome's word and reason on the wire once there is one; else the phase."""
    return (run.phase.name, None) if run.ended is None else on_wire(run.ended.outcome)


def calls_under_way(tx: Tx, session: str) -> tuple[CallEntry, ...]:
    """Tool calls of the newest reply that have no result yet."""
    lines = [Line(entry.seq, from_body(entry.body)) for entry in tx.transcripts.tail(session, STEP_ENTRIES)]
    return tuple(one.call for one in open_calls(lines))


def budget_of(tx: Tx, key: str) -> tuple[BudgetUse, ...]:
    """How much of its budget a session and everything below it have used; empty: it has none of its own."""
    account = tx.budgets.get(key)
    if account is None:
        return ()
    used, most = msgspec.to_builtins(account.used), msgspec.to_builtins(account.budget)
    return tuple(BudgetUse(name=name, used=used.get(name, 0), most=most[name]) for name in most)


# ---- sessions --------------------------------------------------------------------------------------------------------


class SessionsList(Params):
    """`sessions.list`."""

    agent: Annotated[str, Meta(max_length=64, description="only of this agent"), formerly("agentId")] = ""
    kinds: tuple[Literal["main", "named", "subagent", "acp", "program"], ...] = ()
    limit: Count = 50


class SessionsQuery(SessionsList):
    """`sessions.query`."""

    search: Annotated[
        str, Meta(max_length=256, description="words in the label, the key or the first words, whatever their case")
    ] = ""
    cursor: PageCursor = ""


ROOT_KINDS: Final = frozenset(("main", "named", "program"))
_SESSION_CURSOR: Final = re.compile(r"(\d{1,12}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?):(.{1,256})")


@query("sessions.query")
def sessions_query(at: Moment, params: SessionsQuery) -> SessionPage:
    """A page of sessions, the latest active first."""
    tx = at.tx
    behind: tuple[Instant, str] | None = None
    if params.cursor:
        read = _SESSION_CURSOR.fullmatch(params.cursor)
        if read is None:
            raise BadInput("cursor", "must be `next` of an earlier page", params.cursor)
        behind = float(read[1]), read[2]
    roots_only = bool(params.kinds) and set(params.kinds) <= ROOT_KINDS
    words = params.search.casefold().strip()

    def fits(one: ListedSession) -> bool:
        is_kind = not params.kinds or one.session.kind in params.kinds
        return is_kind and (not words or _says(tx, one.session, words))

    found, behind = _walked(
        partial(tx.lists.sessions, params.agent, roots_only),
        lambda one: (one.last_at, one.session.key),
        behind,
        params.limit,
        fits if words or params.kinds else None,
    )
    reader = SessionReader(tx, at.now)
    rows = tuple(reader.row(one.session, one.last_at) for one in found)
    return SessionPage(rows=rows, next="" if behind is None else f"{behind[0]!r}:{behind[1]}", now_at=at.now)


@query("sessions.list")
def sessions_list(at: Moment, params: SessionsList) -> list[SessionRow]:
    """The first page of `sessions.query`, as a list."""
    wanted = SessionsQuery(agent=params.agent, kinds=params.kinds, limit=params.limit)
    return list(sessions_query(at, wanted).rows)


def _says(tx: Tx, session: Session, words: str) -> bool:
    return any(words in text.casefold() for text in (session.key, session.facts.label, first_words(tx, session.key)))


def first_words(tx: Tx, session: str) -> str:
    """The beginning of the first entry in a session's transcript; empty if there is none."""
    first = api.shown(tx.transcripts.entries(session, 0, 1))
    return one_line(first[0].text, FIRST_CHARS) if first else ""


def session_state(tx: Tx, session: str) -> Literal["idle", "busy", "queued"]:
    """`busy`: the session has an open turn. `queued`: it has none, but a place in a queue. Else `idle`."""
    if tx.turns.get(session) is not None:
        return "busy"
    return "idle" if tx.queue.place(session) is None else "queued"


class SessionReader:
    """Makes rows of sessions in one look at the store."""

    def __init__(self, tx: Tx, now: Instant) -> None:
        self._tx, self._now = tx, now
        self._late = {late.session: late.words(now) for late in views.unanswered(tx, now)}

        def root_of(key: str) -> str:
            run = tx.lists.run(key)
            return key if run is None else run.root

        asking = (one.session for one in tx.approvals.open())
        self._waits = Counter(map(root_of, (*asking, *tx.runs.awaiting())))
        self._stuck = Counter(map(root_of, tx.lists.stuck()))

    def row(self, session: Session, updated_at: Instant) -> SessionRow:
        """A session as lists show it."""
        tx, key = self._tx, session.key
        run, ran, used = tx.runs.find(key), tx.turns.last_ran(key), tx.transcripts.used(key)
        return SessionRow(
            key=key,
            kind=session.kind,
            agent_id=session.facts.agent_id,
            label=session.facts.label,
            parent=session.parent,
            depth=session.depth,
            created_at=session.created_at,
            updated_at=updated_at,
            state=session_state(tx, key),
            unread=len(tx.inbox.unread(key, UNREAD)),
            unsettled=tx.sessions.counts(key).unsettled,
            waits_for=views.waits_for(tx, key, self._now),
            status="" if run is None else run.phase.name if run.ended is None else run.ended.outcome.status,
            unanswered=self._late.get(key, ""),
            failing=views.failing(tx, key),
            first_words=first_words(tx, key),
            project=session.facts.project,
            workspace=session.facts.workspace or ("" if ran is None else ran.workspace),
            model="" if ran is None else ran.model,
            waits=self._waits[key],
            stuck=self._stuck[key],
            cost_usd=used.cost_usd,
            cost_below_usd=tx.sessions.cost_below(key),
        )
