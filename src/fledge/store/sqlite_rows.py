"""The verbs that lists of runs and sessions are made of, in SQL. Each names the index that it follows, so that no plan
of the database can make it read all runs; `miscounted` alone does, to check the counters.
"""

from typing import Any, Final

from fledge.core.run import Instant
from fledge.store.records import AgentDay, ListedRun, ListedSession, RunCounts, RunFilter, RunMark, RunWalk
from fledge.store.sqlite_runs import ACTIVE, LISTED
from fledge.store.sqlite_sessions import SESSION, SessionVerbs, read_session

FAILED: Final = "(outcome = 'error' OR outcome = 'timeout' OR outcome = 'unknown')"
_STUCK: Final = f"""
SELECT r.id, r.key, r.created_at FROM runs r INDEXED BY runs_active LEFT JOIN drivers d ON d.session = r.key
WHERE {ACTIVE} AND r.phase = 'running' AND json_extract(r.state, '$.phase.stuck_at') > coalesce(d.progress_at, 0)
"""
_FEW: Final[dict[RunFilter, str]] = {
    "waiting": """
        SELECT id FROM runs
        WHERE (phase = 'spawning' OR phase = 'awaiting_approval') AND phase = 'awaiting_approval'
        UNION SELECT r.id FROM approvals a CROSS JOIN runs r ON r.key = a.session WHERE a.state = 'waiting'
    """,
    "stuck": f"SELECT id FROM ({_STUCK})",
    "undelivered": """
        SELECT r.id FROM inbox i CROSS JOIN runs r ON r.key = i.source WHERE i.state = 'undelivered' GROUP BY r.id
    """,
}
"""Filters that find few runs, however many there are."""


def _where(walk: RunWalk) -> tuple[str, list[Any]]:
    """The conditions of a walk besides its filter."""
    wanted = {
        "r.root = ?": walk.root or None,
        "r.parent = ?": walk.requester or None,
        "r.created_at >= ?": walk.since,
        "r.created_at < ?": walk.until,
    }
    given = {words: value for words, value in wanted.items() if value is not None}
    return "".join(f" AND {words}" for words in given), list(given.values())


def _source(walk: RunWalk) -> str:
    """The runs that a filter finds, by the index that fits."""
    match walk.filter:
        case "all" | "done":
            index = "runs_children" if walk.requester else "runs_tree" if walk.root else "runs_listed"
            done = f" AND NOT {ACTIVE}" if walk.filter == "done" else ""
            return f"runs r INDEXED BY {index} WHERE {LISTED}{done}"
        case "active":
            return f"runs r INDEXED BY runs_active WHERE {ACTIVE} AND {LISTED}"
        case "failed":
            return f"runs r INDEXED BY runs_failed WHERE {LISTED} AND {FAILED}"
        case few:
            return f"({_FEW[few]}) few CROSS JOIN runs r ON r.id = few.id WHERE {LISTED}"


class RowVerbs(SessionVerbs):
    """Lists of runs and sessions."""

    def listed_runs(self, walk: RunWalk, behind: RunMark | None, limit: int) -> list[ListedRun]:
        """The next runs of a walk."""
        where, args = _where(walk)
        if behind is not None:
            where, args = f"{where} AND (r.created_at, r.id) < (?, ?)", [*args, behind.at, behind.number]
        sql = f"SELECT r.key, r.root, r.created_at, r.id FROM {_source(walk)}{where}"
        rows = self._db.execute(f"{sql} ORDER BY r.created_at DESC, r.id DESC LIMIT ?", (*args, limit))
        return [ListedRun(key, root, RunMark(at, number)) for key, root, at, number in rows]

    def run_counts(self, root: str = "", requester: str = "") -> RunCounts:
        """Counters, and the few that are active or wait for somebody."""

        def few(name: RunFilter) -> int:
            walk = RunWalk(filter=name, root=root, requester=requester)
            where, args = _where(walk)
            return int(self._one(f"SELECT count(*) FROM {_source(walk)}{where}", *args)[0])

        scope = ("parent", requester) if requester else ("tree", root) if root else ("folder", "")
        row = self._one("SELECT listed, failed FROM tallies WHERE scope = ? AND session = ?", *scope) or (0, 0)
        return RunCounts(
            all=row[0],
            active=few("active"),
            waiting=few("waiting"),
            stuck=few("stuck"),
            failed=row[1],
            undelivered=few("undelivered"),
        )

    def child_numbers(self, parent: str, limit: int) -> dict[str, int]:
        """The places of children in list order, from both ends."""
        active = self._column(
            f"SELECT key FROM runs INDEXED BY runs_active WHERE parent = ? AND {ACTIVE} AND {LISTED}"
            " ORDER BY created_at, id LIMIT ?",
            parent,
            limit,
        )
        done = self._column(
            f"SELECT key FROM runs INDEXED BY runs_children WHERE parent = ? AND {LISTED} AND NOT {ACTIVE}"
            " ORDER BY created_at DESC, id DESC LIMIT ?",
            parent,
            limit,
        )
        last = self.count_retained(parent)
        return {key: at for at, key in enumerate(active, 1)} | {key: last - at for at, key in enumerate(done)}

    def listed_run(self, run: str) -> ListedRun | None:
        """What its row says."""
        row = self._one("SELECT root, created_at, id FROM runs WHERE key = ?", run)
        return None if row is None else ListedRun(run, row[0], RunMark(row[1], row[2]))

    def stuck_runs(self) -> list[str]:
        """Running ones that were told as stuck."""
        return self._column(f"SELECT key FROM ({_STUCK}) ORDER BY created_at, id")

    def lane_order(self, lane: str, limit: int) -> list[str]:
        """The queue of a lane, without those that pause."""
        sql = "SELECT session FROM queue WHERE lane = ? AND due_at IS NULL ORDER BY rank, seq LIMIT ?"
        return self._column(sql, lane, limit)

    def cost_below(self, session: str) -> float | None:
        """What was added up."""
        row = self._one("SELECT below_usd FROM sessions WHERE key = ?", session)
        return None if row is None else row[0]

    def agent_days(self, since: int) -> list[AgentDay]:
        """What was counted."""
        rows = self._db.execute(
            "SELECT agent, day, runs, cost_usd FROM agent_days WHERE day >= ? ORDER BY day, agent", (since,)
        )
        return [AgentDay(*row) for row in rows]

    def listed_sessions(
        self, agent_id: str, roots_only: bool, behind: tuple[Instant, str] | None, limit: int
    ) -> list[ListedSession]:
        """Open sessions by the time of their last entry."""
        index, where, args = "sessions_last", "state = 'open'", list[Any]()
        if roots_only:
            index, where = "sessions_roots", f"{where} AND depth = 0"
        if agent_id:
            where, args = f"{where} AND key >= ? AND key < ?", [f"agent:{agent_id}:", f"agent:{agent_id};"]
        if behind is not None:
            where, args = f"{where} AND (last_at, key) < (?, ?)", [*args, *behind]
        rows = self._db.execute(
            f"SELECT {SESSION}, last_at FROM sessions INDEXED BY {index} WHERE {where}"
            " ORDER BY last_at DESC, key DESC LIMIT ?",
            (*args, limit),
        )
        return [ListedSession(read_session(row[:-1]), row[-1]) for row in rows]

    def miscounted(self) -> list[str]:
        """Counters that differ from a full count."""
        counted = " UNION ALL ".join(
            f"SELECT '{scope}' AS scope, {session} AS session, count(*) AS listed, total({FAILED}) AS failed"
            f" FROM runs WHERE {LISTED} GROUP BY 2"
            for scope, session in (("folder", "''"), ("tree", "root"), ("parent", "parent"))
        )
        kept = "SELECT scope, session, listed, CAST(failed AS REAL) AS failed FROM tallies WHERE listed > 0"
        wrong = self._db.execute(
            f"SELECT DISTINCT scope, session FROM (SELECT * FROM (SELECT * FROM ({counted}) EXCEPT {kept})"
            f" UNION ALL SELECT * FROM ({kept} EXCEPT SELECT * FROM ({counted}))) ORDER BY 1, 2"
        )
        busy = self._column(
            "SELECT r.key FROM runs r LEFT JOIN children c ON c.session = r.key"
            " WHERE r.busy <> (coalesce(c.unsettled, 0) > 0) ORDER BY r.id"
        )
        return [f"{scope} {session}".strip() for scope, session in wrong] + [f"children of {key}" for key in busy]
