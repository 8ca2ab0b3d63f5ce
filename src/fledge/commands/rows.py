"""The verbs that answer rows of runs and sessions: pages, one row, what a kill would end. They only read."""

from typing import Annotated, Literal

from msgspec import Meta

from fledge.api.views import session_key
from fledge.commands import looking
from fledge.commands.listing import RowReader, RunsWantedOnPage, WantedSessions, ends, page_of_runs, page_of_sessions
from fledge.commands.params import Count, One
from fledge.commands.table import Params, Reader, query
from fledge.commands.values import Ends, RunPage, RunRow, SessionPage, SessionRow
from fledge.core.keys import main_key
from fledge.core.params import also_called, formerly
from fledge.core.run import Instant
from fledge.core.targets import is_everybody
from fledge.errors import NotFound
from fledge.orchestrator import views
from fledge.store.base import Tx

MOST_ENDS = 1000
"""The most rows of `runs.ends`."""
Search = Annotated[str, Meta(max_length=256, description="words in label or task, whatever their case")]
PageCursor = Annotated[str, Meta(max_length=400, description="`next` of the page before")]
EpochMs = Annotated[int, Meta(ge=0, le=10**15, description="milliseconds since the epoch")]
AgentFilter = Annotated[str, Meta(max_length=64, description="only of this agent"), also_called("agentId")]


class RunsQuery(Params, frozen=True, kw_only=True):
    """`runs.query`."""

    filter: Annotated[
        Literal["all", "active", "waiting", "stuck", "failed", "undelivered"],
        Meta(description="`waiting`: for a person"),
    ] = "all"
    search: Search = ""
    below: Annotated[
        str, Meta(max_length=256, description="only below this session, at any depth"), also_called("root")
    ] = ""
    requester: Annotated[str, Meta(max_length=256, description="only runs of this session's own")] = ""
    agent: AgentFilter = ""
    since: Annotated[EpochMs | None, Meta(description="only admitted then or later")] = None
    until: Annotated[EpochMs | None, Meta(description="only admitted earlier")] = None
    sort: Annotated[
        Literal["created", "active"], Meta(description="the newest first; `active`: the active ones before the others")
    ] = "created"
    cursor: PageCursor = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


@query("runs.query", RunPage)
async def runs_query(folder: Reader, params: RunsQuery) -> RunPage:
    """A page of runs, each in one flat row with what it does or waits for, the newest first; and how many each filter
    finds. A run that changes between two pages is neither left out nor shown twice in the order `created`."""
    wanted = RunsWantedOnPage(
        filter=params.filter,
        root=session_key(params.below, "below") if params.below else "",
        requester=session_key(params.requester, "requester") if params.requester else "",
        agent=params.agent,
        search=params.search,
        since=_instant(params.since),
        until=_instant(params.until),
        order=params.sort,
        cursor=params.cursor,
        limit=params.limit,
    )
    now = folder.now()
    return await folder.read(lambda tx: page_of_runs(tx, wanted, now, folder.drives))


def _instant(ms: int | None) -> Instant | None:
    """The first instant that is shown as this millisecond: on the wire times are rounded."""
    return None if ms is None else (ms - 0.5) / 1000


@query("runs.row", RunRow)
async def runs_row(folder: Reader, params: One) -> RunRow:
    """The row of one run, as `runs.query` has it."""
    now = folder.now()

    def look(tx: Tx) -> RunRow:
        listed = tx.lists.run(looking.found(tx, params))
        assert listed is not None
        return RowReader(tx, now, folder.drives).row(listed)

    return await folder.read(look)


@query("runs.ends", Ends)
async def runs_ends(folder: Reader, params: One) -> Ends:
    """What `runs.kill` of this target would end now: the run and what is below it; `all`: every run of the session that
    is not over. Nothing is ended."""
    now = folder.now()

    def look(tx: Tx) -> Ends:
        if not is_everybody(params.target):
            return ends(tx, [looking.found(tx, params)], now, folder.drives, MOST_ENDS)
        session = looking.session_of(tx, params)
        known = tx.sessions.get(session)
        if (known is None or known.deleted) and session != main_key():
            raise NotFound(f"no session {session}")
        return ends(tx, views.active_children(tx, session), now, folder.drives, MOST_ENDS)

    return await folder.read(look)


class SessionsList(Params, frozen=True, kw_only=True):
    """`sessions.list`."""

    agent: Annotated[str, Meta(max_length=64, description="only of this agent"), formerly("agentId")] = ""
    kinds: tuple[Literal["main", "named", "subagent", "acp", "program"], ...] = ()
    limit: Count = 50


@query("sessions.list", list[SessionRow])
async def sessions_list(folder: Reader, params: SessionsList) -> list[SessionRow]:
    """The first page of `sessions.query`, as a list."""
    now = folder.now()
    wanted = WantedSessions(agent=params.agent, kinds=params.kinds, limit=params.limit)
    return list((await folder.read(lambda tx: page_of_sessions(tx, wanted, now))).rows)


class SessionsQuery(SessionsList, frozen=True, kw_only=True):
    """`sessions.query`."""

    search: Annotated[
        str, Meta(max_length=256, description="words in the label, the key or the first words, whatever their case")
    ] = ""
    cursor: PageCursor = ""


@query("sessions.query", SessionPage)
async def sessions_query(folder: Reader, params: SessionsQuery) -> SessionPage:
    """A page of sessions, the latest active first."""
    now = folder.now()
    wanted = WantedSessions(
        agent=params.agent, kinds=params.kinds, search=params.search, cursor=params.cursor, limit=params.limit
    )
    return await folder.read(lambda tx: page_of_sessions(tx, wanted, now))
