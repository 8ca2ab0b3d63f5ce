"""Heartbeats on rows: who can have one, what is dropped, what time it is."""

import os
import time
from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace

from fledge.core.heartbeat import HeartbeatSettings
from fledge.core.keys import project_key
from fledge.orchestrator import control, exchanges, heartbeat, inbox, spawn
from fledge.orchestrator.heartbeat import time_of_day
from fledge.store.base import HeartbeatRow
from fledge.testing import START
from tests.model.world import MAIN
from tests.orchestrator.scene import PROGRAM, Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def in_honolulu() -> Iterator[None]:
    """This process is ten hours behind for a while."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "HST10"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def wanted(scene: Scene, key: str = MAIN) -> HeartbeatRow | None:
    return scene.read(lambda tx: tx.heartbeats.get(key))


def ask(scene: Scene, key: str = MAIN) -> None:
    scene.commit(lambda c: heartbeat.request(c, key, "somebody asked"))


# ---- time of day -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "zone", "minute", "second"),
    [
        (START, "UTC", 480, 0.0),
        (START + 61.5, "UTC", 481, 1.5),
        (START, "Asia/Tokyo", 17 * 60, 0.0),
        (START, "Asia/Kathmandu", 13 * 60 + 45, 0.0),
        (START, "America/New_York", 180, 0.0),
        (START + 180 * 86400.0, "America/New_York", 240, 0.0),
        (START + 16 * 3600.0 - 0.5, "UTC", 1439, 59.5),
    ],
)
def test_the_time_of_day_is_that_of_the_zone(at: float, zone: str, minute: int, second: float) -> None:
    assert time_of_day(at, zone) == pytest.approx((minute, second), abs=1e-3)


def test_local_is_this_computers_zone(in_honolulu: None) -> None:
    assert time_of_day(START + 61.5, "local") == pytest.approx((22 * 60 + 1, 1.5), abs=1e-3)


# ---- who can have one ------------------------------------------------------------------------------------------------


def test_a_program_and_a_session_that_is_gone_have_none(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    scene.delete()
    for key in (MAIN, PROGRAM, "agent:main:nobody"):
        ask(scene, key)
        assert wanted(scene, key) is None


def test_a_session_that_outlives_its_run_has_its_own(scene: Scene) -> None:
    o = scene.orchestrator(mode="session")
    ask(scene, o.session)
    assert wanted(scene, o.session) is None
    assert wanted(scene) is not None
    scene.finish(o)
    ask(scene, o.session)
    assert wanted(scene, o.session) is not None


# ---- what becomes of a wake ------------------------------------------------------------------------------------------


def test_a_wake_for_what_was_read_meanwhile_is_let_go(scene: Scene) -> None:
    scene.commit(lambda c: inbox.notice(c, MAIN, "n", "something is odd"))
    scene.send(MAIN, "good morning", None)
    main = scene.start(MAIN)
    assert scene.unread(MAIN) == []
    assert wanted(scene) == HeartbeatRow(MAIN)
    scene.finish(main)
    scene.pass_time(10.0)
    assert scene.claimable() == []


def test_a_wake_beside_a_turn_that_comes_anyway_is_that_turn(scene: Scene) -> None:
    ask(scene)
    scene.send(MAIN, "good morning", None)
    scene.pass_time(0.25)
    assert scene.start(MAIN).heartbeat == ""
    assert wanted(scene) == HeartbeatRow(MAIN)


def test_a_turn_that_comes_anyway_and_finds_nothing_to_read_is_the_heartbeats_own(scene: Scene) -> None:
    ask(scene)
    scene.commit(lambda c: exchanges.enqueue(c, MAIN, MAIN))
    scene.pass_time(0.25)
    assert scene.start(MAIN).heartbeat == "action"
    assert wanted(scene) == HeartbeatRow(MAIN)


def test_a_heartbeat_that_begins_is_the_periodic_one_too_if_that_is_due(scene: Scene) -> None:
    """As after a restart: the turn of one beat was queued, and others were missed since."""
    scene.rules = replace(scene.rules, heartbeat=HeartbeatSettings(every_s=60.0))
    scene.commit(lambda c: heartbeat.keep_beat(c, MAIN))
    began = scene.clock.now()
    scene.pass_time(60.0)
    scene.clock.advance(125.0)
    assert scene.start(MAIN).heartbeat == "interval"
    assert wanted(scene) == HeartbeatRow(MAIN, beat_at=began + 240.0)
    assert not scene.let_time_act()


@proves("5.heartbeat.17", "One main conversation of an agent beats: the one a person spoke in last, else `main`")
def test_of_an_agents_main_conversations_the_one_that_was_spoken_in_last_beats(scene: Scene) -> None:
    scene.rules = replace(scene.rules, heartbeat=HeartbeatSettings(every_s=60.0))
    mains = [MAIN, *(project_key(folder) for folder in ("/src/docs", "/src/site"))]
    critic = project_key("/src/docs", "critic")
    for key, folder in zip((*mains, critic), ("", "/src/docs", "/src/site", "/src/docs"), strict=True):
        scene.commit(partial(spawn.open_conversation, key=key, folder=folder))

    def beaten() -> list[str]:
        """Which have a heartbeat when the time comes; they are over then."""
        scene.pass_time(60.0)
        queued = scene.read(lambda tx: [key for key in (*mains, critic) if tx.queue.place(key) is not None])
        while scene.claim():
            for drive in (*scene.drives.values(),):
                scene.finish(drive, "HEARTBEAT_OK")
        return queued

    assert beaten() == [MAIN, critic]
    for spoken in (mains[2], mains[1], MAIN):
        scene.commit(partial(control.send, key=spoken, message="hello"))
        scene.finish(scene.start(spoken), "well")
        assert beaten() == [spoken, critic]
        assert beaten() == [spoken, critic]


def test_what_other_sessions_and_the_system_say_moves_no_heartbeat(scene: Scene) -> None:
    docs = project_key("/src/docs")
    scene.commit(lambda c: spawn.open_conversation(c, MAIN))
    scene.commit(lambda c: spawn.open_conversation(c, docs, "/src/docs"))
    scene.send(docs, "from a session")
    scene.finish(scene.start(docs), "well")
    scene.commit(lambda c: inbox.notice(c, docs, "n", "something is odd"))
    scene.finish(scene.start(docs), "indeed")
    assert scene.read(lambda tx: tx.transcripts.last_spoken_at(docs)) is None


def test_a_wake_that_is_held_stays_wanted_when_a_turn_is_over_that_leaves_nothing_to_read(scene: Scene) -> None:
    main = scene.main()
    ask(scene)
    scene.pass_time(0.25)
    held = wanted(scene)
    assert held is not None
    assert (held.cause, held.held) == ("action", "busy")
    scene.finish(main)
    assert not scene.claim()
    assert wanted(scene) == held
    scene.pass_time(1.0)
    assert scene.start(MAIN).heartbeat == "action"


def test_a_wake_beside_a_turn_that_waits_for_its_next_try_is_let_go_and_asked_for_at_its_end(scene: Scene) -> None:
    scene.fail(scene.main())
    scene.commit(lambda c: inbox.notice(c, MAIN, "n", "something is odd"))
    assert wanted(scene) is None
    ask(scene)
    scene.pass_time(0.25)
    assert wanted(scene) == HeartbeatRow(MAIN)
    scene.stop()
    found = wanted(scene)
    assert found is not None
    assert found.cause == "default"


def test_what_is_due_changes_nothing_before_its_time_or_once_it_is_gone(scene: Scene) -> None:
    assert not scene.commit(lambda c: heartbeat.come_due(c, MAIN))
    ask(scene)
    before = wanted(scene)
    assert scene.commit(lambda c: heartbeat.come_due(c, MAIN))
    assert wanted(scene) == before


def test_deleting_a_conversation_takes_its_heartbeat_along(scene: Scene) -> None:
    ask(scene)
    scene.commit(lambda c: control.delete_session(c, MAIN))
    assert wanted(scene) is None
    scene.pass_time(1.0)
    assert scene.claimable() == []


def test_a_heartbeat_says_why_to_its_driver(scene: Scene) -> None:
    ask(scene)
    scene.pass_time(0.25)
    found = wanted(scene)
    assert found is not None
    assert (found.cause, found.due_at) == ("action", None)
    main = scene.start(MAIN)
    assert main.heartbeat == "action"
    assert wanted(scene) == HeartbeatRow(MAIN)
    scene.finish(main, "HEARTBEAT_OK")
    assert scene.said(MAIN)[-1] == "a heartbeat: nothing needed attention"
