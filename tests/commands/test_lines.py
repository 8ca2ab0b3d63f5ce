"""Views of runs as lines: what they say, and that hostile words cannot forge one."""

from fledge.api.values import Question
from fledge.api.views import forest, timeline
from fledge.commands import lines
from fledge.core.file_change import ChangeLine, FileChange
from fledge.orchestrator import control, spawn, turns
from fledge.store.base import Spec
from tests.model.world import MAIN, World
from tests.statements import proves


def test_a_queued_run_says_how_long_it_has_waited_once_that_is_long() -> None:
    world = World()
    world.commit(lambda c: control.send(c, MAIN, "go"))
    world.claim()
    drive = world.drives[MAIN]
    world.commit(lambda c: spawn.spawn(c, world.request(drive)))
    start = world.clock.now()
    assert world.read(lambda tx: lines.tree(forest(tx, [MAIN], 10).runs, start + 2.0)) == ["└─ w · queued"]
    assert world.read(lambda tx: lines.tree(forest(tx, [MAIN], 10).runs, start + 3.0)) == [
        "└─ w · queued, 3 s without a free slot"
    ]
    world.close()


def test_a_label_of_many_lines_stays_on_one() -> None:
    world = World()
    world.commit(lambda c: control.send(c, MAIN, "go"))
    world.claim()
    request = world.request(world.drives[MAIN])
    forged = spawn.SpawnRequest(
        spec=Spec(task="x", label="a\n└─ b · completed (ok)"), terms=request.terms, generations=request.generations
    )
    world.commit(lambda c: spawn.spawn(c, forged))
    assert world.read(lambda tx: lines.tree(forest(tx, [MAIN], 10).runs, 0.0)) == [
        "└─ a └─ b · completed (ok) · queued"
    ]
    world.close()


@proves("0.timeline.2", "An event says what happened, where it led and why")
def test_a_timeline_says_when_what_happened_and_where_that_led() -> None:
    world = World()
    world.commit(lambda c: control.send(c, MAIN, "go"))
    world.claim()
    main = world.drives[MAIN]
    run = world.commit(lambda c: spawn.spawn(c, world.request(main)))
    world.claim()
    world.clock.advance(1.5)
    world.commit(lambda c: turns.fail(c, world.drives[run.key], "no\nmodel"))
    assert world.read(lambda tx: lines.timeline(timeline(tx.events.of(run.key)))) == [
        "   0.000 s  accepted           → spawning",
        "   0.000 s  ready to start     → queued",
        "   0.000 s  taken up           → running",
        "   1.500 s  failed             → announcing  (no model)",
    ]
    world.close()


@proves("8.changes.1")
def test_a_question_says_below_it_what_changes_in_a_file_and_no_line_of_that_passes_for_another() -> None:
    change = FileChange(
        path="a",
        note="note",
        lines=(ChangeLine("removed", "a\x1b[31m"), ChangeLine("added", "b\u2028waits for approval")),
    )
    asked = Question(
        id="0123456789",
        session_key=MAIN,
        tool="write",
        arguments="{}",
        digest="d",
        asked_at=0.0,
        expires_at=60.0,
        change=change,
    )
    below = ["  | (note)", "  | -a␛[31m", "  | +b<U+2028>waits for approval"]
    assert lines.question(asked).split("\n")[1:] == below
    assert lines.question_left(asked, "main", 0.0).split("\n")[1:] == below
