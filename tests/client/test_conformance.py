"""One story told by every verb, through all three clients: a holder's socket, a gateway, this process driving.

Each client has a folder of its own; what the verbs answer, what they refuse, and what the feed tells must be the same
but for names that are made up and times. And a feed goes on, without a gap and without a word twice, when the process
that tells it is killed.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.client.connection import ControlSocket, Gateway
from fledge.client.driving import Driving
from fledge.client.folder import Client, Elsewhere, Folder
from fledge.commands.methods import METHODS
from fledge.errors import BadInput, FledgeError
from fledge.models.base import Request
from fledge.models.scripted import Answer, last_text, use
from fledge.store.ways import CONTROL_SOCKET
from fledge.testing import ScriptedModel
from tests.api.scene import obedient
from tests.gateway.serving import serving

WAYS = ("socket", "gateway", "driving")
MAIN = "agent:main:main"


UNBOXED: dict[str, object] = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
"""Commands run without a sandbox, so each of them asks."""


async def commanded(request: Request) -> Answer:
    """Runs a command that it is told to run; else echoes."""
    words = last_text(request)
    return use("exec", command=words.removeprefix("run ")) if words.startswith("run ") else await obedient(request)


class Story:
    """Calls verbs one after the other and keeps what came of each, with made-up names and times taken out."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client, self._folder = client, str(folder)
        self._names: dict[str, str] = {}
        self.told: list[tuple[str, object]] = []

    async def call(self, method: str, **params: Any) -> Any:
        """What it answers; None if it refuses."""
        try:
            answer = await self._client.call(method, **params)
        except BadInput as error:
            self.told.append((method, ("BadInput", error.field, self.plain(str(error)))))
        except FledgeError as error:
            self.told.append((method, (type(error).__name__, self.plain(str(error)))))
        else:
            told = dict(answer) if isinstance(answer, dict) else answer
            if method == "runs.result":
                told.pop("phase")  # it goes on after its outcome, as fast as it can
            if method == "runs.kill":
                told = {"ended": [*answer["killed"], *answer["stopping"]]}  # it stops as fast as it can
            self.told.append((method, self.plain(told)))
            return answer
        return None

    def plain(self, value: object) -> object:
        """The same with ids by the order they came in, and times as nothing."""
        text = json.dumps(_timeless(value), sort_keys=True).replace(self._folder, "/folder")
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", self._named, text)
        text = re.sub(r'(?<=")(?:[0-9a-f]{12}|[0-9a-f]{32})(?=")', self._named, text)
        text = re.sub(r"exit code 0; [\d.]+ s|[0-9a-f]{8}(?=  `)", "made up", text)
        text = re.sub(r"run [0-9a-f]{8}|nonce=[0-9a-f]{16}", "made up", text)
        return json.loads(text)

    def _named(self, found: "re.Match[str]") -> str:
        return self._names.setdefault(found[0], f"id-{len(self._names)}")


TIMES = ("runtimeS", "elapsedS", "at", "tokensIn", "tokens", "next")
"""Members that tell how long something took, or when it was, or how long a text is that says so; others end with
`At`."""


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: None if key in TIMES or key.endswith("At") else _timeless(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_timeless(one) for one in value]
    return value


@asynccontextmanager
async def client_of(way: str, state: Path) -> AsyncIterator[Client]:
    """A client of this kind on a folder of its own, with somebody at work there."""
    env = {"FLEDGE_CONFIG": str(state.parent / "user"), "PATH": os.environ["PATH"]}
    if way == "driving":
        options: dict[str, Any] = {"model": ScriptedModel(commanded), "workspace": state.parent, "env": env}
        opening = Driving(lambda: fledge.open(state, config=UNBOXED, address=CONTROL_SOCKET, **options))
        async with Folder(state, opening) as client:
            yield client
        return
    with serving(state, ScriptedModel(commanded), UNBOXED, env=env) as server:
        place = ControlSocket(state) if way == "socket" else Gateway(server.address, server.token)
        async with Elsewhere(place) as client:
            yield client


async def live(client: Client, folder: Path) -> Story:
    """A life in which every verb has its place."""
    told = Story(client, folder)
    call = told.call
    await call("agent", message="hello", idempotencyKey="first")
    said = await call("agent", message="hello", idempotencyKey="first")
    await call("agent", message="other words", idempotencyKey="first")
    await call("reply", session="main", run=said["runId"])
    await call("agent.wait", run=said["runId"])
    await call("send", session="side", message="and you?", timeoutSeconds=30)
    await call("sessions.wait", session="main")
    await call("sessions.patch", session="side", label="aside")
    await call("sessions.patch", session="side", model="nowhere/model")
    run = await call("runs.spawn", task="Say hello", label="greeter")
    await call("runs.result", run=run["runId"], timeoutMs=30_000)
    await call("sessions.wait", session="main")
    await call("runs.send", target="greeter", message="are you there?", timeoutSeconds=30)
    await call("sessions.wait", session="main")
    await call("runs.spawn", task="", label="nothing")
    await call("runs.spawn", task="Say hello", colour="red")
    program = await call("runs.spawn", task="Say more", program="tester", idempotencyKey="more")
    await call("runs.spawn", task="Say more", program="tester", idempotencyKey="more")
    await call("runs.result", run=program["runId"], timeoutMs=30_000)
    await call("runs.result", run=program["runId"], peek=True)
    sleeper = await call("runs.spawn", task="Wait for me", label="sleeper")
    await comes(client, "sleeper", "Claimed", 1)
    await call("runs.steer", target="sleeper", message="Wait for me again")
    await comes(client, "sleeper", "Claimed", 2)
    await call("runs.ends", target="sleeper")
    await call("runs.row", target="sleeper")
    await call("runs.kill", target="sleeper")
    await call("runs.result", run=sleeper["runId"])
    await call("runs.kill", target="sleeper")
    await call("runs.resume", target="sleeper", words="Wait for me once more")
    await comes(client, "sleeper", "Claimed", 3)
    await call("runs.resume", target="sleeper")
    await call("runs.kill", target="sleeper")
    await call("runs.result", run=sleeper["runId"])
    again = await call("runs.again", target="greeter", idempotencyKey="again")
    await call("runs.again", target=run["childSessionKey"], idempotencyKey="again")
    await call("runs.again", target="nobody")
    await call("runs.remove", target="sleeper")
    await call("runs.remove", target="sleeper")
    await call("runs.result", run=again["runId"], timeoutMs=30_000)
    await call("sessions.wait", session="main")
    await call("runs.tell", target="greeter", message="thank you", timeoutSeconds=30)
    await call("sessions.focus", session="main", target="greeter")
    await call("sessions.unfocus", session="main")
    await call("runs.kill", target="all")
    await call("sessions.wait", session="main")
    await call("runs.spawn", task="Say a plan", label="planner", planMode=True)
    await comes(client, "planner", "AttemptEnded", 1)
    await call("sessions.wait", session="main")
    await call("plans.list")
    await call("plans.reject", target="planner", reason="")
    await call("plans.reject", target="planner", reason="too long")
    await comes(client, "planner", "AttemptEnded", 2)
    await call("sessions.wait", session="main")
    await call("plans.approve", target="planner")
    await call("sessions.wait", session="main", timeoutMs=30_000)
    await call("answer", target="planner", approve=True)
    await call("approvals.list")
    await call("approvals.approve", id="none", digest="none")
    await call("approvals.deny", id="none", digest="none")
    await allow_for_good(call)
    await call("undelivered.list")
    await call("undelivered.retry", target="greeter")
    await call("undelivered.retry", target="greeter", to="side")
    await call("undelivered.dismiss", target="greeter")
    await call("system.event", text="the sun rises", session="side")
    await call("system.event", text="", session="side")
    await call("heartbeat.request", session="nobody at all")
    await call("documents.pending", workspace="/nowhere")
    await call("documents.accept", workspace="/nowhere", digests={})
    await call("slash.list")
    await call("slash.run", line="/subagents list")
    await call("slash.run", line="/nonsense")
    await call("sessions.stop", session="main")
    await call("sessions.delete", session="side")
    await call("sessions.wait", session="main")
    await call("sessions.history", session="main", limit=1000)
    page = await call("sessions.history", session="main", view="entries", limit=5)
    await call("sessions.history", session="main", view="entries", limit=5, before=page["first"])
    await call("sessions.history", session="main", before=page["first"])
    await call("sessions.entry", session="main", seq=page["last"])
    await call("sessions.entry", session="main", seq=100_000)
    await call("sessions.find", target="greeter")
    await call("sessions.open", session="main")
    await call("sessions.below", session="main")
    await call("sessions.list")
    await call("sessions.query", limit=2)
    await call("sessions.query", search="RULED", kinds=["named"])
    await call("sessions.query", cursor="nonsense")
    await call("runs.query", search="Say", limit=3)
    await call("runs.query", filter="failed", below="main", sort="active")
    await call("runs.query", cursor="nonsense")
    await call("runs.query", filter="some")
    await call("runs.ends", target="all")
    await call("runs.list")
    await call("runs.tree")
    await call("runs.info", target="greeter")
    await call("runs.spans", target="greeter", **{"from": 4, "to": 5})
    await call("runs.spans", target="greeter", **{"from": 5, "to": 4})
    await call("overview")
    await call("burn")
    return told


async def allow_for_good(call: Callable[..., Awaitable[Any]]) -> None:
    """A command is denied with words, then allowed for good, runs unasked, and asks again."""
    await call("sessions.open", session="ruled")
    for verdict, more in (("deny", {"words": "not yet"}), ("approve", {"always": True})):
        asked = await call("send", session="ruled", message="run echo hi", timeoutSeconds=30)
        (question,) = asked["questions"]
        await call(f"approvals.{verdict}", id=question["id"], digest=question["digest"], **more)
        await call("reply", session="ruled", run=asked["runId"], timeoutMs=30_000)
    await call("send", session="ruled", message="run echo hi", timeoutSeconds=30)
    await call("approvals.list", decided=True)
    (rule,) = await call("permissions.list")
    await call("slash.run", session="ruled", line="/permissions")
    await call("permissions.revoke", id=rule["id"])
    await call("permissions.revoke", id="none")
    await call("send", session="ruled", message="run echo hi", timeoutSeconds=30)
    await call("sessions.stop", session="ruled")


async def comes(client: Client, label: str, event: str, times: int) -> None:
    """Wait until this has happened so many times to the run of this label."""
    async with asyncio.timeout(60), aclosing(client.events(cursor=0, live=False)) as feed:
        async for one in feed:
            times -= one["type"] == "run" and (one["label"], one["event"]) == (label, event)
            if times == 0:
                return


async def heard(client: Client) -> list[dict[str, Any]]:
    """Every numbered event there has been."""
    last = 0
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(60), aclosing(client.events(cursor=0, live=False)) as feed:
        async for event in feed:
            if event["type"] == "run":
                events.append(event)
                last = event["cursor"]
                if event["event"] == "CleanedUp" and event["label"] == "planner":
                    break
    assert last == len(events), "no gap"
    return events


class Lived:
    """What one client was told, call by call, and what its feed told."""

    def __init__(self, told: list[tuple[str, object]], events: list[tuple[str, str, str]]) -> None:
        self.told, self.events = told, events


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lived]:
    async def lived(way: str) -> Lived:
        folder = tmp_path_factory.mktemp(way)
        async with client_of(way, folder / "state") as client:
            story = await live(client, folder)
            events = [(one["label"], one["event"], one["phase"]) for one in await heard(client)]
            return Lived(story.told, sorted(events))

    return {way: asyncio.run(lived(way)) for way in WAYS}


def test_the_story_has_a_place_for_every_verb(lives: dict[str, Lived]) -> None:
    told_of = {method for method, _ in lives["gateway"].told}
    of_process = {
        "agents.list",
        "config.shown",
        "health",
        "identity",
        "models.list",
        "page.link",
        "signins.end",
        "signins.list",
    }
    elsewhere = {"events.subscribe", "events.unsubscribe", "events.watch", *of_process}
    assert set(METHODS) - told_of - elsewhere == set()


@pytest.mark.parametrize("way", ["socket", "driving"])
def test_every_client_is_told_the_same(lives: dict[str, Lived], way: str) -> None:
    for number, (here, there) in enumerate(zip(lives[way].told, lives["gateway"].told, strict=True)):
        assert here == there, f"call {number}"
    assert lives[way].events == lives["gateway"].events


HOLDS = """
import asyncio, sys
import fledge
from fledge.testing import ScriptedModel
from tests.api.scene import obedient

async def main():
    async with fledge.open(sys.argv[1], model=ScriptedModel(obedient), config={}, workspace=sys.argv[2]) as fl:
        print(fl.is_holder, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_feed_goes_on_without_a_gap_when_the_process_that_tells_it_is_killed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-c", HOLDS, str(state), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    seen: list[dict[str, Any]] = []

    async def main(holder: "subprocess.Popen[str]") -> None:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "True\n"
        options: dict[str, Any] = {"model": ScriptedModel(obedient), "workspace": tmp_path}
        opening = Driving(lambda: fledge.open(state, config={}, address=CONTROL_SOCKET, **options))
        async with Folder(state, opening) as client:
            feed = client.events(cursor=0)
            for number in range(6):
                given: dict[str, Any] = {"task": f"wait 0.0{number}", "label": f"run {number}", "program": "tester"}
                await client.call("runs.spawn", idempotencyKey=str(number), **given)
                if number == 3:
                    holder.send_signal(signal.SIGKILL)
            ends: set[str] = set()
            async with asyncio.timeout(60):
                async for event in feed:
                    seen.append(event)
                    if event["type"] == "run" and event["endedReason"] is not None:
                        ends.add(event["label"])
                    if len(ends) == 6:
                        break
            await feed.aclose()
            assert not client.is_held

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        try:
            asyncio.run(main(holder))
        finally:
            holder.kill()
    cursors = [event["cursor"] for event in seen if event["type"] == "run"]
    assert cursors == list(range(1, len(cursors) + 1)), "each event once, in order"
