"""Commands, gateways and workers of one store at the same time, each in a process or a thread of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

import fledge
from fledge.models.base import Call, Request, ToolMessage
from fledge.models.scripted import ScriptedModel, use
from fledge.store.base import Approval
from tests.cli import command
from tests.cli.holding import Holder, never
from tests.scale.test_store_option import Desk
from tests.scale.test_worker import end, started
from tests.statements import proves
from tests.store.postgres import Server


@pytest.fixture
def desk(server: Server, tmp_path: Path) -> Desk:
    return Desk(server, tmp_path)


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
        assert desk.told("kill", "digger", "--state", str(files)) == "killed 0, 1 stopping\n"


@proves("7.server.21")
def test_an_approval_reaches_a_worker_of_another_process(desk: Desk) -> None:
    files = desk.folder / "files"
    asked: list[Approval] = []
    asks = {"tools": {"write": {"approval": "ask"}}}
    (desk.folder / "config" / "fledge.json5").write_text('{tools: {write: {approval: "ask"}}}')

    def script(request: Request) -> Call | str:
        return "written" if isinstance(request.messages[-1], ToolMessage) else use("write", path="a.txt", content="a")

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        run = await fl.spawn("Write a file", label="writer")
        asked.extend(await fl.until(lambda tx: tx.approvals.open() or None) or [])
        ready()
        assert (await run).text == "written"

    with Holder(files, ScriptedModel(script), store=desk.url, config=asks).at_work(body):
        assert "may be run, this once" in desk.told("approve", asked[0].id, "--state", str(files))


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
