"""The commands that act on a state folder, for people and for programs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fledge as library
from fledge.core.heartbeat import PROMPT
from fledge.core.keys import short_id
from fledge.testing import ScriptedModel, use
from tests.cli import command
from tests.cli.chat_server import talk
from tests.cli.command import Done, session_of
from tests.cli.model_server import MODEL, Model, serving, workspace
from tests.statements import proves

Fledge = Callable[..., Done]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, talk) as model:
        yield model


@pytest.fixture
def fledge(model: Model, tmp_path: Path) -> Fledge:
    work = workspace(tmp_path)

    def run(*arguments: str, given: str = "") -> Done:
        env = model.env | {"FLEDGE_STATE": str(tmp_path / "state")}
        return command.fledge(*arguments, cwd=work, env=env, given=given)

    return run


def value(done: Done) -> Any:
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def test_spawn_waits_for_the_answer_and_its_run_can_be_found_again(fledge: Fledge) -> None:
    done = fledge("spawn", "dig deep", "--label", "digger", *MODEL)
    assert (done.returncode, done.stdout) == (0, "gold, at the very bottom\n"), done.stderr
    again = value(fledge("spawn", "-", "--json", *MODEL, given="dig deeper"))
    assert (again["status"], again["text"]) == ("ok", "gold, at the very bottom")
    assert "status    completed (ok)" in fledge("info", "digger").stdout
    info = value(fledge("info", again["runId"], "--json"))
    assert info["sessionKey"] == again["sessionKey"]
    assert info["timeline"][0]["name"] == "Admitted"
    tree = value(fledge("tree", "--json"))
    assert [run["label"] for run in tree] == ["", "digger"], "the newest first"
    assert tree[1]["delivery"]["state"] == "delivered"
    assert value(fledge("ps", "--json")) == [], "a run of `fledge spawn` is the program's, not the conversation's"
    log = value(fledge("log", "digger", "--json"))
    assert log[-1]["text"] == "gold, at the very bottom"
    assert value(fledge("undelivered", "--json")) == []


def test_a_plan_is_shown_and_answered_from_the_shell(fledge: Fledge) -> None:
    done = fledge("spawn", "dig deep", "--label", "planner", "--plan", *MODEL)
    assert done.returncode == 3
    assert "approve it with: fledge approve " in done.stdout
    assert "must say why" in fledge("reject", "planner").stderr
    assert value(fledge("reject", "planner", "too short", "--json"))["runId"]
    again = fledge("run", "--continue", *MODEL)
    assert again.returncode == 3
    assert "the plan of planner waits for your answer: fledge approve " in again.stderr
    assert "the plan of planner waits for your answer: fledge approve " in fledge("ps").stdout
    assert "approved" in fledge("approve", "planner").stdout
    assert "no plan awaits an answer" in fledge("approve", "planner").stderr


def test_a_message_to_a_planner_answers_its_plan_or_says_how_to(fledge: Fledge) -> None:
    fledge("spawn", "dig deep", "--label", "planner", "--plan", *MODEL)
    kept = fledge("send", "planner", "looks good to me", *MODEL)
    assert kept.returncode == 3
    assert "pending: it waits for an answer to its plan, and this was none: your message is kept" in kept.stdout
    answered = fledge("send", "planner", "Approved, go ahead", *MODEL)
    assert answered.returncode == 0, answered
    log = fledge("log", "planner").stdout
    assert "APPROVED: go ahead" in log
    assert "looks good to me" in log


def test_a_tool_call_is_answered_from_the_shell(fledge: Fledge) -> None:
    asks = ("--set", "tools.write.approval=ask")
    done = fledge("run", "write", *MODEL, *asks)
    assert done.returncode == 3
    question = done.stderr.split("waits for approval ")[1][:8]
    assert "write may be run, this once" in fledge("approve", question).stdout
    going_on = fledge("run", "--continue", *MODEL, *asks)
    assert "The tool said: created made.txt" in going_on.stdout


def test_a_run_that_waits_for_a_tool_call_is_answered_by_the_id_of_the_call(fledge: Fledge, tmp_path: Path) -> None:
    async def spawn(fl: library.Fledge) -> str:
        run = await fl.spawn("write it", label="writer")
        async for event in run.events():
            if event.kind == "phase" and event.phase == "waiting":
                break
        (question,) = await fl.approvals()
        return short_id(question.id)

    asks = {"tools": {"write": {"approval": "ask"}}}
    model = ScriptedModel(lambda request: use("write", path="made.txt", content="made"))
    question = library.run_sync(spawn, tmp_path / "state", model=model, config=asks, workspace=tmp_path / "work")
    for verb in ("approve", "reject"):
        refused = fledge(verb, "writer")
        assert refused.returncode != 0
        assert f"must be the id of the tool call that waits: {question} (write)" in refused.stderr
    assert "write may be run, this once" in fledge("approve", question).stdout


def test_send_steer_and_kill_say_what_came_of_it(fledge: Fledge) -> None:
    assert fledge("send", "main", "hello", *MODEL).stdout == "Hello there.\nHow can I help?\n"
    assert value(fledge("send", "main", "-", "--json", *MODEL, given="quiet"))["status"] == "ok"
    fledge("spawn", "dig deep", "--label", "planner", "--plan", *MODEL)
    assert "nothing to steer" in fledge("steer", "planner", "left").stderr
    assert value(fledge("kill", "planner", "--json"))["killed"]
    assert "has ended" in fledge("kill", "planner").stderr
    assert fledge("kill", "all").stdout == "killed 0\n"
    assert "no subagent" in fledge("kill", "nobody").stderr


@proves("4.resume.1")
@proves("4.resume.10")
def test_a_killed_run_is_resumed_and_run_again_from_the_shell(fledge: Fledge) -> None:
    fledge("spawn", "dig deep", "--label", "digger", "--plan", *MODEL)
    refused = fledge("resume", "digger")
    assert refused.returncode == 1
    assert "digger is awaiting_approval and has not ended: answer its plan" in refused.stderr
    fledge("kill", "digger")
    done = fledge("resume", "digger", "and quickly")
    assert done.stdout == "resumed: attempt 2; `fledge run --continue` goes on with it\n", done.stderr
    again = value(fledge("again", "digger", "--json"))
    assert again["status"] == "accepted"
    assert fledge("run", "--continue", *MODEL).returncode == 3
    second, first = value(fledge("tree", "--json"))
    assert [run["phase"] for run in (first, second)] == ["awaiting_approval"] * 2
    assert (first["attempt"], second["attempt"], second["runId"]) == (2, 1, again["runId"])
    assert second["label"] == "digger"
    said = [entry["text"] for entry in value(fledge("log", first["runId"], "--json"))]
    assert sum("You were stopped before you had finished" in text for text in said) == 1
    assert any(text.endswith("and quickly") for text in said)
    assert "no subagent" in fledge("again", "nobody").stderr


@proves("4.tools.66")
def test_a_finished_run_is_removed_from_the_shell(fledge: Fledge) -> None:
    fledge("spawn", "dig deep", "--label", "digger", *MODEL)
    assert [run["label"] for run in value(fledge("tree", "--json"))] == ["digger"]
    assert fledge("remove", "digger").stdout == "removed digger\n"
    assert value(fledge("tree", "--json")) == []
    assert "there are no subagents here" in fledge("remove", "digger").stderr
    fledge("spawn", "dig deep", "--label", "planner", "--plan", *MODEL)
    refused = fledge("remove", "planner")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "planner: it is awaiting_approval: wait for it, or kill it first" in refused.stderr


def test_sessions_and_agents_are_listed(fledge: Fledge) -> None:
    fledge("send", "main", "hello", *MODEL)
    assert "agent:main:main  main" in fledge("sessions").stdout
    assert value(fledge("sessions", "--json"))[0]["key"].startswith("agent:main:")
    setting = 'agents.list=[{id: "critic", description: "finds faults"}]'
    assert fledge("agents", "--set", setting).stdout.splitlines()[0] == "main"
    assert [one["id"] for one in value(fledge("agents", "--json", "--set", setting))] == ["main", "critic"]
    assert "-n: must be 1 or more" in fledge("sessions", "-n", "0").stderr


@proves("5.heartbeat.15")
@proves("5.heartbeat.16")
def test_an_event_and_a_heartbeat_from_the_shell_wait_until_somebody_drives_the_folder(
    fledge: Fledge, tmp_path: Path
) -> None:
    own = session_of(tmp_path / "work")
    fledge("run", "hello", *MODEL)
    done = fledge("event", "-", given="the build is red")
    assert done.stdout == f"posted to {own}; `fledge run --continue` goes on with it\n", done.stderr
    assert value(fledge("heartbeat", "a new day", "--json")) == {"sessionKey": own}
    refused = fledge("event", "hello", "--session", "agent:main:nobody")
    assert (refused.returncode, refused.stderr) == (1, "fledge: no session agent:main:nobody\n")
    fledge("run", "--continue", *MODEL)
    said = [entry["text"] for entry in value(fledge("log", "--json"))]
    assert "[System event] the build is red" in said
    assert said.count(PROMPT) == 1


@proves("3.limits.33")
@proves("3.limits.32", "Only agents of a trusted project count")
def test_an_agent_of_ones_own_is_spawned_from_the_shell_once_its_project_is_trusted(
    fledge: Fledge, tmp_path: Path
) -> None:
    agents = tmp_path / "work" / "agents"
    agents.mkdir()
    (agents / "reviewer.md").write_text("You review.")
    refused = fledge("spawn", "dig deep", "--agent", "reviewer", *MODEL)
    assert refused.returncode == 1
    assert 'there is no agent "reviewer" (there are: main)' in refused.stderr
    assert "of a project that is trusted" in refused.stderr
    fledge("trust")
    done = fledge("spawn", "dig deep", "--agent", "reviewer", *MODEL)
    assert (done.returncode, done.stdout) == (0, "gold, at the very bottom\n"), done.stderr


@proves("3.plan.19", "`fledge run` ends with 3 and the command to type if a plan waits, also beside another process")
def test_run_says_that_a_plan_waits_and_what_to_type(fledge: Fledge) -> None:
    done = fledge("run", "plan", *MODEL)
    assert done.returncode == 3, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "waits for your answer" in line]
    assert line.startswith("the plan of planner ")
    named = line.split("fledge approve ")[1].split(",")[0]
    assert "approved" in fledge("approve", named).stdout
    assert fledge("run", "--continue", *MODEL).returncode == 0
