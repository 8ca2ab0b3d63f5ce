"""`info`, `log` and `undelivered` by the command, on a store that was made with the rules themselves."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fledge.core.policy import Budget
from fledge.core.route import Address, origin_of
from fledge.core.transcript import Replied
from fledge.core.turn import OpenTurn
from fledge.orchestrator import budget, control, outbox, spawn, steps, turns
from fledge.orchestrator.commit import Commit
from fledge.store.base import Spec, TurnRan
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
    named = spawn.SpawnRequest(
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
    ran = TurnRan("gpt-5", "high", ("read", "write"), True, "/work")

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
    assert lines[2:7] == [
        *("label     survey", "task      do survey", "status    announcing (ok)", f"parent    {MAIN}"),
        "mode      run, cleanup keep",
    ]
    assert [" ".join(line.split()[2:]) for line in lines[lines.index("") + 1 :]] == [
        "accepted → spawning",
        "ready to start → queued",
        "taken up → running",
        "finished → announcing",
    ]


def test_info_tells_mode_cleanup_controller_origin_and_the_time_of_the_archive() -> None:
    world = World()
    asks = origin_of(Address("chat", "ops", "7"))
    world.commit(lambda c: control.send(c, MAIN, "go", origin=asks))
    world.claim()
    request = world.request(world.drives[MAIN], cleanup="delete", archive_after_s=7200.0)
    spec = Spec(task="x", label="eyes", controller="agent:main:boss")
    asked = spawn.SpawnRequest(spec=spec, terms=request.terms, generations=request.generations)
    key = world.commit(lambda c: spawn.spawn(c, asked)).key
    told = {"mode      run, cleanup delete", "control   by agent:main:boss", "origin    ops on chat, thread 7"}
    assert told <= set(show(world, "info", "eyes"))
    world.commit(lambda c: control.kill(c, key))
    assert "archived  in " in "\n".join(show(world, "info", "eyes"))
    shown = json.loads("\n".join(show(world, "info", "eyes", "--json")))
    facts = [shown[name] for name in ("mode", "cleanup", "controller", "origin")]
    assert facts == ["run", "delete", "agent:main:boss", "ops on chat, thread 7"]
    assert shown["archiveAt"] - shown["endedAt"] >= 7_200_000
    world.store.close_now()


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
    for line in (("tree", "--session"), ("ps", "--session"), ("log",), ("event", "it rains", "--session")):
        assert refused(world, *line, "nobody") == "fledge: no conversation or subagent 'nobody'\n"
        assert refused(world, *line, "twin").startswith("fledge: 'twin' is ambiguous")
        assert refused(world, *line, "#3") == "fledge: no subagent #3: the last one is #2\n"


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
    assert show(world, "undelivered") == [f"{key}  orphan  (ok; no requester is left)"]
    assert show(world, "undelivered", "retry", "orphan") == [
        "orphan is offered again; `fledge run --continue` goes on with it"
    ]
    assert show(world, "undelivered") == ["nothing is undelivered"]
    assert refused(world, "undelivered", "dismiss", "orphan") == "fledge: orphan: nothing of it is undelivered\n"
    assert refused(world, "undelivered", "retry") == "fledge: run: must be named: fledge undelivered retry RUN\n"


def test_a_given_up_result_can_be_put_away(world: World) -> None:
    key = child(world, "orphan", None)
    world.claim()
    world.commit(lambda c: control.delete_session(c, MAIN))
    world.commit(lambda c: turns.finish(c, world.drives[key], "too late"))
    for _ in range(5):
        world.clock.advance(10)
        world.let_time_act()
    assert show(world, "undelivered", "dismiss", "orphan") == ["orphan is dismissed"]
    assert show(world, "undelivered") == ["nothing is undelivered"]


@proves("2.hops.26")
def test_a_message_that_could_not_be_sent_is_listed_beside_the_results_retried_and_dismissed(world: World) -> None:
    def lose(c: Commit) -> None:
        for n in (1, 2):
            turn = OpenTurn(MAIN, n, {}, 0, 0, 0, c.at, origin=origin_of(Address("ops", "ann")))
            outbox.reply(c, turn, n, f"answer {n}\nfor ann")
            c.tx.outbox.give_up(f"reply:{MAIN}:{n}", "HTTP 500", c.at + 9e9, c.at)

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


# ---- ps and tree -----------------------------------------------------------------------------------------------------


def cells(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


@proves("4.rows.4", "`fledge ps` and `fledge tree` show each run with number, label, state and why, age, model and id")
def test_ps_shows_rows_with_what_each_waits_for_active_ones_first(world: World) -> None:
    child(world, "survey")
    child(world, "digger", None)
    ids = {run.key: run.run_id for run in world.runs()}
    shown = show(world, "ps")
    assert shown[0].startswith("main · a turn is open")
    assert [cells(line)[:2] for line in shown[1:3]] == [
        ["#2 digger", "queued: no process drives this folder"],
        ["#1 survey", "done: its result is not read yet"],
    ]
    assert sorted(cells(line)[-1] for line in shown[1:3]) == sorted(one[:8] for one in ids.values())
    assert shown[-1] == "no process is at work here: `fledge run --continue` continues"
    tree = show(world, "tree")
    assert [cells(line)[0] for line in tree[:2]] == ["├─ #1 survey", "└─ #2 digger"]


def test_a_finished_run_is_shown_with_the_time_that_it_took(world: World) -> None:
    key = child(world, "survey", None)
    world.clock.advance(3600)
    world.claim()
    world.clock.advance(65)
    world.commit(lambda c: turns.finish(c, world.drives[key], "done"))
    for view in ("ps", "tree"):
        (line,) = (line for line in show(world, view) if "survey" in line)
        assert cells(line)[2] == "1m05s", view


@proves("4.rows.5", "They take filters, a search and a limit, and say how many more there are")
def test_ps_and_tree_show_what_is_asked_for_and_say_how_much_more_there_is(world: World) -> None:
    for name in ("one", "two", "three"):
        child(world, name)
    child(world, "four", None)
    for view in ("ps", "tree"):
        shown = show(world, view, "--limit", "2", "--search", "")
        assert "and 2 more: --limit 4" in shown, view
        assert len(show(world, view, "--active")) == (1 if view == "ps" else 2)
        assert show(world, view, "--failed") == ["no runs"]
        assert show(world, view, "--stuck") == ["no runs"]
        assert show(world, view, "--undelivered") == ["no runs"]
        assert show(world, view, "--waiting") == ["no runs"]
        (found,) = show(world, view, "--search", "DO TWO")
        assert "two" in found
        assert show(world, view, "--agent", "nobody") == ["no runs"]
        assert len(show(world, view, "--session", "main")) >= 4
        assert show(world, view, "--session", "two") == ["no runs"]
        rows = json.loads("\n".join(show(world, view, "--json", "--limit", "3")))
        assert [row["label"] for row in rows] == ["four", "three", "two"]
        assert rows[0]["now"]["kind"] == "undriven"
        assert refused(world, view, "--limit", "0") == "fledge: --limit: must be 1 or more (got 0)\n"
    assert show(world, "ps", "--search", "do t", "--limit", "1")[-1] == "and more: --limit N"


@proves("4.rows.2")
def test_a_dry_run_of_a_kill_says_what_would_end_and_ends_nothing(world: World) -> None:
    child(world, "survey")
    child(world, "digger", None)
    assert show(world, "kill", "--dry-run", "digger") == ["digger · queued: no process drives this folder"]
    assert show(world, "kill", "all", "--dry-run") == ["digger · queued: no process drives this folder"]
    assert show(world, "kill", "survey", "--dry-run") == ["nothing would end"]
    assert json.loads("\n".join(show(world, "kill", "all", "--dry-run", "--json")))[0]["label"] == "digger"
    assert show(world, "kill", "all") == ["killed 1"]
