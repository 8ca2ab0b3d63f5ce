"""A program whose folder's lock was taken away: another process may get in, and this one stops by itself."""

import asyncio
from pathlib import Path

import pytest

import fledge
from fledge.client.sharing import Shared
from fledge.errors import StoreLost
from fledge.models.base import Request
from fledge.models.scripted import ScriptedModel
from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore
from tests.statements import proves


@proves("0.crash.15")
@pytest.mark.parametrize("who", ["the program", "one of its agents"])
def test_a_program_whose_lock_was_removed_stops_with_the_reason_at_its_next_commit(tmp_path: Path, who: str) -> None:
    others: list[SqliteStore] = []
    go_on, asked = asyncio.Event(), asyncio.Event()

    async def script(request: Request) -> str:
        asked.set()
        await go_on.wait()
        return "too late"

    async def program() -> None:
        opened = fledge.open(tmp_path, model=ScriptedModel(script), config={}, workspace=tmp_path)
        async with asyncio.timeout(60), opened as fl:
            await fl.spawn("go")
            await asked.wait()
            (tmp_path / "lock").unlink()
            others.append(SqliteStore.open(tmp_path))
            if who == "the program":
                with pytest.raises(StoreLost):
                    await fl.spawn("more")
            else:
                go_on.set()
            await asyncio.Event().wait()

    def look(tx: Tx) -> list[tuple[str, int]]:
        return [(tx.runs.load(key).phase.name, len(tx.drivers.all())) for key in tx.runs.children("agent:main:program")]

    async def main() -> None:
        with pytest.raises(StoreLost, match="lock was removed or replaced"):
            await program()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        (other,) = others
        assert await other.read(look) == [("running", 1)]
        await other.close()

    asyncio.run(main())


@proves("0.crash.15")
def test_a_program_that_learns_while_it_leaves_that_its_lock_was_removed_ends_with_the_reason(tmp_path: Path) -> None:
    async def program() -> None:
        async with fledge.open(tmp_path, model=ScriptedModel(lambda request: "x"), config={}, workspace=tmp_path) as fl:
            assert isinstance(fl, Shared)

            async def leave() -> None:
                with pytest.raises(StoreLost):
                    await fl.spawn("more")
                await asyncio.Event().wait()

            fl._around.push_async_callback(leave)
            (tmp_path / "lock").unlink()

    async def main() -> None:
        with pytest.raises(StoreLost, match="lock was removed or replaced"):
            await asyncio.wait_for(program(), 30)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
