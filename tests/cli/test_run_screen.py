"""The real `fledge run` and `fledge tree --watch` in a pseudo-terminal against a strict model server, row by row."""

import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from fledge.models.base import Usage
from fledge.models.scripted import ScriptedReply
from tests.cli import command
from tests.cli.model_server import MODEL, until, workspace
from tests.cli.stage import Stage, call, is_child, staged
from tests.cli.term.pty_program import Program, program
from tests.models.serving import Answer, Body, Status
from tests.statements import proves

CTRL_C, CTRL_Q, CTRL_S, CTRL_Z = "\x03", "\x11", "\x13", "\x1a"
RESULT = "Three files hold the rule.\nThe second one is wrong.\nThe third one is empty.\nNone is needed."


def says(words: str, body: Body) -> Answer:
    """What the agents of these scenes say."""
    if is_child(body):
        return child_says(words, body)
    match words:
        case "delegate":
            return ScriptedReply("I send **a scout**.", (call("sessions_spawn", task="look", label="scout"),))
        case "plan":
            return ScriptedReply("", (call("sessions_spawn", task="plan", label="checker", planMode=True),))
        case "overloaded":
            limit = {"error": {"message": "overloaded", "type": "overloaded_error"}}
            is_first = not _ASKED
            _ASKED.append(body)
            return [Status(529, limit, {"Retry-After": "2"})] if is_first else ScriptedReply("Here I am.")
        case "half":
            return ScriptedReply("The first half of the answer⟦half⟧ and the second half.", usage=Usage(10, 20))
        case _ if body["messages"][-1]["role"] == "tool":
            return ScriptedReply("It is *under way*.⟦turn⟧")
        case _:
            return ScriptedReply("# Findings\n\n- all of it")


def child_says(words: str, body: Body) -> Answer:
    """What the subagents do."""
    if body["messages"][-1]["role"] == "tool":
        return ScriptedReply(f"⟦look⟧{RESULT}", usage=Usage(8000, 100))
    if words.endswith("plan"):
        return ScriptedReply("1. **Read** the docs\n2. Fix them")
    return ScriptedReply("", (call("read", path="notes.txt"),))


_ASKED: list[Body] = []


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    _ASKED.clear()
    with staged(tmp_path, says) as stage:
        yield stage


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return workspace(tmp_path)


def line(work: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "fledge.cli.main", *arguments, "--state", str(work / "state")]


@contextmanager
def running(stage: Stage, work: Path, *arguments: str, columns: int = 80, **env: str) -> Iterator[tuple[Program, int]]:
    """A run in a terminal."""
    with program(line(work, "run", *MODEL, *arguments), work, stage.env | {"NO_COLOR": "1"} | env, columns) as found:
        yield found


def left_behind(shown: Program, code: int = 0) -> list[str]:
    """What stands on the terminal when the program has ended, with this exit code."""
    found, rows = shown.ended()
    assert found == code, "\n".join(rows)
    return rows


@proves(
    "4.tools.52", "`fledge run` in a terminal shows the turn and its subagents live, and takes that away at the end"
)
def test_the_work_of_a_run_is_shown_in_place_and_only_answers_calls_and_cards_stay(stage: Stage, work: Path) -> None:
    with running(stage, work, "delegate") as (run, terminal):
        run.wait_for(
            r"It is \*under way\*.\n. answering · \d+s · ↓ \d+ tok · ctrl-c leaves\n  └ scout · thinking · \d+s"
        )
        assert not termios.tcgetattr(terminal)[3] & termios.ECHO
        run.type("typed meanwhile\r")
        stage.go_on("turn")
        run.wait_for(r"\n· 1 subagent at work\n  └ scout")
        stage.go_on("look")
        rows = left_behind(run)
        assert termios.tcgetattr(terminal)[3] & termios.ECHO
    card = next(number for number, row in enumerate(rows) if row.startswith("✔"))
    assert re.fullmatch(r"✔ scout · done · \d+s · \d+\.\dk tok", rows[card])
    assert rows[:card] + rows[card + 1 :] == [
        "I send **a scout**.",
        "",
        "· sessions_spawn scout",
        "",
        "It is *under way*.",
        "",
        "  Three files hold the rule.",
        "  The second one is wrong.",
        "  The third one is empty. …" + " " * 36 + "fledge log scout",
        "",
        "# Findings",
        "",
        "- all of it",
    ]


def test_a_region_beside_redirected_answers_is_drawn_alone(stage: Stage, work: Path) -> None:
    redirected = ["sh", "-c", 'exec "$@" > answer.md', "sh", *line(work, "run", *MODEL, "delegate")]
    with program(redirected, work, stage.env | {"NO_COLOR": "1"}) as (run, _):
        run.wait_for("ctrl-c leaves\n  └ scout")
        assert (work / "answer.md").read_text() == "I send **a scout**.\n"
        stage.go_on("turn")
        stage.go_on("look")
        rows = left_behind(run)
    assert (work / "answer.md").read_text() == "I send **a scout**.\nIt is *under way*.\n# Findings\n\n- all of it\n"
    assert rows[0] == "· sessions_spawn scout"
    assert not any("Findings" in row or "under way" in row for row in rows)


@proves("4.tools.53", "A `fledge run` that is called off, by Ctrl-C or SIGTERM, gives the terminal back as it was")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_called_off_gives_the_terminal_back(stage: Stage, work: Path, number: int, code: int) -> None:
    with running(stage, work, "half") as (run, terminal):
        run.wait_for("The first half of the answer\n. answering")
        assert run.glass.hides_cursor
        if number == signal.SIGINT:
            run.type(CTRL_C)
        else:
            os.kill(run.process.pid, number)
        rows = left_behind(run, code)
        assert termios.tcgetattr(terminal)[3] & termios.ECHO
        assert not run.glass.hides_cursor
    assert rows == (["fledge: stopped; `fledge run --continue` goes on"] if number == signal.SIGINT else [])


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


def test_ctrl_z_takes_the_region_away_until_the_run_goes_on(stage: Stage, work: Path) -> None:
    with running(stage, work, "half") as (run, terminal):
        run.wait_for("The first half of the answer\n. answering")
        run.type(CTRL_Z)
        run.wait_until(lambda rows: not rows and is_stopped(run.process.pid), "the stop")
        assert termios.tcgetattr(terminal)[3] & termios.ECHO
        os.kill(run.process.pid, signal.SIGCONT)
        run.wait_for("The first half of the answer\n. answering")
        stage.go_on("half")
        assert left_behind(run) == ["The first half of the answer and the second half."]


@proves("4.tools.54", "A terminal that takes no bytes stops no subagent of a `fledge run`, and gets everything later")
def test_a_stalled_terminal_stops_nothing(stage: Stage, work: Path) -> None:
    with running(stage, work, "delegate") as (run, _):
        run.wait_for("ctrl-c leaves\n  └ scout")
        run.type(CTRL_S)
        before = run.wait_for("scout")
        stage.go_on("turn")
        stage.go_on("look")
        until(run.process, lambda: "Findings" in seen(work, stage.env))
        assert "Findings" not in "\n".join(run.rows())
        assert run.process.poll() is None, before
        run.type(CTRL_Q)
        rows = left_behind(run)
    assert rows[-1] == "- all of it"
    assert sum(row.startswith("✔ scout · done") for row in rows) == 1


def seen(work: Path, env: Mapping[str, str]) -> str:
    """The transcript of the main conversation."""
    return command.fledge("log", "--state", str(work / "state"), cwd=work, env=env).stdout


@proves("4.tools.40")
def test_a_plan_that_waits_ends_the_run_with_three_and_the_command_that_answers_it(stage: Stage, work: Path) -> None:
    stage.go_on("turn")
    with running(stage, work, "plan") as (run, _):
        rows = left_behind(run, 3)
    plan = next(number for number, row in enumerate(rows) if row.startswith("the plan of checker"))
    shown = " ".join(rows[plan:])
    assert re.fullmatch(
        r"the plan of checker waits for your answer: fledge approve \w{8}, or reject   "
        r"\| 1\. \*\*Read\*\* the docs   \| 2\. Fix them",
        shown,
    )


def test_a_model_in_trouble_is_shown_with_the_next_try(stage: Stage, work: Path) -> None:
    with running(stage, work, "overloaded") as (run, _):
        run.wait_for(r"✖ model: HTTP 529: overloaded · try 2 in 2s · ctrl-c leaves")
        assert left_behind(run) == ["Here I am."]


@proves("4.tools.55", "Without a terminal that can be redrawn, `fledge run` has a plain line for each event")
@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"FLEDGE_ACCESSIBLE": "1"}, {}], ids=str)
def test_elsewhere_each_event_is_a_line(stage: Stage, work: Path, env: dict[str, str]) -> None:
    for gate in ("turn", "look"):
        stage.go_on(gate)
    words = line(work, "run", *MODEL, "delegate")
    if env:
        named = ["env", *(f"{name}={value}" for name, value in env.items()), *words]
        with program(named, work, stage.env) as (run, _):
            rows = left_behind(run)
    else:
        done = subprocess.run(
            words, cwd=work, env=stage.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        rows = done.stdout.splitlines()
    assert "\x1b" not in "\n".join(rows)
    assert rows[:2] == ["I send **a scout**.", "main · sessions_spawn scout"]
    scout = [re.sub(r"\d+s", "0s", row) for row in rows if row.startswith("scout")]
    assert [re.sub(r"[\d.]+k", "8.1k", row) for row in scout] == [
        "scout · started",
        "scout · read notes.txt",
        "scout · done · 0s · 8.1k tok",
    ]
    assert rows[-3:] == ["# Findings", "", "- all of it"]


def test_a_quiet_run_prints_answers_alone(stage: Stage, work: Path) -> None:
    for gate in ("turn", "look"):
        stage.go_on(gate)
    with running(stage, work, "--quiet", "delegate") as (run, _):
        rows = left_behind(run)
    assert rows == ["I send **a scout**.", "It is *under way*.", "# Findings", "", "- all of it"]


# ---- fledge tree --watch ---------------------------------------------------------------------------------------------


@contextmanager
def at_work(stage: Stage, work: Path, prompt: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A run whose subagent is at work."""
    stage.go_on("turn")
    running = line(work, "run", "--quiet", *MODEL, prompt)
    with subprocess.Popen(running, cwd=work, env=stage.env, stdout=subprocess.DEVNULL) as process:
        until(process, lambda: "scout" in command.fledge("tree", "--state", str(work / "state"), cwd=work).stdout)
        yield process


@proves("4.tools.57", "`fledge tree --watch` follows the runs in place, until everything has settled or Ctrl-C")
def test_a_tree_is_watched_in_place_until_everything_has_settled(stage: Stage, work: Path) -> None:
    with at_work(stage, work, "delegate"), program(line(work, "tree", "--watch"), work, stage.env) as (tree, terminal):
        tree.wait_for("└─ #1 scout  running: ")
        assert not termios.tcgetattr(terminal)[3] & termios.ECHO
        stage.go_on("look")
        (row,) = left_behind(tree)
        assert row.startswith("└─ #1 scout  done  ")
        assert termios.tcgetattr(terminal)[3] & termios.ECHO


@proves("4.tools.57")
def test_ctrl_c_leaves_the_tree_as_it_stands_and_what_is_watched_goes_on(stage: Stage, work: Path) -> None:
    with at_work(stage, work, "delegate") as run:
        with program(line(work, "tree", "--watch"), work, stage.env) as (tree, terminal):
            tree.wait_for("└─ #1 scout  running: ")
            tree.type(CTRL_C)
            (row,) = left_behind(tree, 130)
            assert row.startswith("└─ #1 scout  running: ")
            assert termios.tcgetattr(terminal)[3] & termios.ECHO
            assert not tree.glass.hides_cursor
        stage.go_on("look")
        assert run.wait(60) == 0


@proves("4.tools.57")
@pytest.mark.parametrize("what", ["tree", "ps"])
def test_in_a_pipe_a_watched_run_has_a_line_for_each_change(stage: Stage, work: Path, what: str) -> None:
    with at_work(stage, work, "delegate"):
        watching = line(work, what, "--watch")
        with subprocess.Popen(watching, cwd=work, env=stage.env, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            assert watch.stdout.readline() == "scout · running\n"
            stage.go_on("look")
            rest = watch.stdout.read().splitlines()
    assert (watch.returncode, rest[-1]) == (0, "scout · done")
    assert all(re.fullmatch("scout · [a-z ]+", row) for row in rest)


def test_watching_a_folder_that_is_settled_is_like_looking_at_it(stage: Stage, work: Path) -> None:
    for gate in ("turn", "look"):
        stage.go_on(gate)
    state = str(work / "state")
    assert command.fledge("run", *MODEL, "--state", state, "delegate", cwd=work, env=stage.env).returncode == 0
    done = command.fledge("tree", "--watch", "--state", state, cwd=work, env=stage.env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "scout · done\n", "")
    refused = command.fledge("tree", "--watch", "--json", "--state", state, cwd=work, env=stage.env)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("fledge: --watch: takes no --json")
