"""Commands, gateways and workers of one store at the same time, each in a process or a thread of its own."""

import asyncio
import json
import logging
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.base import Call, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, ScriptedModel, use
from fledge.store.base import Approval
from tests.cli import command
from tests.cli.holding import PATIENCE_S, Holder, never
from tests.gateway.asking import Client
from tests.scale.test_store_option import Desk
from tests.scale.test_worker import end, started
from tests.statements import proves
from tests.store.postgres import Server


@pytest.fixture
def desk(server: Server, tmp_path: Path) -> Desk:
    return Desk(server, tmp_path)


def client_of(said: str) -> Client:
    """A client of the gateway that has said this first."""
    address, _, token = said.partition(" at ")[2].partition("; the token is in ")
    return Client(address, Path(token).read_text().strip())


@proves("7.server.21", "A command decides beside the workers of a store, and they act on it at once")
def test_a_kill_reaches_a_worker_of_another_process(desk: Desk) -> None:
    files = desk.folder / "files"

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        run = await fl.spawn("Wait for me", label="digger")
        await fl.until(lambda tx: tx.runs.load(run.session_key).phase.name == "running" or None)
        ready()
        assert (await run).status == "killed"

    with Holder(files, ScriptedModel(never), store=desk.url).at_work(body):
        assert "digger" in desk.told("tree", "--active", "--state", str(files))
        around = desk.told("ps", "--state", str(files))
        assert "1 at work in other conversations" in around
        assert "no process" not in around, "a worker of the store drives it"
        assert desk.told("kill", "digger", "--state", str(files)) == "killed 1\n"


@proves("7.server.21")
def test_an_approval_reaches_a_worker_of_another_process(desk: Desk) -> None:
    files = desk.folder / "files"
    asked: list[Approval] = []
    asks = {"tools": {"write": {"approval": "ask"}}}
    (desk.folder / "config" / "fledge.json5").write_text('{tools: {write: {approval: "ask"}}}')

    def script(request: Request) -> Call | str:
        return "written" if isinstance(request.messages[-1], ToolMessage) else use("write", path="a.txt", content="a")

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        run = await fl.spawn("Write a file", label="writer", workspace="dir")
        asked.extend(await fl.until(lambda tx: tx.approvals.open() or None) or [])
        ready()
        assert (await run).text == "written"

    with Holder(files, ScriptedModel(script), store=desk.url, config=asks, workspace=desk.folder / "work").at_work(
        body
    ):
        assert "may be run, this once" in desk.told("approve", asked[0].id, "--state", str(files))
    assert [path.read_text() for path in files.rglob("a.txt")] == ["a"]


@proves("7.server.26", "What a client decides at one gateway wakes a client that waits at another")
def test_a_run_that_is_steered_at_one_gateway_is_waited_for_at_another(desk: Desk) -> None:
    files = desk.folder / "files"
    keys: list[tuple[str, str]] = []

    async def answer(request: Request) -> str:
        words = " ".join(getattr(message, "text", "") for message in request.messages)
        return "steered" if "Dig elsewhere" in words else "told" if "How are you" in words else await never(request)

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        run = await fl.spawn("Dig here", label="digger")
        keys.append((run.session_key, run.run_id))
        await fl.until(lambda tx: tx.runs.load(run.session_key).phase.name == "running" or None)
        ready()
        assert (await run).text == "steered"
        await fl.until(lambda tx: None if tx.sessions.get("agent:main:main") is None else True)
        await fl.session("main").settled()

    serve = ("serve", "--port", "0", "--no-drive", "--state", str(files))
    with (
        Holder(files, ScriptedModel(answer), store=desk.url).at_work(body),
        started(desk, *serve) as (_, first),
        started(desk, *serve) as (_, second),
        ThreadPoolExecutor(1) as thread,
    ):
        one, other = (client_of(said[0]) for said in (first, second))
        ((session, run_id),) = keys
        waiting = thread.submit(other.call, "agent.wait", run=run_id, timeoutMs=PATIENCE_S * 1000)
        assert one.call("runs.steer", target=session, message="Dig elsewhere")["attempt"] == 2
        assert waiting.result(PATIENCE_S)["status"] == "ok"
        assert other.call("send", session="main", message="How are you?")["text"] == "told"


@proves(
    "7.server.29", "Tools and workspace of a run are those of the worker that drives it, whichever process spawned it"
)
def test_a_run_that_a_gateway_spawned_has_the_tools_and_the_folder_of_the_worker_that_drives_it(desk: Desk) -> None:
    files, shelf, over = desk.folder / "files", desk.folder / "shelf", threading.Event()
    shelf.mkdir()
    (shelf / "book.txt").write_text("Once upon a time")
    (desk.folder / "config" / "fledge.json5").write_text("{agents: {defaults: {subagents: {maxSpawnDepth: 2}}}}")
    counted: list[str] = []
    read: list[str] = []

    def count_pages(title: str) -> str:
        """Count the pages of a book."""
        counted.append(title)
        return "7 pages"

    def answer(request: Request) -> Answer:
        asked = next(one.text for one in reversed(request.messages) if isinstance(one, UserMessage))
        results = [one.text for one in request.messages if isinstance(one, ToolMessage)]
        if "Read the book" in asked:
            read[:] = results
            steps: list[Answer] = [use("count_pages", title="inner"), use("read", path="book.txt"), "read"]
            return steps[len(results)]
        if "Delegate" in asked:
            steps = [use("count_pages", title="outer"), use("sessions_spawn", task="Read the book"), "sent"]
            return steps[len(results)]
        return "done"

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        ready()
        await asyncio.to_thread(over.wait, PATIENCE_S)

    config = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
    worker = Holder(files, ScriptedModel(answer), store=desk.url, tools=[count_pages], workspace=shelf, config=config)
    with worker.at_work(body), started(desk, "serve", "--port", "0", "--no-drive", "--state", str(files)) as (_, said):
        try:
            client = client_of(said[0])
            run = client.call("runs.spawn", task="Delegate")["runId"]
            assert client.call("agent.wait", run=run, timeoutMs=PATIENCE_S * 1000)["status"] == "ok"
        finally:
            over.set()
    assert counted == ["outer", "inner"]
    assert read == ["7 pages", "     1\tOnce upon a time"]


def test_processes_whose_tools_differ_are_named_once_with_these_tools(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def count_pages(title: str) -> str:
        return title

    async def both() -> None:
        options: dict[str, Any] = {"store": desk.url, "config": {}, "model": ScriptedModel(never)}
        async with (
            fledge.open(desk.folder / "files", tools=[count_pages], **options),
            fledge.open(desk.folder / "files", **options),
        ):
            pass

    with caplog.at_level(logging.WARNING, "fledge.engine"):
        asyncio.run(both())
    assert [one.message.partition(" works ")[2] for one in caplog.records] == ["with other settings: tool count_pages"]


@proves("7.server.23", "`health`, `fledge doctor` and the page show each process of a store, a dead one as such")
def test_the_processes_of_a_store_are_shown_also_a_dead_one(desk: Desk, server: Server) -> None:
    host = socket.gethostname()
    with started(desk, "worker") as (worker, _), started(desk, "serve", "--port", "0", "--no-drive") as (gateway, said):
        address, _, token = said[0].partition(" at ")[2].partition("; the token is in ")
        there = ["--gateway", address, "--token-file", token]

        def shown(*more: str) -> str:
            done = command.fledge("health", *there, *more, cwd=desk.folder / "work", env=desk.env)
            assert done.returncode == 0, done.stderr
            return done.stdout

        told = {one["pid"]: one for one in json.loads(shown("--json"))["engines"]}
        assert {pid: (one["state"], one["drives"], one["sessions"]) for pid, one in told.items()} == {
            worker.pid: ("alive", True, 0),
            gateway.pid: ("alive", False, 0),
        }
        assert {(one["host"], one["version"]) for one in told.values()} == {(host, fledge.__version__)}
        assert [pid for pid, one in told.items() if one["isThis"]] == [gateway.pid]
        assert told[worker.pid]["name"].endswith(" worker")
        files = next((desk.folder / "own" / "stores").iterdir())
        assert f"store     {desk.url}: " in shown()
        assert re.search(rf"files     {files}: \d+ MB free\n", shown())
        assert f"worker {worker.pid} on {host}, fledge {fledge.__version__}, drives 0, alive, seen " in shown()
        checked = desk.do("doctor", "--offline", "--store", desk.url).stdout
        assert f"ok    processes    process {worker.pid} on {host} (main.py worker, fledge " in checked
        assert f"process {gateway.pid} on {host} (main.py serve, fledge {fledge.__version__}) runs no agents" in checked
        worker.kill()
        worker.wait()
        schema = desk.url.rpartition("=")[2]
        server.sql(f"UPDATE {schema}.engines SET seen_at = seen_at - 60 WHERE pid = {worker.pid}")
        assert re.search(rf"worker {worker.pid} on {host}, .*, drives 0, dead, seen [67]\d s ago\n", shown())
        checked = desk.do("doctor", "--offline", "--store", desk.url).stdout
        assert f"warn  processes    process {worker.pid} on {host} is dead: it was last seen " in checked


def test_doctor_finds_nothing_wrong_where_only_the_workers_of_a_store_have_a_model(desk: Desk) -> None:
    with started(desk, "worker") as (worker, _):
        (desk.folder / "config" / "fledge.json5").unlink()
        done = desk.do("doctor", "--offline", "--store", desk.url)
        assert "warn  model        no model is set here; the workers of this store use theirs" in done.stdout
        assert done.returncode == 0, done.stdout
        assert end(worker)[0] == 0
        assert desk.do("doctor", "--offline", "--store", desk.url).returncode == 1


@proves("7.server.20")
def test_a_prompt_to_a_gateway_without_an_engine_is_answered_by_a_worker(desk: Desk) -> None:
    with started(desk, "worker") as (worker, _), started(desk, "serve", "--port", "0", "--no-drive") as (gateway, said):
        address, _, token = said[0].partition(" at ")[2].partition("; the token is in ")
        there = ["--gateway", address, "--token-file", token]
        done = command.fledge("run", "hello", "--quiet", *there, cwd=desk.folder / "work", env=desk.env)
        assert (done.stdout, done.stderr) == ("hello\n", "")
        # A command that drives is one more worker while it waits.
        assert desk.told("run", "hello again", "--quiet") == "hello again\n"
        assert end(gateway)[0] == end(worker)[0] == 0
