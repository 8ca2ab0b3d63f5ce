"""Lists of runs and sessions, page by page. The cost does not grow with the number of finished runs: each query names
its index, so that no query plan reads all runs, and counts come from counters that commits maintain. Only `miscounted`
reads everything, to check the counters.
"""

from typing import Any, Final

from fledge.core.run import Instant
from fledge.store.records import (
    AgentDay,
    ChildrenPage,
    ListedRun,
    ListedSession,
    RunCounts,
    RunFilter,
    RunMark,
    RunWalk,
    Session,
)
from fledge.store.runs import ACTIVE, Runs, Tally
from fledge.store.session_rows import SESSION, read_session
from fledge.store.unit import Unit

LISTED: Final = "listed = 1"
_STUCK: Final = f"""
SELECT r.id, r.key, r.created_at FROM runs r INDEXED BY runs_active LEFT JOIN active d ON d.session = r.key
WHERE {ACTIVE} AND r.phase = 'running'
  AND CAST(json_extract(r.state, '$.phase.stuck_at') AS REAL) > coalesce(d.progress_at, 0)
"""
_FEW: Final[dict[RunFilter, str]] = {
    "waiting": """
        SELECT id FROM runs WHERE held IS NOT NULL AND held = 'awaiting_approval'
        UNION SELECT r.id FROM approvals a CROSS JOIN runs r ON r.key = a.session WHERE a.state = 'waiting'
    """,
    "stuck": f"SELECT id FROM ({_STUCK}) AS stuck",
    "undelivered": """
        SELECT r.id FROM inbox i CROSS JOIN runs r ON r.key = i.source WHERE i.state = 'undelivered' GROUP BY r.id
    """,
}
"""Filters that match few runs, however many there are."""
_ARCHIVED_ABOVE: Final = """
WITH RECURSIVE above(key, parent) AS (
  SELECT r.key, r.parent FROM tallies t CROSS JOIN runs r ON r.key = t.session
  WHERE t.scope = 'parent' AND r.listed = 0
  UNION SELECT r.key, r.parent FROM above JOIN runs r ON r.key = above.parent WHERE r.listed = 0
)
SELECT above.key FROM above JOIN runs r ON r.key = above.key WHERE above.parent = ? ORDER BY r.created_at, r.id
"""
_SESSIONS: Final = f"""
SELECT {SESSION} FROM sessions
WHERE key >= ? AND key < ? AND state = 'open' ORDER BY last_at DESC, key LIMIT ?
"""


def _where(walk: RunWalk) -> tuple[str, list[Any]]:
    """The conditions of a walk, without its filter."""
    wanted = {
        "r.root = ?": walk.root or None,
        "r.parent = ?": walk.requester or None,
        "r.created_at >= ?": walk.since,
        "r.created_at < ?": walk.until,
    }
    given = {words: value for words, value in wanted.items() if value is not None}
    return "".join(f" AND {words}" for words in given), list(given.values())


def _source(walk: RunWalk) -> str:
    """The runs that match the filter, with the index for it."""
    match walk.filter:
        case "all" | "done":
            index = "runs_children" if walk.requester else "runs_tree" if walk.root else "runs_listed"
            done = f" AND NOT {ACTIVE}" if walk.filter == "done" else ""
            return f"runs r INDEXED BY {index} WHERE {LISTED}{done}"
        case "active":
            return f"runs r INDEXED BY runs_active WHERE {ACTIVE} AND {LISTED}"
        case "failed":
            return f"runs r INDEXED BY runs_failed WHERE {LISTED} AND failed = 1"
        case few:
            return f"({_FEW[few]}) few CROSS JOIN runs r ON r.id = few.id WHERE {LISTED}"


_SIZE: Final = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'"
)


class Lists:
    """Pages of runs and sessions, and their counts."""

    def __init__(self, unit: Unit, runs: Runs) -> None:
        self._unit, self._runs = unit, runs

    # -- runs

    def runs(self, walk: RunWalk, behind: RunMark | None, limit: int) -> list[ListedRun]:
        """The next runs of a walk, newest first, after the mark `behind`, or from the beginning."""
        where, args = _where(walk)
        if behind is not None:
            where, args = f"{where} AND (r.created_at, r.id) < (?, ?)", [*args, behind.at, behind.number]
        sql = f"SELECT r.key, r.root, r.created_at, r.id FROM {_source(walk)}{where}"
        rows = self._unit.all(f"{sql} ORDER BY r.created_at DESC, r.id DESC LIMIT ?", *args, limit)
        return [ListedRun(key, root, RunMark(at, number)) for key, root, at, number in rows]

    def run(self, key: str) -> ListedRun | None:
        """The run with its position in lists, also if it is archived; None if there is no such run."""
        row = self._runs.rows.get(key)
        return None if row is None else ListedRun(key, row.root, RunMark(row.created_at, row.id))

    def counts(self, root: str = "", requester: str = "") -> RunCounts:
        """How many runs match each filter: of all, below a root, or among the children of a requester."""

        def few(name: RunFilter) -> int:
            walk = RunWalk(filter=name, root=root, requester=requester)
            where, args = _where(walk)
            return self._unit.number(f"SELECT count(*) FROM {_source(walk)}{where}", *args)

        scope = ("parent", requester) if requester else ("tree", root) if root else ("folder", "")
        tally = self._runs.tallies.get(scope) or Tally(*scope, 0, 0)
        return RunCounts(
            all=tally.listed,
            active=few("active"),
            waiting=few("waiting"),
            stuck=few("stuck"),
            failed=tally.failed,
            undelivered=few("undelivered"),
        )

    def stuck(self) -> list[str]:
        """Keys of runs that count as stuck and have made no progress since, oldest first."""
        return self._unit.column(f"SELECT key FROM ({_STUCK}) AS stuck ORDER BY created_at, id")

    def agent_days(self, since: int) -> list[AgentDay]:
        """Runs and cost of each agent on each day since this one, by day."""
        sql = "SELECT agent, day, runs, cost_usd FROM agent_days WHERE day >= ? ORDER BY day, agent"
        return [AgentDay(*row) for row in self._unit.all(sql, since)]

    # -- children of one session

    def children(self, session: str, limit: int, newest: bool = False) -> ChildrenPage:
        """The first children in list order: active ones first, then by age, or newest first; without archived ones."""
        room = max(0, limit)
        order = "created_at DESC, id DESC" if newest else "created_at, id"
        active = f"FROM runs INDEXED BY runs_active WHERE parent = ? AND {ACTIVE} AND {LISTED}"
        keys = self._unit.column(f"SELECT key {active} ORDER BY {order} LIMIT ?", session, room)
        if len(keys) < room:
            keys += self._unit.column(
                f"SELECT key FROM runs INDEXED BY runs_children WHERE parent = ? AND {LISTED} AND NOT {ACTIVE}"
                f" ORDER BY {order} LIMIT ?",
                *(session, room - len(keys)),
            )
        count = self._unit.number(f"SELECT count(*) {active}", session)
        return ChildrenPage(keys, count, self.count_children(session) - count)

    def count_children(self, session: str) -> int:
        """The number of this session's children that are not archived."""
        tally = self._runs.tallies.get(("parent", session))
        return 0 if tally is None else tally.listed

    def archived_above(self, session: str) -> list[str]:
        """Keys of the session's archived children that have runs below them that are not archived, oldest first."""
        return self._unit.column(_ARCHIVED_ABOVE, session)

    # -- sessions

    def recent_sessions(self, agent_id: str | None = None, limit: int = 1000) -> list[tuple[Session, Instant]]:
        """Open sessions (of one agent, or of all) with the time of their last entry, newest first.

        For a session without entries it is the time at which it was opened.
        """
        # Keys of one agent are adjacent: from `agent:<id>:` up to the character after the colon.
        first, end = ("agent:", "agent;") if agent_id is None else (f"agent:{agent_id}:", f"agent:{agent_id};")
        return [(read_session(row[:-1]), row[-1]) for row in self._unit.all(_SESSIONS, first, end, limit)]

    def sessions(
        self, agent_id: str, roots_only: bool, behind: tuple[Instant, str] | None, limit: int
    ) -> list[ListedSession]:
        """The next open sessions, the most recently active first, after `behind` (a time and key), or from the
        beginning; of one agent, if one is named. `roots_only`: only conversations and programs."""
        index, where, args = "sessions_last", "state = 'open'", list[Any]()
        if roots_only:
            index, where = "sessions_roots", f"{where} AND depth = 0"
        if agent_id:
            where, args = f"{where} AND key >= ? AND key < ?", [f"agent:{agent_id}:", f"agent:{agent_id};"]
        if behind is not None:
            where, args = f"{where} AND (last_at, key) < (?, ?)", [*args, *behind]
        rows = self._unit.all(
            f"SELECT {SESSION} FROM sessions INDEXED BY {index} WHERE {where} ORDER BY last_at DESC, key DESC LIMIT ?",
            *(*args, limit),
        )
        return [ListedSession(read_session(row[:-1]), row[-1]) for row in rows]

    # -- totals

    def count_rows(self) -> tuple[int, int]:
        """The number of runs and of sessions, archived and deleted ones included."""
        row = self._unit.one("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM sessions)")
        return int(row[0]), int(row[1])

    def bytes_on_server(self) -> int:
        """The size of all tables with their indexes, on a server; 0 where the database is a file."""
        return self._unit.number(_SIZE) if self._unit.is_remote else 0

    def miscounted(self) -> list[str]:
        """Counters that differ from a count of all runs. Only for checks: it reads all runs."""
        counted = " UNION ALL ".join(
            f"SELECT '{scope}' AS scope, {session} AS session, count(*) AS listed, sum(failed) AS failed"
            f" FROM runs WHERE {LISTED} GROUP BY 2"
            for scope, session in (("folder", "''"), ("tree", "root"), ("parent", "parent"))
        )
        kept = "SELECT scope, session, listed, failed FROM tallies"
        wrong = self._unit.all(
            "SELECT DISTINCT scope, session FROM ("
            f"SELECT * FROM (SELECT * FROM ({counted}) AS counted EXCEPT {kept}) AS missing UNION ALL"
            f" SELECT * FROM ({kept} EXCEPT SELECT * FROM ({counted}) AS counted) AS wrong"
            ") AS found ORDER BY 1, 2"
        )
        busy = self._unit.column(
            "SELECT r.key FROM runs r LEFT JOIN sessions s ON s.key = r.key"
            " WHERE (r.busy = 1) <> (coalesce(s.unsettled, 0) > 0) ORDER BY r.id"
        )
        return [f"{scope} {session}".strip() for scope, session in wrong] + [f"children of {key}" for key in busy]
