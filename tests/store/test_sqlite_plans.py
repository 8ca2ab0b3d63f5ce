"""No verb that a commit or a pass of the engine uses reads a whole table: its cost does not grow with the store."""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import get_args

import pytest

from fledge.api import entries
from fledge.orchestrator import cluster, control, transcripts
from fledge.store.base import RunFilter, RunMark, RunWalk, Tx
from fledge.store.unit import Unit
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene

GROWING = (
    *("active", "agent_days", "approvals", "asks", "attempts", "deliveries", "entries", "inbox", "run_events", "runs"),
    *("sessions", "tallies", "texts"),
    *("a", "c", "e", "i", "r", "s", "t"),
)
"""Tables, and what statements call them."""
SMALL = re.compile(r"SCAN (outbox|found|lanes)\b")
WHOLE = re.compile(r"SCAN (\w+)(?! USING (?:COVERING )?INDEX)")


class Heard:
    """A connection that remembers every statement it was given."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.statements: dict[str, int] = {}

    def execute(self, sql: str, args: object = ()) -> sqlite3.Cursor:
        self.statements[sql] = len(args) if isinstance(args, tuple) else 0
        return self._db.execute(sql, args)  # type: ignore[arg-type]

    def executemany(self, sql: str, rows: Iterable[tuple[object, ...]]) -> sqlite3.Cursor:
        given = list(rows)
        self.statements[sql] = len(given[0])
        return self._db.executemany(sql, given)

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Scene()) as found:
        yield found


def statements_of(scene: Scene) -> dict[str, int]:
    """What the life of a few children says to the database, and what the engine asks in each pass."""
    heard = Heard(scene.store._db)
    scene.store._tx.unit.db = heard
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
    scene.commit(lambda c: cluster.take_over(c, "another"))
    now = scene.clock.now()

    def look(tx: Tx) -> None:
        tx.queue.claimable({"subagent": 4, "main": 4}, now, 64)
        tx.runs.due(now, 64)
        tx.outbox.due(now, 64)
        tx.heartbeats.due(now, 64)
        tx.next_due(now)
        tx.lists.children(MAIN, 20)
        tx.runs.unsettled(MAIN, 20)
        tx.lists.count_children(MAIN)
        tx.lists.recent_sessions(None, 20)
        for name in get_args(RunFilter):
            for walk in (RunWalk(filter=name), RunWalk(filter=name, root=MAIN), RunWalk(filter=name, requester=MAIN)):
                tx.lists.runs(walk, RunMark(now, 5), 20)
                tx.lists.counts(walk.root, walk.requester)
        tx.lists.sessions("main", True, (now, MAIN), 20)
        tx.lists.sessions("", False, None, 20)
        tx.runs.numbered(MAIN, 20)
        tx.lists.archived_above(MAIN)
        tx.queue.lane_order("subagent", 20)
        tx.lists.agent_days(20_000)
        tx.sessions.roots()
        tx.runs.reservations()
        transcripts.lines(tx, MAIN)
        entries.page(tx, MAIN, 100, before=3)

    look(Tx(Unit(heard)))
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


def test_the_words_of_a_statement_name_every_table_it_touches(scene: Scene) -> None:
    """What waits for a table is written before a statement looks at it, so none may look at one unsaid."""
    statements = statements_of(scene)
    db, unit = scene.store._db, scene.store._tx.unit
    seen: set[str] = set()

    def note(action: int, first: str | None, second: str | None, *_: object) -> int:
        if action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE):
            seen.add(first or "")
        return sqlite3.SQLITE_OK

    for sql, count in statements.items():
        seen.clear()
        db.set_authorizer(note)
        try:
            db.execute(f"EXPLAIN {sql}", (None,) * count)
        finally:
            db.set_authorizer(None)
        plan = unit._plan(sql)
        assert seen & set(unit.tables) <= set(plan.touches), sql
        assert plan.changes in seen or not plan.changes, sql


def test_a_scan_would_be_noticed(scene: Scene) -> None:
    plan = scene.store._db.execute("EXPLAIN QUERY PLAN SELECT key FROM runs WHERE phase = 'x' ORDER BY id").fetchall()
    assert [WHOLE.match(str(row[3])) is not None for row in plan] == [True]


def test_a_counter_that_is_wrong_is_found(scene: Scene) -> None:
    scene.start(scene.spawn(scene.main()))
    tx = Tx(Unit(scene.store._db))
    assert tx.lists.miscounted() == []
    scene.store._db.execute("UPDATE tallies SET listed = listed + 1 WHERE scope = 'tree'")
    scene.store._db.execute("UPDATE runs SET busy = 1")
    found = tx.lists.miscounted()
    assert found[0] == f"tree {MAIN}"
    assert found[1].startswith("children of agent:main:subagent:")
