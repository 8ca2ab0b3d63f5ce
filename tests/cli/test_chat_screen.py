"""The real `fledge` in a pseudo-terminal against a strict model server, row by row: what a person sees."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fledge.cli.term.cells import fit
from fledge.models.base import Usage
from fledge.models.scripted import ScriptedReply
from tests.cli.model_server import MODEL, workspace
from tests.cli.stage import Stage, call, is_child, staged
from tests.cli.term.pty_program import PATIENCE_S, Program, program
from tests.cli.term.test_sequences import REPORTS
from tests.models.serving import Answer, Body, Status
from tests.statements import proves

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"
SENTENCE = "The report of the scout will not tear this sentence, which is long enough for two rows of a terminal."
PLAN = "1. **Read** the docs\n2. Fix them"
WIDE = "你好，世界。日本語のテキストも正しく折り返される必要があります。"
LONG = "\n".join(f"echo line {number} of a long script" for number in range(9))
HALF, REST = "The first half of the answer", " and the second half of it."


def says(words: str, body: Body) -> Answer:
    """What the agents of these scenes say."""
    if is_child(body):
        return child_says(words, body)
    match words:
        case "delegate":
            return ScriptedReply("", (call("sessions_spawn", task="look", label="scout"),))
        case "ask":
            return ScriptedReply("", (call("sessions_spawn", task="ask", label="scout"),))
        case "plan":
            return ScriptedReply("", (call("sessions_spawn", task="plan", label="checker", planMode=True),))
        case "speak and ask":
            return ScriptedReply("I am about to run a long script", (call("exec", command=LONG),))
        case "spawn and speak":
            return ScriptedReply("", (call("sessions_spawn", task="ask long", label="scout"),))
        case "spawn and stop":
            return ScriptedReply("", (call("sessions_spawn", task="look", label="scout"),))
        case "edit":
            path, old = "app.py", "print(1)"
            return ScriptedReply("I will fix it.", (call("edit", path=path, old=old, new="print(2)"),))
        case "read both":
            calls = (call("read", path="a.md"), call("read", path="b.md"), call("exec", command="seq 9"))
            return ScriptedReply("Let me look at **both**.", calls)
        case "wide":
            return ScriptedReply(f"{WIDE}\n\n- {WIDE}")
        case "half":
            return ScriptedReply(f"{HALF}⟦half⟧{REST}", usage=Usage(10, 20))
        case "overloaded":
            limit = {"error": {"message": "overloaded", "type": "overloaded_error"}}
            return [Status(529, limit, {"Retry-After": "2"})] if not _overloaded(body) else ScriptedReply("Here I am.")
        case _ if body["messages"][-1]["role"] == "tool" and "scout" not in str(body["messages"][-2]):
            return ScriptedReply("That is what I found.")
        case _ if body["messages"][-1]["role"] == "tool":
            first, second = SENTENCE.split("this ")
            return ScriptedReply(f"{first}⟦child⟧this {second}\n\nA second paragraph follows.⟦end⟧")
        case _:
            return ScriptedReply("Heard.")


def child_says(words: str, body: Body) -> Answer:
    """What the subagents do."""
    if body["messages"][-1]["role"] == "tool":
        return ScriptedReply(f"It said: {words}")
    if "APPROVED" in words:
        return ScriptedReply("Carried out.")
    if words.endswith("plan"):
        return ScriptedReply(PLAN)
    if words.endswith("ask long"):
        return ScriptedReply("", (call("exec", command=LONG),))
    if words.endswith("ask"):
        return ScriptedReply("", (call("exec", command="echo one > made.txt && echo done"),))
    return ScriptedReply("⟦look⟧Three files hold the rule.\nThe second one is wrong.", usage=Usage(8000, 100))


_ASKED: set[int] = set()


def _overloaded(body: Body) -> bool:
    """True from the second request on."""
    known = bool(_ASKED)
    _ASKED.add(len(body["messages"]))
    return known


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    _ASKED.clear()
    with staged(tmp_path, says) as stage:
        yield stage


@contextmanager
def chatting(stage: Stage, work: Path, *options: str, columns: int = 80, lines: int = 24) -> Iterator[Program]:
    """A chat whose prompt stands."""
    command = [sys.executable, "-m", "fledge.cli.main", *MODEL, "--state", str(work / "state"), *options]
    env = stage.env | {"NO_COLOR": "1"}
    with program(command, work, env, columns, lines) as (chat, _):
        chat.wait_until(lambda rows: rows and rows[-1].startswith("›"), "the prompt")
        yield chat


def say(chat: Program, words: str) -> None:
    """Type words and send them."""
    chat.type(words)
    chat.wait_until(lambda rows: any(row.startswith(f"› {words}") for row in rows), words)
    chat.type(ENTER)


def leave(chat: Program) -> list[str]:
    """Leave; answers what is left on the terminal."""
    chat.type(CTRL_D)
    assert chat.process.wait(PATIENCE_S) == 0
    return chat.wait_until(lambda rows: rows and not rows[-1].startswith("›"))


def at(rows: list[str], beginning: str) -> int:
    """The number of the only row that begins like this."""
    found = [number for number, row in enumerate(rows) if row.startswith(beginning)]
    assert len(found) == 1, "\n".join([f"{beginning}: {found}", *rows])
    return found[0]


@proves("4.tools.46", "In a chat nothing tears the sentence that is being streamed: cards and notices follow it")
def test_a_child_that_ends_in_the_middle_of_a_sentence_has_its_card_after_the_paragraph(
    stage: Stage, tmp_path: Path
) -> None:
    with chatting(stage, workspace(tmp_path)) as chat:
        say(chat, "delegate")
        chat.wait_for(r"answering · \d+s · ↓ \d+ tok · esc stops\n  └ scout · thinking · \d+s")
        stage.go_on("look")
        chat.wait_until(lambda rows: not any("└ scout" in row for row in rows), "the end of the scout")
        assert "✔" not in "\n".join(chat.rows())
        chat.type("words meanwhile" + ENTER)
        chat.wait_for("queued › words meanwhile\n›")
        stage.go_on("child")
        rows = chat.wait_for("✔ scout").split("\n")
        first = at(rows, "The report of the scout")
        paragraph = " ".join(rows[first : first + 2])
        assert paragraph == SENTENCE
        assert rows[first + 2] == ""
        assert re.fullmatch(r"✔ scout · done · \d+s · 8\.1k tok", rows[first + 3])
        assert rows[first + 4 : first + 6] == ["  Three files hold the rule.", "  The second one is wrong."]
        stage.go_on("end")
        chat.wait_for("› words meanwhile\n\nHeard")
        text = "\n".join(leave(chat))
        for phrase in ("The report of the scout", "A second paragraph follows.", "› words meanwhile", "✔ scout"):
            assert text.count(phrase) == 1, phrase


@proves("4.tools.47", "In a chat a key answers a question about a tool call: once, no, or no with a reason")
def test_a_tool_call_is_allowed_or_denied_by_a_key(stage: Stage, tmp_path: Path) -> None:
    work = workspace(tmp_path)
    with chatting(stage, work, "--set", "tools.exec.approval=ask") as chat:
        stage.go_on("child")
        stage.go_on("end")
        for number, (key, reason) in enumerate((("y", ""), ("e", "not now")), 1):
            say(chat, "ask")
            rows = chat.wait_for(r"\? scout wants to run(.|\n)*y once · n no · e say why\n›").split("\n")
            assert rows[-5:] == [
                "? scout wants to run",
                "    echo one > made.txt && echo done",
                f"    {fit(f'in {work}', 75)}",
                "  y once · n no · e say why",
                "›",
            ]
            assert (work / "made.txt").exists() == (number > 1)
            chat.type(key)
            if reason:
                chat.wait_for("why ›")
                chat.type(reason + ENTER)
            chat.wait_for("allowed: exec" if key == "y" else f"denied: exec .* for scout: {reason}")
            chat.wait_for("(✔ scout(.|\n)*)" * number)
        told = "\n".join(leave(chat))
    assert "It said: done" in told
    assert "was refused by the person" in stage.log.read_text()
    assert "not now" in stage.log.read_text()


@pytest.mark.parametrize(
    ("words", "gate"), [("speak and ask", ""), ("spawn and speak", "child")], ids=["the agent asks", "a subagent asks"]
)
@proves("4.tools.71", "In a chat a question stands whole at once, also in the middle of an answer")
def test_a_long_question_stands_whole_at_once_and_a_key_answers_it_whatever_streams(
    stage: Stage, tmp_path: Path, words: str, gate: str
) -> None:
    with chatting(stage, workspace(tmp_path), "--set", "tools.exec.approval=ask") as chat:
        say(chat, words)
        text = chat.wait_for("y once · n no · e say why\n›")
        rows = text.split("\n")
        asked = rows.index(f"? {'scout' if gate else 'the agent'} wants to run")
        assert rows[asked + 1 : asked + 10] == [f"    {row}" for row in LONG.split("\n")]
        spoken = "The report of the scout" if gate else "I am about to run a long script"
        assert at(rows, spoken) < asked
        chat.type("y")
        chat.wait_for("allowed: exec")
        stage.go_on("child")
        stage.go_on("end")
        leave(chat)


@proves("4.tools.72", "In a chat the answer to a command, and the output of `!`, wait for no end of a paragraph")
def test_whatever_the_person_asks_for_is_shown_while_an_answer_stands_open(stage: Stage, tmp_path: Path) -> None:
    with chatting(stage, workspace(tmp_path), lines=60) as chat:
        say(chat, "half")
        chat.wait_for(HALF)
        commands = {
            "/status": "session",
            "/help": "/open <id",
            "/approvals": "nothing",
            "/agents": "main",
            "/subagents list": r"Active: 0",
            "/model": "this conversation uses",
            "/permissions": "no ",
            "/cost": "this conversation",
            "/copy": "nothing was answered yet",
            "/expand": "no tool",
            "/open none": "no subagents here",
            "/resume": "/resume and a name",
            "/resume none": "no conversation none",
            "/nonsense": "nonsense",
            "!echo from the shell": "from the shell$",
        }
        for command, answer in commands.items():
            found = re.compile(answer, re.M)
            before = len(found.findall("\n".join(chat.rows())))
            chat.type(command + ENTER)
            chat.wait_until(lambda rows: len(found.findall("\n".join(rows))) > before, command)  # noqa: B023
        assert REST.strip() not in "\n".join(chat.rows())
        stage.go_on("half")
        chat.wait_for("second half of it.")
        leave(chat)


@proves("4.tools.48", "In a chat a plan is shown in full, and a key carries it out, rejects it or edits it")
def test_a_plan_is_shown_in_full_and_carried_out_by_a_key(stage: Stage, tmp_path: Path) -> None:
    with chatting(stage, workspace(tmp_path)) as chat:
        stage.go_on("child")
        stage.go_on("end")
        say(chat, "plan")
        rows = chat.wait_for("y carry out · n reject with a reason · e edit").split("\n")
        plan = rows.index("◇ checker's plan")
        assert rows[plan : plan + 3] == ["◇ checker's plan", "1. Read the docs", "2. Fix them"]
        assert "◇ checker's plan, in full in the scrollback" in rows
        chat.type("y")
        chat.wait_for("the plan of checker is approved")
        chat.wait_for("✔ checker · done(.|\n)*Carried out.")
        leave(chat)


def test_a_model_in_trouble_is_shown_with_the_next_try(stage: Stage, tmp_path: Path) -> None:
    with chatting(stage, workspace(tmp_path)) as chat:
        say(chat, "overloaded")
        chat.wait_for(r"✖ model: HTTP 529: overloaded · try 2 in 2s · esc stops\n›")
        chat.wait_for("Here I am.\n›")
        assert "529" not in "\n".join(leave(chat))


@proves("4.tools.45")
def test_ctrl_c_stops_the_turn_and_gives_unread_words_back(stage: Stage, tmp_path: Path) -> None:
    with chatting(stage, workspace(tmp_path)) as chat:
        say(chat, "half")
        chat.wait_for(HALF)
        chat.type("what I typed" + ENTER)
        chat.wait_for("queued › what I typed")
        chat.type(CTRL_C)
        rows = chat.wait_for("stopped(.|\n)*› what I typed$").split("\n")
        assert rows[-1] == "› what I typed"
        assert not any("queued" in row or "esc stops" in row for row in rows)
        chat.type(CTRL_C)  # empties the input
        chat.wait_until(lambda rows: rows[-1] == "›")
        chat.type("delegated" + ENTER)
        chat.wait_for("Heard.")
        text = "\n".join(leave(chat))
        assert text.count(HALF) == 1
        assert REST.strip() not in text
        assert "what I typed" not in text


@proves("4.tools.45")
def test_ctrl_c_right_after_the_words_gives_them_back(stage: Stage, tmp_path: Path) -> None:
    with chatting(stage, workspace(tmp_path)) as chat:
        say(chat, "half")
        chat.wait_for(HALF)
        chat.type("one" + ENTER + "two" + ENTER + CTRL_C)
        rows = chat.wait_for("stopped(.|\n)*› one\n *two$").split("\n")
        assert not any("queued" in row or "esc stops" in row for row in rows)
        chat.type(CTRL_C)  # empties the input
        chat.wait_until(lambda rows: rows[-1] == "›")
        chat.type("delegated" + ENTER)
        chat.wait_for("Heard.")
        text = "\n".join(leave(chat))
        assert text.count("Heard.") == 1


@proves("4.tools.73")
def test_reports_of_the_terminal_stop_no_turn_and_type_nothing(stage: Stage, tmp_path: Path) -> None:
    with chatting(stage, workspace(tmp_path)) as chat:
        reports = [report for report in REPORTS.values() if len(report) > 2]
        for report in reports:
            chat.type(report)
        say(chat, "half")
        chat.wait_for(HALF)
        for report in reports:
            for sign in report:
                chat.type(sign)
        stage.go_on("half")
        rows = chat.wait_for(f"{HALF}{REST}").split("\n")
        assert not any("stopped" in row for row in rows)
        say(chat, "delegated")
        chat.wait_for("Heard.")
        leave(chat)


@proves("4.tools.74", "In a chat a call shows ✓ or ✗, how long it took and the first rows of its result, once it ends")
def test_a_call_shows_whether_it_failed_how_long_it_took_and_the_first_rows_of_its_result(
    stage: Stage, tmp_path: Path
) -> None:
    work = workspace(tmp_path)
    (work / "a.md").write_text("Alpha\n")
    with chatting(stage, work) as chat:
        say(chat, "edit")
        rows = chat.wait_for("That is what I found.").split("\n")
        failed = at(rows, "✗ edit app.py · ")
        assert re.fullmatch(r"✗ edit app\.py · \d\.\ds", rows[failed])
        assert "app.py" in rows[failed + 1]
        say(chat, "read both")
        rows = chat.wait_for("(That is what I found.(.|\n)*){2}").split("\n")
        assert rows[at(rows, "✓ read a.md · ") + 1].endswith("Alpha")
        assert "b.md" in rows[at(rows, "✗ read b.md · ") + 1]
        ran = at(rows, "✓ exec seq 9 · ")
        assert rows[ran + 1 : ran + 4] == ["  1", "  2", "  … 8 more lines"]  # the last one is the exit code
        leave(chat)


@proves("4.tools.75", "A resumed chat shows the last messages as they looked: with words before calls, calls and cards")
def test_what_a_resumed_chat_restores_looks_as_it_looked(stage: Stage, tmp_path: Path) -> None:
    work = workspace(tmp_path)
    (work / "a.md").write_text("Alpha\n")
    for gate in ("look", "child", "end"):
        stage.go_on(gate)
    with chatting(stage, work, "--set", "tools.exec.approval=never") as chat:
        say(chat, "read both")
        chat.wait_for("That is what I found.")
        say(chat, "delegate")
        chat.wait_for("Heard.")
        chat.wait_until(lambda rows: rows[-1] == "›")
        before = leave(chat)
    looked = before[at(before, "› read both") :]
    assert any(row.startswith("✓ exec seq 9") for row in looked)
    assert any(row.startswith("✔ scout · done") for row in looked)
    with chatting(stage, work) as chat:
        again = leave(chat)
        assert again[at(again, "› read both") :] == looked
    with chatting(stage, work) as chat:
        chat.type("/new other" + ENTER)
        chat.wait_for("other ›")
        chat.type("/clear" + ENTER)
        chat.wait_until(lambda rows: not any("scout" in row for row in rows))
        chat.type("/resume 2" + ENTER)
        chat.wait_for("Heard.")
        again = leave(chat)
        assert again[at(again, "› read both") :] == looked


@pytest.mark.parametrize(("words", "stopped"), [("half", "stopped"), ("spawn and stop", "stopped; subagents go on")])
def test_a_stop_names_subagents_only_where_there_are_some(
    stage: Stage, tmp_path: Path, words: str, stopped: str
) -> None:
    with chatting(stage, workspace(tmp_path)) as chat:
        say(chat, words)
        chat.wait_for(HALF if words == "half" else "The report of the scout")
        chat.type(CTRL_C)
        rows = chat.wait_for(r"\n *stopped").split("\n")
        assert rows[at(rows, "stopped")] == stopped + " (/stop stops them too)" * (words != "half")
        leave(chat)


def test_a_second_chat_goes_on_when_the_holder_leaves_in_the_middle_of_an_answer(stage: Stage, tmp_path: Path) -> None:
    work = workspace(tmp_path)
    with ExitStack() as stack:
        first = stack.enter_context(chatting(stage, work))
        second = stack.enter_context(chatting(stage, work))
        say(second, "half")
        for chat in (first, second):
            chat.wait_for(HALF)
        first.process.kill()
        first.process.wait()
        stage.go_on("half")
        second.wait_for(REST.strip())
        second.wait_for("the process that held the folder has left; this one goes on with it\n›")
        text = " ".join(" ".join(leave(second)).split())
        assert text.count(HALF) == 1
        assert HALF + REST in text


@pytest.mark.parametrize("columns", [40])
def test_wide_characters_are_wrapped_whole_in_a_narrow_terminal(stage: Stage, tmp_path: Path, columns: int) -> None:
    with chatting(stage, workspace(tmp_path), columns=columns) as chat:
        say(chat, "wide")
        chat.wait_until(lambda rows: rows[-1] == "›" and "ます。" in rows[-2], "the whole answer")
        rows = leave(chat)
    begin = at(rows, "你好")
    text = [row for row in rows[begin:] if row]
    glued = "".join(row.removeprefix("• ").strip() for row in text)
    assert glued == WIDE * 2
    assert all(len(row.strip()) * 2 <= columns for row in text)
