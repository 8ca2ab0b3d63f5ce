"""A model server for the pages of runs: a nested job in which children work, ask, plan, fail and wait."""

import json
import time
from pathlib import Path
from typing import Any

from fledge.core.prompts import task_of
from fledge.models.base import Call
from fledge.models.scripted import ScriptedReply
from tests.browser.browsing import Gateway
from tests.browser.page_server import HOSTILE, created
from tests.models.serving import Answer, Body, Script, Status

STILL = {
    "ledger migration": "waits for 3 of 5 children",
    "port write path": "thinking",
    "backfill script": "waits for your approval: write",
    "cut-over plan": "waits for your answer to its plan",
    "migration guide": "its result is not read yet",
    "broken": "its result is not read yet",
}
"""What the runs of the job do or wait for once it stands still."""
GUIDE = (
    "# Guide\n\nThe ledger moves in **two steps**:\n\n| step | when |\n|---|---|\n| write | now |\n| read | later |\n"
)


MANY = [f"one of many {n}" for n in range(5)]
"""The labels of runs that one reply spawns, in the order of its calls."""


def _spawn(label: str, task: str, **more: Any) -> Call:
    return Call("", "sessions_spawn", json.dumps({"label": label, "task": task, **more}))


LEAD = (
    _spawn("port write path", "port: the write path"),
    _spawn("backfill script", "backfill: write the script"),
    _spawn("load test", "wait: run the load test"),
    _spawn("broken", "refuse: nothing"),
    _spawn("migration guide", "guide: for the teams"),
)


def working(release: Path) -> Script:
    """What it says; runs that wait go on once the file `release` is there, or the one beside it that their task names
    (`later: NAME`)."""

    async def speak(body: Body) -> Answer:
        """One reply."""
        messages = body["messages"]
        steps = sum(one["role"] == "assistant" for one in messages)
        task = task_of(messages[1]["content"]).strip()
        if "# Subagent Context" in messages[0]["content"]:
            return await _child(task, steps, release)
        match messages[-1]["content"].strip() if messages[-1]["role"] == "user" else "":
            case "job":
                planner = _spawn("cut-over plan", "plan: the cut-over", planMode=True)
                return ScriptedReply("I split it up.", (_spawn("ledger migration", "lead: move the ledger"), planner))
            case "many":
                return ScriptedReply("All at once.", tuple(_spawn(label, f"wait: {label}") for label in MANY))
            case "hostile":
                return ScriptedReply("", (_spawn(HOSTILE[:100], f"hostile: {HOSTILE}"),))
        return ScriptedReply("Noted.")

    return speak


async def _child(task: str, steps: int, release: Path) -> Answer:
    match task.partition(":")[0], steps:
        case "lead", 0:
            return ScriptedReply("First I look.", (Call("", "read", '{"path": "notes.txt"}'),))
        case "lead", 1:
            return ScriptedReply("", LEAD)
        case "port", 0:
            return ScriptedReply(
                "", (Call("", "exec", '{"command": "echo 41 sites"}'), Call("", "read", '{"path": "no.txt"}'))
            )
        case (("port" | "wait"), _):
            await created(release)
            return ScriptedReply("I waited")
        case "later", _:
            await created(release.with_name(task.split()[1]))
            return ScriptedReply(GUIDE)
        case "files", 0:
            made = "mkdir -p artifacts && echo 41 sites > 'artifacts/call sites.txt'"
            return ScriptedReply("", (Call("", "exec", json.dumps({"command": made})),))
        case "backfill", 0:
            return ScriptedReply("", (Call("", "write", '{"path": "made.txt", "content": "made"}'),))
        case "refuse", _:
            return [Status(400, {"error": {"message": "no such luck", "type": "invalid_request_error"}})]
        case (("guide" | "plan"), _):
            return ScriptedReply(GUIDE)
        case "hostile", 0:
            return ScriptedReply(HOSTILE, (Call("", "read", json.dumps({"path": HOSTILE})),))
        case "hostile", _:
            return ScriptedReply(HOSTILE)
    return ScriptedReply("Noted.")


def job_of(gateway: Gateway) -> dict[str, str]:
    """Give the job to a gateway, and wait until it stands still. The session keys of its runs, by label."""
    (gateway.folder / "work" / "notes.txt").write_text("hello")
    gateway.call("agent", message="job", session="main")
    for _ in range(400):
        rows = gateway.call("runs.query", limit=50)["rows"]
        standing = {row["label"]: (row["now"] or {}).get("text", row["status"]) for row in rows}
        if all(standing.get(label) == words for label, words in STILL.items()):
            return {row["label"]: row["sessionKey"] for row in rows}
        time.sleep(0.05)
    raise AssertionError(f"the job does not stand still: {standing}")
