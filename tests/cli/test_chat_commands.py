"""Commands of the chat itself: how they are read and completed, and what they say, through a chat that runs."""

import asyncio
import time
from pathlib import Path

import pytest

from fledge.api.values import RunInfo
from fledge.cli.chat import Chat
from fledge.cli.chat_commands import (
    COMMANDS,
    Completions,
    ago,
    cost_lines,
    help_text,
    key_of,
    new_name,
    read,
)
from fledge.cli.term.shown import CallQuestion, Leave, OutputItem, PersonVerdict, PlanQuestion, QuestionAnswered
from fledge.commands.values import Below
from fledge.core.keys import conversation_name
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, ScriptedReply, last_text, use
from fledge.testing import ScriptedModel
from tests.cli.test_chat import Heard, Sitting
from tests.statements import proves

LONG = "\n".join(f"line {number} of the result" for number in range(12))


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/open scout", ("open", "scout")),
        ('/open "my scout"', ("open", "my scout")),
        (" /COST ", ("cost", "")),
        ("/exit", ("quit", "")),
        ("/opener", None),
        ("open scout", None),
        ("/subagents list", None),
    ],
)
def test_a_command_of_the_chat_is_read(line: str, command: tuple[str, str] | None) -> None:
    assert read(line) == command


def test_help_names_every_command_of_the_chat() -> None:
    assert all(form in help_text() for _, form, _ in COMMANDS)


def test_commands_targets_conversations_and_models_are_completed() -> None:
    completions = Completions()
    completions.targets = [("scout", "running"), ("my scout", "done")]
    completions.conversations = [("main", "just now"), ("trip", "2 h ago")]
    completions.models = lambda: [("openai/gpt-5", "a key is set")]

    def words(line: str) -> list[str]:
        return [word for word, _ in completions(line)]

    assert words("/co") == ["/compact", "/cost", "/copy"]
    assert {"/subagents", "/new", "/status"} <= set(words("/"))
    assert words("/open ") == ["scout", '"my scout"']
    assert words("/open m") == ['"my scout"']
    assert words("/resume t") == ["trip"]
    assert words("/model o") == ["openai/gpt-5"]
    assert words("/model ") == ["openai/gpt-5", "default"]
    assert words("/kill s") == ["scout"]
    assert words("/cost ") == []
    assert words("/open scout x") == []
    assert words("no command") == []


def test_conversations_are_named_without_session_keys() -> None:
    assert [conversation_name(key) for key in ("agent:main:main", "agent:main:trip", "agent:critic:main")] == [
        *("main", "trip", "critic:main"),
    ]
    assert [key_of(*one) for one in (("trip", "main"), ("critic:main", "main"), ("x", "critic"))] == [
        *("agent:main:trip", "agent:critic:main", "agent:critic:x"),
    ]
    at = time.struct_time((2026, 11, 16, 9, 5, 0, 0, 320, 0))
    assert new_name([], at) == "nov16-0905"
    assert new_name(["nov16-0905", "nov16-0905-2"], at) == "nov16-0905-3"


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "just now"), (90, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago")]
)
def test_an_age_is_told_in_a_few_words(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def run(tokens: int, cost: float | None, *children: RunInfo) -> RunInfo:
    return RunInfo(
        session_key="k",
        run_id="r",
        number=1,
        label="scout",
        task="look",
        status="ok",
        phase="completed",
        error=None,
        ended_reason="complete",
        requester="agent:main:main",
        depth=1,
        attempt=1,
        plan="none",
        delivery=None,
        created_at=0,
        started_at=0,
        ended_at=1,
        unsettled=0,
        mode="run",
        cleanup="keep",
        controller="agent:main:main",
        tokens=tokens,
        cost_usd=cost,
        children=children,
    )


@pytest.mark.parametrize(
    ("cost", "runs", "lines"),
    [
        (None, [], ["this conversation: 1,500 tokens · price unknown"]),
        (
            0.5,
            [run(1000, 0.25, run(10, None))],
            [
                "this conversation: 1,500 tokens · $0.5000",
                "2 subagents: 1,010 tokens · $0.2500",
                "together: 2,510 tokens · $0.7500",
            ],
        ),
        (
            None,
            [run(1000, None)],
            [
                "this conversation: 1,500 tokens · price unknown",
                "1 subagent: 1,000 tokens · price unknown",
                "together: 2,500 tokens · price unknown",
            ],
        ),
    ],
)
def test_the_cost_of_a_conversation_counts_its_subagents(
    cost: float | None, runs: list[RunInfo], lines: list[str]
) -> None:
    own = Below(now_at=0, state="idle", tokens_in=1000, tokens_out=500, cost_usd=cost)
    assert cost_lines(own, runs) == lines


# ---- in a chat -------------------------------------------------------------------------------------------------------


async def talk(request: Request) -> Answer:
    """A main agent that delegates, and its children."""
    last = request.messages[-1]
    if "# Subagent Context" in request.system:
        if "plan" in last_text(request) and "APPROVED" not in last_text(request):
            return "1. read\n2. write"
        return last_text(request) if "edited" in last_text(request) else LONG
    if isinstance(last, ToolMessage):
        return "NO_REPLY"
    match last_text(request):
        case "delegate":
            return use("sessions_spawn", task="look", label="scout")
        case "plan":
            return use("sessions_spawn", task="plan it", label="planner", planMode=True)
        case "write":
            return ScriptedReply("", (use("write", path="made.txt", content="made"),))
        case words if words.startswith("[") or "ubagent" in words:
            return "NO_REPLY"
        case words:
            return f"You said: {words}"


@pytest.fixture
def screen() -> Heard:
    return Heard()


def played(tmp_path: Path, screen: Heard, *lines: str) -> list[str]:
    """What a chat shows after each of these lines was typed, one after the other."""

    async def body(chat: Chat) -> None:
        for line in lines:
            screen.type(line)
            await asyncio.sleep(5)

    Sitting(tmp_path, screen, ScriptedModel(talk)).last(body)
    return screen.lines


@proves("4.tools.49", "`/open LABEL` in a chat shows the whole result of a subagent")
def test_the_whole_result_of_a_subagent_is_opened(tmp_path: Path, screen: Heard) -> None:
    lines = played(tmp_path, screen, "delegate", "delegate", "/open scout", "/open nobody")
    assert lines[-3:-1] == ["scout · the whole result", LONG]
    assert lines[-1].startswith("✖ no subagent 'nobody'")


def test_what_a_tool_gave_back_is_shown_when_it_is_asked_for(tmp_path: Path, screen: Heard) -> None:
    played(tmp_path, screen, "/expand", "delegate", "/expand")
    assert "no tool has given anything back" in screen.lines
    last = screen.items[-1]
    assert isinstance(last, OutputItem)
    assert last.is_asked_for
    assert '"status":"accepted"' in last.text


def test_the_last_answer_is_copied_to_the_terminal_and_to_a_file(tmp_path: Path, screen: Heard) -> None:
    lines = played(tmp_path, screen, "/copy", "hello", "/copy")
    assert "nothing was answered yet" in lines
    assert screen.copied == (tmp_path / "last-answer.md").read_text() == "You said: hello"
    assert (tmp_path / "last-answer.md").stat().st_mode & 0o777 == 0o600


def test_the_cost_is_told_and_the_terminal_cleared(tmp_path: Path, screen: Heard) -> None:
    lines = played(tmp_path, screen, "hello", "/cost", "/clear", "/quit now")
    assert any(line.startswith("this conversation: ") for line in lines)
    assert lines[-2:] == ["(cleared)", "write it like this: /quit"]


@proves("4.tools.50", "`/new` begins another conversation, `/resume` goes on with one by name or number")
def test_conversations_are_begun_listed_and_gone_on_with(tmp_path: Path, screen: Heard) -> None:
    lines = played(
        tmp_path, screen, "first words", "/new trip", "about the trip", "/resume", "/resume main", "/resume nowhere"
    )
    begun = next(number for number, line in enumerate(lines) if "· here · trip ·" in line)
    assert lines[begun - 1] == "You said: first words"
    assert lines[begun + 1 : begun + 3] == ["» about the trip", "You said: about the trip"]
    assert "1) trip · " in lines[begun + 3]
    assert "· about the trip\n" in lines[begun + 3]
    assert "2) main · " in lines[begun + 3]
    assert lines[-3:-1] == ["› first words", "You said: first words"]
    assert lines[-1] == "✖ there is no conversation nowhere: /resume lists them, /new nowhere begins it"
    assert screen.partner == ""


@proves("4.tools.64")
def test_the_number_of_a_conversation_is_that_of_the_list_that_was_shown(tmp_path: Path, screen: Heard) -> None:
    played(
        tmp_path, screen, "first words", "/new trip", "about the trip", "/resume", "/resume main", "more", "/resume 1"
    )
    assert "1) trip · " in next(line for line in screen.lines if "2) main" in line)
    assert screen.lines[-1] == "You said: about the trip"


def test_a_conversation_is_listed_with_its_age_and_first_words(tmp_path: Path, screen: Heard) -> None:
    """The age is counted by the clock of the folder, which is in virtual time here: this computer's may differ."""

    async def body(chat: Chat) -> None:
        screen.type("Plan a trip")
        await asyncio.sleep(2 * 3600 + 30)
        screen.type("/resume")
        await asyncio.sleep(5)

    Sitting(tmp_path, screen, ScriptedModel(talk)).last(body)
    assert screen.lines[-1].splitlines()[0] == "1) main · 2 h ago · Plan a trip"


def test_a_conversation_without_a_name_gets_one_and_is_shown_before_the_input(tmp_path: Path, screen: Heard) -> None:
    played(tmp_path, screen, "/new", "hello")
    assert screen.partner
    assert screen.lines[-1] == "You said: hello"


def test_whom_words_are_for_is_shown_before_the_input(tmp_path: Path, screen: Heard) -> None:
    played(tmp_path, screen, "delegate", "/focus scout")
    assert screen.partner == "scout"


@pytest.mark.parametrize(
    ("verdict", "words", "told"),
    [("once", "", "created made.txt"), ("no", "", "was refused"), ("no", "write to b.txt", "write to b.txt")],
)
def test_a_question_is_answered_for_the_call_that_was_shown(
    tmp_path: Path, screen: Heard, verdict: PersonVerdict, words: str, told: str
) -> None:
    model = ScriptedModel(talk)
    sitting = Sitting(tmp_path, screen, model, {"tools": {"write": {"approval": "ask"}}})

    async def body(chat: Chat) -> None:
        screen.type("write")
        await asyncio.sleep(2)
        (asked,) = screen.asked
        call = "write\npath: made.txt\ncontent: made\n(a new file)"
        assert asked == CallQuestion(asked.id, "the agent", call, place=str(tmp_path))
        assert screen.turns[-1] is not None
        assert screen.turns[-1].state == "waiting"
        screen.want(QuestionAnswered(asked.id, verdict, words))
        await asyncio.sleep(2)
        assert screen.asked == ()

    sitting.last(body)
    heard = [message.text for request in model.requests for message in request.messages]
    assert any(told in text for text in heard)
    assert f"» {words}" not in screen.lines


@pytest.mark.parametrize(
    ("verdict", "words", "done"),
    [
        ("carry out", "", "the plan of planner is approved"),
        ("reject", "too long", "the plan of planner is rejected"),
        ("reject", "", "the plan of planner is rejected"),
        ("edited", "1. write, edited", "the plan of planner is approved, as you have edited it"),
    ],
)
def test_a_plan_is_answered(tmp_path: Path, screen: Heard, verdict: PersonVerdict, words: str, done: str) -> None:
    model = ScriptedModel(talk)

    async def body(chat: Chat) -> None:
        screen.type("plan")
        await asyncio.sleep(2)
        (asked,) = screen.asked
        assert asked == PlanQuestion(asked.id, "planner", "1. read\n2. write")
        screen.want(QuestionAnswered(asked.id, verdict, words))
        await asyncio.sleep(5)
        assert len(screen.asked) == (verdict == "reject")

    Sitting(tmp_path, screen, model).last(body)
    assert done in screen.lines
    heard = [message.text for request in model.requests for message in request.messages]
    assert not words or any(words in text for text in heard)


def test_an_answer_that_is_refused_is_said_and_the_question_is_asked_again(tmp_path: Path, screen: Heard) -> None:
    async def body(chat: Chat) -> None:
        screen.type("plan")
        await asyncio.sleep(2)
        (first,) = screen.asked
        screen.want(QuestionAnswered(first.id, "edited", "x" * 200_000))
        await asyncio.sleep(2)
        (second,) = screen.asked
        assert first.id != second.id
        screen.want(QuestionAnswered(second.id, "carry out"))
        await asyncio.sleep(5)

    Sitting(tmp_path, screen, ScriptedModel(talk)).last(body)
    refused = next(number for number, line in enumerate(screen.lines) if line.startswith("✖ words: "))
    assert "the plan of planner is approved" in screen.lines[refused:]


def test_words_that_are_refused_go_back_into_the_input(tmp_path: Path, screen: Heard) -> None:
    played(tmp_path, screen, "x" * 1_100_000)
    assert screen.given_back == ["x" * 1_100_000]


def test_leaving_says_who_is_still_at_work(tmp_path: Path, screen: Heard) -> None:
    async def never(request: Request) -> Answer:
        if "# Subagent Context" in request.system:
            await asyncio.Event().wait()
        return "NO_REPLY" if isinstance(request.messages[-1], ToolMessage) else use("sessions_spawn", task="look")

    async def body(chat: Chat) -> None:
        screen.type("go")
        await asyncio.sleep(3)
        assert [(child.label, child.doing) for child in screen.at_work] == [("look", "thinking")]
        screen.want(Leave())

    Sitting(tmp_path, screen, ScriptedModel(never)).last(body)
    assert screen.lines[-1].startswith("1 subagent is still at work")


@proves("4.tools.47")
def test_always_makes_the_rule_that_was_shown(tmp_path: Path, screen: Heard) -> None:
    async def makes(request: Request) -> Answer:
        if isinstance(request.messages[-1], ToolMessage):
            return "made"
        return use("exec", command="echo hi")

    sitting = Sitting(tmp_path, screen, ScriptedModel(makes), {"tools": {"exec": {"approval": "ask"}}})

    async def body(chat: Chat) -> None:
        screen.type("make")
        await asyncio.sleep(2)
        (asked,) = screen.asked
        assert isinstance(asked, CallQuestion)
        assert (asked.text, asked.always) == ("echo hi", "echo hi")
        screen.want(QuestionAnswered(asked.id, "always"))
        await asyncio.sleep(3)
        screen.type("again")
        await asyncio.sleep(3)
        assert screen.asked == ()

    sitting.last(body)
    assert screen.lines.count("made") == 2
    assert any(line.startswith("allowed, and `echo hi` from now on: ") for line in screen.lines)
