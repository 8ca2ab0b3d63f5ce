"""`fledge import openclaw`: another system's runs become settled history, and nothing of them goes on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fledge.core.lifecycle import replay
from fledge.core.run import Completed, Failed, Killed, Ok, Outcome, TimedOut, Unknown
from fledge.core.transcript import Line, Replied, Resulted, Spoken, from_body, open_calls
from fledge.errors import BadInput
from fledge.openclaw import (
    MAX_JSON5,
    MAX_TRANSCRIPT,
    PastResult,
    PastRun,
    conversation_key,
    read_past,
    read_transcript,
)
from fledge.orchestrator import importing
from fledge.orchestrator.commit import Commit, Rules
from fledge.store.base import Tx
from fledge.testing import InlineStore, SeededIds
from tests.cli.command import fledge
from tests.statements import proves

MAIN = "agent:main:main"
A, B, C = (f"agent:main:subagent:{letter * 8}" for letter in "abc")
MS = 1_760_000_000_000


def row(key: str, **fields: Any) -> dict[str, Any]:
    return {
        "runId": f"run-{key[-1]}",
        "childSessionKey": key,
        "requesterSessionKey": MAIN,
        "task": "look around",
        "cleanup": "keep",
        "createdAt": MS,
        "startedAt": MS + 10,
        "endedAt": MS + 5000,
        "outcome": {"status": "ok"},
        **fields,
    }


def text(role: str, words: str, **fields: Any) -> dict[str, Any]:
    return message(role, [{"type": "text", "text": words}], **fields)


def message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "timestamp": "2025-10-09T08:53:20Z",
        "message": {"role": role, "content": content, **fields},
    }


@pytest.fixture
def claw(tmp_path: Path) -> Path:
    """A state folder with an orchestrator, its worker, and a run that was never finished."""
    folder = tmp_path / "claw"
    sessions = folder / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    (folder / "subagents").mkdir()
    runs = {
        "run-b": row(B, requesterSessionKey=A, label="worker"),
        "run-a": row(A, label="orchestrator", frozenResultText="all is well"),
        "run-c": row(C, endedAt=None, outcome=None),
        "nonsense": {"task": "no key"},
        "more": "nothing",
    }
    (folder / "subagents" / "runs.json").write_text(json.dumps({"version": 2, "runs": runs}))
    (sessions / "sessions.json").write_text(
        json.dumps({MAIN: {"sessionId": "s-main"}, B: {"sessionId": "s-b"}, "x": {"sessionId": "../../etc/passwd"}})
    )
    call = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}}
    lost = {"type": "toolCall", "id": "c2", "name": "exec", "arguments": {"command": "rm -rf /"}}
    lines: list[Any] = [
        {"type": "session", "id": "s-b"},
        text("user", "look around"),
        message("assistant", [call, lost], model="gpt-5", usage={"input": 10, "output": 5, "cost": {"total": 1}}),
        text("toolResult", "a.txt", toolCallId="c1", toolName="exec"),
        text("assistant", "one file"),
        {"type": "custom"},
    ]
    (sessions / "s-b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{broken\n")
    (sessions / "s-main.jsonl").write_text(
        json.dumps(text("user", "hello")) + "\n" + json.dumps(text("assistant", "hi"))
    )
    return folder


@proves("6.import.1", "`fledge import openclaw DIR` reads runs.json v1 and v2")
@proves("6.import.2", "… and transcripts, as settled history")
@proves("6.import.3", "Nothing imported is resumed")
def test_runs_and_transcripts_become_history_and_importing_twice_is_importing_once(claw: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    done = fledge("import", "openclaw", str(claw), "--state", state)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("imported 3 runs and 1 conversations")
    assert done.stdout.splitlines()[1:] == [
        "skipped: 2 rows made no sense",
        f"skipped: {claw}/agents/main/sessions/sessions.json: 1 of 3 sessions have no transcript beside it",
        f"skipped: {claw}/agents/main/sessions/s-b.jsonl: 1 lines cannot be read as JSON",
    ]
    again = fledge("import", "openclaw", str(claw), "--state", state)
    assert "imported 0 runs and 0 conversations" in again.stdout
    assert "3 runs were there already" in again.stdout

    store = InlineStore(state)
    try:
        store.run(_checked)
    finally:
        store.close_now()


def _checked(tx: Tx) -> None:
    parent = conversation_key(MAIN)
    assert parent == "agent:main:openclaw-main"
    assert tx.runs.children(parent) == [A, C]
    assert tx.runs.children(A) == [B]
    for key in (A, B, C):
        run = tx.runs.load(key)
        assert isinstance(run.phase, Completed)
        assert replay(tx.events.of(key)) == run
        assert (tx.queue.place(key), tx.turns.get(key), tx.drivers.get(key), tx.inbox.unread(key)) == (
            None,
            None,
            None,
            [],
        )
        assert tx.sessions.counts(key).unsettled == 0
    assert tx.inbox.unread(parent) == []
    assert tx.inbox.undelivered() == []
    assert tx.sessions.counts(parent).unsettled == 0
    first, last = tx.runs.load(A).ended, tx.runs.load(C).ended
    assert first is not None
    assert last is not None
    assert first.result is not None
    assert tx.texts.get(first.result) == "all is well"
    assert isinstance(last.outcome, Failed)
    lines = [Line(entry.seq, from_body(entry.body)) for entry in tx.transcripts.entries(B)]
    assert open_calls(lines) == []
    results = [line.body for line in lines if isinstance(line.body, Resulted)]
    assert [(result.text, result.is_error) for result in results] == [("a.txt", False), ("it was not finished", True)]


@proves("6.import.1")
@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"outcome": {"status": "ok"}}, Ok()),
        ({"outcome": {"status": "error", "error": "no"}}, Failed("no")),
        ({"outcome": {"status": "error"}}, Failed("it failed")),
        ({"outcome": {"status": "timeout"}}, TimedOut()),
        ({"outcome": {"status": "error"}, "endedReason": "subagent-killed"}, Killed(named=True)),
        ({"outcome": "?"}, Unknown()),
        ({"endedAt": None}, Failed("it was not finished when it was imported")),
        ({"endedAt": 5, "startedAt": MS + 9}, Ok()),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_every_end_has_its_outcome_in_either_version(
    tmp_path: Path, version: int, fields: dict[str, Any], outcome: Outcome
) -> None:
    (tmp_path / "subagents").mkdir()
    runs = {"r": row(A, announceHandled=True, requesterChannel="irc", **fields)}
    (tmp_path / "subagents" / "runs.json").write_text(json.dumps({"version": version, "runs": runs}))
    (run,) = read_past(tmp_path).runs
    assert run.outcome == outcome
    assert run.created_at <= (run.started_at or run.created_at) <= run.ended_at


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "must be there"), ("{", "must be JSON"), ("[]", "JSON object"), ('{"version": 3}', "version 1 or 2")],
)
def test_what_is_no_registry_is_refused_and_nothing_is_made(tmp_path: Path, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / "subagents").mkdir()
        (tmp_path / "subagents" / "runs.json").write_text(content)
    done = fledge("import", "openclaw", str(tmp_path), "--state", str(tmp_path / "state"))
    assert done.returncode == 1
    assert says in done.stderr
    assert not (tmp_path / "state").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.sampled_from(list(row(A))), JSON)


@given(st.lists(FIELDS, max_size=4))
@example([{"runId": None}, {"runId": "0"}])
def test_hostile_rows_are_read_or_left_out(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("claw")
    (folder / "subagents").mkdir()
    runs = {str(at): {**row(f"{A}{at}"), **fields} for at, fields in enumerate(rows)}
    (folder / "subagents" / "runs.json").write_text(json.dumps({"version": 2, "runs": runs}))
    past = read_past(folder)
    assert len(past.runs) + past.left_out + past.superseded == len(rows)
    store = InlineStore(folder / "state")
    try:
        store.run(lambda tx: [_imported(tx, run) for run in past.runs])
    finally:
        store.close_now()


def _imported(tx: Tx, run: PastRun) -> bool:
    commit = Commit(tx, 1_900_000_000.0, SeededIds(1), Rules())
    importing.import_run(commit, run, [])
    assert replay(tx.events.of(run.key)) == tx.runs.load(run.key)
    return True


def test_a_ring_of_requesters_ends(tmp_path: Path) -> None:
    (tmp_path / "subagents").mkdir()
    runs = {"a": row(A, requesterSessionKey=B), "b": row(B, requesterSessionKey=A)}
    (tmp_path / "subagents" / "runs.json").write_text(json.dumps({"version": 2, "runs": runs}))
    assert {run.key for run in read_past(tmp_path).runs} == {A, B}


def test_a_chain_of_thousands_of_requesters_is_read_parents_first(tmp_path: Path) -> None:
    (tmp_path / "subagents").mkdir()
    keys = [f"agent:main:subagent:{n:08d}-0000-4000-8000-000000000000" for n in range(5000)]
    runs = {
        key: row(key, runId=key, requesterSessionKey=above) for above, key in zip([MAIN, *keys], keys, strict=False)
    }
    (tmp_path / "subagents" / "runs.json").write_text(json.dumps({"version": 2, "runs": dict(reversed(runs.items()))}))
    assert [run.key for run in read_past(tmp_path).runs] == keys


@pytest.mark.parametrize("place", ["subagents", "."])
@pytest.mark.parametrize("wrap", [False, True], ids=["map", "runs"])
def test_an_older_registry_without_a_version_is_imported(place: str, wrap: bool, tmp_path: Path) -> None:
    rows = {"run-a": row(A, label="orchestrator"), "run-b": row(B, requesterSessionKey=A), "nonsense": 5}
    folder = tmp_path / "claw" / place
    folder.mkdir(parents=True)
    (folder / "subagent-registry.json").write_text(json.dumps({"runs": rows} if wrap else rows))
    done = fledge("import", "openclaw", str(tmp_path / "claw"), "--state", str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("imported 2 runs and 0 conversations")
    assert done.stdout.splitlines()[1:] == ["skipped: 1 rows made no sense"]


def test_a_registry_cannot_name_a_transcript_outside_its_folder(claw: Path) -> None:
    assert set(read_past(claw).transcripts) == {MAIN, B}


@given(st.lists(JSON | st.builds(message, st.sampled_from(["user", "assistant", "toolResult", "x"]), JSON), max_size=6))
def test_hostile_transcripts_are_read_as_far_as_they_make_sense(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("claw") / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    read = read_transcript(path)
    assert all(isinstance(line, Spoken | Replied | PastResult) for line in read.lines)


def registry(folder: Path, content: str) -> None:
    (folder / "subagents").mkdir()
    (folder / "subagents" / "runs.json").write_text(content)


@proves("6.import.4", "Of two rows for one child the newest is imported")
@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        ({"createdAt": MS}, {"createdAt": MS + 1}, "second"),
        ({"createdAt": MS + 1}, {"createdAt": MS}, "first"),
        ({"startedAt": MS + 2}, {"startedAt": MS + 1}, "first"),
        ({"endedAt": MS + 9000}, {"endedAt": MS + 9001}, "second"),
        ({"endedAt": MS + 9000}, {"endedAt": None}, "first"),
        ({}, {}, "second"),
    ],
)
def test_of_two_rows_for_one_child_the_newest_wins_and_the_other_is_counted(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], wins: str
) -> None:
    runs = {"r1": row(A, runId="r1", label="first", **first), "r2": row(A, runId="r2", label="second", **second)}
    registry(tmp_path, json.dumps({"version": 2, "runs": runs}))
    past = read_past(tmp_path)
    assert [run.label for run in past.runs] == [wins]
    assert (past.superseded, past.left_out) == (1, 0)


@proves("6.import.5", "runs.json and sessions.json may be JSON5, and what is skipped is said")
def test_json5_is_read_and_what_is_skipped_is_said(claw: Path, tmp_path: Path) -> None:
    sessions = claw / "agents" / "main" / "sessions"
    runs = {"b": row(B, label="worker"), "b-old": row(B, createdAt=MS - 5, label="older")}
    (claw / "subagents" / "runs.json").write_text(
        f"// written by hand\n{{version: 2, runs: {json.dumps(runs)[:-1]},}},}}"
    )
    orphan = "agent:main:subagent:orphan"
    (sessions / "s-o.jsonl").write_text(json.dumps(text("user", "lost")))
    (sessions / "sessions.json").write_text(
        f"{{'{MAIN}': {{sessionId: 's-main'}}, '{B}': {{sessionId: 's-b'}}, '{orphan}': {{sessionId: 's-o'}},}}"
    )
    other = claw / "agents" / "other" / "sessions"
    other.mkdir(parents=True)
    (other / "sessions.json").write_text("{no end")
    done = fledge("import", "openclaw", str(claw), "--state", str(tmp_path / "state"))
    assert done.stdout.splitlines() == [
        f"imported 1 runs and 1 conversations into {tmp_path / 'state'}; nothing of them is resumed",
        "skipped: 1 rows are older than another row of the same child or run",
        "skipped: 1 transcripts of subagents that are not in the registry",
        f"skipped: {other}/sessions.json: must be JSON or JSON5",
        f"skipped: {sessions}/s-b.jsonl: 1 lines cannot be read as JSON",
    ], done.stderr
    assert "worker" in fledge("tree", "--state", str(tmp_path / "state")).stdout


@proves("6.import.5")
def test_json5_that_would_take_minutes_to_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    registry(tmp_path, "{version: 2, runs: {}}" + " " * MAX_JSON5)
    with pytest.raises(BadInput, match=rf"must be JSON, or JSON5 of at most {MAX_JSON5} bytes"):
        read_past(tmp_path)


@proves("6.import.5")
def test_a_transcript_that_is_too_large_is_said_to_be_skipped(claw: Path) -> None:
    path = claw / "agents" / "main" / "sessions" / "s-b.jsonl"
    with path.open("r+b") as file:
        file.truncate(MAX_TRANSCRIPT + 1)
    past = read_past(claw)
    assert set(past.transcripts) == {MAIN}
    assert f"{path}: must be at most {MAX_TRANSCRIPT} bytes" in past.skipped


DEPTHS = range(930, 1000)
"""About the depth of JSON that Python can just read: one of a few steps more or less fails at another place."""


@proves("6.import.5")
@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([b'{"type":"message","message":{"role":"user","content":"\xff"}}'], id="not UTF-8"),
        pytest.param([b"[" * 100_000 + b"]" * 100_000], id="nested too deeply"),
        pytest.param(
            [
                b'{"type":"message","message":{"role":"assistant","content":[{"type":"toolCall","id":"c","arguments":'
                + b"[" * depth
                + b"]" * depth
                + b"}]}}"
                for depth in DEPTHS
            ],
            id="nested too deeply in arguments",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_skipped_and_the_rest_is_imported(
    claw: Path, tmp_path: Path, lines: list[bytes]
) -> None:
    path = claw / "agents" / "main" / "sessions" / "s-main.jsonl"
    path.write_bytes(b"\n".join([*lines, json.dumps(text("user", "still here")).encode()]))
    done = fledge("import", "openclaw", str(claw), "--state", str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("imported 3 runs and 1 conversations")
    assert re.search(rf"^skipped: {path}: \d+ lines cannot be read as JSON$", done.stdout, re.MULTILINE)
    assert read_transcript(path).lines[-1] == Spoken("still here", kind="history")


@proves("6.import.5")
def test_an_index_that_is_not_utf8_is_skipped(claw: Path, tmp_path: Path) -> None:
    index = claw / "agents" / "main" / "sessions" / "sessions.json"
    index.write_bytes(b'{"x\xff": {"sessionId": "s-main"}}')
    done = fledge("import", "openclaw", str(claw), "--state", str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert f"skipped: {index}: must be JSON or JSON5" in done.stdout.splitlines()


@proves("6.import.5")
@pytest.mark.parametrize("name", ["x" * 300, "x\0", "x\ud800"], ids=["too long", "NUL", "surrogate"])
def test_a_session_id_that_no_file_can_have_counts_as_one_without_a_transcript(
    claw: Path, tmp_path: Path, name: str
) -> None:
    index = claw / "agents" / "main" / "sessions" / "sessions.json"
    index.write_text(json.dumps({MAIN: {"sessionId": "s-main"}, B: {"sessionId": name}}))
    done = fledge("import", "openclaw", str(claw), "--state", str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert f"skipped: {index}: 1 of 2 sessions have no transcript beside it" in done.stdout.splitlines()


def test_a_transcript_that_is_gone_when_it_is_read_is_empty_with_the_reason(tmp_path: Path) -> None:
    assert read_transcript(tmp_path / "gone.jsonl").error == "No such file or directory"
