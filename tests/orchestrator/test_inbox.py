"""Hop 1 on the real store: who is told, what moves when a requester ends, what is recorded of a delivery, and when a
busy requester reads. O is a child of main, W a child of O."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import msgspec
import pytest

from fledge.core.announce import Tried
from fledge.core.inbox import QueueMode, QueueSettings
from fledge.core.run import Delivered, Path, Skipped
from fledge.errors import NotFound
from fledge.orchestrator import control, inbox, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.inbox import Receiver
from fledge.store.base import InboxRowKind
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, for_a_program, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def steering() -> Iterator[Scene]:
    yield from queueing("steer")


@pytest.fixture
def roomy() -> Iterator[Scene]:
    with closing(Scene(queue=QueueSettings(cap=1000))) as scene:
        yield scene
        scene.check()


def queueing(mode: QueueMode) -> Iterator[Scene]:
    with closing(Scene(queue=QueueSettings(mode=mode))) as scene:
        yield scene
        scene.check()


def told(scene: Scene, parent: str) -> Receiver:
    return scene.commit(lambda c: inbox.receiver_of(c, parent))


# ---- who is told -----------------------------------------------------------------------------------------------------


@proves("1.roles.1", "The requester is the session that gets the answer")
def test_a_requester_that_is_there_is_told_whatever_it_does(scene: Scene) -> None:
    o = scene.orchestrator()
    assert told(scene, MAIN) == Receiver(MAIN)
    assert told(scene, o.session) == Receiver(o.session)
    scene.spawn(o)
    scene.wait(o)
    assert told(scene, o.session) == Receiver(o.session)


@proves("2.arbitration.12", "A requester counts as gone from the commit that fixes its run's outcome (run mode)")
@pytest.mark.parametrize(
    ("end", "mode", "expected"),
    [
        ("text", "run", "main"),
        ("error", "run", "main"),
        ("kill", "run", "suppressed"),
        ("text", "session", "itself"),
        ("error", "session", "itself"),
    ],
)
def test_a_requester_counts_as_gone_from_the_commit_that_fixes_its_outcome(
    scene: Scene, end: str, mode: str, expected: str
) -> None:
    o = scene.orchestrator(mode=mode)
    match end:
        case "text":
            scene.finish(o)
        case "error":
            scene.fail(o)
        case _:
            scene.kill(o.session)
            assert told(scene, o.session) == Receiver(o.session)
            scene.exit(o)
    wanted = {"main": Receiver(MAIN), "itself": Receiver(o.session), "suppressed": Receiver(None, killed=o.session)}
    assert told(scene, o.session) == wanted[expected]


def test_the_nearest_ancestor_still_there_is_told_and_a_kill_on_the_way_silences(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    p = scene.begin(o)
    w = scene.begin(p)
    scene.fail(p)
    assert told(scene, p.session) == Receiver(o.session)
    scene.kill(o.session)
    scene.exit(o)
    assert told(scene, p.session) == Receiver(None, killed=o.session)
    scene.exit(w)
    assert told(scene, w.session) == Receiver(None, killed=w.session)


@proves("2.arbitration.13", "A requester counts as gone from the commit that deletes its session")
def test_a_deleted_session_is_passed_over_and_without_anybody_nobody_is_told(scene: Scene) -> None:
    o = scene.orchestrator(mode="session")
    scene.finish(o)
    scene.delete(o.session)
    assert told(scene, o.session) == Receiver(MAIN)
    scene.delete(MAIN)
    assert told(scene, o.session) == Receiver(None)
    assert told(scene, "agent:main:never-opened") == Receiver(None)


@proves("2.arbitration.14")
def test_completions_are_handed_over_in_their_order_under_their_keys(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o), scene.begin(o)
    scene.finish(second, "two")
    scene.finish(first, "one")
    rows = scene.unread(o.session)
    assert [row.source for row in rows] == [second.session, first.session]
    scene.fail(o)
    moved = scene.unread(MAIN)
    assert [(row.key, row.seq, row.text) for row in moved[:2]] == [(row.key, row.seq, row.text) for row in rows]
    assert [row.source for row in moved] == [second.session, first.session, o.session]
    assert scene.unread(o.session) == []
    assert scene.read_main() == [second.session, first.session, o.session]


def test_what_is_not_an_outcome_and_has_nobody_left_to_read_it_is_undelivered(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. look")
    scene.delete()
    assert [(row.kind, row.state) for row in scene.read(lambda tx: tx.inbox.undelivered())] == [("plan", "undelivered")]
    assert scene.phase(o.session) == "awaiting_approval"


@proves("2.arbitration.17")
def test_what_is_handed_over_towards_a_killed_requester_is_suppressed_not_undelivered(scene: Scene) -> None:
    """A bound session outlives the kill of its parent, spawns again, and is deleted with an answer unread."""
    p = scene.orchestrator(lane="nested")
    o = scene.begin(p, mode="session")
    scene.finish(o, "hello")
    scene.kill(p.session)
    scene.exit(p)
    scene.send(o.session, "look again", None)
    turn = scene.start(o.session)
    w = scene.begin(turn)
    scene.finish(w, "found it")
    assert scene.outcome_row(w.session).session == o.session
    scene.delete(o.session)
    assert told(scene, o.session) == Receiver(None, killed=p.session)
    assert scene.outcome_row(w.session).state == "suppressed"
    assert scene.run(w.session).delivery == Skipped("suppressed")


def test_what_ends_below_a_killed_requester_with_nobody_in_between_is_suppressed(scene: Scene) -> None:
    p = scene.orchestrator(lane="nested")
    o = scene.begin(p, mode="session")
    scene.finish(o, "hello")
    scene.kill(p.session)
    scene.exit(p)
    scene.send(o.session, "look again", None)
    w = scene.begin(scene.start(o.session))
    scene.delete(o.session)
    scene.finish(w, "found it")
    assert scene.outcome_row(w.session).state == "suppressed"
    assert (scene.phase(w.session), scene.run(w.session).delivery) == ("completed", Skipped("suppressed"))
    assert scene.unread(MAIN) == []


def test_a_second_late_complete_refreshes_the_first_while_that_is_unread(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.fail(o)
    scene.read_main()
    scene.complete_late(o.session, "late")
    scene.complete_late(o.session, "later")
    assert [(row.kind, scene.text(row.text)) for row in scene.unread(MAIN)] == [("late", "later")]
    assert scene.read_main() == [o.session]
    scene.complete_late(o.session, "latest")
    assert scene.unread(MAIN) == []


@proves("2.announce.21", "A requester that answers a completion with NO_REPLY has consumed it")
def test_a_requester_that_answers_no_reply_has_consumed_it(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.finish(o, "the answer")
    main = scene.start(MAIN)
    scene.finish(main, "NO_REPLY")
    assert scene.outcome_row(o.session).state == "consumed"
    assert (scene.phase(o.session), scene.run(o.session).delivery) == ("completed", Delivered("direct"))
    assert scene.ended_as(MAIN, main.turn) == "replied"
    scene.clock.advance(3600.0)
    assert scene.claimable() == []


@proves("0.twice.4")
@proves("2.hops.2", "Consuming commits row consumed, transcript entry and turn opened together")
def test_a_row_is_taken_once_or_not_at_all(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.finish(o, "the answer")
    before = scene.dump()

    def twice(c: Commit) -> None:
        rows = c.tx.inbox.unread(MAIN)
        inbox.consume(c, MAIN, rows, at_boundary=False)
        inbox.consume(c, MAIN, rows, at_boundary=False)

    with pytest.raises(NotFound, match="was already taken"):
        scene.commit(twice)
    assert scene.dump() == before


# ---- inboxes of sessions that end ------------------------------------------------------------------------------------

MESSAGES: tuple[InboxRowKind, ...] = ("task", "steer", "wake", "approval", "notice", "send")


def put(c: Commit, session: str, kind: InboxRowKind) -> None:
    c.tx.inbox.put(f"x:{kind}", session, kind, MAIN, "words", c.at)


@proves("2.arbitration.18", "Orders in that inbox (task, steer, approval) are suppressed, wakes and notices void")
@pytest.mark.parametrize(
    ("end", "mode", "passing", "sends", "completion"),
    [
        ("error", "run", "void", "unread", ("unread", MAIN)),
        ("text", "run", "void", "unread", ("consumed", "itself")),
        ("kill", "run", "suppressed", "suppressed", ("suppressed", "itself")),
        ("error", "session", "void", "unread", ("unread", "itself")),
        ("kill", "session", "suppressed", "suppressed", ("suppressed", "itself")),
    ],
)
def test_what_becomes_of_each_kind_of_row_when_its_session_ends(
    scene: Scene, end: str, mode: str, passing: str, sends: str, completion: tuple[str, str]
) -> None:
    o = scene.orchestrator(mode=mode)
    w = scene.begin(o)
    scene.finish(w, "found it")
    for kind in MESSAGES:
        scene.commit(partial(put, session=o.session, kind=kind))
    match end:
        case "error":
            scene.fail(o)
        case "text":
            assert scene.finish(o, "early") == "on"
            scene.finish(o, "the answer")
        case _:
            scene.kill(o.session)
    states = {kind: scene.row(f"x:{kind}").state for kind in MESSAGES}
    orders: dict[InboxRowKind, str] = dict.fromkeys(("task", "steer", "approval"), "suppressed")
    assert states == {**orders, "wake": passing, "notice": passing, "send": sends}
    row = scene.outcome_row(w.session)
    assert (row.state, row.session) == (completion[0], MAIN if completion[1] == MAIN else o.session)


@proves("2.arbitration.19")
@pytest.mark.parametrize("source", [MAIN, None])
def test_the_sender_of_a_message_that_a_kill_made_void_is_told_once(scene: Scene, source: str | None) -> None:
    o = scene.orchestrator()
    sent = scene.send(o.session, "one more thing", source)
    scene.kill(o.session)
    scene.exit(o)
    notices = [row for row in scene.unread(MAIN) if row.kind == "notice"]
    assert [row.key for row in notices] == ([f"void:{sent}"] if source else [])


# ---- notices ---------------------------------------------------------------------------------------------------------


def test_a_notice_is_put_once_per_key_and_starts_a_turn(scene: Scene) -> None:
    for words in ("first", "second"):
        scene.commit(partial(inbox.notice, session=MAIN, key="n:1", words=words))
    assert [(row.kind, row.body) for row in scene.unread(MAIN)] == [("notice", "first")]
    scene.pass_time(0.25)
    assert scene.claimable() == [MAIN]


def test_a_session_that_is_gone_gets_no_notice(scene: Scene) -> None:
    scene.delete()
    before = scene.dump()
    for key in (MAIN, "agent:main:nobody"):
        scene.commit(partial(inbox.notice, session=key, key="n:1", words="words"))
    assert scene.dump() == before


@proves("4.sight.3")
def test_a_run_without_progress_is_told_as_stuck_once_to_its_requester(scene: Scene) -> None:
    o = scene.orchestrator(stuck_after_s=300.0)
    scene.pass_time(100.0)
    scene.step(o, "working")
    scene.pass_time(299.0)
    assert scene.unread(MAIN) == []
    scene.pass_time(1.0)
    assert [row.body for row in scene.unread(MAIN)] == ["w: no progress for 300 s"]
    scene.pass_time(3600.0)
    assert len(scene.unread(MAIN)) == 1
    assert scene.phase(o.session) == "running"


# ---- the trace -------------------------------------------------------------------------------------------------------

DIRECT = (Tried("direct-primary", "delivered", "direct"),)
QUEUED = (Tried("direct-primary", "deferred"), Tried("queue-fallback", "delivered", "queued"))
STEERED = (Tried("direct-primary", "deferred"), Tried("queue-fallback", "delivered", "steered"))
QUIET_DIRECT = (Tried("queue-primary", "deferred"), Tried("direct-fallback", "delivered", "direct"))
QUIET_QUEUED = (Tried("queue-primary", "delivered", "queued"),)


@proves("0.twice.2", "Direct, queued and steered delivery consume that one row")
@proves("0.timeline.4", "Every delivery has a trace: requester, its depth, route, phases tried, final path, key")
@proves("2.arbitration.1")
@proves("2.arbitration.2", "Without it the queue is tried before direct")
@pytest.mark.parametrize(
    ("expects", "busy", "tried", "path"),
    [
        (True, False, DIRECT, "direct"),
        (True, True, QUEUED, "queued"),
        (False, False, QUIET_DIRECT, "direct"),
        (False, True, QUIET_QUEUED, "queued"),
    ],
)
def test_a_delivery_to_main_is_traced_with_what_was_tried(
    scene: Scene, expects: bool, busy: bool, tried: tuple[Tried, ...], path: Path
) -> None:
    main = scene.main()
    o = scene.begin(main, expects=expects)
    if not busy:
        scene.finish(main)
    scene.finish(o, "the answer")
    key = scene.outcome_row(o.session).key
    assert scene.traces(key) == []
    if busy:
        scene.finish(main)
    scene.read_main()
    (trace,) = scene.traces(key)
    assert (trace.key, trace.requester, trace.depth, trace.route) == (key, MAIN, "main", "fallback")
    assert (trace.tried, trace.path, trace.form) == (tried, path, "whole")
    assert scene.run(o.session).delivery == Delivered(path)
    assert scene.sql("SELECT run, at FROM deliveries") == [(o.session, scene.clock.now())]


@proves("0.timeline.4")
def test_a_delivery_to_a_run_that_waited_is_traced_as_nested_and_queued(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.wait(o)
    scene.finish(w)
    scene.start(o.session)
    (trace,) = scene.traces(scene.outcome_row(w.session).key)
    assert (trace.requester, trace.depth, trace.tried, trace.path) == (o.session, "nested", QUEUED, "queued")


@proves("0.twice.2")
def test_a_delivery_into_a_live_turn_is_traced_as_steered(steering: Scene) -> None:
    o = steering.orchestrator()
    w = steering.begin(o)
    steering.finish(w, "found it")
    assert steering.step(o, "thinking") == 1
    (trace,) = steering.traces(steering.outcome_row(w.session).key)
    assert (trace.tried, trace.path) == (STEERED, "steered")
    assert steering.run(w.session).delivery == Delivered("steered")


def test_what_was_to_be_steered_but_missed_the_last_boundary_is_traced_as_queued(steering: Scene) -> None:
    main = steering.main()
    o = steering.begin(main)
    steering.finish(o, "the answer")
    assert steering.outcome_row(o.session).path == "steered"
    steering.finish(main, "it is under way")
    steering.read_main()
    (trace,) = steering.traces(steering.outcome_row(o.session).key)
    assert (trace.tried, trace.path) == (QUEUED, "queued")


def test_what_is_suppressed_was_not_delivered_and_has_no_path(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(w)
    scene.kill(o.session)
    assert scene.run(w.session).delivery == Skipped("suppressed")
    assert [trace.path for trace in scene.traces(scene.outcome_row(w.session).key)] in ([], [None])


# ---- when a requester reads ------------------------------------------------------------------------------------------


def test_an_idle_conversation_gets_its_turn_at_once_and_a_program_none(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.finish(o)
    assert scene.claimable() == [MAIN]
    scene.finish(scene.start(MAIN))
    drive = for_a_program(scene)
    scene.finish(drive)
    assert scene.claimable() == []


def test_a_busy_conversation_collects_until_it_was_quiet_for_a_second_and_reads_all_in_one_turn(scene: Scene) -> None:
    main = scene.main()
    first, second = scene.begin(main), scene.begin(main)
    scene.finish(first, "one")
    scene.clock.advance(0.6)
    scene.finish(second, "two")
    scene.finish(main)
    scene.clock.advance(0.9)
    assert scene.claimable() == []
    scene.clock.advance(0.1)
    assert scene.claimable() == [MAIN]
    assert scene.read_main() == [first.session, second.session]


def test_a_conversation_that_is_never_quiet_reads_after_5_seconds_all_the_same(scene: Scene) -> None:
    main = scene.main()
    for _ in range(6):
        scene.send(MAIN, "and another thing")
        scene.clock.advance(0.9)
    scene.finish(main)
    assert scene.claimable() == [MAIN]


def test_one_followup_is_read_a_turn() -> None:
    for scene in queueing("followup"):
        main = scene.main()
        first, second = scene.begin(main), scene.begin(main)
        scene.finish(first, "one")
        scene.finish(second, "two")
        scene.finish(main)
        assert scene.read_main() == [first.session]
        assert scene.read_main() == [second.session]


def test_collected_completions_do_not_enter_a_live_turn(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(w)
    assert scene.step(o, "thinking") == 0
    assert scene.outcome_row(w.session).state == "unread"


def test_a_completion_that_is_steered_into_a_live_turn_says_so(steering: Scene) -> None:
    main = steering.main()
    o = steering.begin(main)
    steering.finish(o, "the answer")
    assert steering.step(main, "thinking") == 1
    assert steering.said(MAIN)[-1].startswith("[INTERRUPT]")


@proves("2.arbitration.10", "A waiting requester is not idle: completions start nothing until its condition holds")
def test_a_waiting_requester_is_not_started_by_completions_before_its_condition_holds(scene: Scene) -> None:
    o = scene.orchestrator()
    first, second = scene.begin(o), scene.spawn(o)
    scene.wait(o)
    scene.finish(first)
    assert o.session not in scene.claimable()
    scene.finish(scene.start(second))
    scene.start(o.session)
    assert scene.told(o.session) == [first.session, second]


def test_a_claim_reads_64_rows_a_commit_and_says_if_there_are_more(roomy: Scene) -> None:
    scene = roomy
    for number in range(65):
        scene.send(MAIN, f"message {number}")
    main = scene.start(MAIN)
    assert (main.more, len(scene.entries(MAIN))) == (True, 64)
    assert scene.commit(lambda c: turns.read_more(c, main)) is False
    assert scene.said(MAIN) == [f"message {number}" for number in range(65)]


@proves("2.nested.10", "The wake says which children ended silently")
def test_a_wake_names_the_children_that_ended_silently_and_no_others(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    silent, loud = scene.begin(o), scene.begin(o)
    scene.wait(o)
    scene.finish(silent, "NO_REPLY")
    scene.finish(loud, "found it")
    scene.start(o.session)
    wake = f'What you waited for is here. Ended without anything to tell: "w" ({silent.session}).'
    assert scene.said(o.session)[-1] == wake
    assert scene.told(o.session) == [loud.session]


def test_a_wake_does_not_name_a_child_whose_expired_plan_is_told_beside_it(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    planner, worker = scene.begin(o, plan=True, approval_s=60.0), scene.begin(o)
    scene.finish(o, "half of it")
    scene.finish(planner, "1. look")
    scene.pass_time(60.0)
    scene.finish(worker, "found it")
    scene.start(o.session)
    assert scene.told(o.session) == [planner.session, worker.session]
    assert scene.said(o.session)[-1] == "What you waited for is here."


@proves("2.announce.1")
def test_an_entry_names_rows_runs_and_statuses_and_messages_say_who_sent_them(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.fail(o, "no model")
    row = scene.outcome_row(o.session)
    sent = scene.commit(lambda c: control.send(c, MAIN, "and now?", "agent:main:friend"))
    scene.start(MAIN)
    event, message = (msgspec.json.decode(entry.body) for entry in scene.entries(MAIN)[-2:])
    (told,) = event["completions"]
    assert (told["row"], told["run"], told["status"]) == (row.key, o.session, "error")
    assert "summarised" not in event
    assert message == {
        "type": "user",
        "text": "and now?",
        "row": sent,
        "kind": "send",
        "source": "agent:main:friend",
    }
