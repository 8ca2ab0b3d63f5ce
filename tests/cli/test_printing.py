"""Words of models and children at the command line: nothing in them acts on the terminal, whoever holds the folder."""

import ast
import json
from pathlib import Path

import pytest

from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedModel, use
from tests.cli.command import fledge as command
from tests.docs.clone import ROOT
from tests.gateway.serving import serving
from tests.statements import proves

HOSTILE = "red \x1b[31malert\x07 \x9b2J \u202eevil\u2066"
SHOWN = "red ␛[31malert␇ <U+009B>2J <U+202E>evil<U+2066>"
COMMAND = f"echo {'safe ' * 400}; rm -rf important \x1b[2K"


def says(request: Request) -> Answer:
    wants = any("ask first" in str(message) for message in request.messages)
    asked = any("was refused" in str(message) or "important" in str(message) for message in request.messages)
    return use("exec", command=COMMAND) if wants and not asked else HOSTILE


@proves(
    "8.child.8", "No door of the command line prints a control character or a direction sign of a model's or child's"
)
@pytest.mark.parametrize(
    "line",
    [
        ["spawn", "dig"],
        ["send", "main", "hello"],
        ["run", "hello"],
        ["log", "main"],
        ["info", "digger"],
        ["tree"],
        ["ps"],
    ],
    ids=lambda line: line[0],
)
def test_hostile_words_do_nothing_beside_a_gateway(line: list[str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    with serving(state, ScriptedModel(says)) as server:
        client = server.client()
        client.call("send", sessionKey="main", message="hello")
        client.call("runs.spawn", params={"task": HOSTILE, "label": f"digger {HOSTILE}"})
        client.call("sessions.wait", key="main")
        plain = command(*line, "--state", str(state), cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2066"} & set(plain.stdout + plain.stderr)
    if line[0] in ("spawn", "send", "run"):
        assert SHOWN in plain.stdout


def test_json_says_the_same_with_escapes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with serving(state, ScriptedModel(says)):
        done = command("send", "main", "hello", "--json", "--state", str(state), cwd=tmp_path)
    assert json.loads(done.stdout)["text"] == HOSTILE
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.stdout)


@proves("8.approvals.6", "What a person is asked to allow at the command line is shown whole")
def test_a_long_command_is_shown_whole_before_it_is_allowed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    settings = {"tools": {"exec": {"approval": "ask"}}, "agents": {"defaults": {"sandbox": {"mode": "off"}}}}
    with serving(state, ScriptedModel(says), settings) as server:
        server.begin("agent:main:main")
        server.client().call("agent", message="ask first")
        server.do(server.desk.fl.until(lambda tx: tx.approvals.open() or None))
        shown = command("ps", "--state", str(state), cwd=tmp_path).stdout
        listed = server.client().call("slash.run", line="/approvals")["text"]
    for text in (shown, listed):
        assert "rm -rf important" in text
        assert "safe " * 400 in text
        assert "\x1b" not in text
        assert "[2K" in text


def test_nothing_is_printed_but_by_the_one_function() -> None:
    allowed = {"printing.py", "screen.py"}
    for path in (ROOT / "src" / "fledge" / "cli").glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        printing = [one.lineno for one in calls if isinstance(one.func, ast.Name) and one.func.id == "print"]
        assert not printing or path.name in allowed, f"{path.name}: lines {printing}"
