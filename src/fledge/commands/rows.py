"""The verbs that answer rows of runs and sessions: pages, one row, what a kill would end. They only read."""

from fledge.commands import looking
from fledge.commands.listing import (
    RowReader,
    RunsQuery,
    SessionsList,
    SessionsQuery,
    ends,
    page_of_runs,
    page_of_sessions,
)
from fledge.commands.params import One
from fledge.commands.table import Reader, query
from fledge.commands.values import Ends, RunPage, RunRow, SessionPage, SessionRow
from fledge.core.keys import main_key
from fledge.core.targets import is_everybody
from fledge.errors import NotFound
from fledge.orchestrator import views
from fledge.store.base import Tx

MOST_ENDS = 1000
"""The most rows of `runs.ends`."""


@query("runs.query")
async def runs_query(folder: Reader, params: RunsQuery) -> RunPage:
    """A page of runs, each in one flat row with what it does or waits for, the newest first; and how many each filter
    finds. A run that changes between two pages is neither left out nor shown twice in the order `created`."""
    now = folder.now()
    return await folder.read(lambda tx: page_of_runs(tx, params, now, folder.drives))


@query("runs.row")
async def runs_row(folder: Reader, params: One) -> RunRow:
    """The row of one run, as `runs.query` has it."""
    now = folder.now()

    def look(tx: Tx) -> RunRow:
        listed = tx.lists.run(looking.found(tx, params))
        assert listed is not None
        return RowReader(tx, now, folder.drives).row(listed)

    return await folder.read(look)


@query("runs.ends")
async def runs_ends(folder: Reader, params: One) -> Ends:
    """What `runs.kill` of this target would end now: the run and what is below it; `all`: every run of the session that
    is not over. Nothing is ended."""
    now = folder.now()

    def look(tx: Tx) -> Ends:
        if is_everybody(params.target):
            session = looking.session_of(tx, params)
            if session != main_key() and not looking.is_begun(tx, session):
                raise NotFound(f"no session {session}")
            keys = views.active_children(tx, session)
        else:
            keys = [looking.found(tx, params)]
        return ends(tx, keys, now, folder.drives, MOST_ENDS)

    return await folder.read(look)


@query("sessions.list")
async def sessions_list(folder: Reader, params: SessionsList) -> list[SessionRow]:
    """The first page of `sessions.query`, as a list."""
    wanted = SessionsQuery(agent=params.agent, kinds=params.kinds, limit=params.limit)
    return list((await sessions_query(folder, wanted)).rows)


@query("sessions.query")
async def sessions_query(folder: Reader, params: SessionsQuery) -> SessionPage:
    """A page of sessions, the latest active first."""
    now = folder.now()
    return await folder.read(lambda tx: page_of_sessions(tx, params, now))
