"""No verb that a commit or a pass of the engine uses reads a whole table: its cost does not grow with the store."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from fledge.api import entries
from fledge.orchestrator import control, due, transcripts
from fledge.store.base import AgentDay, RunCounts, RunFilter, RunMark, RunWalk
from fledge.store.known import Known
from fledge.store.migrate import migrate, migrations
from fledge.store.sqlite_flow import SqliteTx
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene

GROWING = (
    *("agent_days", "approvals", "attempts", "children", "deliveries", "entries", "inbox", "queue", "run_events"),
    *("runs", "sessions", "tallies", "texts"),
    *("a", "c", "e", "i", "r", "s", "t"),
)
"""Tables, and what statements call them."""
SMALL = re.compile(r"SCAN (drivers|outbox|found|lanes)\b")
WHOLE = re.compile(r"SCAN (\w+)(?! USING (?:COVERING )?INDEX)")


class Heard:
    """A connection that remembers every statement it was given."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.statements: dict[str, int] = {}

    def execute(self, sql: str, args: object = ()) -> sqlite3.Cursor:
        self.statements[sql] = len(args) if isinstance(args, tuple) else 0
        return self._db.execute(sql, args)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Scene()) as found:
        yield found


def statements_of(scene: Scene) -> dict[str, int]:
    """What the life of a few children says to the database, and what the engine asks in each pass."""
    heard = Heard(scene.store._db)
    scene.store._db = heard  # type: ignore[assignment]
    main = scene.main()
    for plan in (False, True):
        child = scene.start(scene.spawn(main, plan=plan))
        scene.step(child, "looking")
        scene.finish(child)
    killed = scene.start(scene.spawn(main))
    scene.kill(killed.session)
    scene.pass_time(10)
    nested = scene.begin(main)
    scene.spawn(nested)
    scene.wait(nested)
    scene.finish(main)
    scene.commit(lambda c: control.send(c, MAIN, "hello"))
    scene.commit(lambda c: due.take_over(c, "another"))
    now = scene.clock.now()

    def look(tx: SqliteTx) -> None:
        tx.claimable({"subagent": 4, "main": 4}, now, 64)
        tx.due_runs(now, 64)
        tx.due_posts(now, 64)
        tx.due_heartbeats(now, 64)
        tx.next_due(now)
        tx.children_page(MAIN, 20)
        tx.unsettled_children(MAIN, 20)
        tx.count_retained(MAIN)
        tx.sessions(None, 20)
        for name in get_args(RunFilter):
            for walk in (RunWalk(filter=name), RunWalk(filter=name, root=MAIN), RunWalk(filter=name, requester=MAIN)):
                tx.listed_runs(walk, RunMark(now, 5), 20)
                tx.run_counts(walk.root, walk.requester)
        tx.listed_sessions("main", True, (now, MAIN), 20)
        tx.listed_sessions("", False, None, 20)
        tx.child_numbers(MAIN, 20)
        tx.archived_above(MAIN)
        tx.lane_order("subagent", 20)
        tx.agent_days(20_000)
        tx.roots()
        tx.reservations(100)
        transcripts.lines(tx, MAIN)
        entries.page(tx, MAIN, 100, before=3)

    look(SqliteTx(heard, Known()))  # type: ignore[arg-type]
    return dict(heard.statements)


def test_nothing_that_happens_often_goes_through_a_whole_table(scene: Scene) -> None:
    statements = statements_of(scene)
    assert len(statements) > 60
    db = scene.store._db
    for sql, count in statements.items():
        if not re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)", sql) or ":after" in sql:
            continue
        plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * count)]
        scanned = [found[1] for step in plan if not SMALL.match(step) and (found := WHOLE.match(step))]
        assert not set(scanned) & set(GROWING), (sql, plan)


def test_a_scan_would_be_noticed(scene: Scene) -> None:
    plan = scene.store._db.execute("EXPLAIN QUERY PLAN SELECT key FROM runs WHERE phase = 'x' ORDER BY id").fetchall()
    assert [WHOLE.match(str(row[3])) is not None for row in plan] == [True]


def test_lists_written_by_an_older_fledge_are_counted_when_the_file_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, path, tuple(step for step in migrations() if step[0] < 22))
        for session, parent, depth, cost in (("talk", None, 0, 1.0), ("a", "talk", 1, 0.5), ("b", "a", 2, 0.25)):
            db.execute(
                "INSERT INTO sessions (key, kind, parent, depth, facts, created_at, cost_usd) VALUES (?,?,?,?,?,?,?)",
                (session, "subagent" if depth else "main", parent, depth, "{}", 5.0, cost),
            )
        db.execute("INSERT INTO entries VALUES ('talk', 1, 77.0, 'user', '{}')")
        db.execute("INSERT INTO children VALUES ('talk', 1, 0), ('a', 1, 1)")
        for key, parent, phase, outcome in (("a", "talk", "completed", "error"), ("b", "a", "queued", None)):
            db.execute(
                "INSERT INTO runs (key, parent, phase, version, outcome, delivery, spec, state)"
                " VALUES (?,?,?,1,?,?,'{}','{}')",
                (key, parent, phase, outcome, None if outcome is None else "delivered"),
            )
        db.execute("INSERT INTO run_events (run, version, event) SELECT id, 1, '{\"at\": 6.5}' FROM runs")
        migrate(db, path)
        tx = SqliteTx(db)
        assert tx.miscounted() == []
        assert tx.run_counts() == RunCounts(all=2, active=2, failed=1)
        assert tx.run_counts(root="talk").all == 2
        assert [(one.key, one.root, one.mark.at) for one in tx.listed_runs(RunWalk(), None, 9)] == [
            ("b", "talk", 6.5),
            ("a", "talk", 6.5),
        ]
        assert [tx.cost_below(key) for key in ("talk", "a", "b")] == [0.75, 0.25, None]
        assert [(one.session.key, one.last_at) for one in tx.listed_sessions("", True, None, 9)] == [("talk", 77.0)]


def test_what_agents_did_is_counted_by_day_when_the_file_is_brought_up_to_date(tmp_path: Path) -> None:
    path, day = tmp_path / "old.db", 86400.0
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, path, tuple(step for step in migrations() if step[0] < 24))
        for key, at in (
            (MAIN, 100 * day),
            ("agent:critic:subagent:a", 99 * day),
            ("agent:critic:subagent:b", 50 * day),
        ):
            db.execute(
                "INSERT INTO sessions (key, kind, parent, depth, facts, created_at, last_at)"
                " VALUES (?,'main',?,?,'{}',1,?)",
                (key, None if key == MAIN else MAIN, int(key != MAIN), at),
            )
            db.execute("INSERT INTO entries VALUES (?, 1, ?, 'assistant', '{\"cost_usd\": 0.5}')", (key, at))
            db.execute("INSERT INTO entries VALUES (?, 2, ?, 'assistant', '{\"cost_usd\": null}')", (key, at))
        for key, at in (("agent:critic:subagent:a", 98.5 * day), ("agent:critic:subagent:b", 50 * day)):
            db.execute(
                "INSERT INTO runs (key, parent, root, created_at, phase, version, spec, state)"
                " VALUES (?,?,?,?,'queued',1,'{}','{}')",
                (key, MAIN, MAIN, at),
            )
        migrate(db, path)
        assert SqliteTx(db).agent_days(0) == [
            AgentDay("critic", 98, 1, None),
            AgentDay("critic", 99, 0, 0.5),
            AgentDay("main", 100, 0, 0.5),
        ]


def test_a_counter_that_is_wrong_is_found(scene: Scene) -> None:
    scene.start(scene.spawn(scene.main()))
    tx = SqliteTx(scene.store._db)
    assert tx.miscounted() == []
    scene.store._db.execute("UPDATE tallies SET listed = listed + 1 WHERE scope = 'tree'")
    scene.store._db.execute("UPDATE runs SET busy = 1")
    found = tx.miscounted()
    assert found[0] == f"tree {MAIN}"
    assert found[1].startswith("children of agent:main:subagent:")
