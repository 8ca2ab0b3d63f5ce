"""`runs.spans` over the wire: the life of a real run on a time axis."""

from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.testing import ScriptedModel, use
from tests.api.scene import obedient
from tests.gateway.serving import OverHttp, serving
from tests.runtime.desk import said
from tests.statements import proves


async def script(request: Request) -> Answer:
    """A lead that delegates and waits; its child waits for ever."""
    words = last_text(request)
    if words.endswith("Lead") and not said(request):
        return ScriptedReply(calls=(use("sessions_spawn", task="Wait for me", label="worker"), use("sessions_yield")))
    return await obedient(request)


@proves("4.gateway.23", "`runs.spans` gives the life of a run as spans in lanes with marks, of a time, bounded")
def test_the_life_of_a_run_is_told_in_lanes(tmp_path: Path) -> None:
    nested: dict[str, object] = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
    with serving(tmp_path / "state", ScriptedModel(script), nested) as server:
        ask = OverHttp(server)
        key = ask.call("runs.spawn", task="Lead", label="lead", program="tester")["childSessionKey"]
        server.do(server.desk.fl.until(lambda tx: tx.runs.load(key).phase.name == "waiting" or None, timeout=20))
        told = ask.call("runs.spans", target=key)
        lanes: dict[str, list[dict[str, Any]]] = {}
        for span in told["spans"]:
            lanes.setdefault(span["lane"], []).append(span)
        assert [one["name"] for one in lanes["phase"]] == ["spawning", "queued", "running", "waiting"]
        assert [one["name"] for one in lanes["attempts"]] == ["attempt 1"]
        assert len(lanes["model"]) == 1
        assert [one["name"] for one in lanes["tools"]] == ["sessions_spawn", "sessions_yield"]
        (child,) = lanes["children"]
        assert (child["name"], child["runId"]) == ("worker", lanes["tools"][0]["runId"])
        assert "endedAt" not in child
        assert lanes["waits"][-1]["name"] == "children"
        assert (told["marks"], told["leftOut"]) == ([], 0)
        ask.call("runs.kill", target=key, wait=True)
        after = ask.call("runs.spans", target=key)
        assert [one["name"] for one in after["marks"]] == ["killed"]
        begins = min(one["startedAt"] for one in after["spans"])
        assert ask.call("runs.spans", target=key, **{"from": 0, "to": begins - 1})["spans"] == []
        with pytest.raises(fledge.BadInput, match="must not be before from"):
            ask.call("runs.spans", target=key, **{"from": 5, "to": 4})


def test_the_story_of_a_run_has_its_limits_its_folder_its_files_and_what_is_due(tmp_path: Path) -> None:
    settings: dict[str, object] = {"agents": {"defaults": {"subagents": {"budget": {"tokens": 500}}}}}
    with serving(tmp_path / "state", settings=settings) as server:
        ask = OverHttp(server)
        given: dict[str, Any] = {"budget": {"tokens": 9000}, "runTimeoutSeconds": 60, "workspace": "dir"}
        run = ask.call("runs.spawn", task="Wait for me", program="tester", **given)
        server.do(server.desk.fl.until(lambda tx: tx.runs.load(run["childSessionKey"]).started_at, timeout=20))
        told = ask.call("runs.info", target=run["runId"])
        assert told["limits"] == [
            {"name": "timeoutSeconds", "asked": 60, "applied": 60, "rule": "", "isCut": False},
            {"name": "tokens", "asked": 9000, "applied": 500, "rule": "subagents.budget of main", "isCut": True},
        ]
        assert told["workspace"]["kind"] == "dir"
        assert Path(told["workspace"]["folder"]).is_dir()
        assert told["due"]["what"] == "its time is up: it ends"
        assert (told["question"], told["artifacts"]) == (None, [])
