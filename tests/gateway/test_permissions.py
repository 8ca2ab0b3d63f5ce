"""Answers with more than yes or no, on the wire: rules, words, and who may revoke them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import fledge
from fledge.config.permissions import keep
from fledge.core.permission import Offer, permission
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, use
from fledge.testing import ScriptedModel
from tests.api.test_permissions import SETTINGS, runs
from tests.gateway.serving import Asks, OverHttp, Server, serving
from tests.statements import proves


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    env = {"FLEDGE_CONFIG": str(tmp_path / "user"), "PATH": os.environ["PATH"]}
    with serving(tmp_path / "state", ScriptedModel(runs), SETTINGS, env=env) as server:
        yield server


def say(ask: Asks, command: str, session: str = "main") -> dict[str, object]:
    told: dict[str, object] = ask.call("send", session=session, message=f"run: {command}", timeoutSeconds=30)
    return told


@proves("8.permissions.5")
@proves("8.permissions.6")
def test_a_rule_is_made_listed_and_revoked_over_the_wire(server: Server, tmp_path: Path) -> None:
    ask = OverHttp(server)
    reply = say(ask, "echo hi")
    (question,) = ask.call("approvals.list")
    assert (question["always"], question["forSubagents"]) == ("echo hi", False)
    shown = {"id": question["id"], "digest": question["digest"]}
    with pytest.raises(fledge.BadInput, match="children: needs always"):
        ask.call("approvals.approve", **shown, children=True)
    made = ask.call("approvals.approve", **shown, by="ann", always=True)["permission"]
    assert (made["words"], made["folder"], made["agent"]) == (["echo", "hi"], str(tmp_path), "main")
    assert (made["children"], made["madeBy"]) == (False, "gateway: ann")
    assert ask.call("reply", session="main", run=reply["runId"], timeoutMs=30_000)["text"].startswith("heard: hi\n")
    assert str(say(ask, "echo hi")["text"]).startswith("heard: hi\n")
    decided = ask.call("approvals.list", decided=True)
    assert sorted((one["answeredBy"], one["rule"]) for one in decided) == [
        ("a rule", made["id"]),
        ("gateway: ann", made["id"]),
    ]
    assert ask.call("permissions.list") == [made]
    assert ask.call("permissions.revoke", id=made["id"][:6]) == made
    with pytest.raises(fledge.NotFound, match="no rule is named"):
        ask.call("permissions.revoke", id=made["id"])
    assert say(ask, "echo hi")["status"] == "pending"


@proves("8.changes.1")
def test_a_question_and_its_call_have_the_change_of_the_file_over_the_wire(tmp_path: Path) -> None:
    settings: dict[str, object] = {"tools": {"write": {"approval": "ask"}}}
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    def writes(request: Request) -> Answer:
        is_over = isinstance(request.messages[-1], ToolMessage)
        return "done" if is_over else use("write", path="a.txt", content="one\nthree\n")

    with serving(tmp_path / "state", ScriptedModel(writes), settings) as server:
        ask = OverHttp(server)
        reply = ask.call("send", session="main", message="go", timeoutSeconds=30)
        (question,) = ask.call("approvals.list")
        lines = [
            {"mark": "kept", "text": "one"},
            {"mark": "removed", "text": "two"},
            {"mark": "added", "text": "three"},
        ]
        assert (question["change"]["path"], question["change"]["lines"]) == ("a.txt", lines)
        assert [one["change"] for one in reply["questions"]] == [question["change"]]
        page = ask.call("sessions.history", session="main", view="entries")["entries"]
        (call,) = next(entry["calls"] for entry in page if entry["type"] == "reply")
        assert call["change"] == question["change"]


def test_a_line_of_a_chat_allows_for_good_denies_with_words_and_revokes(server: Server) -> None:
    ask = OverHttp(server)

    def line(words: str) -> str:
        return str(ask.call("slash.run", line=words)["text"])

    reply = say(ask, "echo hi")
    listed = line("/approvals")
    assert listed.endswith(", always: `echo hi` here from now on")
    assert line("/permissions") == "no rule lets a command run without a question"
    done = line("/allow always children").splitlines()
    (rule,) = ask.call("permissions.list")
    assert rule["children"]
    granted = f"{rule['id'][:8]}  `echo hi`  by main and its subagents in {rule['folder']}, allowed by gateway"
    assert done == ["allowed: exec for agent:main:main", f"from now on: {granted}"]
    assert line("/permissions") == granted
    ask.call("reply", session="main", run=reply["runId"], timeoutMs=30_000)
    assert line(f"/permissions revoke {rule['id'][:8]}") == f"asks again: {granted}"
    reply = say(ask, "rm -r build/*")
    (question,) = ask.call("approvals.list")
    assert question["always"] == ""
    assert "no rule can be made of this call" in line("/allow always")
    assert line(f"/deny {question['id'][:8]} use make clean") == "denied: exec for agent:main:main"
    told = ask.call("reply", session="main", run=reply["runId"], timeoutMs=30_000)["text"]
    assert told.endswith("it was not run.\nThe person's words: use make clean")


@proves("8.permissions.12")
def test_a_rule_that_does_not_count_any_more_says_so_in_the_list_and_covers_nothing(
    server: Server, tmp_path: Path
) -> None:
    old = permission(Offer(("echo", "hi"), str(tmp_path), "main"), 1.0, "me")
    keep(tmp_path / "user", old)
    ask = OverHttp(server)
    listed = ask.call("slash.run", line="/permissions")["text"]
    assert listed.startswith(
        f"{old.id[:8]}  `echo hi …`  by main in {tmp_path}, allowed by me; it does not count any more"
    )
    assert say(ask, "echo hi")["status"] == "pending"
    assert ask.call("permissions.revoke", id=old.id)["counts"] is False
    assert ask.call("permissions.list") == []


def test_a_subagent_of_whose_calls_some_ran_by_a_rule_says_so(server: Server) -> None:
    ask = OverHttp(server)
    say(ask, "echo hi")
    (question,) = ask.call("approvals.list")
    ask.call("approvals.approve", id=question["id"], digest=question["digest"], always=True, children=True)
    (rule,) = ask.call("permissions.list")
    run = ask.call("runs.spawn", task="run: echo hi", label="greeter")
    assert ask.call("runs.result", run=run["runId"], timeoutMs=30_000)["text"].startswith("heard: hi\n")
    (by_rule,) = ask.call("runs.info", target=run["runId"])["questions"]
    assert (by_rule["state"], by_rule["answeredBy"], by_rule["rule"]) == ("started", "a rule", rule["id"])
    shown = ask.call("slash.run", line="/subagents info greeter")["text"]
    assert f'asked     started by a rule {rule["id"][:8]}: exec {{"command":"echo hi"}}' in shown
