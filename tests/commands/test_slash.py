"""Slash commands as text: every form reads as it is meant, every misuse says how it should be said."""

from typing import get_args

import pytest

from fledge.commands.slash import ALONE, SUBAGENTS, Order, Verb, complete, help_text, is_command, read
from fledge.errors import BadInput

READ = [
    ("/subagents", Order(verb="list")),
    ("  /subagents list ", Order(verb="list")),
    ("/SUBAGENTS List", Order(verb="list")),
    ("/subagents send\n1 two\nlines", Order(verb="send", target="1", words="two\nlines")),
    ("/subagents send 1\ntwo lines", Order(verb="send", target="1", words="two lines")),
    ("/allow", Order(verb="allow")),
    ("/subagents help", Order(verb="help")),
    ("/subagents tree", Order(verb="tree")),
    ("/subagents kill 2", Order(verb="kill", target="2")),
    ("/kill AI Research --dry-run ", Order(verb="kill", target="AI Research", words="--dry-run")),
    ("/subagents stop all", Order(verb="kill", target="all")),
    ("/subagents kill AI Research", Order(verb="kill", target="AI Research")),
    ("/subagents resume 1", Order(verb="resume", target="1")),
    ('/subagents resume "AI Research" but quickly', Order(verb="resume", target="AI Research", words="but quickly")),
    ("/subagents again AI Research", Order(verb="again", target="AI Research")),
    ("/subagents remove #2", Order(verb="remove", target="#2")),
    ("/subagents info #1", Order(verb="info", target="#1")),
    ("/subagents log 1", Order(verb="log", target="1")),
    ("/subagents log 1 5", Order(verb="log", target="1", count=5)),
    ("/subagents log 1 tools", Order(verb="log", target="1", tools=True)),
    ("/subagents log AI Research 5 TOOLS", Order(verb="log", target="AI Research", count=5, tools=True)),
    ("/subagents log 12", Order(verb="log", target="12")),
    ("/subagents log tools", Order(verb="log", target="tools")),
    ("/subagents send 1 how is it going?", Order(verb="send", target="1", words="how is it going?")),
    ('/subagents steer "AI Research" go left', Order(verb="steer", target="AI Research", words="go left")),
    ("/subagents steer 'it''s' go", Order(verb="steer", target="it''s", words="go")),
    ("/subagents spawn main look\naround", Order(verb="spawn", target="main", words="look\naround")),
    (
        "/subagents spawn helper count to 3 --model openai/gpt-5 --thinking=high",
        Order(verb="spawn", target="helper", words="count to 3", model="openai/gpt-5", thinking="high"),
    ),
    ("/subagents approve 1", Order(verb="approve", target="1")),
    ("/subagents approve 1 but quickly", Order(verb="approve", target="1", words="but quickly")),
    ("/subagents reject 1 too long", Order(verb="reject", target="1", words="too long")),
    ("/subagents undelivered", Order(verb="undelivered")),
    ("/subagents undelivered retry eyes", Order(verb="undelivered", words="retry", target="eyes")),
    ("/subagents undelivered dismiss x:y", Order(verb="undelivered", words="dismiss", target="x:y")),
    ("/kill all", Order(verb="kill", target="all")),
    ('/kill "AI Research"', Order(verb="kill", target="AI Research")),
    ("/steer last elsewhere", Order(verb="steer", target="last", words="elsewhere")),
    ("/tell 1 hello", Order(verb="send", target="1", words="hello")),
    ("/stop", Order(verb="stop")),
    ("/stop now", Order(verb="stop")),
    ("/status", Order(verb="status")),
    ("/status 1", Order(verb="status", target="1")),
    ("/agents", Order(verb="agents")),
    ("/model", Order(verb="model")),
    ("/model openai/gpt-5", Order(verb="model", target="openai/gpt-5")),
    ("/subagents spawn main x --thinking adaptive", Order(verb="spawn", target="main", words="x", thinking="adaptive")),
    ("/subagents agents", Order(verb="agents")),
    ("/subagents focus eyes", Order(verb="focus", target="eyes")),
    ("/subagents unfocus", Order(verb="unfocus")),
    ("/compact", Order(verb="compact")),
    ("/compact keep the names", Order(verb="compact", words="keep the names")),
    ("/focus eyes", Order(verb="focus", target="eyes")),
    ("/unfocus", Order(verb="unfocus")),
    ("/reload", Order(verb="reload")),
    ("/approvals", Order(verb="approvals")),
    ("/allow 1a2b", Order(verb="allow", target="1a2b")),
    ("/allow 1a2b always", Order(verb="allow", target="1a2b", words="always")),
    ("/allow 1a2b  always  children", Order(verb="allow", target="1a2b", words="always children")),
    ("/allow always", Order(verb="allow", words="always")),
    ("/allow always children", Order(verb="allow", words="always children")),
    ("/deny 1a2b", Order(verb="deny", target="1a2b")),
    ("/deny 1a2b use make clean", Order(verb="deny", target="1a2b", words="use make clean")),
    ("/permissions", Order(verb="permissions")),
    ("/permissions revoke 1a2b", Order(verb="permissions", words="revoke", target="1a2b")),
    ("/event the build is red", Order(verb="event", words="the build is red")),
    ("/heartbeat", Order(verb="heartbeat")),
    ("/heartbeat a new day", Order(verb="heartbeat", words="a new day")),
    ("/image cat.png", Order(verb="image", target="cat.png")),
    ("/attach a.csv", Order(verb="attach", target="a.csv")),
    ('/attach "my notes.txt" what is it?', Order(verb="attach", target="my notes.txt", words="what is it?")),
    ('/image "my cat.png" what is it?', Order(verb="image", target="my cat.png", words="what is it?")),
    ("/help", Order(verb="help")),
]


@pytest.mark.parametrize(("line", "order"), READ, ids=[line for line, _ in READ])
def test_a_command_reads_as_it_is_meant(line: str, order: Order) -> None:
    assert read(line) == order
    assert is_command(line)


@pytest.mark.parametrize("line", ["", "hello", "and /kill 1", "/tmp/file is gone", "/ kill", "/usr/bin", "//"])
def test_what_is_no_command_stays_a_message(line: str) -> None:
    assert read(line) is None
    assert not is_command(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/kil 1", "/kil: there is no such command: perhaps /kill; /help lists them"),
        ("/info 1", "/info: there is no such command: perhaps /subagents info; /help lists them"),
        ("/xyzzyq", "/xyzzyq: there is no such command: /help lists them"),
        ("/kill", "/kill: write it like this: /kill <id|#|all>"),
        ("/steer 1", "/steer: write it like this: /steer <id|#> <message>"),
        ("/tell", "/tell: write it like this: /tell <id|#> <message>"),
        ("/subagents reject 1", "/subagents reject: write it like this: /subagents reject <id|#> <reason>"),
        ("/subagents spawn main", "/subagents spawn: write it like this: /subagents spawn <agent> <task>"),
        ("/subagents log", "/subagents log: write it like this: /subagents log <id|#> [n] [tools]"),
        ("/subagents stop", "/subagents stop: write it like this: /subagents stop <id|#|all>"),
        ("/SUBAGENTS Kill", "/subagents kill: write it like this: /subagents kill <id|#|all>"),
        ("/subagents log 1 0", "/subagents log: n must be 1 to 200 (got 0)"),
        ("/subagents log 1 201", "/subagents log: n must be 1 to 200 (got 201)"),
        ("/event", "/event: write it like this: /event <text>"),
        (
            "/subagents undelivered retry",
            "/subagents undelivered: write it like this: /subagents undelivered [retry|dismiss <id>]",
        ),
        ("/subagents undelivered burn x", "/subagents undelivered: write it like this"),
        ("/allow 1a2b for ever", "/allow: write it like this: /allow [id] [always [children]]"),
        ("/allow 1a2b children", "/allow: write it like this: /allow [id] [always [children]]"),
        ("/permissions revoke", "/permissions: write it like this: /permissions [revoke <id>]"),
        ("/permissions 1a2b", "/permissions: write it like this: /permissions [revoke <id>]"),
        (
            "/subagents spawn main x --thinking deep",
            "--thinking: must be one of off, minimal, low, medium, high,",
        ),
        ("/subagents kil 1", "/subagents kil: there is no such command: perhaps /subagents kill; /help lists them"),
        ("/subagent", "/subagent: there is no such command: perhaps /subagents; /help lists them"),
        ("/tell 1 " + "x" * 100_000, "command: must be at most 100000 characters"),
        ("/focus", "/focus: write it like this: /focus <id|#>"),
        ("/subagents focus", "/subagents focus: write it like this: /subagents focus <id|#>"),
    ],
)
def test_a_misused_command_says_how_it_should_be_said(line: str, reason: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(line)
    assert str(refused.value).startswith(reason)


def test_every_verb_has_a_form() -> None:
    assert {usage.verb for usage in (*SUBAGENTS, *ALONE)} == set(get_args(Verb))
    assert {order.verb for _, order in READ} == set(get_args(Verb))


def test_help_has_a_line_for_every_form() -> None:
    lines = help_text().splitlines()
    assert len(lines) == len(SUBAGENTS) + len(ALONE)
    assert lines[0].split() == ["/subagents", "list", "the", "subagents", "of", "this", "conversation"]
    assert all(len(line) < 120 for line in lines)


TARGETS = (("eyes", "running"), ("ears", "done"), ("AI Research", "running"))


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("/s", ["/subagents", "/steer", "/stop", "/status"]),
        ("/subagents ", [usage.form.split()[1] for usage in SUBAGENTS]),
        ("/subagents k", ["kill"]),
        ("/subagents resume e", ["eyes", "ears"]),
        ("/subagents again ey", ["eyes"]),
        ("/subagents focus e", ["eyes", "ears"]),
        ("/subagents info e", ["eyes", "ears"]),
        ("/subagents steer a", ['"AI Research"']),
        ('/subagents steer "a', ['"AI Research"']),
        ("/kill ", ["eyes", "ears", '"AI Research"', "all"]),
        ("/tell ey", ["eyes"]),
        ("/tell eyes h", []),
        ("/subagents undelivered r", ["retry"]),
        ("/subagents undelivered retry ", []),
        ("/permissions ", ["revoke"]),
        ("/nonsense ", []),
        ("/subagents nonsense ", []),
        ("hello", []),
        ("/kill\n", []),
    ],
)
def test_a_line_is_completed_by_commands_actions_and_targets(line: str, choices: list[str]) -> None:
    assert [word for word, _ in complete(line, TARGETS)] == choices
