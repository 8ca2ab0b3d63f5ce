"""A process that holds a folder and is no gateway: commands of the same user ask it through a socket in the folder."""

import asyncio
import re
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import fledge
from fledge.cli import verbs
from fledge.cli.where import Where
from fledge.commands.control_socket import control_socket
from fledge.errors import FledgeError, StoreLocked
from fledge.store.ways import CONTROL_SOCKET
from fledge.testing import ScriptedModel
from tests.api.scene import obedient
from tests.cli.command import ANY_RUNS
from tests.gateway.asking import Hatch, find

T = TypeVar("T")


def held(state: Path, body: Callable[[fledge.Fledge], Awaitable[T]]) -> T:
    """Hold the folder, with a hatch, as long as the body takes."""

    async def main() -> T:
        opened = fledge.open(
            state, model=ScriptedModel(obedient), config={}, workspace=state.parent, address=CONTROL_SOCKET
        )
        async with opened as fl, control_socket(fl):
            return await body(fl)

    return asyncio.run(main())


async def asked(state: Path, method: str, **params: object) -> Any:
    """Ask as another process does."""
    remote = await asyncio.to_thread(find, state)
    assert isinstance(remote, Hatch)
    return await asyncio.to_thread(remote.call, method, **params)


@pytest.mark.parametrize("name", ["state", "s" * 120], ids=["a path", "a path that is long for a socket"])
def test_whoever_holds_the_folder_can_be_asked_and_afterwards_nothing_is_left(tmp_path: Path, name: str) -> None:
    state = tmp_path / name

    async def body(fl: fledge.Fledge) -> None:
        assert stat.S_IMODE((state / CONTROL_SOCKET).stat().st_mode) == 0o600
        assert (await asked(state, "health"))["status"] == "ok"
        assert (await asked(state, "send", session="main", message="hello"))["text"] == "echo: hello"
        with pytest.raises(fledge.NotFound, match="no session"):
            await asked(state, "sessions.history", session="nobody")
        with pytest.raises(fledge.BadInput, match="limit"):
            await asked(state, "sessions.list", limit=0)

    held(state, body)
    assert not (state / CONTROL_SOCKET).exists()
    assert find(state) is None


def test_beside_a_program_that_has_none_what_only_looks_is_shown_and_nothing_is_changed(tmp_path: Path) -> None:
    async def main() -> None:
        async with fledge.open(tmp_path, model=ScriptedModel(obedient), config={}, control=False) as fl:
            await (await fl.spawn("Say hello", label="greeting")).result()
            looks: list[verbs.What] = ["tree", "ps"]
            for what in looks:
                assert (await asyncio.to_thread(verbs.runs, Where(tmp_path), what, ANY_RUNS)).code == 0
            assert (await asyncio.to_thread(verbs.undelivered, Where(tmp_path))).code == 0
            assert (await asyncio.to_thread(verbs.sessions, Where(tmp_path), 5)).code == 0
            shown = await asyncio.to_thread(verbs.runs, Where(tmp_path), "tree", ANY_RUNS)
            assert re.match("└─ greeting +done ", shown.lines[-1])
            with pytest.raises(StoreLocked, match="end that first, or name another folder"):
                await asyncio.to_thread(verbs.kill, Where(tmp_path), "greeting")
            assert (await (await fl.spawn("Say more")).result()).ok

    asyncio.run(main())


def test_a_socket_that_a_dead_process_left_is_taken_over_and_a_file_of_that_name_is_not(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> object:
        return await asked(tmp_path, "health") if (tmp_path / CONTROL_SOCKET).is_socket() else None

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / CONTROL_SOCKET))
    assert held(tmp_path, body) is not None
    (tmp_path / CONTROL_SOCKET).write_text("mine")
    assert held(tmp_path, body) is None
    assert (tmp_path / CONTROL_SOCKET).read_text() == "mine"


def test_nonsense_is_answered_with_what_is_wrong(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> list[Any]:
        most = fl.config.gateway.max_body_kb * 1024
        sent = (b"{}", b"no json", b"x" * (most + 1), b"x" * (3 * most))
        told = [await asyncio.to_thread(Hatch(tmp_path).exchange, raw, 30.0) for raw in sent]
        return [msgspec.json.decode(one)["error"]["message"] for one in told]

    is_no_request, is_no_json, *are_long = held(tmp_path, body)
    assert is_no_request.startswith("must be {")
    assert is_no_json == "must be JSON"
    assert [one.endswith(" KiB: gateway.maxBodyKb") for one in are_long] == [True, True]


def test_whoever_waits_when_the_process_ends_is_told(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> "asyncio.Task[Any]":
        run = await fl.spawn("Wait for me")
        remote = Hatch(tmp_path)
        waiting = asyncio.ensure_future(asyncio.to_thread(remote.call, "agent.wait", run=run.run_id, timeoutMs=600_000))
        assert await asked(tmp_path, "health")
        return waiting

    async def main() -> Any:
        opened = fledge.open(tmp_path, model=ScriptedModel(obedient), config={}, address=CONTROL_SOCKET)
        async with opened as fl, control_socket(fl):
            waiting = await body(fl)
        return (await asyncio.gather(waiting, return_exceptions=True))[0]

    ended = asyncio.run(main())
    assert isinstance(ended, FledgeError) or ended["status"] == "pending"
