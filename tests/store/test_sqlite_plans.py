"""No verb that a commit or a pass of the engine uses reads a whole table: its cost does not grow with the store."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from fledge.api import entries
from fledge.orchestrator import control, due, transcripts
from fledge.store.known import Known
from fledge.store.sqlite_flow import SqliteTx
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene

GROWING = ("attempts", "children", "deliveries", "entries", "inbox", "queue", "run_events", "runs", "sessions", "texts")
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
