"""Two web workers on one folder, each a process: the one that holds it is killed under load, again and again."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

import fledge
from fledge.models.scripted import echo
from fledge.store.sqlite import peek
from fledge.testing import ScriptedModel
from tests.docs.clone import ROOT

REQUESTS = 60
AT_ONCE = 20
KILLS = 2
"""A step that three processes died in is not tried again, by design."""
PATIENCE_S = 60.0


@contextmanager
def workers(state: Path) -> Iterator[str]:
    """Uvicorn with two workers; it starts a worker anew that died."""
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "tests.client.web_app:app",
        "--workers",
        "2",
        "--port",
        "0",
        "--no-access-log",
    ]
    environment = {**os.environ, "APP_STATE": str(state), "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = next(found[0] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=PATIENCE_S)


async def got(client: aiohttp.ClientSession, url: str) -> Any:
    """What a request answers; asked again while the worker that took it dies, as a browser's user would."""
    while True:
        try:
            async with client.get(url) as response:
                if response.status == 200:
                    return await response.json()
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.02)


async def holder(address: str) -> int:
    """The process id of the worker that holds the folder."""
    while True:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client:
            found = await got(client, f"{address}/who")
        if found["holds"]:
            return int(found["pid"])


async def load(address: str) -> tuple[dict[str, Any], list[int]]:
    """Every key's answer, and whom we killed meanwhile."""
    room = asyncio.Semaphore(AT_ONCE)
    answers: dict[str, Any] = {}
    killed: list[int] = []
    done = asyncio.Condition()

    async def ask(client: aiohttp.ClientSession, key: str) -> None:
        async with room:
            answers[key] = await got(client, f"{address}/ask/{key}")
            async with done:
                done.notify_all()

    async def kill() -> None:
        for number in range(1, KILLS + 1):
            async with done:
                await done.wait_for(lambda n=number: len(answers) >= n * REQUESTS // (KILLS + 2))  # type: ignore[misc]
            pid = await holder(address)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        asyncio.timeout(PATIENCE_S),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(kill())
        for number in range(REQUESTS):
            group.create_task(ask(client, f"key-{number}"))
    return answers, killed


def test_nothing_is_lost_or_doubled_when_the_holder_is_killed_under_load(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with workers(state) as address:
        answers, killed = asyncio.run(load(address))
        assert len(set(killed)) == KILLS
        after = asyncio.run(load_one(address))
    assert after["text"].endswith("task last")
    assert [one for one in answers.values() if one["status"] != "ok"] == []
    assert {key: one["text"].rpartition(" ")[2] for key, one in answers.items()} == {
        f"key-{number}": f"key-{number}" for number in range(REQUESTS)
    }
    runs = peek(
        state,
        lambda tx: [(tx.runs.spec(key).label, tx.runs.load(key)) for key in tx.runs.children("agent:main:program")],
    )
    assert Counter(label for label, _ in runs) == Counter([*answers, "last"])
    assert {run.ended.outcome.status for _, run in runs if run.ended is not None} == {"ok"}
    assert len({one["run"] for one in answers.values()}) == REQUESTS
    ends = Counter((tmp_path / "notes").read_text().splitlines())
    assert set(ends.values()) == {1}, "no worker is told twice of an end"
    assert {line.split()[2] for line in ends} == {run.key for _, run in runs}


async def load_one(address: str) -> Any:
    async with aiohttp.ClientSession() as client:
        return await got(client, f"{address}/ask/last")


FORKS = """
import asyncio, os, sys, time
import fledge
from fledge.models.scripted import echo
from fledge.testing import ScriptedModel

async def main():
    state, workspace = sys.argv[1:]
    async with fledge.open(state, model=ScriptedModel(echo), config={}, workspace=workspace) as fl:
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # until the guest is connected
        child = os.fork()
        if child == 0:
            try:
                fl.engine
            except fledge.Refused as error:
                print(error, flush=True)
            time.sleep(60)
        print(child, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_forked_child_keeps_neither_the_folder_nor_its_connections(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path / "state"), str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    to_holder, from_holder = holder.stdin, holder.stdout
    assert to_holder is not None
    assert from_holder is not None
    children: list[int] = []

    async def main() -> None:
        assert await asyncio.to_thread(from_holder.readline) == "open\n"
        opened = fledge.open(tmp_path / "state", model=ScriptedModel(echo), config={}, workspace=tmp_path)
        async with opened as guest:
            assert not guest.is_holder
            to_holder.write("\n")
            to_holder.flush()
            told = [await asyncio.to_thread(from_holder.readline) for _ in range(2)]
            children.extend(int(line) for line in told if line.strip().isdigit())
            assert any("has this fledge open: call fledge.open in this one" in line for line in told)
            holder.kill()
            run = await guest.spawn("Say hi")
            async with asyncio.timeout(PATIENCE_S):
                assert (await run).text.endswith("Say hi")
            assert guest.is_holder

    with holder:
        try:
            asyncio.run(main())
        finally:
            holder.kill()
            for child in children:
                os.kill(child, signal.SIGKILL)
