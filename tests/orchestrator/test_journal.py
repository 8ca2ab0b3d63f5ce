"""What commits did, in counts and lines of log; and the trace of every try at a delivery, also of those in vain."""

import logging
from contextlib import closing
from pathlib import Path

import pytest

from fledge.core import events as ev
from fledge.core.announce import Tried
from fledge.core.heartbeat import HeartbeatSettings, active_hours
from fledge.orchestrator import control, effects, journal, spawn, views
from fledge.orchestrator.commit import Commit, Hints
from fledge.testing import Stage
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, for_a_program, scene_fixture
from tests.orchestrator.stage import PROGRAM, Theatre, World, rules, works
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


# ---- traces ----------------------------------------------------------------------------------------------------------

GONE = (Tried("direct-primary", "failed", "missing-requester"), Tried("queue-fallback", "failed", "missing-requester"))


@proves("0.timeline.5", "A delivery attempt that was deferred or failed is traced too")
def test_every_try_that_finds_nobody_is_traced_and_so_is_giving_up(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.finish(o, "the answer")
    scene.delete()
    key = scene.outcome_row(o.session).key
    for wait_s in (1.0, 2.0, 4.0):
        scene.pass_time(wait_s)
    assert scene.phase(o.session) == "completed_giveup"
    traces = scene.traces(key)
    assert [trace.why for trace in traces] == ["missing-requester"] * 3 + ["no requester is left"]
    assert {(trace.requester, trace.depth, trace.route, trace.path) for trace in traces} == {
        (MAIN, "main", "fallback", None)
    }
    assert traces[0].tried == GONE
    assert [(step.phase, step.result) for step in traces[-1].tried] == [
        ("direct-primary", "failed"),
        ("queue-fallback", "failed"),
    ]
    at = [
        round(when - scene.ended(o.session).ended_at, 3)
        for when, _ in scene.read(lambda tx: views.tries(tx, o.session))
    ]
    assert at == [0.0, 1.0, 3.0, 7.0]


def test_a_fire_and_forget_run_that_finds_nobody_tried_the_queue_first(scene: Scene) -> None:
    o = scene.orchestrator(expects=False)
    scene.delete()
    scene.finish(o, "the answer")
    (trace,) = scene.traces(scene.outcome_row(o.session).key)
    assert [step.phase for step in trace.tried] == ["queue-primary", "direct-fallback"]


def test_an_answer_that_is_retried_and_read_ends_in_a_trace_that_was_delivered(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.finish(o, "the answer")
    scene.delete()
    for wait_s in (1.0, 2.0, 4.0):
        scene.pass_time(wait_s)
    scene.commit(lambda c: spawn.open_conversation(c, MAIN))
    scene.commit(lambda c: control.retry(c, o.session))
    scene.read_main()
    *_, last = scene.traces(scene.outcome_row(o.session).key)
    assert (last.path, last.why) == ("direct", "")


@proves("0.timeline.5")
def test_an_announce_that_waits_for_descendants_is_traced_as_deferred(scene: Scene) -> None:
    o = scene.orchestrator(wakeable=False)
    w = scene.begin(o)
    scene.finish(o, "done, but for a child")
    ((_, trace),) = scene.read(lambda tx: views.tries(tx, o.session))
    assert (trace.tried, trace.path) == ((Tried("direct-primary", "deferred", "descendants-active"),), None)
    scene.finish(w)
    scene.read_main()
    assert [trace.path for _, trace in scene.read(lambda tx: views.tries(tx, o.session))] == [None, "direct"]


def test_a_nested_requester_that_is_lost_is_traced_as_nested(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested", mode="session")
    scene.finish(o)
    scene.send(o.session, "more", None)
    w = scene.begin(scene.start(o.session))
    scene.delete(o.session)
    scene.delete()
    scene.finish(w)
    ((_, trace),) = scene.read(lambda tx: views.tries(tx, w.session))
    assert (trace.requester, trace.depth) == (o.session, "nested")


def test_a_program_that_never_reads_is_traced_once_it_is_given_up(scene: Scene) -> None:
    drive = for_a_program(scene)
    scene.finish(drive, "the answer")
    scene.pass_time(1800.0)
    ((_, trace),) = scene.read(lambda tx: views.tries(tx, drive.session))
    assert (trace.tried, trace.path, trace.why) == ((), None, "the program did not read it for 30 min")


@proves("2.hops.14", "The clock stands still while a requester is busy")
def test_a_busy_requester_is_waited_for_however_long_it_takes(scene: Scene) -> None:
    """The clock of giving up stands still: hop 1 never expires while somebody is there."""
    main = scene.main()
    o = scene.begin(main)
    scene.finish(o, "the answer")
    scene.pass_time(7 * 86400.0)
    assert (scene.phase(o.session), scene.outcome_row(o.session).state) == ("announcing", "unread")
    scene.finish(main)
    assert scene.read_main() == [o.session]
    assert len(scene.traces(scene.outcome_row(o.session).key)) == 1


@proves("2.hops.15", "The clock stands still outside `activeHours`")
def test_outside_active_hours_the_clock_of_giving_up_stands_still() -> None:
    """Test time begins at 08:00 UTC."""
    hours = HeartbeatSettings(hours=active_hours("09:00", "17:00"), zone="UTC")
    with closing(Scene(heartbeat=hours)) as scene:
        o = scene.orchestrator(expects=False, max_retries=100_000)
        scene.delete()
        scene.finish(o, "the answer")
        for _ in range(440):
            scene.pass_time(8.0)
        assert scene.phase(o.session) == "announce_deferred", "for almost an hour"
        for _ in range(50):
            scene.pass_time(8.0)
        assert scene.phase(o.session) == "completed_giveup", "five minutes into the hours"
        scene.check()


# ---- counts ----------------------------------------------------------------------------------------------------------


def test_what_happened_is_counted_by_outcome_and_reason(theatre: Theatre) -> None:
    async def silent(stage: Stage) -> None:
        await stage.say("NO_REPLY")

    async def broken(stage: Stage) -> None:
        await stage.fail("no model")

    async def body(world: World) -> dict[str, dict[str, int]]:
        keys = [await world.spawn(label) for label in ("A", "B", "silent", "broken", "slow")]
        await world.sleep_until(1)
        await world.kill(keys[-1])
        await world.spawn("C", PROGRAM)
        await world.sleep_until(3600)
        return world.engine.counters.shown()

    found = theatre.act(body, {"silent": silent, "broken": broken, "slow": works(60)})
    assert found["outcomes"] == {"error": 1, "killed": 1, "ok": 4}
    assert found["phases"]["spawning"] == found["phases"]["running"] == 6
    assert found["phases"]["completed_giveup"] == 1
    arrived = {how: count for how, count in found["deliveries"].items() if how.startswith("delivered:")}
    assert sum(arrived.values()) == 3
    assert found["deliveries"] == arrived | {
        "skipped:silent": 1,
        "skipped:suppressed": 1,
        "undelivered:the program did not read it for 30 min": 1,
    }


def test_deferrals_are_counted_for_each_try_and_interrupts_by_step(scene: Scene) -> None:
    counters = journal.Counters()

    def noted(c: Commit) -> Hints:
        return c.hints

    o = scene.orchestrator()
    scene.delete()
    hints = scene.commit(lambda c: (effects.apply(c, o.session, _finished(c, o.session)), noted(c))[1])
    counters.note(hints)
    assert counters.shown()["deliveries"] == {"deferred:missing-requester": 1}
    counters.note(
        Hints(
            interrupted=[
                ("a", 1, 1),
                ("b", 2, 1),
            ]
        )
    )
    assert counters.shown()["interrupts"] == {"steps": 2}


def _finished(c: Commit, key: str) -> ev.AttemptEnded:
    said = ev.Finished("text", c.tx.texts.keep(key, "the answer"))
    return ev.AttemptEnded(at=c.at, attempt=1, next_run_id=c.ids.unique(), end=said)


def test_nothing_is_counted_or_logged_of_a_commit_that_was_refused(
    theatre: Theatre, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fledge")

    async def body(world: World) -> dict[str, dict[str, int]]:
        key = await world.spawn("A")

        def undone(c: Commit) -> None:
            control.kill(c, key)
            raise ValueError("no")

        before = world.engine.counters.shown()
        caplog.clear()
        with pytest.raises(ValueError, match="no"):
            await world.engine.commit(undone)
        assert caplog.messages == []
        assert world.engine.counters.shown() == before
        return before

    assert theatre.act(body, {"A": works(10)})["outcomes"] == {}


# ---- lines -----------------------------------------------------------------------------------------------------------


def test_each_change_of_phase_and_each_try_is_one_line_with_its_reason(
    theatre: Theatre, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fledge")

    async def body(world: World) -> str:
        key = await world.spawn("A")
        await world.sleep_until(5)
        return key

    key = theatre.act(body, {"A": works(1, "the answer")})
    moves, tries = ([r.getMessage() for r in caplog.records if r.name == f"fledge.{n}"] for n in ("run", "delivery"))
    words = [dict(word.split("=", 1) for word in line.split()) for line in moves]
    assert [(word.get("from"), word["to"]) for word in words if word["run"] == key] == [
        (None, "spawning"),
        ("spawning", "queued"),
        ("queued", "running"),
        ("running", "announcing"),
        ("announcing", "cleanup_pending"),
        ("cleanup_pending", "completed"),
    ]
    assert (words[3]["event"], words[3]["outcome"]) == ("AttemptEnded", "ok")
    assert words[4]["reason"] == "direct"
    (line,) = tries
    assert line.startswith(f"row=announce:v1:{key}:")
    assert line.endswith(
        f"requester={MAIN} depth=main route=fallback tried=direct-primary:delivered path=direct form=whole"
        ' reason="the requester was free"'
    )


def test_the_line_of_a_busy_requester_says_so(theatre: Theatre, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fledge.delivery")

    async def body(world: World) -> None:
        await world.send("go")
        await world.sleep_until(1)
        await world.spawn("A")
        await world.sleep_until(30)

    theatre.act(body, {"main": works(5), "A": works(1)}, rules("collect"))
    assert caplog.messages[0].endswith(
        "tried=direct-primary:deferred,queue-fallback:delivered path=queued form=whole"
        ' reason="the requester was busy or waiting"'
    )


def test_hostile_words_forge_neither_a_line_nor_a_value(theatre: Theatre, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fledge.run")

    async def broken(stage: Stage) -> None:
        await stage.fail('x" outcome=ok\nrun=forged to=completed')

    async def body(world: World) -> None:
        await world.spawn("A")
        await world.sleep_until(1)

    theatre.act(body, {"A": broken})
    (line,) = [text for text in caplog.messages if "to=announcing" in text]
    assert 'outcome=error error="x\\" outcome=ok run=forged to=completed"' in line
    assert "\n" not in line


def test_without_a_listener_nothing_is_formatted(scene: Scene) -> None:
    class Loud:
        @property
        def key(self) -> str:
            raise AssertionError("formatted")

    logging.getLogger("fledge.run").setLevel(logging.WARNING)
    try:
        journal.write(Hints(moves=[(None, Loud(), ev.Prepared(at=1.0))]))  # type: ignore[list-item]
    finally:
        logging.getLogger("fledge.run").setLevel(logging.NOTSET)
