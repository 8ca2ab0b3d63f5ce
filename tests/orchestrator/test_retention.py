"""What is left of runs in the end: kept sessions, timelines, rows; and what is never removed."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fledge.orchestrator import messages
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture

DAY_S = 86400.0
BOB = "agent:bob:main"
TABLES = ("runs", "run_events", "attempts", "texts", "deliveries", "asks", "entries", "active")

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def tidy() -> Iterator[Scene]:
    with closing(Scene(delete_kept=True)) as scene:
        yield scene
        scene.check()


def two_levels(scene: Scene, **terms: float) -> tuple[str, str]:
    """Main has been told by O, and O by W."""
    o = scene.orchestrator(lane="nested", **terms)
    w = scene.begin(o, **terms)
    scene.finish(w, "found it")
    assert scene.finish(o, "early") == "on"
    scene.finish(o, "the answer")
    assert scene.read_main() == [o.session]
    return o.session, w.session


def left(scene: Scene, key: str) -> int:
    """How many rows of all tables still name this session."""
    found = sum(scene.sql("SELECT count(*) FROM inbox WHERE session = ? OR source = ?", key, key)[0])
    for table, column in (("runs", "key"), ("sessions", "key"), ("entries", "session"), ("texts", "owner")):
        found += scene.sql(f"SELECT count(*) FROM {table} WHERE {column} = ?", key)[0][0]
    return int(found)


def test_a_kept_session_is_readable_for_its_days_after_the_archive_and_then_goes(scene: Scene) -> None:
    o, w = two_levels(scene, kept_s=10 * DAY_S, timeline_s=30 * DAY_S)
    scene.pass_time(3600.0)
    assert (scene.phase(o), scene.phase(w)) == ("archived", "archived")
    scene.pass_time(10 * DAY_S - 1)
    assert "the answer" in scene.said(o)
    scene.pass_time(1.0)
    assert scene.entries(o) == []
    assert scene.session(o).deleted
    assert scene.read(lambda tx: len(tx.events.of(o))) > 5
    scene.pass_time(20 * DAY_S)
    assert (left(scene, o), left(scene, w)) == (0, 0)


def test_nothing_of_a_forgotten_tree_is_left_but_the_conversation(scene: Scene) -> None:
    before = {table: len(scene.sql(f"SELECT 1 FROM {table}")) for table in TABLES}
    o, w = two_levels(scene)
    scene.pass_time(3600.0)
    scene.pass_time(30 * DAY_S)
    assert (left(scene, o), left(scene, w)) == (0, 0)
    after = {table: len(scene.sql(f"SELECT 1 FROM {table}")) for table in TABLES}
    # One empty event keeps the number of the last one.
    own = {"entries": len(scene.entries(MAIN)), "run_events": 1}
    assert after == {table: own.get(table, count) for table, count in before.items()}
    assert [kind for (kind,) in scene.sql("SELECT kind FROM inbox")] == ["send"]


def test_delete_kept_removes_the_session_with_the_archive_and_keeps_the_timeline(tidy: Scene) -> None:
    o, _ = two_levels(tidy)
    assert tidy.said(o)
    tidy.pass_time(3600.0)
    assert tidy.entries(o) == []
    assert tidy.session(o).deleted
    assert tidy.read(lambda tx: len(tx.events.of(o))) > 5


def test_what_is_unread_is_never_removed_however_old_it_is(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main)
    scene.finish(o, "the answer")
    for _ in range(100):
        scene.pass_time(DAY_S)
    assert scene.outcome_row(o.session).state == "unread"
    scene.finish(main)
    assert scene.read_main() == [o.session]


def test_what_is_undelivered_stays_its_days_and_its_run_as_long(scene: Scene) -> None:
    o = scene.orchestrator(undelivered_s=7 * DAY_S)
    scene.finish(o, "the answer")
    scene.delete()
    for wait_s in (1.0, 2.0, 4.0, 7 * DAY_S - 1):
        scene.pass_time(wait_s)
    assert [row.source for row in scene.read(lambda tx: tx.inbox.undelivered())] == [o.session]
    assert scene.result(o.session) == "the answer"
    scene.pass_time(1.0)
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []
    assert scene.phase(o.session) == "completed"


# ---- messages between sessions ---------------------------------------------------------------------------------------


def _say(scene: Scene, name: str) -> None:
    sending = messages.Sending(id=name, sender=MAIN, target=BOB, message="hello", opens=True)
    scene.commit(lambda c: messages.begin_exchange(c, sending))


def _known(scene: Scene) -> list[str]:
    return [row[0] for row in scene.sql("SELECT id FROM exchanges ORDER BY id")]


def test_what_two_conversations_said_to_each_other_is_forgotten_once_it_is_over_and_old(scene: Scene) -> None:
    for name in ("answered", "unread"):
        _say(scene, name)
    scene.finish(scene.start(BOB), "NO_REPLY")
    scene.clock.advance(30 * DAY_S)
    _say(scene, "young")
    assert _known(scene) == ["answered", "unread", "young"]
    scene.clock.advance(1.0)
    _say(scene, "new")
    assert _known(scene) == ["new", "unread", "young"]
    for _ in range(3):
        scene.finish(scene.start(BOB), "NO_REPLY")
    assert scene.unread(BOB) == []
