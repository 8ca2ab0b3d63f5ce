"""`fledge.open` with the address of a server, in several processes at once: each has an engine, or only looks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.errors import Refused, StoreLocked
from fledge.models.base import Request
from fledge.models.scripted import Answer
from fledge.store.postgres import PostgresStore
from fledge.testing import ScriptedModel
from tests.cluster.several import GUARD_S, play
from tests.statements import proves
from tests.store.postgres import Server


def opened(server: Server, folder: Path, model: Any = None, **options: Any) -> fledge.Fledge:
    url = server.url(f"s{server.schemas}")
    return fledge.open(folder, store=url, model=model or ScriptedModel(echo), workspace=folder.parent, **options)


async def echo(request: Request) -> Answer:
    return f"echo: {request.messages[-1]}"


@proves("7.engines.18", "Several processes open one store on a server at once; what one asks for, another does")
def test_what_one_process_asks_for_another_does(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        server.new_schema()
        async with (
            asyncio.timeout(GUARD_S),
            opened(server, tmp_path / "state") as worker,
            opened(server, tmp_path / "state", drives=False) as gateway,
        ):
            run = await gateway.spawn("Say hello")
            assert "Say hello" in (await run).text
            assert (await gateway.engine.store.read(lambda tx: tx.drivers.all())) == []
            assert "Good day" in (await gateway.session("main").send("Good day")).text
            assert worker.engine.owner != gateway.engine.owner

    play(test())


@proves("7.engines.9")
def test_a_process_with_another_budget_is_refused(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        server.new_schema()
        async with asyncio.timeout(GUARD_S), opened(server, tmp_path / "one"):
            config = {"agents": {"defaults": {"subagents": {"budget": {"usd": 5}}}}}
            with pytest.raises(Refused, match=r"agents.defaults.subagents.budget = \{\}, not \{\"usd\":5.0\}"):
                async with opened(server, tmp_path / "one", config=config):
                    pytest.fail("it was let in")

    play(test())


@proves("7.engines.19", "A store on a server is copied or held alone only while no engine works with it")
def test_nobody_holds_a_store_alone_while_engines_work_with_it(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        server.new_schema()
        url = server.url(f"s{server.schemas}")
        async with asyncio.timeout(GUARD_S), opened(server, tmp_path / "one"):
            with pytest.raises(StoreLocked):
                await asyncio.to_thread(PostgresStore.open, url)
        alone = PostgresStore.open(url)
        with pytest.raises(StoreLocked):
            async with opened(server, tmp_path / "one"):
                pytest.fail("it was let in")
        await alone.close()

    play(test())
