"""`info`, `log` and `undelivered` by the command, on a store that was made with the rules themselves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fledge.core.policy import Budget
from fledge.core.route import Address, origin_of
from fledge.core.transcript import Replied
from fledge.orchestrator import budget, control, outbox, spawn, steps, turns
from fledge.orchestrator.commit import Commit
from fledge.store.base import Ran, Spec, Turn
from tests.cli.command import fledge
from tests.model.world import MAIN, World
from tests.statements import proves


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.commit(lambda c: control.send(c, MAIN, "go"))
    world.claim()
    yield world
    world.store.close_now()


def child(world: World, label: str, answer: str | None = "done\nSUMMARY: fine") -> str:
    """A child of main that has answered, or waits in the queue."""
    request = world.request(world.drives[MAIN])
    named = spawn.Request(
        spec=Spec(task=f"do {label}", label=label), terms=request.terms, generations=request.generations
    )
    key = world.commit(lambda c: spawn.spawn(c, named)).key
    if answer is not None:
        world.claim()
        world.commit(lambda c: turns.finish(c, world.drives[key], answer))
    return key


def show(world: World, *arguments: str) -> list[str]:
    done = fledge(*arguments, "--state", str(world.folder))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def refused(world: World, *arguments: str) -> str:
    done = fledge(*arguments, "--state", str(world.folder))
    assert done.returncode == 1
    return done.stderr


@proves("0.ran.2")
def test_info_tells_what_really_ran_and_under_which_limits(world: World) -> None:
    key = child(world, "survey", answer=None)
    world.claim()
    drive = world.drives[key]
    ran = Ran("gpt-5", "high", ("read", "write"), True, "/work")

    def work(c: Commit) -> None:
        budget.give(c, key, Budget(tokens=100, seconds=60.0))
        steps.finish(c, drive, Replied("done", model="gpt-5-2026", usage={"input": 20, "output": 5}), 0, ran)

    world.commit(work)
    lines = show(world, "info", "survey")
    assert "model     gpt-5, thinking high; answered by gpt-5-2026" in lines
    assert "tools     read, write (sandboxed)" in lines
    assert "folder    /work" in lines
    assert any(line.startswith("budget    25 of 100 tokens, ") for line in lines)


@proves("4.tools.28", "The command line shows info, log and undelivered")
def test_info_tells_what_was_asked_how_it_stands_and_its_story(world: World) -> None:
    key = child(world, "survey")
    lines = show(world, "info", "survey")
    assert lines[0] == f"session   {key}"
    assert lines[2:6] == ["label     survey", "task      do survey", "status    announcing (ok)", f"parent    {MAIN}"]
    assert [" ".join(line.split()[2:]) for line in lines[lines.index("") + 1 :]] == [
        "accepted → spawning",
        "ready to start → queued",
        "taken up → running",
        "finished → announcing",
    ]


@proves("4.tools.26")
def test_a_run_is_found_by_key_by_run_id_by_its_beginning_and_by_label(world: World) -> None:
    key = child(world, "survey")
    run_id = world.runs()[0].run_id
    for name in (key, run_id, run_id[:8], "survey", "SURV", "last", "1"):
        assert show(world, "info", name)[0] == f"session   {key}"


@proves("4.tools.27")
def test_unknown_and_ambiguous_names_each_say_so(world: World) -> None:
    child(world, "twin", None)
    child(world, "twin", None)
    assert refused(world, "info", "nobody") == "fledge: no subagent 'nobody'\n"
    assert refused(world, "info", "twin") == "fledge: 'twin' is ambiguous: #1 twin, #2 twin: give its number\n"


@proves("4.tools.28")
def test_log_shows_the_newest_entries_one_line_each(world: World) -> None:
    child(world, "survey")
    assert show(world, "log") == ["    1  send: go"]
    assert show(world, "log", "survey") == ["    1  task: do survey", "    2  assistant: done SUMMARY: fine"]
    assert show(world, "log", "survey", "-n", "1") == ["    2  assistant: done SUMMARY: fine"]
    assert refused(world, "log", "-n", "0") == "fledge: -n: must be 1 or more (got 0)\n"


@proves("0.lost.3")
@proves("4.tools.28")
def test_a_result_that_found_nobody_is_listed_retried_and_dismissed(world: World) -> None:
    key = child(world, "orphan", None)
    world.claim()
    world.commit(lambda c: control.delete_session(c, MAIN))
    world.commit(lambda c: turns.finish(c, world.drives[key], "too late"))
    for _ in range(5):
        world.clock.advance(10)
        world.let_time_act()
    assert show(world, "undelivered") == [f"{key}  orphan  (ok; nobody is left to tell)"]
    assert show(world, "undelivered", "retry", "orphan") == [
        f"{key} is offered again; `fledge run --continue` goes on with it"
    ]
    assert show(world, "undelivered") == ["nothing is undelivered"]
    assert refused(world, "undelivered", "dismiss", "orphan") == f"fledge: {key}: nothing of it is undelivered\n"
    assert refused(world, "undelivered", "retry") == "fledge: run: must be named: fledge undelivered retry RUN\n"


def test_a_given_up_result_can_be_put_away(world: World) -> None:
    key = child(world, "orphan", None)
    world.claim()
    world.commit(lambda c: control.delete_session(c, MAIN))
    world.commit(lambda c: turns.finish(c, world.drives[key], "too late"))
    for _ in range(5):
        world.clock.advance(10)
        world.let_time_act()
    assert show(world, "undelivered", "dismiss", "orphan") == [f"{key} is dismissed"]
    assert show(world, "undelivered") == ["nothing is undelivered"]


@proves("2.hops.26")
def test_a_message_that_could_not_be_sent_is_listed_beside_the_results_retried_and_dismissed(world: World) -> None:
    def lose(c: Commit) -> None:
        for n in (1, 2):
            turn = Turn(MAIN, n, {}, 0, 0, 0, c.at, origin=origin_of(Address("ops", "ann")))
            outbox.reply(c, turn, n, f"answer {n}\nfor ann")
            c.tx.give_up_post(f"reply:{MAIN}:{n}", "HTTP 500", c.at + 9e9, c.at)

    world.commit(lose)
    first, second = f"reply:{MAIN}:1", f"reply:{MAIN}:2"
    assert show(world, "undelivered") == [
        f'{first}  to ann on ops: "answer 1 for ann"  (HTTP 500)',
        f'{second}  to ann on ops: "answer 2 for ann"  (HTTP 500)',
    ]
    told = json.loads("\n".join(show(world, "undelivered", "--json")))
    assert [(one["key"], one["label"], one["text"]) for one in told] == [
        (first, "ann on ops", "answer 1\nfor ann"),
        (second, "ann on ops", "answer 2\nfor ann"),
    ]
    assert show(world, "ps")[-1] == "2 undelivered: fledge undelivered"
    assert show(world, "undelivered", "retry", first) == [
        f"{first} is offered again; `fledge run --continue` goes on with it"
    ]
    assert show(world, "undelivered", "dismiss", second) == [f"{second} is dismissed"]
    assert show(world, "undelivered") == ["nothing is undelivered"]
    assert refused(world, "undelivered", "dismiss", first) == f"fledge: {first} is waiting\n"


def test_a_folder_without_a_store_is_refused_by_every_view(tmp_path: Path) -> None:
    for view in (["ps"], ["tree"], ["info", "x"], ["log"], ["undelivered"], ["undelivered", "retry", "x"]):
        done = fledge(*view, "--state", str(tmp_path / "none"))
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "no fledge.db there" in done.stderr
    assert not (tmp_path / "none").exists()
